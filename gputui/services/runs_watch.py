"""How many runs are in progress on this machine, looked at again and again in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

EVERY_S = 3.0


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
        from gputui.services.running import runs_in_progress  # not before the first picture stands

        last = 0
        while not self._ends.is_set():
            count = sum(map(len, runs_in_progress()))
            if count != last:
                self._changed(count)
                last = count
            self._ends.wait(self._every_s)
