"""A run on one page: the answer, its rates as bars, a step as one bar, and the telemetry with its axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median

from gputui.analysis.cost import Cost
from gputui.analysis.peak_tests import ABOVE_LIMIT, BELOW_NORMAL
from gputui.document.drawings import bars, stacked_bar
from gputui.document.spans import Line, Span, cut
from gputui.document.table import Column, Table, table_of
from gputui.metrics import charted, limits_of
from gputui.model.absent import Missing
from gputui.model.plan import DEMO_PROFILE, TRACE_PROFILE
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.telemetry import HOST
from gputui.model.units import (
    cost_unit,
    counted,
    format_clock,
    format_hourly,
    format_percent,
    format_rate,
    format_seconds,
    format_usd,
)
from gputui.services.results.browser import RunDetail, on_boxes
from gputui.services.results.case_table import brief_table
from gputui.services.results.expected import performance_checks, share_of_sheet, uses_of
from gputui.services.results.headline import case_subject, headline_sentences, main_case
from gputui.services.results.labels import (
    NOT_RUN,
    case_name,
    day,
    device_words,
    mostly_assumed,
    run_notes,
    torch_words,
)
from gputui.services.results.step_answer import answer_of_trace, sentence
from gputui.services.results.step_breakdown import StepBreakdown
from gputui.services.results.step_tables import main_step, operator_table, step_parts
from gputui.services.results.throughput import speeds_of
from gputui.services.serving.curve import SEARCH, ServingRun, serving_of
from gputui.services.serving.text import (
    curve_table,
    headline_of,
    measured_levels,
    server_line,
    serving_notes,
    unmeasured_lines,
)
from gputui.store.reading import TelemetrySeries
from gputui.store.selecting import runs_with_common_ids
from gputui.store.text import clean_text
from gputui.tui.screens.results.tables import CASE_HEADINGS, case_rows
from gputui.tui.widgets.cells import clean, facts_lines, fitted, paragraph, section, stacked, table_lines
from gputui.tui.widgets.charts import above_axis, abreast_cells, time_axis, time_chart

_MOST_CHARTS = 4
_MOST_CASES = 9
"""In a preview."""
_AROUND_CHARTS = 2
"""Lines of heading and axis of telemetry."""
_MARGIN = "   "
_WIDE = 100
_LEAST_OF_STEP = 0.001
_BELOW_SHARES = 7
"""A heading, a blank line and the least that is worth showing of operators."""
_SCROLLBAR = 1
_CHART_ROWS, _MOST_CHART_ROWS = 3, 8


def overview_page(detail: RunDetail, width: int, height: int) -> tuple[Line, ...]:
    """All of it; the page is scrolled where a terminal is low, and charts use the room of a high one."""
    room = width - _SCROLLBAR
    answer, *blocks = _blocks(detail, room)
    lines = [*answer, *(line for block in blocks if block for line in (*block, ()))]
    series = main_series(detail)
    profiled = main_step(detail.run, detail.passes)
    if series is not None:
        lines += _grown(detail.run, series, room, height - len(lines))
    elif not isinstance(profiled, Missing):
        lines += _where(profiled[1], room, height - len(lines))
        lines += largest_operators(detail, *profiled, room, height - len(lines))
    return tuple(lines)


def preview_lines(detail: RunDetail, width: int, height: int) -> list[Line]:
    """The same beside the list of runs: below the name of the run the parts that fit whole."""
    summary = detail.run.summary
    title, about = f"{summary.short_id}  ", clean(f"{summary.profile}  {day(summary)}")
    lines: list[Line] = [(Span(title, "title"), Span(cut(about, width - len(title)), "dim"))]
    if summary.label:
        lines.append((Span(cut(clean(summary.label), width)),))
    lines += stacked(_blocks(detail, width, _MOST_CASES), height - len(lines))
    series, room = main_series(detail), height - len(lines) - 1
    most = min((room - _AROUND_CHARTS) // (_CHART_ROWS + 1), _MOST_CHARTS)
    if series is not None and most > 0:
        lines += [(), *_grown(detail.run, series, width, room, most)]
    return [fitted(line, width) for line in lines]


def _blocks(detail: RunDetail, width: int, most: int | None = None) -> Sequence[Sequence[Line]]:
    """The answer, facts, at most so many rates or loads, and the step of the main case."""
    loads, main = loads_of(detail), main_step(detail.run, detail.passes)
    measured: Iterable[Line] = _rates(detail.run, width, most)
    if loads is not None:
        measured = (*load_lines(loads, width, most), *(note_lines(loads, width) if most is None else ()))
    step = () if isinstance(main, Missing) else step_lines(*main, width)
    return [*map(list, (verdict_lines(detail, width), _facts(detail, width), measured, step))]


def verdict_lines(detail: RunDetail, width: int) -> tuple[Line, ...]:
    """What the run says."""
    run, loads = detail.run, loads_of(detail)
    words = {check.word for check in performance_checks(run)}
    style = "alarm" if ABOVE_LIMIT in words else "warn" if BELOW_NORMAL in words else "title"
    text = headline_of(run, loads, detail.passes)
    found = next((one for one in detail.passes.values() if one.is_valid), None)
    if found is not None and run.summary.profile in (TRACE_PROFILE, DEMO_PROFILE) and not speeds_of(run):
        made_up = headline_sentences(run)[:1] if run.summary.is_made_up else ()
        notes = [event.message for event in detail.events]
        answer = answer_of_trace(found, run.cases[0].device_name, "", notes)
        text = " ".join((*made_up, sentence(answer)))
    return paragraph(clean(text), width, style)


def _facts(detail: RunDetail, width: int) -> Iterator[Line]:
    """Box, time, software and how sure, two a line where there is room."""
    summary = detail.run.summary
    took = ""
    if summary.ended_utc_us is not None:
        took = format_seconds((summary.ended_utc_us - summary.started_utc_us) / 1e6)
    price = "" if isinstance(summary.price, Missing) else f", {format_hourly(summary.price.usd_per_hour)}"
    launches = {speed.launches for _, speed in speeds_of(detail.run)}
    sure = f"{counted(min(launches), 'launch')} a case" if launches else ""
    assumed, notes = mostly_assumed(detail.run), run_notes(detail.run, is_brief=True)
    how_sure = f"{sure}: {assumed}" if assumed else ", ".join(filter(None, (sure, *notes[:1])))
    driver = summary.machine.driver_version
    loads = loads_of(detail)
    software = torch_words(summary) if loads is None else server_line(loads)
    software += "" if isinstance(driver, Missing) else f", driver {driver}"
    facts = [
        ("box", device_words(summary) + price),
        ("run", f"{summary.profile}, {day(summary)}{', ' if took else ''}{took}"),
        ("software" if loads is None else "server", software),
        ("launches", how_sure),
        ("status", "" if summary.status == "finished" else f"{summary.status} {summary.status_reason}"),
    ]
    facts = [(name, clean(text)) for name, text in facts if text]
    yield from facts_lines(facts, width, 10, 2 if width >= _WIDE else 1, most=3)


# Rates


def _rates(run: Run, width: int, most: int | None) -> Iterator[Line]:
    measured = speeds_of(run)
    if not measured:
        return
    has_sheet = any(share_of_sheet(uses_of(case, (), run.summary.machine)) for case, _ in measured)
    right_words = (Span("bar: of the data sheet's peak", "dim"),) if has_sheet else ()
    yield section((Span("rates", "title"),), width, right_words)
    yield from table_lines(brief_table(run, measured[:most]), width, margin=len(_MARGIN))
    left = len(measured) - len(measured[:most])
    if left:
        yield fitted((Span(f"{_MARGIN}{left} more: enter", "dim"),), width)


# A step


def step_lines(case: CaseResult, breakdown: StepBreakdown, width: int) -> Iterator[Line]:
    """One bar whose parts have a gap between them, and what they are."""
    title = (
        Span(f"a step of {clean(case_name(case))}", "title"),
        Span(f"  {format_seconds(breakdown.step_ns / 1e9)}"),
    )
    yield section(title, width, (Span("by its profiled pass", "dim"),))
    bar = Table((stacked_bar(step_parts(breakdown), rows=2),))
    yield from table_lines(bar, width, margin=len(_MARGIN), has_headings=False)


def share_lines(breakdown: StepBreakdown, width: int, margin: int = 0) -> Iterator[Line]:
    """A bar for each kind of time in a step, with the phases that it is of."""
    shares = [share for share in breakdown.shares if share.share >= _LEAST_OF_STEP]
    phases = [[part for part in share.phases if part[1] >= _LEAST_OF_STEP] for share in shares]
    words = [", ".join(f"{phase} {format_percent(part)}" for phase, part in of) for of in phases]
    columns = (
        Column("", [share.name for share in shares]),
        bars([share.share for share in shares], 1.0, "chart", priority=0),
        Column("", [format_percent(share.share) for share in shares], True),
        Column("", [Span(text, "dim") for text in words], breaks=True),
    )
    yield from table_lines(Table(columns), width, margin=margin, folds=True, has_headings=False)


def _where(breakdown: StepBreakdown, width: int, height: int) -> list[Line]:
    """The kinds of time as bars, where that leaves room for operators."""
    shares = list(share_lines(breakdown, width, len(_MARGIN)))
    if len(shares) + _BELOW_SHARES > height:
        return []
    title = section((Span("where its time goes", "title"),), width, (Span("tab Step", "dim"),))
    return [title, *shares, ()]


# Telemetry


def main_series(detail: RunDetail) -> TelemetrySeries | None:
    """Of the device that was measured: a GPU with a case that has a rate, else the host."""
    used = {case.device_index for case in detail.run.cases if case.outcome == "ok"}
    by_device = {one.device_index: one for one in detail.series}
    wanted = [index for index in by_device if index in used] or ([HOST] if HOST in by_device else [])
    return by_device[min(wanted)] if wanted else None


def _grown(
    run: Run, series: TelemetrySeries, width: int, height: int, most: int = _MOST_CHARTS
) -> list[Line]:
    """Telemetry, with charts as high as there is room for."""
    lines = list(telemetry_lines(run, series, width, most))
    above_each_other = (len(lines) - 2) // (_CHART_ROWS + 1)
    rows = min((height - 2) // max(above_each_other, 1) - 1, _MOST_CHART_ROWS)
    return lines if rows <= _CHART_ROWS else list(telemetry_lines(run, series, width, most, rows))


def telemetry_lines(
    run: Run, series: TelemetrySeries, width: int, most: int = _MOST_CHARTS, rows: int = _CHART_ROWS
) -> Iterator[Line]:
    """At most so many metrics of one device over the run, as areas of so many rows with axes."""
    device = series.device_index
    found = [(metric, one) for metric in charted(device) if (one := series.of(metric.key)).known][:most]
    if not found:
        return
    seconds = (series.t_us[-1] - series.first_us) / 1e6
    name = "host" if device == HOST else f"GPU {device}"
    whole = (Span(f"whole run, {format_seconds(seconds)}", "dim"),)
    yield section((Span("telemetry", "title"), Span(f"  {name}")), width, whole)
    abreast = 2 if width >= _WIDE else 1
    each = abreast_cells(width, abreast)
    limits = limits_of(run.summary.machine, device)
    blocks = []
    for metric, one in found:
        middle = median(one.known)
        limit = metric.limit_text(limits, after=metric.text(middle))
        note = ", ".join(filter(None, ("median", f"most {metric.text(max(one.known))}", limit)))
        blocks.append(time_chart(metric, one, limits, middle, note, max(seconds, 1e-6), each, rows))
    axis = time_axis("0:00", "", format_clock(round(seconds)), each)
    yield from above_axis(blocks, axis, width, abreast)


_LEAST_OPERATORS = 4
"""Fewer are not worth a heading."""
_NAME, _SHAPES = 40, 60
"""Cells at most."""


def largest_operators(
    detail: RunDetail, case: CaseResult, breakdown: StepBreakdown, width: int, height: int
) -> Iterator[Line]:
    """An operator a line with its time and share of the step, below a heading.

    Nothing if the height holds too few of them; with shapes where the width holds those too.
    """
    most = height - 1
    if most < _LEAST_OPERATORS or not any(op.time_ns for op in breakdown.operators):
        return
    chosen = sorted((op for op in breakdown.operators if op.time_ns), key=lambda op: -op.time_ns)[:most]
    table = operator_table(detail.passes[case.case_id], chosen, breakdown.step_ns)
    name, time, share, _, phase, _, shapes = table.written
    columns = (
        replace(name, cells=[cut(clean(text), _NAME) for text in name.texts]),
        phase,
        time,
        share,
        bars([op.time_ns / chosen[0].time_ns for op in chosen], 1.0, "chart"),
        replace(shapes, cells=[Span(cut(clean(text), _SHAPES), "dim") for text in shapes.texts]),
    )
    legend = (Span("bar: of the largest; tab Operators: all", "dim"),)
    yield section((Span("the largest operators", "title"),), width, legend)
    yield from table_lines(Table(columns), width, margin=3, has_headings=False)


@lru_cache(maxsize=8)
def loads_of(detail: RunDetail) -> ServingRun | None:
    """The loads of a run, whose requests are sorted once, not for each picture; None for another kind."""
    found = serving_of(detail.run, detail.loads)
    return None if isinstance(found, Missing) else found


def load_lines(loads: ServingRun, width: int, most: int | None = None) -> Iterator[Line]:
    """The curve: a row for each load, a bar for its output tokens per second; `most` rows of it."""
    levels = measured_levels(loads)
    if not levels:
        return
    legend = (Span("bar: output tokens/s", "dim"),)
    yield section((Span("loads", "title"),), width, legend)
    shown = levels[:most]
    marks = [level.kind == SEARCH for level in shown]
    yield from table_lines(curve_table(shown, styles="compute"), width, margin=3, marks=marks)
    if len(shown) < len(levels):
        yield fitted((Span(f"{_MARGIN}{len(levels) - len(shown)} more: enter", "dim"),), width)


def note_lines(loads: ServingRun, width: int) -> Iterator[Line]:
    """Loads without a result, and what limits the meaning of the others."""
    for text in unmeasured_lines(loads):
        yield from paragraph(f"{_MARGIN}{clean(text)}", width, "warn", indent=len(_MARGIN) + 2)
    for text in serving_notes(loads):
        yield from paragraph(f"{_MARGIN}{clean(text)}", width, "dim", indent=len(_MARGIN) + 2)


def boxes_lines(detail: RunDetail, boxes: Sequence[Run], width: int, height: int) -> list[Line]:
    """The main case of a run on every box that measured it, the fastest first; empty if there is no other."""
    main = main_case(detail.run)
    if main is None or height < 4:
        return []
    this, *rest = runs_with_common_ids([detail.run, *boxes])
    mine = this.summary.machine.machine_id
    others = [run for run in rest if run.summary.machine.machine_id != mine]
    found = on_boxes(main.case, [detail.run, *others])
    if len(found) < 2:
        return []
    name = case_subject(main.case, [case.case for case in detail.run.cases if case.outcome == "ok"])
    lines: list[Line] = [
        section(
            (Span(f"{clean_text(name)} on every box", "title"),), width, (Span("newest run of each", "dim"),)
        )
    ]
    costs = [
        one.cost.usd_per_million for one in found if isinstance(one.cost, Cost) and one.cost.usd_per_million
    ]
    millions, unit = cost_unit(min(costs), main.case.unit) if costs else (1.0, "")
    shown = found[: height - 2]
    boxes_of = [device_words(one.run) for one in shown]
    names = [
        clean_text(box if boxes_of.count(box) == 1 else f"{box}  {one.run.label or one.run.short_id}")
        for box, one in zip(boxes_of, shown, strict=True)
    ]
    here = [one.run.run_id == detail.run.summary.run_id for one in shown]
    rates = [one.speed.units_per_s for one in shown]
    prices = [
        format_usd(one.cost.usd_per_million * millions) if isinstance(one.cost, Cost) else "–"
        for one in shown
    ]
    columns = (
        Column(
            "",
            [Span(name, "title" * is_here) for name, is_here in zip(names, here, strict=True)],
            breaks=True,
        ),
        Column("", [format_rate(rate, main.case.unit) for rate in rates], True),
        bars(rates, rates[0], "compute"),
        *((Column(f"$ per {unit}", prices, True, 2),) if costs else ()),
    )
    return [*lines, *table_lines(Table(columns), width, marks=here)]


def cases_lines(run: Run, width: int, height: int) -> list[Line]:
    """The cases with their rates, as many as fit."""
    rows = [cells for case, cells in case_rows(run) if case.outcome not in NOT_RUN]
    if not rows or height < 4:
        return []
    shown = rows[: height - 2] if len(rows) > height - 1 else rows
    lines: list[Line] = [section((Span("cases", "title"),), width, (Span("enter: all of it", "dim"),))]
    cells: list[tuple[str | Span, ...]] = [(*row[:4], Span(row[4], "dim")) for row in shown]
    lines += table_lines(table_of(CASE_HEADINGS, cells, (1, 2, 3), (0, 4), priorities={3: 1, 4: 2}), width)
    if len(shown) < len(rows):
        lines[-1] = (Span(f"  {len(rows) - len(shown) + 1} more", "dim"),)
    return lines


def marked_lines(marked: Sequence[RunSummary], count: int, width: int) -> list[Line]:
    """The marked runs by the letters that a comparison would give them."""
    if not count:
        return []
    spans: list[Span] = [Span("  ")]
    for place, run in enumerate(marked):
        name = clean_text(run.label or device_words(run))
        spans += [
            Span(f"{chr(ord('a') + place)} ", "title"),
            Span(f"{name} "),
            Span(f"{run.short_id}   ", "dim"),
        ]
    if count > len(marked):
        spans.append(Span(f"and {count - len(marked)} of other files   ", "dim"))
    spans.append(Span("c compares them" if count > 1 else "mark another with space", "dim"))
    return [section((Span("marked to compare", "title"),), width), fitted(spans, width)]
