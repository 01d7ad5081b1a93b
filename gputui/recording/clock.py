"""Time that counts: none passes for a run while its supervisor is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

STOPPED_S = 20.0
"""A supervisor looks at its clock at least every 15 s, also while it ends a stubborn worker."""


class WakingClock:
    """Seconds, without the gaps in which this process was stopped: by SIGSTOP, or in a frozen cgroup.

    A gap is seen as two looks further apart than STOPPED_S; shorter ones count as time.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._looked_s = monotonic_s()
        self.stopped_s = 0.0
        """All gaps until the last look."""

    def now_s(self) -> float:
        """The time, which goes on from the last look if that was long ago."""
        now_s = self._monotonic_s()
        gap_s = now_s - self._looked_s
        self._looked_s = now_s
        if gap_s >= STOPPED_S:
            self.stopped_s += gap_s
        return now_s - self.stopped_s
