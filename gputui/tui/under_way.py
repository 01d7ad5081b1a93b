"""Looks from time to time whether runs are in progress, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

LOOK_EVERY_S = 2.0


class UnderWay:
    """Counts the supervisors at work on this host; tells whenever their number changes."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        """`tell` is called in the thread that looks."""
        self._tell = tell
        self._ends = threading.Event()

    def start(self) -> None:
        """Begin, and return at once."""
        threading.Thread(target=self._look, name="runs under way", daemon=True).start()

    def close(self) -> None:
        """Look no more. Waits for nothing."""
        self._ends.set()

    def _look(self) -> None:
        told = 0
        while not self._ends.is_set():
            count = _count()
            if count != told and not self._ends.is_set():
                told = count
                self._tell(count)
            self._ends.wait(LOOK_EVERY_S)


def _count() -> int:
    from gputui.services.places import run_directories

    if not run_directories().is_dir():
        return 0  # nothing was ever measured here: what else would be loaded is not needed
    from gputui.services.running import runs_in_progress

    return len(runs_in_progress())


def under_way_words(count: int) -> str:
    """`1 run in progress: 2`, with the key that shows it; empty for none."""
    runs = "1 run" if count == 1 else f"{count} runs"
    return f"{runs} in progress: 2" if count else ""
