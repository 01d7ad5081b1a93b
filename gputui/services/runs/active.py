"""How many runs are in progress on this machine, looked at again and again in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

EVERY_S = 3.0
LOOKS = 10
"""So often after a change: a supervisor takes a while until it holds the directory of its run."""


class RunsWatch:
    """Tells when the number of runs in progress changes.

    `changed` is called in the thread. The first look comes soon after the start, and nobody waits for it.
    """

    def __init__(self, changed: Callable[[int], None], every_s: float = EVERY_S) -> None:
        self._changed = changed
        self._every_s = every_s
        self._ends = threading.Event()

    def start(self) -> None:
        """Begin; returns at once."""
        threading.Thread(target=self._run, name="gputui-runs", daemon=True).start()

    def close(self) -> None:
        """End; returns at once."""
        self._ends.set()

    def _run(self) -> None:
        from gputui.services.support.paths import run_directories  # not before the first picture stands

        last, seen_ns, looks = 0, 0, 0
        while not self._ends.is_set():
            changed_ns = _changed_ns(run_directories())
            # A run that begins makes a directory, and holds it soon after: before that one date is enough.
            looks = LOOKS if changed_ns != seen_ns else looks - 1
            if last or looks > 0:
                from gputui.services.runs.held_runs import held_runs  # only where there was ever a run

                seen_ns = changed_ns
                count = sum(len(together) for _, together in held_runs())
                if count != last:
                    self._changed(count)
                    last = count
            self._ends.wait(self._every_s)


def _changed_ns(directory: Path) -> int:
    """When something came into a directory or left it; 0 without one."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0
