"""The measured cases of a run as one table, which commands, the Results screen and the end of a run show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gputui.analysis.cost import Cost
from gputui.document.drawings import bars
from gputui.document.spans import Span
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.result import CaseResult, Run
from gputui.model.units import cost_unit, format_percent, format_rate, format_usd
from gputui.services.results.expected import share_of_sheet, share_text, uses_of
from gputui.services.results.labels import (
    case_name,
    interval_words,
    metric_range,
    metric_text,
    shared_case_words,
    short_result_name,
)
from gputui.services.results.metrics import CaseMetric, metrics_of
from gputui.services.results.throughput import (
    GAVE,
    HOST_BOUND,
    STEP_KEYS,
    Speeds,
    cost_of,
    gave_text,
    is_host_bound,
)

_PEAK, _COST, _BAR = 1, 2, 3
"""The highest goes first where there is little room."""


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One case of a run."""

    name: str
    rate: str = ""
    interval: str = ""
    """The 95 % interval of the rate around it, as `±1 %`."""
    why: str = ""
    """Outcome and reason where there is no rate."""
    peak: float | None = None
    """Share of the data sheet's peak; None if that is unknown."""
    cost: str = ""
    """As `$4.52 per Gtok`; empty without a price."""
    gave: str = ""
    """The rate by the clock, where `rate` is far from it (`gave_text`)."""
    mark: str = ""
    """HOST_BOUND where the rate is not the GPU's."""


def _cost_cells(measured: Speeds, price: Price | Missing) -> list[str]:
    """Heading and `$4.52 per Gtok`, one unit per workload; empty where there is no price."""
    found = [(case.case, cost_of(case, price)) for case, _ in measured]
    priced = [(case, cost) for case, cost in found if isinstance(cost, Cost)]
    least: dict[str, float] = {}
    for case, cost in priced:
        name = case.work.workload
        least[name] = min(least.get(name, cost.usd_per_million), cost.usd_per_million)
    shares = {cost.share for _, cost in priced}
    is_one_share = len(shares) == 1 and shares != {1.0}
    cells = [f"cost ({format_percent(min(shares))} share)" if is_one_share else "cost"]
    for case, known in found:
        if not isinstance(known, Cost):
            cells.append("")
            continue
        millions, name = cost_unit(least[case.work.workload], case.unit)
        share = f" ({format_percent(known.share)} share)" if known.is_share and not is_one_share else ""
        cells.append(f"{format_usd(known.usd_per_million * millions)} per {name}{share}")
    return cells


def case_lines(run: Run, measured: Speeds, name: Callable[[CaseResult], str]) -> tuple[list[CaseLine], str]:
    """A line for each measured case, and the heading of their costs."""
    heading, *costs = _cost_cells(measured, run.summary.price)
    return [
        CaseLine(
            name(case),
            format_rate(speed.units_per_s, case.case.unit),
            interval_words(speed),
            peak=share_of_sheet(uses_of(case, (), run.summary.machine)),
            cost=cost,
            gave=gave_text(case),
            mark=HOST_BOUND if is_host_bound(case) else "",
        )
        for (case, speed), cost in zip(measured, costs, strict=True)
    ], heading


def brief_table(
    run: Run,
    measured: Speeds,
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
    """Rates with their intervals, shares of the peak, also drawn, and costs; the bars go first."""
    rates = [line.rate.partition(" ") for line in lines]
    columns = [
        Column(heading, [line.name for line in lines], breaks=True),
        Column("rate", [Span(number, "title") for number, _, _ in rates], True),
        Column("", [Span(unit, "dim") for _, _, unit in rates]),
        Column("95 % range", [line.interval for line in lines], True),
    ]
    shares, gave = [line.peak for line in lines], [line.gave for line in lines]
    used = [None if share is None else min(share, 1.0) for share in shares]
    drawn = bars(used, 1.0, "compute", most=widest_bar, priority=_BAR)
    texts = [share_text(share) or "—" for share in shares]
    marks = Column("", [Span(line.mark, "warn") for line in lines])
    costs = Column(cost, [line.cost for line in lines], True, _COST)
    return Table(
        (
            *columns,
            *([Column(GAVE, [Span(line.gave, "warn") for line in lines], True)] if any(gave) else ()),
            *((marks,) if any(marks.texts) else ()),
            *((drawn, Column("% of spec", texts, True, _PEAK)) if any(used) else ()),
            *((costs,) if any(costs.texts) else ()),
        )
    )


def metric_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """Of `metric_rows`."""
    return table_of(("figure", "value", "range of launches"), rows, right=(1,), breaks=(2,))


def metric_rows(run: Run, *, is_brief: bool = False) -> list[tuple[str, str, str]]:
    """What cases gave besides their speed, below the name of each; `is_brief`: `brief_metrics`."""
    rows: list[tuple[str, str, str]] = []
    for case in run.cases:
        found = brief_metrics(case) if is_brief else metrics_of(case)
        if found:
            rows.append((case_name(case), "", ""))
        rows += [(f"  {f.title}", metric_text(f), metric_range(f)) for f in found]
    return rows


def brief_metrics(case: CaseResult) -> tuple[CaseMetric, ...]:
    """`metrics_of`, without device and host time of a step where it is not host-bound."""
    unsaid = () if is_host_bound(case) else STEP_KEYS
    return tuple(metric for metric in metrics_of(case) if metric.key not in unsaid)
