"""Percentiles of independent values with distribution-free intervals: their ends are values themselves."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.quantiles import incomplete_beta
from gputui.model.absent import Missing

ERROR_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile, and a 95 % interval that holds it whatever the distribution is."""

    value: float
    low: float
    high: float
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
        return _at_most(rank - 1, n, share)

    low = bisect_right(ranks, ERROR_RATE / 2, key=below)
    high = bisect_left(ranks, 1 - ERROR_RATE / 2, key=below) + 1
    value = ascending[max(math.ceil(n * share) - 1, 0)]
    return Percentile(value, ascending[max(low - 1, 0)], ascending[high - 1], n)


def sample_needed(share: float) -> int:
    """The least sample whose interval for this percentile has both ends: 36 for 0.9, 72 for 0.95, 368 for
    0.99.
    """
    return max(math.ceil(math.log(ERROR_RATE / 2) / math.log(part)) for part in (share, 1 - share))


def _at_most(count: int, n: int, share: float) -> float:
    """The probability that at most `count` of n values lie below the percentile. DLMF 8.17.5."""
    return 1.0 if count >= n else 1 - incomplete_beta(count + 1, n - count, share)
