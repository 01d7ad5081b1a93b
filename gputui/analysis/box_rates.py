"""Boxes of one model: how their rates spread, where one more box stands, and when it is below normal."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.fleet import FALSE_ALARMS, FEWEST, LEAST_CHANGE
from gputui.analysis.quantiles import t_cdf, t_quantile

MOST_QUANTILES = 11
_LEAST_SD = 0.001
"""Of the log rate: boxes that agree better than a launch repeats do so by chance, or were rounded."""
_MIDDLE_FROM = 20
"""Boxes from which a range leaves out the outer 5 % on each side."""


@dataclass(frozen=True, slots=True)
class BoxRates:
    """How fast one case is on boxes of one model, in units of work per second."""

    boxes: int
    """At least 1; each counts once, however often it was measured."""
    typical_per_s: float
    """The geometric mean."""
    low_per_s: float
    high_per_s: float
    """The 95 % interval of that; of one box, of its measurement."""
    log_sd: float
    """Of the log rates of the boxes; 0 for one box."""
    quantiles_per_s: tuple[float, ...]
    """Evenly spaced, from the slowest box to the fastest; up to 11 boxes, their rates."""

    def quantile(self, share: float) -> float:
        """The rate below which this share of the boxes lies, between two of them interpolated."""
        return _between(self.quantiles_per_s, share)

    @property
    def usual_range(self) -> tuple[float, float]:
        """The middle 90 % of the boxes; all of them below 20."""
        cut = 0.05 if self.boxes >= _MIDDLE_FROM else 0.0
        return self.quantile(cut), self.quantile(1 - cut)

    def share_slower(self, units_per_s: float) -> float:
        """Which share of the boxes is slower; boxes as fast count half."""
        known = self.quantiles_per_s
        below, upto = bisect.bisect_left(known, units_per_s), bisect.bisect_right(known, units_per_s)
        if self.boxes <= len(known) or below != upto or not 0 < below < len(known):
            return (below + upto) / 2 / len(known)
        between = (units_per_s - known[below - 1]) / (known[below] - known[below - 1])
        return (below - 1 + between) / (len(known) - 1)

    def p_healthy(self, units_per_s: float) -> float:
        """The chance that one more healthy box is this slow or slower.

        By Student's t with `boxes - 1` degrees of freedom, on logs: the mean of the boxes is uncertain too,
        so one more box spreads by sqrt(1 + 1/boxes) times theirs. 1 below 2 boxes.
        """
        if self.boxes < 2:
            return 1.0
        sd = max(self.log_sd, _LEAST_SD) * math.sqrt(1 + 1 / self.boxes)
        return t_cdf(math.log(units_per_s / self.typical_per_s) / sd, self.boxes - 1)

    def lowest_normal(self, level: float) -> float:
        """The rate at which `p_healthy` is `level`, 0 to 0.5. Needs 2 boxes."""
        sd = max(self.log_sd, _LEAST_SD) * math.sqrt(1 + 1 / self.boxes)
        return self.typical_per_s * math.exp(t_quantile(level, self.boxes - 1) * sd)


def rates_of_one(units_per_s: float, low: float, high: float) -> BoxRates:
    """Of one box, whose measurement has this 95 % interval."""
    return BoxRates(1, units_per_s, low, high, 0.0, (units_per_s,))


def rates_of_both(a: BoxRates, b: BoxRates) -> BoxRates:
    """Of the boxes of two groups that have none in common.

    Count, mean and sd are exact (Chan, Golub and LeVeque 1983, American Statistician 37); above 11 boxes the
    quantiles of a group stand for its rates.
    """
    boxes = a.boxes + b.boxes
    apart = math.log(b.typical_per_s / a.typical_per_s)
    squares = a.log_sd**2 * (a.boxes - 1) + b.log_sd**2 * (b.boxes - 1) + apart**2 * a.boxes * b.boxes / boxes
    typical = a.typical_per_s * math.exp(apart * b.boxes / boxes)
    sd = math.sqrt(squares / (boxes - 1))
    half = t_quantile(0.975, boxes - 1) * sd / math.sqrt(boxes)
    rates = sorted(of.quantile(place / max(of.boxes - 1, 1)) for of in (a, b) for place in range(of.boxes))
    kept = min(boxes, MOST_QUANTILES)
    quantiles = tuple(_between(rates, place / (kept - 1)) for place in range(kept))
    return BoxRates(boxes, typical, typical * math.exp(-half), typical * math.exp(half), sd, quantiles)


def rates_of_boxes(rates: Sequence[float]) -> BoxRates:
    """Of boxes, at least one, of whose measurements no interval is known."""
    return functools.reduce(rates_of_both, (rates_of_one(rate, rate, rate) for rate in rates))


def below_normal_at(level: float, units_per_s: float, high_per_s: float, known: BoxRates) -> bool:
    """Whether one case is below `lowest_normal_rate`, with its whole 95 % interval below what is typical.

    Otherwise it was measured too roughly to tell.
    """
    return units_per_s < lowest_normal_rate(known, level) and high_per_s < known.typical_per_s


def lowest_normal_rate(known: BoxRates, level: float) -> float:
    """The lowest rate of a healthy box in one case of a run that is judged at this level.

    At most what is LEAST_CHANGE below typical: less is nothing to mind. 0 below FEWEST boxes.
    """
    if known.boxes < FEWEST:
        return 0.0
    return min(known.lowest_normal(level), known.typical_per_s * math.exp(-LEAST_CHANGE))


def level_of(cases: Sequence[tuple[float, BoxRates]]) -> float:
    """The level for each case of one run, so that the chance of any false alarm is FALSE_ALARMS.

    By Holm's procedure (1979, Scandinavian Journal of Statistics 6), however the cases depend on each other;
    cases of fewer than FEWEST boxes do not count.
    """
    chances = sorted(known.p_healthy(rate) for rate, known in cases if known.boxes >= FEWEST)
    for number, chance in enumerate(chances):
        level = FALSE_ALARMS / (len(chances) - number)
        if chance > level:
            return level
    return FALSE_ALARMS


def _between(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of some lies, in order and between two of them interpolated."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
