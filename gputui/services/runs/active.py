"""Counts the runs in progress on this machine, polling in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

EVERY_S = 3.0
POLLS = 10
"""Polls after a change: a supervisor takes a while until it locks the directory of its run."""


class RunsWatch:
    """Reports when the number of runs in progress changes.

    Calls `changed` in its thread. The first poll follows soon after the start, without blocking it.
    """

    def __init__(self, changed: Callable[[int], None], every_s: float = EVERY_S) -> None:
        self._changed = changed
        self._every_s = every_s
        self._ends = threading.Event()

    def start(self) -> None:
        """Start; returns at once."""
        threading.Thread(target=self._run, name="gputui-runs", daemon=True).start()

    def close(self) -> None:
        """Stop; returns at once."""
        self._ends.set()

    def _run(self) -> None:
        from gputui.services.support.paths import run_directories  # after the first frame is drawn

        last, seen_ns, polls = 0, 0, 0
        while not self._ends.is_set():
            changed_ns = _changed_ns(run_directories())
            # A new run creates a directory and locks it soon after; until then one timestamp is enough.
            if changed_ns != seen_ns:
                polls = POLLS if time.time_ns() - changed_ns < POLLS * EVERY_S * 1e9 else 1
            else:
                polls -= 1
            if last or polls > 0:
                from gputui.services.runs.held_runs import held_runs  # only if there was ever a run

                seen_ns = changed_ns
                count = sum(len(together) for _, together in held_runs())
                if count != last:
                    self._changed(count)
                    last = count
            self._ends.wait(self._every_s)


def _changed_ns(directory: Path) -> int:
    """When an entry was last added to a directory or removed; 0 if it does not exist."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0
