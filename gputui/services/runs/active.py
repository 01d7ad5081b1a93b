"""Watches which runs are in progress on this machine, polling in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputui.services.runs.held_runs import LiveRun

EVERY_S = 2.0
POLLS = 15
"""Polls after a change: a supervisor takes a while until it locks the directory of its run."""
Groups = Sequence[tuple["LiveRun", ...]]
"""The runs of each supervisor, the newest first."""


def watch_runs(changed: Callable[[Groups], None], ends: threading.Event) -> None:
    """Report the runs in progress at first, and whenever they change, until `ends` is set; returns at once.

    Calls `changed` in a thread of its own.
    """
    threading.Thread(target=_poll, args=(changed, ends), name="gputui-runs", daemon=True).start()


def _poll(changed: Callable[[Groups], None], ends: threading.Event) -> None:
    from gputui.services.support.paths import run_directories  # after the first frame is drawn

    last: Groups | None = None
    seen_ns, polls = 0, 0
    while not ends.is_set():
        changed_ns = _changed_ns(run_directories())
        # A new run creates a directory and locks it soon after; until then one timestamp is enough.
        if changed_ns != seen_ns:
            polls = POLLS if time.time_ns() - changed_ns < POLLS * EVERY_S * 1e9 else 1
        else:
            polls -= 1
        found: Groups = ()
        if last or polls > 0:
            from gputui.services.runs.held_runs import runs_in_progress  # only if there was ever a run

            seen_ns, found = changed_ns, runs_in_progress()
        if found != last and not ends.is_set():
            changed(found)
            last = found
        ends.wait(EVERY_S)


def _changed_ns(directory: Path) -> int:
    """When an entry was last added to a directory or removed; 0 if it does not exist."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0
