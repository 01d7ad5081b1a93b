"""Location and spread of block times, mostly by ranks; quantiles and percentiles.

Without scipy, whose import takes 0.35 s.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from gputui.model.absent import Missing
from gputui.model.units import counted

# Rank autocorrelation from which a block is too short. A lower one is met by widening the interval alone:
# merging halves the blocks, and at 0.2 one series in ten without any would be merged by chance.
MERGE_ABOVE = 0.3
MERGED_AT_LEAST = 10  # rank intervals keep their coverage from 5 blocks on; 10 leave room for the next merge
_ALPHA = 0.05
_LEAST_BLOCKS = 8
_EXACT_PAIRS = 400  # up to this many pairs the rank statistic's own distribution is used
_ByRank = Callable[[int], float]
_SORTED_PAIRS = 10_000  # up to this many pairs sorting them all is faster than counting


@dataclass(frozen=True, slots=True)
class Estimated:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimated:
        return Estimated(self.value * factor, self.low * factor, self.high * factor)


def bin_of(value: float, low: float, high: float, bins: int, *, is_log: bool) -> int:
    """Which of so many equal bins from low to high holds a value; the outer ones also hold what is beyond."""
    place: Callable[[float], float] = math.log if is_log else float
    share = (place(value) - place(low)) / (place(high) - place(low))
    return min(max(int(share * bins), 0), bins - 1)


def histogram(values: Sequence[float], low: float, high: float, bins: int, *, is_log: bool) -> list[int]:
    """How many values each bin holds, as `bin_of` has it."""
    counts = [0] * bins
    for value in values:
        counts[bin_of(value, low, high, bins, is_log=is_log)] += 1
    return counts


def lag1_autocorrelation(values: Sequence[float]) -> float:
    """How much each value depends on the previous one, -1 to 1; 0 for fewer than 4 values or constant
    ones."""
    if len(values) < 4:
        return 0.0
    middle = mean(values)
    away = [value - middle for value in values]
    spread = math.fsum(x * x for x in away)
    if _is_rounding(spread, middle, len(values)):
        return 0.0
    return math.fsum(x * y for x, y in itertools.pairwise(away)) / spread


def rank_autocorrelation(values: Sequence[float]) -> float:
    """`lag1_autocorrelation` of the values' ranks, ties shared: robust against a few outliers."""
    ordered = sorted(values)
    first: dict[float, int] = {}
    for place, value in enumerate(ordered):
        first.setdefault(value, place)
    last = {value: place for place, value in enumerate(ordered)}
    return lag1_autocorrelation([(first[value] + last[value]) / 2 for value in values])


def merged_until_independent(block_times: Sequence[float]) -> tuple[float, ...]:
    """Block times with neighbours averaged pairwise until a block does not follow the one before it.

    Merging doubles the length of a block; it ends when the rank autocorrelation is at most 0.3 or fewer
    than 10 blocks would be left, so 20 are needed for the first merge. An odd first block, the nearest
    to the warm-up, is dropped by a merge.
    """
    blocks = tuple(block_times)
    while len(blocks) >= 2 * MERGED_AT_LEAST and rank_autocorrelation(blocks) > MERGE_ABOVE:
        even = blocks[len(blocks) % 2 :]
        blocks = tuple((x + y) / 2 for x, y in zip(even[::2], even[1::2], strict=True))
    return blocks


def dependence_factor(blocks: Sequence[float]) -> float:
    """How much wider an interval must be because neighbouring blocks still resemble each other; at least 1.

    Square root of (1 + r) / (1 - r), the loss of effective observations in a first-order autoregressive
    series of autocorrelation r. A short series shows less of it than there is, by (1 + 4 r) / n on average
    (Kendall 1954, https://doi.org/10.1093/biomet/41.3-4.403), so that much is added to its rank
    autocorrelation; r is taken as at most 0.9. 1 below 8 blocks, which tell nothing of it.
    """
    count = len(blocks)
    if count < _LEAST_BLOCKS:
        return 1.0
    r = min((count * rank_autocorrelation(blocks) + 1) / (count - 4), 0.9)
    return math.sqrt((1 + r) / (1 - r)) if r > 0 else 1.0


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least 1 value."""
    return math.fsum(values) / len(values)


def sample_variance(values: Sequence[float]) -> float:
    """The variance of a sample of at least 2 values; 0 for values that differ by rounding only."""
    middle = mean(values)
    spread = math.fsum((value - middle) ** 2 for value in values)
    return 0.0 if _is_rounding(spread, middle, len(values)) else spread / (len(values) - 1)


def hodges_lehmann(values: Sequence[float]) -> float:
    """The center of the values: the median of the means of all pairs, each value with itself included."""
    return _middle_of(_walsh_averages(sorted(values)), _pairs_of(values))


def hodges_lehmann_interval(values: Sequence[float]) -> Estimated | Missing:
    """The centre of the values with the 95 % interval of Wilcoxon's signed ranks.

    Missing below 6 values, whose widest interval holds less than 95 %.
    """
    critical = _signed_rank_critical(len(values))
    if critical == 0:
        return Missing(f"only {counted(len(values), 'block')}: a 95 % interval needs 6")
    by_rank, count = _walsh_averages(sorted(values)), _pairs_of(values)
    return Estimated(_middle_of(by_rank, count), by_rank(critical), by_rank(count + 1 - critical))


def location_error(values: Sequence[float]) -> float:
    """The standard error of the values' center; 0 for a single value, whose error cannot be known.

    From the rank interval, which is robust against outliers; with fewer than 6 values from their standard
    deviation. Widened for the remaining correlation of neighboring blocks.
    """
    if len(values) < 2:
        return 0.0
    interval = hodges_lehmann_interval(values)
    if isinstance(interval, Missing):
        error = math.sqrt(sample_variance(values) / len(values))
    else:
        error = (interval.high - interval.low) / (2 * normal_quantile(1 - _ALPHA / 2))
    return error * dependence_factor(values)


def _pairs_of(values: Sequence[float]) -> int:
    return len(values) * (len(values) + 1) // 2


def _middle_of(by_rank: _ByRank, count: int) -> float:
    middle = (count + 1) // 2
    return (by_rank(middle) + by_rank(count + 1 - middle)) / 2


def _walsh_averages(values: Sequence[float]) -> _ByRank:
    """The means of all pairs of one sorted sequence, each value with itself included, by rank from 1.

    Where they are too many to be sorted, a rank is found by counting, to 1e-12 of the range.
    """
    if len(values) ** 2 <= _SORTED_PAIRS:
        ordered = sorted([(x + y) / 2 for i, x in enumerate(values) for y in values[i:]])
        return lambda rank: ordered[rank - 1]

    def count_up_to(limit: float) -> int:
        both_ways = within = 0
        for value in reversed(values):
            while within < len(values) and values[within] + value <= 2 * limit:
                within += 1
            both_ways += within
        return (both_ways + sum(value <= limit for value in values)) // 2

    def by_counting(rank: int) -> float:
        low, high = values[0], values[-1]
        least_step = 1e-12 * (high - low)
        while high - low > least_step:
            middle = (low + high) / 2
            if count_up_to(middle) >= rank:
                high = middle
            else:
                low = middle
        return high

    return by_counting


def _is_rounding(spread: float, mean: float, count: int) -> bool:
    """Whether the sum of squares around a mean is that of equal values which differ in their last bits."""
    return spread <= count * (1e-12 * mean) ** 2


@functools.lru_cache(maxsize=256)
def _signed_rank_critical(n: int) -> int:
    """The rank from either end of all pair means at which the 95 % interval ends; 0 if there is none."""
    pairs = n * (n + 1) // 2
    if pairs > _EXACT_PAIRS:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(pairs / 2 + 0.5 - normal_quantile(1 - _ALPHA / 2) * spread))
    ways = [1] + [0] * pairs
    for rank in range(1, n + 1):
        for at in range(pairs, rank - 1, -1):
            ways[at] += ways[at - rank]
    total = count = 0
    for number in ways:  # of the smallest values, so many as have at most 2.5 % of all arrangements together
        total += number
        if 2 * total > _ALPHA * 2**n:
            break
        count += 1
    return count


_SMALLEST = 1e-300  # stands for 0 in Lentz's algorithm
_NORMAL_ABOVE_DF = 1e7
"""Student's t differs by less than 1e-6 there, and differences of log-gammas lose their digits above it."""


def normal_cdf(z: float) -> float:
    """The share of a standard normal distribution below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def normal_quantile(share: float) -> float:
    """The z below which a share of the standard normal distribution lies; 0 < share < 1."""
    return NormalDist().inv_cdf(share)


def t_cdf(t: float, df: float) -> float:
    """The share of Student's t distribution below t; `df` may be fractional, or infinite for the normal.

    Source: Abramowitz & Stegun 26.7.1, by the incomplete beta function.
    """
    if df > _NORMAL_ABOVE_DF:
        return normal_cdf(t)
    if math.isinf(t):
        return 0.0 if t < 0 else 1.0
    tail = _t_tail(t, df)
    return tail if t < 0 else 1 - tail


def _t_tail(t: float, df: float) -> float:
    """The share of Student's t distribution beyond |t|, on one side."""
    return 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))


@functools.lru_cache(maxsize=1024)
def t_quantile(share: float, df: float) -> float:
    """The t below which a share of Student's t distribution lies; 0 < share < 1, df ≥ 1, maybe fractional.

    Newton's method from the first correction of the normal's quantile, which is never the larger: the upper
    tail is convex there, so each step comes nearer from the same side, and squares what is left of the error.
    """
    if df > _NORMAL_ABOVE_DF:
        return normal_quantile(share)
    if share < 0.5:
        return -t_quantile(1 - share, df)
    if not share < 1:
        raise ValueError(f"a quantile needs a share between 0 and 1, not {share}")
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    z = max(normal_quantile(share), 0.0)
    t = z + (z**3 + z) / (4 * df)
    while True:
        density = math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (_t_tail(t, df) - (1 - share)) / density
        t += step
        if step <= 1e-8 * t:
            return t


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function for a, b > 0 and x from 0 to 1.

    Source: continued fraction DLMF 8.17.22, evaluated by Lentz's algorithm.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or _SMALLEST)
            c = 1 + term / c or _SMALLEST
            fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


ERROR_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Percentile(Estimated):
    """A percentile, and a 95 % interval that holds it whatever the distribution is."""

    n: int


def percentile(ascending: Sequence[float], share: float) -> Percentile | Missing:
    """The value below which a share of the population lies, from a sample in ascending order.

    The order statistic of rank ceil(n share), with the order statistics that hold the percentile in 95 of 100
    samples (David & Nagaraja, Order Statistics, section 7.1). Missing where the sample is too small for an
    upper end, with the number that it takes.
    """
    n = len(ascending)
    needed = sample_needed(share)
    if n < needed:
        return Missing(f"needs {needed} requests, has {n}")
    ranks = range(1, n + 1)

    def below(rank: int) -> float:
        """The probability that fewer of n values than this lie below the percentile. DLMF 8.17.5."""
        return 1.0 if rank > n else 1 - incomplete_beta(rank, n - rank + 1, share)

    low = bisect_right(ranks, ERROR_RATE / 2, key=below)
    high = bisect_left(ranks, 1 - ERROR_RATE / 2, key=below) + 1
    value = ascending[max(math.ceil(n * share) - 1, 0)]
    return Percentile(value, ascending[max(low - 1, 0)], ascending[high - 1], n)


def sample_needed(share: float) -> int:
    """The least sample whose interval for this percentile has both ends: 36 for 0.9, 72 for 0.95, 368 for
    0.99.
    """
    return max(math.ceil(math.log(ERROR_RATE / 2) / math.log(part)) for part in (share, 1 - share))
