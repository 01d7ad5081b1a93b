"""Which rate to try next, where the limit lies, and whether a queue grew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CLOSE_ENOUGH = 1.12
"""Ratio of the lowest rate that failed to the highest that held, below which the limit is interpolated."""
GROWING_T = 3.0
"""Of the slopes of requests in flight and of TTFT over time, from which both count as rising."""
KEEPS_UP_SHARE = 0.97
"""Of the offered rate: a server that completes fewer in the second half is behind."""
LEAST_FOR_GROWTH = 20


@dataclass(frozen=True)
class TriedRate:
    """One rate of a search."""

    rate_per_s: float
    good_share: float
    """Of the requests that count, those within every limit; 0 to 1."""
    is_held: bool
    requests: int
    """That count; at least one."""


def next_rate(tried: Sequence[TriedRate]) -> float | None:
    """The rate to try after these, at least one; None if the limit lies between two close ones.

    Doubles until one fails, or halves until one holds, then halves the interval of logarithms.
    """
    held, failed = _bracket(tried)
    if failed is None:
        assert held is not None
        return held.rate_per_s * 2
    if held is None:
        return failed.rate_per_s / 2
    if failed.rate_per_s <= held.rate_per_s * CLOSE_ENOUGH:
        return None
    return math.sqrt(held.rate_per_s * failed.rate_per_s)


def limit_of(tried: Sequence[TriedRate], attained_share: float) -> float | None:
    """The rate at which the share of good requests falls below the wanted one; None without a bracket.

    The share can only fall as the rate rises, so shares that rise are pooled, weighted by their requests
    (isotonic regression; Barlow et al. 1972). Between two pools it falls evenly with the logarithm of the
    rate.
    """
    if None in _bracket(tried):
        return None
    pools: list[tuple[float, float, float]] = []  # requests, sum of shares, sum of logarithms of rates
    for one in sorted(tried, key=lambda t: t.rate_per_s):
        share = one.good_share if one.is_held else min(one.good_share, attained_share)
        pools.append((one.requests, one.requests * share, one.requests * math.log(one.rate_per_s)))
        while len(pools) > 1 and pools[-1][1] / pools[-1][0] > pools[-2][1] / pools[-2][0]:
            last, before = pools.pop(), pools.pop()
            pools.append((last[0] + before[0], last[1] + before[1], last[2] + before[2]))
    means = [(shares / n, logs / n) for n, shares, logs in pools]
    above = [pool for pool in means if pool[0] >= attained_share]
    below = [pool for pool in means if pool[0] < attained_share]
    if not above or not below:  # pooled into one
        return math.exp(means[-1 if above else 0][1])
    (high_share, low_log), (low_share, high_log) = above[-1], below[0]
    part = (high_share - attained_share) / (high_share - low_share)
    return math.exp(low_log + part * (high_log - low_log))


def _bracket(tried: Sequence[TriedRate]) -> tuple[TriedRate | None, TriedRate | None]:
    """The highest rate that held below all failures, and the lowest that failed."""
    failed = min((t for t in tried if not t.is_held), key=lambda t: t.rate_per_s, default=None)
    held = [t for t in tried if t.is_held and (failed is None or t.rate_per_s < failed.rate_per_s)]
    return max(held, key=lambda t: t.rate_per_s, default=None), failed


def is_growing(at_s: Sequence[float], values: Sequence[float]) -> bool:
    """Whether values rise over time by more than chance: the slope of a line over its standard error."""
    n = len(values)
    if n < LEAST_FOR_GROWTH:
        return False
    mean_x, mean_y = math.fsum(at_s) / n, math.fsum(values) / n
    sxx = math.fsum((x - mean_x) ** 2 for x in at_s)
    sxy = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(at_s, values, strict=True))
    if sxx == 0:
        return False
    slope = sxy / sxx
    rest = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(at_s, values, strict=True))
    error = math.sqrt(rest / (n - 2) / sxx)
    return slope > GROWING_T * error
