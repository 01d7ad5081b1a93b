"""Counts the runs in progress on this machine, polling in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

EVERY_S = 3.0
POLLS = 10
"""Polls after a change: a supervisor takes a while until it locks the directory of its run."""


def watch_runs(changed: Callable[[int], None]) -> Callable[[], None]:
    """Report when the number of runs in progress changes; returns at once, with what ends it.

    Calls `changed` in a thread of its own. The first poll follows soon, without blocking it.
    """
    ends = threading.Event()
    threading.Thread(target=_poll, args=(changed, ends), name="gputui-runs", daemon=True).start()
    return ends.set


def _poll(changed: Callable[[int], None], ends: threading.Event) -> None:
    from gputui.services.support.paths import run_directories  # after the first frame is drawn

    last, seen_ns, polls = 0, 0, 0
    while not ends.is_set():
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
                changed(count)
                last = count
        ends.wait(EVERY_S)


def _changed_ns(directory: Path) -> int:
    """When an entry was last added to a directory or removed; 0 if it does not exist."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0
