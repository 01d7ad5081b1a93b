"""Many boxes of one kind: how they spread, and which of them stand out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.quantiles import t_quantile
from gputui.model.absent import Missing

FEWEST = 5
"""Boxes of one kind below which none can stand out."""
LEAST_CHANGE = math.log(1.03)
"""Of a rate: a box that differs by less may stand out statistically, and nobody would mind."""
FALSE_ALARMS = 0.05
"""Chance that any box of a healthy fleet stands out."""
_MOST_OUTLIERS = 0.2
"""Of the boxes: where more differ, the kind is not one kind."""


@dataclass(frozen=True, slots=True)
class FleetSpread:
    """Rates of boxes of one kind."""

    boxes: int
    median: float
    low: float
    high: float
    """The middle 90 % of the boxes; all of them below 20."""


def spread_of(rates: Sequence[float]) -> FleetSpread:
    """Median and the middle 90 % of some rates, at least one."""
    ordered = sorted(rates)
    cut = len(ordered) // 20
    kept = ordered[cut : len(ordered) - cut]
    return FleetSpread(len(ordered), statistics.median(ordered), kept[0], kept[-1])


def standing_out(logs: Sequence[float], level: float = FALSE_ALARMS) -> frozenset[int]:
    """Places of the values that are not of one normal distribution with the others.

    Logarithms of rates, one per box. The generalized extreme Studentized deviate test (Rosner 1983,
    Technometrics 25), which finds several that would hide one another; with probability `level` it finds any
    among values that are. Of these only those LEAST_CHANGE from the median. Empty below FEWEST values.
    """
    count = len(logs)
    if count < FEWEST:
        return frozenset()
    left = sorted(range(count), key=lambda place: logs[place])
    removed: list[int] = []
    found = 0
    for number in range(1, max(1, int(_MOST_OUTLIERS * count)) + 1):
        size = count - number + 1
        mean = math.fsum(logs[place] for place in left) / size
        sd = math.sqrt(math.fsum((logs[place] - mean) ** 2 for place in left) / (size - 1))
        if sd == 0:
            break
        worst = left.pop(0 if mean - logs[left[0]] >= logs[left[-1]] - mean else -1)
        deviate = abs(logs[worst] - mean) / sd
        removed.append(worst)
        t = t_quantile(1 - level / (2 * size), size - 2)
        if deviate > t * (size - 1) / math.sqrt((size - 2 + t * t) * size):
            found = number
    middle = statistics.median(logs)
    return frozenset(place for place in removed[:found] if abs(logs[place] - middle) >= LEAST_CHANGE)


def apart_from(log: float, others: Sequence[float]) -> tuple[float, float] | Missing:
    """The 95 % interval of how far a box lies from others that are alike, as logarithms.

    Its own error is taken for that of a healthy box, since it was measured as they were: the others differ
    by what boxes differ by and by errors of measurement.
    """
    if len(others) < 2:
        return Missing("fewer than two others")
    half = t_quantile(0.975, len(others) - 1) * statistics.stdev(others) * math.sqrt(1 + 1 / len(others))
    return log - half, log + half
