"""How much longer a step takes because its threads wait for CPUs that others hold.

A step of one thread that waits for a share w of the time takes 1/(1 - w) times as long. Threads that meet
often wait for one another as well, and spin meanwhile: that takes CPU time and is no waiting. Their step
takes that to a power, the larger the more often they meet. Where the scheduler lets them take turns, they
meet once in a slice of its time, and the power is anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.statistics import mean

CONTENTION = "CPU contention from other processes"
LEAST_OWN_SHARE = 1 / 9  # of a block with more threads than were measured: no less is taken to be own
_MOST_WAITED = 0.95  # more was never seen, and a share of 1 would leave a step no time at all
_DECIDABLE, _DECIDABLE_OF_MEETING = 2 / 3, 0.4
"""Shares waited up to which anything can be said; threads that meet often took turns from 0.5 on."""
_SD_OF_TURNS = 2.4
_LEAST_OF_TWO, _MOST_OF_TWO = 1.2, 2.2  # threads: a little is always done by one alone


@dataclass(frozen=True, slots=True)
class Waiting:
    """The power, and how badly it is known."""

    power: float
    sd: float
    sd_apart: float
    """Of how far the powers of two runs of one work lie apart, or of two precisions."""
    least_own_share: float = 0.0
    decidable_share: float = _DECIDABLE
    """Above this share waited, what is left without the waiting is not known."""

    def at(self, waited: float) -> Waiting:
        """Itself where so much waiting can be taken out; else what leaves times as the clock has them.

        Two standard deviations around those still hold what the work may take alone.
        """
        if waited <= self.decidable_share and self.own_share(waited) > self.least_own_share:
            return self
        sd = _SD_OF_TURNS + self.power / 2
        return Waiting(0.0, sd, math.hypot(sd, sd))

    @property
    def is_by_clock(self) -> bool:
        """Whether times are left as the clock has them, though they have waiting in them."""
        return self.power == 0.0 < self.sd

    @property
    def is_unknown(self) -> bool:
        """Likewise, since nobody knows what the waiting did."""
        return self.is_by_clock and self.sd >= _SD_OF_TURNS

    def own_share(self, waited: float) -> float:
        """Of its time, what a block would have taken without others; `waited` is a share from 0 to 1."""
        return max(math.exp(-self.power * _log_factor(waited)), self.least_own_share)

    def log_sd(self, waited: Sequence[float]) -> float:
        """The standard deviation of the log time of blocks that were corrected for these shares."""
        return self.sd * mean([_log_factor(share) for share in waited])

    def log_sd_of_ratio(self, waited_a: Sequence[float], waited_b: Sequence[float]) -> float:
        """Likewise of the log ratio of two runs of one case, or of two precisions."""
        a, b = (mean([_log_factor(share) for share in waited]) for waited in (waited_a, waited_b))
        return math.hypot(self.sd * (a - b), self.sd_apart * max(a, b))


UNDISTURBED = Waiting(0.0, 0.0, 0.0)
"""The blocks of a case that hardly waited are left as they are."""

OF_WHOLE_PROGRAM = Waiting(0.0, 0.5, 0.5)
"""Of a program from start to end it is not known how much of the waiting a GPU, a disk or another thread
worked through: two standard deviations hold all that one thread could have lost."""
_OF_ONE_THREAD = Waiting(1.0, 0.05, 0.04)
_OF_TWO = {
    "ceiling": Waiting(1.1, 0.06, 0.04),
    "training": Waiting(1.95, 0.2, 0.15, 0.0, _DECIDABLE_OF_MEETING),
    "inference": Waiting(1.9, 0.65, 0.8, 0.0, _DECIDABLE_OF_MEETING),
    "host": Waiting(1.0, 0.3, 0.3),
}
"""By class of work. Powers of launches on a 2-core VM that waited for 5 to 67 % of the time, beside quiet
runs of the same day: `gemm` and `membw` 0.9 to 1.25, with one thread 0.9 to 1.1, `gpt_train` and `conv_train`
1.6 to 2.6, `decode` 0.6 to 3.5, the shorter its step the more; `spin`, on another day, 0.9 to 1.1. The slopes
of blocks within these launches lay further off. Where loops in another session had half of each CPU, some
launches of `conv_train`, `gpt_train` and `decode` took turns: powers 3.7 to 6.4, 13 to 89 times as long."""


def effect_of_waiting(workload_class: str, threads: float) -> Waiting:
    """What waiting does to a step; `threads`: how many of it want a CPU at once, on average.

    Two whose every operation ends with a meeting go on only while both have a CPU, (1 - w)^2 of the time.
    More than two were not measured: the power lies between 1 and their number.
    """
    if threads < _LEAST_OF_TWO:
        return _OF_ONE_THREAD
    if threads < _MOST_OF_TWO:
        return _OF_TWO[workload_class]
    sd = (threads - 1) / 4
    return Waiting((threads + 1) / 2, sd, sd, LEAST_OWN_SHARE, _DECIDABLE_OF_MEETING)


def _log_factor(waited: float) -> float:
    return -math.log(1 - min(waited, _MOST_WAITED))
