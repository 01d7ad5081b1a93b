"""The measured cases of a run as one table, which commands, the Results screen and the end of a run show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gputui.analysis.verdict import SpeedEstimate
from gputui.document.bars import bars
from gputui.document.spans import Span
from gputui.document.table import Column, Table
from gputui.model.result import CaseResult, Run
from gputui.model.units import format_rate
from gputui.services.results.costs import cost_cells
from gputui.services.results.labels import interval_words, shared_case_words, short_result_name
from gputui.services.results.roofline import PeakShare, peak_share
from gputui.services.results.throughput import GAVE, gave_text

_PEAK, _BAR, _COST, _PEAK_TEST = 1, 2, 3, 4
"""The highest goes first where there is little room: of which test a share is, then costs, then bars."""


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case of a run."""

    name: str
    rate: str = ""
    interval: str = ""
    """The 95 % interval of the rate around it, as `±1 %`."""
    why: str = ""
    """Outcome and reason where there is no rate."""
    peak: PeakShare | None = None
    """What it reached of a peak; None if that is unknown."""
    cost: str = ""
    """As `$4.52 per Gtok`; empty without a price."""
    gave: str = ""
    """The rate by the clock, where `rate` is far from it (`gave_text`)."""


def case_lines(
    run: Run, measured: Sequence[tuple[CaseResult, SpeedEstimate]], name: Callable[[CaseResult], str]
) -> tuple[list[CaseLine], str]:
    """A line for each measured case, and the heading of their costs."""
    heading, *costs = cost_cells(measured, run.summary.price)
    return [
        CaseLine(
            name(case),
            format_rate(speed.units_per_s, case.case.unit),
            interval_words(speed),
            peak=peak_share(case, run.cases, run.summary.machine),
            cost=cost,
            gave=gave_text(case),
        )
        for (case, speed), cost in zip(measured, costs, strict=True)
    ], heading


def brief_table(
    run: Run,
    measured: Sequence[tuple[CaseResult, SpeedEstimate]],
    widest_bar: int = 80,
) -> Table:
    """The cases without what all of them share in their names, which the heading says."""
    common = shared_case_words(case.case for case, _ in measured)
    unsaid = [*common, "gpu"]  # beside cases on a CPU the others need no word
    lines, cost = case_lines(run, measured, lambda case: short_result_name(case, unsaid, is_short=True))
    return rates_table(lines, f"case ({' '.join(common)})" if common else "case", cost, widest_bar)


def rates_table(
    lines: Sequence[CaseLine],
    heading: str = "case",
    cost: str = "cost",
    widest_bar: int = 80,
) -> Table:
    """Rates with their intervals, shares of the peak, also drawn, and costs; these go first."""
    rates = [line.rate.partition(" ") for line in lines]
    columns = [
        Column(heading, [line.name for line in lines], breaks=True),
        Column("rate", [Span(number, "title") for number, _, _ in rates], True),
        Column("", [Span(unit, "dim") for _, _, unit in rates]),
        Column("95 %", [line.interval for line in lines], True),
    ]
    shares, gave = [line.peak for line in lines], [line.gave for line in lines]
    used = [None if share is None else min(share.share, 1.0) for share in shares]
    drawn = bars(used, 1.0, "compute", most=widest_bar, priority=_BAR)
    texts = [share.text if share else "—" for share in shares]
    short = Column("of peak", [text.partition(" of ")[0] for text in texts], True, _PEAK)
    of_peak = Column("of peak", texts, True, _PEAK_TEST, narrow=short)
    costs = Column(cost, [line.cost for line in lines], True, _COST)
    return Table(
        (
            *columns,
            *([Column(GAVE, [Span(line.gave, "warn") for line in lines], True)] if any(gave) else ()),
            *((drawn, of_peak) if any(shares) else ()),
            *((costs,) if any(costs.texts) else ()),
        )
    )
