"""Which rate to try next, where the limit lies, and whether a queue grew."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

CLOSE_ENOUGH = 1.12
"""Ratio of the lowest rate that failed to the highest that held, below which the limit is interpolated."""
GROWING_T = 3.0
"""Of the slopes of requests in flight and of TTFT over time, from which both count as rising."""
KEEPS_UP_SHARE = 0.97
"""Of the offered rate: a server that completes fewer in the second half is behind."""
LEAST_FOR_GROWTH = 20
SHORT_REQUESTS, SHORT_ANSWERS, SHORT_WAITS = 16, 2.0, 2.0
"""Of a trial far from the limit, at least: requests, and how many times one answer and the longest wait it
takes: at twice the capacity, the queue is as long after once."""
LONG_REQUESTS, LONG_ANSWERS, LONG_WAITS = 40, 3.0, 10.0
"""Likewise close to the limit: the 90th percentile has an upper end from 36 requests on, and a tenth beyond
the capacity the queue is as long after ten."""
NEAR_RATIO = 2.2
"""Of what failed to what held, from which trials are long."""
LEAST_FOR_LIMIT = 24
"""Requests at the highest rate that held; of fewer, 90 % being good says little."""
MOST_FACTOR = 2.0
MOST_INTERPOLATED = 1.3
"""Ratio of what failed to what held, above which a search that had to end says only these two."""


@dataclass(frozen=True)
class TriedRate:
    """One rate of a search."""

    rate_per_s: float
    good_share: float
    """Of the requests that count, those within every limit; 0 to 1."""
    is_held: bool
    requests: int
    """That count; at least one."""
    is_long: bool = True
    """Offered for as long as a rate near the limit needs."""


@dataclass(frozen=True)
class Trial:
    """A rate to offer, and for how long."""

    rate_per_s: float
    seconds: float
    is_long: bool


@dataclass(frozen=True)
class SearchStart:
    """Where a search begins."""

    rate_per_s: float
    factor: float
    """To the second rate; the one after that is its square away, up to MOST_FACTOR."""
    known: tuple[TriedRate, ...] = ()
    """What earlier launches tried; the limit lies between two of these, unless long trials say otherwise."""


@dataclass(frozen=True)
class SearchTerms:
    """What the length of a trial depends on."""

    alone_s: float
    """One request with nothing else in flight."""
    longest_wait_s: float
    """A request that waits longer misses its limits; 0 for no such limit."""
    attained_share: float


def limit_search(
    start: SearchStart, terms: SearchTerms, left_s: Callable[[], float]
) -> Generator[Trial, TriedRate, list[TriedRate]]:
    """Yield one rate after the other, get what came of it, and return what counts of all, in that order.

    Rates rise until one fails, or fall until one holds. The one that held is then offered for long, and the
    interval of logarithms halved until its ends are close and both were offered for long, and so was the rate
    between them. `left_s`: until arrivals
    must end, seconds; the search is over when a short trial no longer fits.
    """
    tried = [replace(one, is_long=False) for one in start.known]
    rate, factor = start.rate_per_s, start.factor
    is_checked = False
    again: TriedRate | None = None  # an end that was offered for a short time only
    while True:
        held, failed = bracket_of(tried)
        ratio = failed.rate_per_s / held.rate_per_s if held and failed else factor**2
        short_s = max(
            SHORT_REQUESTS / rate, SHORT_ANSWERS * terms.alone_s, SHORT_WAITS * terms.longest_wait_s
        )
        long_s = max(LONG_REQUESTS / rate, LONG_ANSWERS * terms.alone_s, LONG_WAITS * terms.longest_wait_s)
        left = left_s()
        if left < short_s:
            return tried
        is_long = ratio <= NEAR_RATIO and left >= long_s
        seconds = short_s
        if is_long:
            seconds = min(max(long_s, left / (trials_left(ratio) + 0.5)), left)
        elif again is not None:
            return tried
        one = yield Trial(rate, seconds, is_long)
        tried = [other for other in tried if other is not again and not _is_refuted(other, one)] + [one]
        again = None
        held, failed = bracket_of(tried)
        if held is None or failed is None:
            rate = rate * factor if one.is_held else rate / factor
            factor = min(factor**2, MOST_FACTOR)
        elif not held.is_long and failed.rate_per_s <= held.rate_per_s * NEAR_RATIO:
            again = held  # a dozen requests often stay within limits above the rate that can hold
            rate = held.rate_per_s
        elif failed.rate_per_s > held.rate_per_s * CLOSE_ENOUGH:
            rate = math.sqrt(held.rate_per_s * failed.rate_per_s)
        elif not held.is_long or not failed.is_long:
            again = failed if held.is_long else held
            rate = again.rate_per_s
        elif not is_checked:  # by chance both may have been wrong
            rate, is_checked = limit_of(tried, terms.attained_share) or rate, True
        else:
            return tried


def trials_left(ratio: float) -> int:
    """How many more halve an interval of this ratio until its ends are close, and then check it."""
    halvings = math.ceil(math.log2(max(math.log(ratio) / math.log(CLOSE_ENOUGH), 1.0)))
    return halvings + 1


def _is_refuted(earlier: TriedRate, now: TriedRate) -> bool:
    """Whether a longer trial says otherwise."""
    if earlier.is_long or not now.is_long:
        return False
    if now.is_held:
        return not earlier.is_held and earlier.rate_per_s <= now.rate_per_s
    return earlier.is_held and earlier.rate_per_s >= now.rate_per_s


def is_known(tried: Sequence[TriedRate]) -> bool:
    """Whether the limit lies between two near rates, with enough requests at the lower."""
    held, failed = bracket_of(tried)
    if held is None or failed is None or held.requests < LEAST_FOR_LIMIT:
        return False
    return failed.rate_per_s <= held.rate_per_s * MOST_INTERPOLATED


def limit_of(tried: Sequence[TriedRate], attained_share: float) -> float | None:
    """The rate at which the share of good requests falls below the wanted one; None without a bracket.

    The share can only fall as the rate rises, so shares that rise are pooled, weighted by their requests
    (isotonic regression; Barlow et al. 1972). Between two pools it falls evenly with the logarithm of the
    rate.
    """
    if None in bracket_of(tried):
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


def bracket_of(tried: Sequence[TriedRate]) -> tuple[TriedRate | None, TriedRate | None]:
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
