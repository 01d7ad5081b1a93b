"""How much longer a step takes because its threads wait for CPUs that others hold.

A step of one thread that waits for a share w of the time takes 1/(1 - w) times as long. Threads that meet
often wait for one another as well, and spin meanwhile: that takes CPU time and is no waiting. Their step
takes that to a power, the larger the more often they meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.statistics import mean

_MOST_WAITED = 0.999  # a share of 1 would leave a step no time at all


@dataclass(frozen=True, slots=True)
class Waiting:
    """The power, and its standard deviation."""

    power: float
    sd: float

    def own_share(self, waited: float) -> float:
        """Of its time, what a block would have taken without others; `waited` is a share from 0 to 1."""
        return math.exp(-self.power * _log_factor(waited))

    def log_sd(self, waited: Sequence[float]) -> float:
        """The standard deviation of the log time of blocks that were corrected for these shares."""
        return self.sd * mean([_log_factor(share) for share in waited])


UNDISTURBED = Waiting(0.0, 0.0)
"""The blocks of a case that hardly waited are left as they are."""

_OF_ONE_THREAD = Waiting(1.0, 0.05)
_BY_CLASS = {
    "ceiling": Waiting(1.0, 0.1),
    "training": Waiting(2.1, 0.4),
    "inference": Waiting(1.8, 0.5),
    "host": Waiting(1.0, 0.3),
}


def effect_of_waiting(workload_class: str, *, threads: int) -> Waiting:
    """What waiting does to a step of this class of work with so many threads."""
    return _OF_ONE_THREAD if threads == 1 else _BY_CLASS[workload_class]


def _log_factor(waited: float) -> float:
    return -math.log(1 - min(waited, _MOST_WAITED))
