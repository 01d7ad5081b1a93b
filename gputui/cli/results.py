"""The table of one run, as `run` ends with it and `show` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from gputui.analysis.cost import Cost
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.result import CaseResult, Run
from gputui.model.units import (
    RATES,
    format_hourly,
    format_percent,
    format_rate,
    format_seconds,
    format_usd,
)
from gputui.services.results.expected import performance_checks
from gputui.services.results.labels import (
    case_name,
    interval_words,
    metric_range,
    metric_text,
    outcome_words,
    run_notes,
)
from gputui.services.results.metrics import metrics_of
from gputui.services.results.roofline import uses_of
from gputui.services.results.throughput import cost_of, speed_of
from gputui.services.support.text_tables import add_row, flowing, table, table_width


def print_results(out: Console, run: Run) -> None:
    """Cases with their rates and figures, what was not run and why, and whether the box is normal."""
    measured: list[tuple[CaseResult, SpeedEstimate]] = []
    unmeasured: dict[str, list[str]] = {}
    for case in run.cases:
        speed = speed_of(case)
        if isinstance(speed, SpeedEstimate):
            measured.append((case, speed))
        else:
            unmeasured.setdefault(outcome_words(case), []).append(case.case.name)
    if measured:
        headings, *rows = _full(measured, run)
        is_full = table_width((headings, *rows), out.encoding) <= out.width
        if not is_full:
            headings, *rows = _short(measured, run)
        made = table(headings, right=(1, 2, 3) if is_full else (1, 2, 3, 4, 5))
        for row in rows:
            add_row(made, *row)
        out.print(made)
        if not is_full and not isinstance(run.summary.price, Missing):
            out.print(_what_is_priced(measured, run.summary.price))
    print_metrics(out, run)
    print_uses(out, run)
    for reason, names in unmeasured.items():
        shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} {_common_part(names)}cases"
        out.print(flowing(f"{shown}: {reason}"))
    for line in run_notes(run):
        out.print(flowing(line))
    out.print()
    judged = performance_checks(run)
    if not judged and any(not case.case.is_program for case in run.cases):
        out.print("NO REFERENCE: no ceiling (gemm, membw) was measured to tell whether this box is normal")
    for performance in judged:
        out.print(Text(performance.text, style="bold" if performance.word != "NO REFERENCE" else ""))


def print_metrics(out: Console, run: Run) -> None:
    """What cases gave besides their speed, case by case; nothing if none did."""
    rows: list[tuple[str, str, str]] = []
    for case in run.cases:
        found = metrics_of(case)
        if found:
            rows.append((case_name(case), "", ""))
        rows += [(f"  {f.title}", metric_text(f), metric_range(f)) for f in found]
    if not rows:
        return
    made = table(["figure", "value", "seen in"], right=(1,), breaks=(2,))
    for row in rows:
        add_row(made, *row)
    out.print()
    out.print(made)


def print_uses(out: Console, run: Run) -> None:
    """How much of the device each case used, and of which peaks; nothing if none is known."""
    rows: list[tuple[str, str, str, str]] = []
    impossible: list[str] = []
    for case in run.cases:
        for use in uses_of(case, run.cases, run.summary.machine):
            if isinstance(use.of_sheet, Missing) and isinstance(use.of_measured, Missing):
                continue
            peak_test = "gemm" if use.unit == "flop" else "membw"
            measured = "—" if isinstance(use.of_measured, Missing) else format_percent(use.of_measured)
            sheet = "—" if isinstance(use.of_sheet, Missing) else format_percent(use.of_sheet)
            measured = measured if measured == "—" else f"{measured} of {peak_test}"
            rows.append((case_name(case), format_rate(use.per_s, use.unit), measured, sheet))
            if use.is_impossible:
                impossible.append(f"{case_name(case)} {sheet}")
    if not rows:
        return
    has_sheet = any(row[3] != "—" for row in rows)
    headings = ["use of the device", "does", "of its own"]
    made = table([*headings, "of the data sheet"] if has_sheet else headings, right=(1, 2, 3))
    for row in rows:
        add_row(made, *(row if has_sheet else row[:3]))
    out.print()
    out.print(made)
    if impossible:
        out.print(
            Text(
                f"above the physical peak: {', '.join(impossible)}: an error of measurement, or this is "
                "another device than its name says"
            )
        )


def _full(measured: Sequence[tuple[CaseResult, SpeedEstimate]], run: Run) -> list[list[str]]:
    """Headings and rows."""
    headings = ["case", "rate", "per step", "95 %", "blocks"]
    rows = []
    for case, speed in measured:
        said = f"{speed.blocks}" if speed.launches == 1 else f"{speed.blocks} in {speed.launches} launches"
        rows.append([case_name(case), *_figures(case, speed), said])
    if isinstance(run.summary.price, Missing):
        return [headings, *rows]
    prices = [_price(case, run.summary.price) for case, _ in measured]
    return [[*headings, "$ for"], *([*row, price] for row, price in zip(rows, prices, strict=True))]


def _short(measured: Sequence[tuple[CaseResult, SpeedEstimate]], run: Run) -> list[list[str]]:
    """The same for a narrow terminal: a line below says what all prices are for."""
    headings = ["case", "rate", "per step", "95 %", "blocks"]
    rows = []
    for case, speed in measured:
        name = case_name(case).replace(" 1 thread", " 1t").replace(" all cores", " all")
        said = f"{speed.blocks}" if speed.launches == 1 else f"{speed.blocks}/{speed.launches}"
        rows.append([name, *_figures(case, speed), said])
    if any(speed.launches > 1 for _, speed in measured):
        headings[-1] = "blocks/launches" if isinstance(run.summary.price, Missing) else "blocks"
    if isinstance(run.summary.price, Missing):
        return [headings, *rows]
    costs = [cost_of(case, run.summary.price) for case, _ in measured]
    prices = [format_usd(cost.usd_per_million) if isinstance(cost, Cost) else "—" for cost in costs]
    heading = "$/run" if all(case.case.unit == "run" for case, _ in measured) else "$/1M"
    return [[*headings, heading], *([*row, price] for row, price in zip(rows, prices, strict=True))]


def _figures(case: CaseResult, speed: SpeedEstimate) -> tuple[str, str, str]:
    """Rate, time per step and the interval around it."""
    return (
        format_rate(speed.units_per_s, case.case.unit),
        format_seconds(case.case.units_per_step / speed.units_per_s),
        interval_words(speed),
    )


def _price(case: CaseResult, price: Price) -> str:
    cost = cost_of(case, price)
    if not isinstance(cost, Cost):
        return "—"
    share = f" (share {format_percent(cost.share)})" if cost.is_share else ""
    return f"{format_usd(cost.usd_per_million)} {RATES[case.case.unit].per_million}{share}"


def _what_is_priced(measured: Sequence[tuple[CaseResult, SpeedEstimate]], price: Price) -> str:
    """What the column of prices is for, and whose price: said once for all rows."""
    units = dict.fromkeys(
        RATES[case.case.unit].per_million.removeprefix("1M ")
        for case, _ in measured
        if case.case.unit != "run"
    )
    costs = [cost_of(case, price) for case, _ in measured]
    shares = {cost.share for cost in costs if isinstance(cost, Cost) and cost.is_share}
    share = "".join(f"; a row carries its share of it, {format_percent(share)}" for share in shares)
    if not units:
        return f"$/run: at {format_hourly(price.usd_per_hour)}{share}"
    runs = "; a run: for one" if any(case.case.unit == "run" for case, _ in measured) else ""
    return f"$/1M: for a million {', '.join(units)}{runs} at {format_hourly(price.usd_per_hour)}{share}"


def _common_part(names: Sequence[str]) -> str:
    """The words that all names share, such as `gpu `."""
    shared = [word for word in names[0].split() if all(word in name.split() for name in names)]
    return "".join(f"{word} " for word in shared)
