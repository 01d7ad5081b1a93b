"""What may be said of B against A in one respect: its rate, the cost or energy of its work, a figure.

Every form asks here. Judged where it is printed, a price could claim what its speed does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.spread import UNKNOWN_LAUNCH_SD
from gputui.analysis.statistics import sample_variance
from gputui.analysis.verdict import (
    LAUNCHES_MEASURED,
    Estimate,
    GeometricMean,
    RatioEstimate,
    Verdict,
    are_slower,
    compare_launches,
    judge,
)
from gputui.model.absent import Missing
from gputui.model.result import Spread

RATE, TIME, COST, ENERGY, FIGURE = "rate", "time", "cost", "energy", "figure"
WORDS: dict[str, dict[str, str]] = {
    RATE: {},
    TIME: {},
    COST: {"faster": "cheaper", "slower": "dearer"},
    ENERGY: {"faster": "less", "slower": "more"},
    FIGURE: {"faster": "higher", "slower": "lower"},
}
"""Cost and energy are judged by the work that a dollar or a joule buys, a time by its inverse: more of it is
`faster`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the interval, the counts and the reason that belong to it."""

    respect: str
    """RATE, TIME, COST, ENERGY or FIGURE."""
    estimate: Estimate | Missing
    """Of the rate, of the inverse of the time, of the work that a dollar or a joule buys, or of the figure;
    above 1 B has more."""
    verdict: Verdict

    @property
    def word(self) -> str:
        """`faster`, `cheaper`, `less`, `lower`, an opposite, `same`, `inconclusive` or `not comparable`."""
        return WORDS[self.respect].get(self.verdict.word, self.verdict.word)

    @property
    def reason(self) -> str:
        return self.verdict.reason

    @property
    def is_decided(self) -> bool:
        """B is better, worse or the same."""
        return self.verdict.word in ("faster", "slower", "same")

    @property
    def differs(self) -> bool:
        return self.verdict.word in ("faster", "slower")

    @property
    def is_sure(self) -> bool:
        """It differs, surely enough for a sentence without the table."""
        return self.verdict.is_sure

    @property
    def ratio(self) -> tuple[float, float, float] | None:
        """B over A of what is shown (such as a rate or a cost), with the ends of its 95 % interval."""
        e = self.estimate
        if isinstance(e, Missing):
            return None
        is_inverse = self.respect in (TIME, COST, ENERGY)
        return (1 / e.ratio, 1 / e.high, 1 / e.low) if is_inverse else (e.ratio, e.low, e.high)

    @property
    def turned(self) -> Judgement:
        """Of A against B, for words: its counts stay those of B against A."""
        e, opposite = self.estimate, {"faster": "slower", "slower": "faster"}
        if not isinstance(e, Missing):
            e = replace(e, ratio=1 / e.ratio, low=1 / e.high, high=1 / e.low)
        word = opposite.get(self.verdict.word, self.verdict.word)
        return replace(self, estimate=e, verdict=replace(self.verdict, word=word))

    @property
    def n(self) -> tuple[int, int] | None:
        """Timed blocks of A and of B; of a figure launches, of a mean rows."""
        if isinstance(self.estimate, RatioEstimate):
            return self.estimate.blocks_a, self.estimate.blocks_b
        return (self.estimate.rows,) * 2 if isinstance(self.estimate, GeometricMean) else None


def judgements(
    respect: str, estimates: Sequence[Estimate | Missing], asked: int | None = None
) -> list[Judgement]:
    """The judgements of one respect of all rows of a table, as `verdict.judge` makes them together."""
    return [
        Judgement(respect, estimate, verdict)
        for estimate, verdict in zip(estimates, judge(estimates, asked=asked), strict=True)
    ]


def surely_slower(judged: Sequence[Judgement], limit: float) -> list[bool]:
    """Which are judged slower, and lie below `limit`, a ratio up to 1, as sure as `verdict.are_slower` asks.

    Those that cannot be compared are not, and do not count among the others.
    """
    known = [(place, j.estimate) for place, j in enumerate(judged) if not isinstance(j.estimate, Missing)]
    found = [False] * len(judged)
    beyond = are_slower([estimate for _, estimate in known], limit)
    for (place, _), is_beyond in zip(known, beyond, strict=True):
        found[place] = is_beyond and judged[place].verdict.word == "slower"
    return found


def figure_ratio(a: Sequence[float], b: Sequence[float]) -> RatioEstimate | Missing:
    """A figure of B over that of A, from its value in each launch, by Welch's t on their logarithms.

    The ratio is that of the medians, which tables show, in the middle of the interval. How much launches vary
    in a figure is not known beforehand, so it is Missing below 3 launches a side, and where a value is 0.
    """
    if min(len(a), len(b)) < LAUNCHES_MEASURED:
        return Missing(f"needs {LAUNCHES_MEASURED} launches")
    if min(*a, *b) <= 0:
        return Missing("no ratio to 0")
    launches = [[[1 / value] for value in side] for side in (a, b)]
    spread_a, spread_b = (
        Spread(sample_variance([math.log(value) for value in side]), len(side) - 1.0) for side in (a, b)
    )
    found = compare_launches(
        *launches,
        prior_sd_a=UNKNOWN_LAUNCH_SD,
        prior_sd_b=UNKNOWN_LAUNCH_SD,
        launch_is_block=True,
        spread_a=spread_a,
        spread_b=spread_b,
    )
    if isinstance(found, Missing):
        return found
    ratio = median(b) / median(a)
    factor = math.exp(found.half_width + abs(math.log(ratio / found.ratio)))
    return replace(found, ratio=ratio, low=ratio / factor, high=ratio * factor)


def work_per_dollar(rate: Estimate | Missing, a: Cost | Missing, b: Cost | Missing) -> Estimate | Missing:
    """How much more work a dollar buys on B, from the ratio of rates: prices are exact, so it is as sure.

    Missing where the rate is, or where either side has no cost or is free.
    """
    if isinstance(rate, Missing):
        return rate
    if isinstance(a, Missing):
        return Missing(f"a: {a.reason}")
    if isinstance(b, Missing):
        return Missing(f"b: {b.reason}")
    if min(a.usd_per_million, b.usd_per_million) <= 0:
        return Missing(f"{'a' if a.usd_per_million <= 0 else 'b'} costs nothing")
    dearer = (b.usd_per_million / a.usd_per_million) * rate.ratio
    return replace(rate, ratio=rate.ratio / dearer, low=rate.low / dearer, high=rate.high / dearer)


def work_per_joule(rate: Estimate | Missing, a: Energy | Missing, b: Energy | Missing) -> Estimate | Missing:
    """How much more work a joule does on B. Errors of both sides are independent: in quadrature.

    Each side knows its spread from its launches alone, so the interval has the degrees of freedom of the side
    with fewer. What is in doubt of the rate is in doubt of this.

    Missing where either side has no energy, or too few launches for an interval.
    """
    if isinstance(rate, Missing):
        return rate
    if isinstance(a, Missing):
        return Missing(f"a: {a.reason}")
    if isinstance(b, Missing):
        return Missing(f"b: {b.reason}")
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Missing(f"fewer than {LAUNCHES_MEASURED} launches with power on a side")
    half = math.hypot(math.log(a.high / a.low) / 2, math.log(b.high / b.low) / 2)
    center = math.log(a.joules_per_unit / b.joules_per_unit)
    return Estimate(
        ratio=math.exp(center),
        low=math.exp(center - half),
        high=math.exp(center + half),
        df=min(a.launches, b.launches) - 1.0,
        run_share=0.0,
        doubt=rate.doubt,
    )
