"""When is a difference resolved: looks at rows that may get more launches, and what launches can still tell.

A row is decided when its interval excludes 0, or lies within a limit that the user named. Whoever looks again
after every few launches finds a difference sooner or later, whether there is one or not. So the number of
looks K is fixed beforehand, and each is made at ERROR_RATE / K: however the data of the looks depend on each
other, a row is called different by mistake in at most ERROR_RATE of cases (Bonferroni). Boundaries that spend
less on the first looks (Pocock 1977, O'Brien & Fleming 1979) gain some launches where variances are known;
here they are estimated at every look, with few degrees of freedom, and one bound holds for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.verdict import Estimate, RatioEstimate
from gputui.model.absent import Missing

ERROR_RATE = 0.03
MOST_LOOKS = 3
FIRST_LOOK = 3  # launches: with fewer, their spread is assumed
LEAST_LAUNCHES = 6
MOST_LAUNCHES = 20
BASE_TIMES = 4  # at four times the base's launches the base has 4/5 of the variance that launches cause
FASTER, SLOWER, WITHIN, OUT_OF_REACH, OPEN = "faster", "slower", "within", "out of reach", "open"
DECIDED = (FASTER, SLOWER, WITHIN)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a look says of one row."""

    word: str
    """FASTER, SLOWER, WITHIN, OUT_OF_REACH: more launches here cannot decide it; or OPEN."""
    ratio: float
    low: float
    high: float
    """At the error rate of one look."""
    reach: float
    """Half the interval, as a fraction, that the last look is expected to have."""


def most_launches(base_launches: int) -> int:
    """Launches per case beyond which the error of the base leaves little to gain."""
    return min(max(BASE_TIMES * base_launches, LEAST_LAUNCHES), MOST_LAUNCHES)


def looks_up_to(launches: int) -> tuple[int, ...]:
    """The launches per case after which there is a look, the last after all: each has twice those before."""
    halved = [launches >> times for times in range(MOST_LOOKS)]
    return tuple(sorted(n for n in halved if n >= min(FIRST_LOOK, launches)))


def error_rate_of(looks: Sequence[int]) -> float:
    """Of one look, so that all together are wrong about a row in at most ERROR_RATE of cases."""
    return ERROR_RATE / len(looks)


def decisions(
    estimates: Sequence[RatioEstimate | Missing],
    looks: Sequence[int],
    limit: float,
) -> list[Decision | Missing]:
    """What one look says of each row; `looks` are all of the run, `limit` is a fraction.

    Each row is judged by itself, at the error rate of one look and without a band around 0.
    """
    rate = error_rate_of(looks)
    found: list[Decision | Missing] = []
    for at_95 in estimates:
        if isinstance(at_95, Missing):
            found.append(at_95)
            continue
        estimate = at_95.at_error_rate(rate)
        reach = at_95.half_width_with(at_95.launches_a, max(looks[-1], at_95.launches_b), rate)
        if estimate.doubt:
            word = OPEN
        elif estimate.is_within(limit):
            word = WITHIN
        elif estimate.is_beyond(0.0):
            word = FASTER if estimate.ratio > 1 else SLOWER
        else:
            word = OUT_OF_REACH if _is_out_of_reach(estimate, reach, limit) else OPEN
        found.append(Decision(word, estimate.ratio, estimate.low, estimate.high, math.expm1(reach)))
    return found


def _is_out_of_reach(estimate: Estimate, reach: float, limit: float) -> bool:
    """Whether the last look would leave it open even if launches to come moved it as far as they may."""
    left = estimate.half_width - reach
    return reach > math.log1p(limit) and abs(math.log(estimate.ratio)) + left < reach
