"""What may be said of B against A in one respect: its rate, what its work costs, the energy it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gputui.analysis.cost import Cost
from gputui.analysis.energy import Energy
from gputui.analysis.verdict import (
    LAUNCHES_MEASURED,
    Estimate,
    GeometricMean,
    RatioEstimate,
    Verdict,
    judge,
)
from gputui.model.absent import Missing

RATE, COST, ENERGY = "rate", "cost", "energy"
RESPECTS = (RATE, COST, ENERGY)
WORDS: dict[str, dict[str, str]] = {
    RATE: {},
    COST: {"faster": "cheaper", "slower": "dearer"},
    ENERGY: {"faster": "less", "slower": "more"},
}
"""Cost and energy are judged by the work that a dollar or a joule buys: more of it is `faster`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the interval, the counts and the reason that belong to it."""

    respect: str
    """RATE, COST or ENERGY."""
    estimate: Estimate | Missing
    """Of the rate, or of the work that a dollar or a joule buys; above 1 B is better."""
    verdict: Verdict

    @property
    def word(self) -> str:
        """`faster`, `cheaper` or `less`, their opposites, `same`, `inconclusive` or `not comparable`."""
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
    def ratio(self) -> tuple[float, float, float] | None:
        """B over A of what is shown, a rate, a cost or an energy, with the ends of its 95 % interval."""
        e = self.estimate
        if isinstance(e, Missing):
            return None
        return (e.ratio, e.low, e.high) if self.respect == RATE else (1 / e.ratio, 1 / e.high, 1 / e.low)

    @property
    def n(self) -> tuple[int, int] | None:
        """Timed blocks of A and of B; of a mean, rows."""
        if isinstance(self.estimate, RatioEstimate):
            return self.estimate.n_a, self.estimate.n_b
        return (self.estimate.rows,) * 2 if isinstance(self.estimate, GeometricMean) else None


def judgements(respect: str, estimates: Sequence[Estimate | Missing]) -> list[Judgement]:
    """The judgements of one respect of all rows of a table, as `verdict.judge` makes them together."""
    return [
        Judgement(respect, estimate, verdict)
        for estimate, verdict in zip(estimates, judge(estimates), strict=True)
    ]


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
        df=math.inf,
        replicated=False,
        run_share=0.0,
        contended_low=1.0,
        contended_high=1.0,
    )
