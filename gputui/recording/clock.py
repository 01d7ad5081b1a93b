"""A clock that stands still while the supervisor is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

STOPPED_S = 20.0
"""A supervisor reads its clock at least every 15 s, even while it ends a stubborn worker."""


class WakingClock:
    """Seconds, without the time in which this process was stopped: by SIGSTOP, or in a frozen cgroup.

    A gap is detected if two readings are more than STOPPED_S apart; shorter ones count as time.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._looked_s = monotonic_s()
        self.stopped_s = 0.0
        """Sum of the gaps until the last reading."""

    def now_s(self) -> float:
        """The time; a gap since the last reading does not count."""
        now_s = self._monotonic_s()
        gap_s = now_s - self._looked_s
        self._looked_s = now_s
        if gap_s >= STOPPED_S:
            self.stopped_s += gap_s
        return now_s - self.stopped_s
