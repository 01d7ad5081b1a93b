"""Boxes of one kind: how their rates spread, which of them stand out, and when one is below normal."""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from gputui.analysis.statistics import t_cdf, t_quantile
from gputui.model.absent import Missing
from gputui.model.result import Spread

FEWEST = 5
"""Boxes of one kind below which none can stand out."""
LEAST_CHANGE = math.log(1.03)
"""Of a rate: a box that differs by less may stand out statistically, and nobody would mind."""
FALSE_ALARMS = 0.05
"""Chance that any box of a healthy fleet stands out."""
FAR_BELOW = -math.log(0.9)
"""Of a rate: a GPU so far below its neighbors is slower, though they are too few to show how they vary."""
_FALSE_OF_ONE = 0.01
"""Chance that a healthy GPU is called slower than the others of its box."""
_MOST_OUTLIERS = 0.2
"""Of the boxes: where more differ, they are a group and no outliers."""
_HEAVY_DF, _SURELY_NORMAL = 4, 2.5
"""Rates of boxes may have heavier tails than a normal distribution: at most as Student's t with so many
degrees of freedom, unless the others are so much likelier (in log likelihood) under a normal one."""
_MANY = 20
"""Boxes from which a quantile is divided by the standard deviation of that, which few boxes tell badly."""
_APART = (
    (5, 12.4, 36.0),
    (6, 8.6, 18.0),
    (8, 7.3, 11.1),
    (10, 6.2, 8.3),
    (15, 4.8, 5.8),
    (20, 4.3, 5.2),
    (30, 3.9, 4.4),
    (64, 3.4, 3.7),
    (300, 2.9, 3.1),
)
"""Boxes, and how far apart two groups must be, in standard deviations within them, so that 1 % and 0.1 % of
healthy fleets fall into two: of normal ones and of Student's t with 4 degrees of freedom, 4,000 simulated of
each."""


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


def slower_than_others(logs: Sequence[float], usual: Spread) -> frozenset[int]:
    """Places of the values below the others, by more than those vary: for GPUs of one box.

    Each against the mean of the rest by Student's t, one healthy GPU in a hundred. `usual` is the variance
    between such GPUs, and how many degrees of freedom that is worth beside the variance of these few (a
    moderated variance, as in `analysis.spread`). Below FEWEST values, up to half of them that are FAR_BELOW
    each of the rest.
    """
    count, found = len(logs), set[int]()
    order = sorted(range(count), key=lambda place: logs[place])
    if count < FEWEST:
        gaps = [logs[order[size]] - logs[order[size - 1]] for size in range(1, count // 2 + 1)]
        return frozenset(
            order[: max((size for size, gap in enumerate(gaps, 1) if gap > FAR_BELOW), default=0)]
        )
    for place, log in enumerate(logs):
        rest = [*logs[:place], *logs[place + 1 :]]
        df = usual.df + count - 2
        variance = (usual.df * usual.variance + (count - 2) * statistics.variance(rest)) / df
        least = t_quantile(1 - _FALSE_OF_ONE, df) * math.sqrt(variance * count / (count - 1))
        if statistics.fmean(rest) - log > max(least, LEAST_CHANGE):
            found.add(place)
    return frozenset(found)


def standing_out(logs: Sequence[float], level: float = FALSE_ALARMS) -> frozenset[int]:
    """Places of the values that are not of one normal distribution with the others.

    Logarithms of rates, one per box. The generalized extreme Studentized deviate test (Rosner 1983,
    Technometrics 25), which finds several that would hide one another; with probability `level` it finds any
    among values that are. Where the others may have heavy tails, by their quantiles. Of these only those
    LEAST_CHANGE from the median. Empty below FEWEST values.
    """
    if len(logs) < FEWEST:
        return frozenset()
    found = _deviating(logs, level, is_heavy=False)
    if found and not _is_surely_normal([log for place, log in enumerate(logs) if place not in found]):
        found = _deviating(logs, level, is_heavy=True)
    middle = statistics.median(logs)
    return frozenset(place for place in found if abs(logs[place] - middle) >= LEAST_CHANGE)


def _deviating(logs: Sequence[float], level: float, *, is_heavy: bool) -> list[int]:
    """Places of the values too far from the mean of the rest, in its standard deviations."""
    left = sorted(range(len(logs)), key=lambda place: logs[place])
    removed: list[int] = []
    found = 0
    for number in range(1, max(1, int(_MOST_OUTLIERS * len(logs))) + 1):
        size = len(left)
        mean = math.fsum(logs[place] for place in left) / size
        worst = left.pop(0 if mean - logs[left[0]] >= logs[left[-1]] - mean else -1)
        removed.append(worst)
        rest = [logs[place] for place in left]
        middle = math.fsum(rest) / len(rest)
        sd = math.sqrt(math.fsum((log - middle) ** 2 for log in rest) / (len(rest) - 1))
        if sd == 0:
            break
        deviate = abs(logs[worst] - middle) / sd / math.sqrt(1 + 1 / (size - 1))
        chance = 1 - level / (2 * size)
        least = t_quantile(chance, size - 2)
        if is_heavy:
            least = max(least, t_quantile(chance, _HEAVY_DF) / (1.4 if size >= _MANY else 1.2))
        if deviate > least:
            found = number
    return removed[:found]


def _is_surely_normal(logs: Sequence[float]) -> bool:
    """Whether a normal distribution fits values much better than Student's t, each by its best scale."""
    middle, sd = statistics.median(logs), statistics.pstdev(logs)
    if sd == 0:
        return True
    normal = -math.log(sd) - math.log(2 * math.pi) / 2 - 0.5

    def log_density(log: float, scale: float) -> float:
        """Of Student's t with _HEAVY_DF degrees of freedom."""
        return math.log(3 / 8) - 2.5 * math.log1p(((log - middle) / scale) ** 2 / 4) - math.log(scale)

    scales = (sd * part / 10 for part in range(5, 11))
    t = max(statistics.fmean(log_density(log, scale) for log in logs) for scale in scales)
    return len(logs) * (normal - t) > _SURELY_NORMAL


def slower_group(logs: Sequence[float], *, is_one_of_many: bool = False) -> frozenset[int]:
    """Places of the slower of two groups, where values clearly fall into two; else empty.

    The two that leave the least scatter within them, each at least a fifth of the values and two. They must
    lie as far apart as one healthy fleet in a hundred does (in a thousand, if many are asked), and
    LEAST_CHANGE.
    """
    count = len(logs)
    least = max(2, math.ceil(_MOST_OUTLIERS * count))
    if count < FEWEST:
        return frozenset()
    order = sorted(range(count), key=lambda place: logs[place])
    sums = [0.0, *accumulate(logs[place] for place in order)]

    def apart(size: int) -> float:
        """How far the means lie apart with so many in the slower group."""
        return (sums[-1] - sums[size]) / (count - size) - sums[size] / size

    def between(size: int) -> float:
        return size * (count - size) / count * apart(size) ** 2

    size = max(range(least, count - least + 1), key=between)
    within = max(statistics.pvariance(logs) * count - between(size), 0.0)
    known = max(row for row in _APART if row[0] <= count)  # between two of the table, the stricter
    least_sds = known[2 if is_one_of_many else 1]
    needed = max(LEAST_CHANGE, least_sds * math.sqrt(within / (count - 2)))
    return frozenset(order[:size]) if apart(size) >= needed else frozenset()


def apart_from(log: float, others: Sequence[float]) -> tuple[float, float] | Missing:
    """The 95 % interval of how far a box lies from others that are alike, as logarithms.

    Its own error is taken for that of a healthy box, since it was measured as they were: the others differ
    by what boxes differ by and by errors of measurement.
    """
    if len(others) < 2:
        return Missing("fewer than two others")
    half = t_quantile(0.975, len(others) - 1) * statistics.stdev(others) * math.sqrt(1 + 1 / len(others))
    return log - half, log + half


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
