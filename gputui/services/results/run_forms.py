"""What one run measured in the forms that commands and screens share: its cases and figures as tables, and
all of it as JSON, which docs/json.md describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any  # JSON

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.peak_tests import PerformanceCheck
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import bars
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Table, table_of
from gputui.model.absent import Missing, known
from gputui.model.journal import Price, ProfiledPass, to_plain
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import cost_unit, format_percent, format_rate, format_usd
from gputui.services.results.expected import performance_checks, share_of_sheet, share_text, uses_of
from gputui.services.results.headline import run_headline
from gputui.services.results.labels import (
    case_name,
    interval_words,
    metric_range,
    metric_text,
    run_notes,
    shared_case_words,
    short_result_name,
)
from gputui.services.results.metrics import metrics_of
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_breakdown import timed_step_ns
from gputui.services.results.throughput import (
    GAVE,
    HOST_BOUND,
    STEP_KEYS,
    Speeds,
    cost_of,
    gave_text,
    is_host_bound,
    rate_of,
    speed_of,
    waited_share,
)

_PEAK, _COST, _BAR = 1, 2, 3
"""The highest goes first where there is little room."""


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
    for case, maybe in found:
        if isinstance(maybe, Missing):
            cells.append("")
            continue
        millions, name = cost_unit(least[case.work.workload], case.unit)
        share = f" ({format_percent(maybe.share)} share)" if maybe.is_share and not is_one_share else ""
        cells.append(f"{format_usd(maybe.usd_per_million * millions)} per {name}{share}")
    return cells


def brief_table(run: Run, measured: Speeds, widest_bar: int = 80) -> Table:
    """The cases without what all of them share in their names, which the heading says."""
    common = shared_case_words(case.case for case, _ in measured)
    unsaid = [*common, "gpu"]  # beside cases on a CPU the others need no word
    names = [short_result_name(case, unsaid, is_short=True) for case, _ in measured]
    return rates_table(run, measured, names, f"case ({' '.join(common)})" if common else "case", widest_bar)


def rates_table(
    run: Run, measured: Speeds, names: Sequence[str], heading: str = "case", widest_bar: int = 80
) -> Table:
    """Rates with their intervals, shares of the peak, also drawn, and costs; the bars go first."""
    cost, *costs = _cost_cells(measured, run.summary.price)
    rates = [format_rate(speed.units_per_s, case.case.unit).partition(" ") for case, speed in measured]
    gave = [gave_text(case) for case, _ in measured]
    marks = [HOST_BOUND if is_host_bound(case) else "" for case, _ in measured]
    shares = [share_of_sheet(uses_of(case, (), run.summary.machine)) for case, _ in measured]
    used = [None if share is None else min(share, 1.0) for share in shares]
    columns: list[Column | Drawing] = [
        Column(heading, names, breaks=True),
        Column("rate", [Span(number, "title") for number, _, _ in rates], True),
        Column("", [Span(unit, "dim") for _, _, unit in rates]),
        Column("95 % range", [interval_words(speed) for _, speed in measured], True),
    ]
    if any(gave):
        columns.append(Column(GAVE, [Span(text, "warn") for text in gave], True))
    if any(marks):
        columns.append(Column("", [Span(mark, "warn") for mark in marks]))
    if any(used):
        columns.append(bars(used, 1.0, "compute", most=widest_bar, priority=_BAR))
        columns.append(Column("% of spec", [share_text(share) or "—" for share in shares], True, _PEAK))
    if any(costs):
        columns.append(Column(cost, costs, True, _COST))
    return Table(tuple(columns))


def metric_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """Of `metric_rows`."""
    return table_of(("figure", "value", "range of launches"), rows, right=(1,), breaks=(2,))


def metric_rows(run: Run, *, is_brief: bool = False) -> list[tuple[str, str, str]]:
    """What cases gave besides their speed, below the name of each.

    `is_brief`: without device and host time of a step where it is not host-bound.
    """
    rows: list[tuple[str, str, str]] = []
    for case in run.cases:
        unsaid = STEP_KEYS if is_brief and not is_host_bound(case) else ()
        found = [metric for metric in metrics_of(case) if metric.key not in unsaid]
        if found:
            rows.append((case_name(case), "", ""))
        rows += [(f"  {f.title}", metric_text(f), metric_range(f)) for f in found]
    return rows


def run_as_json(run: Run, passes: Mapping[int, ProfiledPass] | None = None) -> dict[str, Any]:
    """One run with its cases; a value that is absent is null with its reason beside it.

    `passes` are the profiled passes by case, where they were read.
    """
    return {
        **summary_as_json(run.summary),
        "cases": [
            {
                **case_identity(case.case),
                "device_name": case.device_name,
                "outcome": case.outcome,
                "reason": case.reason,
                "speed": estimate_as_json(speed_of(case), "units_per_s"),
                "waited_share": known(waited_share(case)),
                "is_host_bound": is_host_bound(case),
                "clock_units_per_s": known(rate_of(case, by_clock=True)),
                "cost": cost_as_json(cost_of(case, run.summary.price), case.case.unit),
                "figures": metrics_as_json(case),
                "uses": [to_plain(use) for use in uses_of(case, run.cases, run.summary.machine)],
                **({} if passes is None else {"profiled": _profiled(case, passes)}),
            }
            for case in run.cases
        ],
        "headline": run_headline(run),
        "why": why_sentence(run, passes or {}),
        "notes": run_notes(run),
        "normality": [performance_as_json(check) for check in performance_checks(run)],
    }


def performance_as_json(check: PerformanceCheck) -> dict[str, Any]:
    """Whether a device performs as expected; `standing` is where it stands among the boxes of a reference.

    Without the name of the reference, which the user may have chosen: JSON is passed on.
    """
    standing: dict[str, Any] | None = None if check.standing is None else to_plain(check.standing)
    if standing is not None:
        del standing["reference"]
    return {"word": check.word, "text": check.text, "standing": standing}


def summary_as_json(run: RunSummary) -> dict[str, Any]:
    """One run without its cases."""
    return {"short_id": run.short_id, **to_plain(run)}


def case_identity(case: Case) -> dict[str, Any]:
    """What was measured, and in which variant."""
    return {
        **case.identity(),
        "units_per_step": case.units_per_step,
    }


def metrics_as_json(case: CaseResult) -> list[dict[str, Any]]:
    """Results other than speed."""
    return [to_plain(metric) for metric in metrics_of(case)]


def _profiled(case: CaseResult, passes: Mapping[int, ProfiledPass]) -> dict[str, Any] | None:
    found = passes.get(case.case_id)
    return None if found is None else {**to_plain(found), "timed_step_ns": known(timed_step_ns(case))}


def estimate_as_json(found: SpeedEstimate | Cost | Energy | Missing, name: str) -> dict[str, Any]:
    """An estimate, or under the name of its value null with the reason."""
    if isinstance(found, Missing):
        return {name: None, "missing": found.reason}
    plain: dict[str, Any] = to_plain(found)
    return plain


def cost_as_json(cost: Cost | Missing, unit: str) -> dict[str, Any]:
    """A cost, or null with its reason."""
    plain = estimate_as_json(cost, "usd_per_million")
    if isinstance(cost, Missing):
        return plain
    bought = cost.units_per_usd(unit)
    if isinstance(bought, Missing):
        return {**plain, "units_per_usd": None}
    return {**plain, "units_per_usd": dict(zip(("value", "low", "high"), bought, strict=True))}
