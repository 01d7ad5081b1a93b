"""How much longer a step takes because its threads wait for CPUs that others hold.

A step of one thread that waits for a share w of the time takes 1/(1 - w) times as long. Where several threads
meet often, each waits for the others' waiting as well: then it takes that to a power. The blocks of a launch
tell the power, as they wait for different shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.priors import (
    WAITING_POWER_SD,
    WAITING_POWER_SD_OF_ONE_THREAD,
    WAITING_SD,
    WAITING_SD_OF_ONE_THREAD,
)
from gputui.analysis.statistics import mean

_MOST_WAITED = 0.999  # a share of 1 would leave a step no time at all
_LEAST_VARIANCE = 1e-8  # of log times, of blocks that lie on a line by chance


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


def effect_of_waiting(launches: Sequence[Sequence[tuple[float, float]]], *, threads: int) -> Waiting:
    """What the blocks of some launches of one case tell: for each its time and the share that it waited.

    The slope of the log time within launches, by least squares, shrunk towards 1. `threads`: of a step; one
    thread waits for no other.
    """
    one = threads == 1
    prior = (WAITING_POWER_SD_OF_ONE_THREAD if one else WAITING_POWER_SD) ** 2
    rest = (WAITING_SD_OF_ONE_THREAD if one else WAITING_SD) ** 2
    points, df = [], -1
    for launch in launches:
        if len(launch) > 1:
            logs = [(_log_factor(waited), math.log(time)) for time, waited in launch]
            middle = mean([x for x, _ in logs]), mean([y for _, y in logs])
            points += [(x - middle[0], y - middle[1]) for x, y in logs]
            df += len(launch) - 1
    squares = math.fsum(x * x for x, _ in points)
    if df < 1 or squares == 0:
        return Waiting(1.0, math.sqrt(prior + rest))
    slope = math.fsum(x * y for x, y in points) / squares
    left = math.fsum((y - slope * x) ** 2 for x, y in points) / df
    weight = squares / max(left, _LEAST_VARIANCE)
    power = (1 / prior + slope * weight) / (1 / prior + weight)
    return Waiting(max(power, 1.0), math.sqrt(1 / (1 / prior + weight) + rest))


def _log_factor(waited: float) -> float:
    return -math.log(1 - min(waited, _MOST_WAITED))
