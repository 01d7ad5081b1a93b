"""A run on one axis of time: what was timed, and in lanes below it what the box did meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.analysis.statistics import hodges_lehmann
from gputui.document.theme import SELECTED
from gputui.metrics import charted, limits_of
from gputui.model.devices import HOST
from gputui.model.result import CaseResult
from gputui.model.units import counted, format_change, format_clock, format_percent, format_rate
from gputui.services.results.block_times import measured_blocks
from gputui.services.results.browser import RunDetail
from gputui.services.results.labels import case_name, launch_number
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.waiting import CROWDED_SHARE, own_launches_of
from gputui.store.reading import MeasuredSpan, TelemetrySeries
from gputui.tui.screens.results.overview import main_series, step_lines
from gputui.tui.screens.results.window import TimeWindow
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, left, right
from gputui.tui.widgets.charts import area, body_styles
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import section

_LEAD, _VALUE = 19, 10
"""Cells of a lane's name and axis, and of its value at the cursor."""
_SCROLLBAR = 1
_LEAST_CELLS = 8
_HIGHEST = 3
"""Rows of a chart, at most; two at least, for the ends of its axis. Where there are more, one stays empty."""
_LEAST_TICK = 10
"""Cells from one time of the axis to the next, at least."""
_TICKS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
_AROUND_CHARTS = 8
"""Rows of the cursor, the axis, the cases, and lanes that are lines."""


@dataclass(frozen=True, slots=True)
class ChartPlace:
    """Where the lanes are on the page."""

    left: int
    cells: int

    def share_at(self, x: int) -> float:
        """The share of the lanes to the left of a cell's centre; below 0 or above 1 outside."""
        return (x - self.left + 0.5) / self.cells


def chart_place(width: int) -> ChartPlace:
    """Where the lanes are on a page of this width."""
    return ChartPlace(_LEAD, max(width - _LEAD - _VALUE - _SCROLLBAR, _LEAST_CELLS))


@dataclass(frozen=True, slots=True)
class _Timed:
    """One block on the axis."""

    first_us: int
    last_us: int
    speed_pct: float
    """Of the fastest block of its case."""
    waited: float
    """Share of their time that its threads waited for a CPU."""
    held: str
    """Why a GPU's clocks were held back, or empty."""


def timeline(
    detail: RunDetail, series: Sequence[TelemetrySeries], window: TimeWindow, width: int, height: int
) -> tuple[Line, ...]:
    """The part of a run within a window, `width` cells wide; lanes are as high as `height` rows allow.

    `series` has the telemetry of that part.
    """
    place = chart_place(width)
    cursor = min(_cell_of(window.cursor_us, window, place.cells), place.cells - 1)
    timed = _blocks(detail)
    here = at_cursor(detail, window)
    moment = _moment(window.cursor_us - window.whole_from_us)
    lines: list[Line] = [
        fitted((Span(f"cursor {moment}", "title"), Span(f"   {_slice_words(detail, here)}")), width),
        _whole_line(window, place),
        (Span(f"{'time':{_LEAD}}{_ticks(window, place.cells):{place.cells}}{'at cursor':>{_VALUE}}", "dim"),),
    ]
    for name, texts in _slices(detail):
        lines.append((Span(f"{name:{_LEAD}}", "dim"), *_slice_lane(texts, here, window, place.cells, cursor)))
    main = main_series(detail)
    shown = sorted(
        series, key=lambda one: (main is None or one.device_index != main.device_index, one.device_index)
    )
    lanes = sum(len(charted(one.device_index)) for one in shown[:1]) + bool(timed)
    each = (height - _AROUND_CHARTS) // max(lanes, 1)
    rows = min(max(each, 2), _HIGHEST)
    if timed:
        speeds = _by_cell(timed, window, place.cells, lambda one: one.speed_pct, min)
        value = next(
            (one.speed_pct for one in timed if one.first_us <= window.cursor_us <= one.last_us), None
        )
        text = "–" if value is None else f"{value:.0f} %"
        lines += _lane("speed", "100 %", text, speeds, 100.0, "power", rows, cursor)
        lines += _marks(timed, window, place.cells, cursor)
        lines += [()] if each > rows else []
    for one in shown:
        if len(shown) > 1 and one is not shown[0]:
            title = "host" if one.device_index == HOST else f"GPU {one.device_index}"
            lines.append(section((Span(title, "title"),), width))
        for lane in _telemetry_lanes(detail, one, window, place.cells, rows, cursor):
            lines += [*lane, *([()] if each > rows else [])]
    lines += _opened(detail, here, width, height - len(lines))
    return tuple(lines)


def _blocks(detail: RunDetail) -> list[_Timed]:
    """The blocks of a run that are on its axis."""
    spans = {(span.case_id, span.launch_id): span for span in detail.spans}
    found = []
    for case in detail.run.cases:
        reasons = {(r.launch_id, r.block_index): r for r in detail.reasons.get(case.case_id, ())}
        steps_ns = [block.block_ns / block.steps for m in case.measurements for block in m.blocks]
        for measurement in case.measurements:
            span = spans.get((case.case_id, measurement.launch_id))
            if span is None:
                continue
            for block in measurement.blocks:
                first_us = span.first_utc_us + (block.start_ns - measurement.blocks[0].start_ns) // 1000
                why = reasons.get((measurement.launch_id, block.index))
                held = "by heat" if why and why.slowed else "by power" if why and why.power_capped else ""
                found.append(
                    _Timed(
                        first_us,
                        first_us + block.wall_ns // 1000,
                        100 * min(steps_ns) / (block.block_ns / block.steps),
                        (block.waited_ns or 0) / max(block.thread_ns, 1),
                        held,
                    )
                )
    return found


# What was timed


def at_cursor(detail: RunDetail, window: TimeWindow) -> list[MeasuredSpan]:
    """What was timed at the cursor: cases that one launch interleaved, the one with a profiled pass first."""
    found = [one for one in detail.spans if one.first_utc_us <= window.cursor_us <= one.last_utc_us]
    return sorted(found, key=lambda one: (one.case_id not in detail.passes, one.case_id))


def _slice_words(detail: RunDetail, here: Sequence[MeasuredSpan]) -> str:
    cases = {case.case_id: case for case in detail.run.cases}
    timed = [cases[one.case_id] for one in here if one.case_id in cases]
    if not timed:
        return "nothing was timed"
    precisions = " and ".join(dict.fromkeys(one.case.variant.precision for one in timed))
    return f"{timed[0].case.work.workload} {precisions}, launch {launch_number(timed[0], here[0].launch_id)}"


def _slices(detail: RunDetail) -> list[tuple[str, list[tuple[MeasuredSpan, str]]]]:
    """Rows of slices with their names: workloads, and below them the precisions that a launch interleaved."""
    cases = {case.case_id: case.case for case in detail.run.cases}
    works, precisions = [], []
    by_launch: dict[int, list[MeasuredSpan]] = {}
    for span in detail.spans:
        if span.case_id in cases:
            by_launch.setdefault(span.launch_id, []).append(span)
    for launch_id, spans in by_launch.items():
        mine = [cases[span.case_id] for span in spans]
        first_us, last_us = min(s.first_utc_us for s in spans), max(s.last_utc_us for s in spans)
        whole = MeasuredSpan(spans[0].case_id, launch_id, first_us, last_us)
        works.append((whole, mine[0].work.workload))
        precisions.append((whole, " ".join(dict.fromkeys(one.variant.precision for one in mine))))
    return [("case", works), ("precision", precisions)] if works else []


def _slice_lane(
    slices: Sequence[tuple[MeasuredSpan, str]],
    here: Sequence[MeasuredSpan],
    window: TimeWindow,
    cells: int,
    cursor: int,
) -> Iterator[Span]:
    """Slices with their names, as far as these fit; the one at the cursor stands out."""
    current = here[0].launch_id if here else -1
    place = 0
    for span, name in slices:
        first = max(_cell_of(span.first_utc_us, window, cells), place)
        end = min(max(_cell_of(span.last_utc_us, window, cells), first + 1), cells)
        if end <= place or first >= cells:
            continue
        yield Span(" " * (first - place))
        wide = max(end - first - (end < cells), 1)
        style = "accent" if span.launch_id == current else "dim"
        yield Span((name if len(name) <= wide else "").center(wide), f"{style}{SELECTED}")
        yield Span(" " * (end - first - wide))
        place = end


def _whole_line(window: TimeWindow, place: ChartPlace) -> Line:
    """Which part of the run is shown."""
    whole_us = window.whole_to_us - window.whole_from_us
    ends = "0:00", format_clock(whole_us / 1e6)
    room = max(place.cells - len(ends[0]) - len(ends[1]) - 2, 1)
    first = (window.from_us - window.whole_from_us) * room // whole_us
    shown = max(window.span_us * room // whole_us, 1)
    return (
        Span(f"{'whole run':{_LEAD}}{ends[0]} ", "dim"),
        Span("─" * first, "track"),
        Span("━" * shown, "accent"),
        Span("─" * (room - first - shown), "track"),
        Span(f" {ends[1]}", "dim"),
    )


def _ticks(window: TimeWindow, cells: int) -> str:
    """Times along the axis, each beginning at its cell."""
    cell_s = window.span_us / 1e6 / cells
    step_s = next((one for one in _TICKS_S if one >= _LEAST_TICK * cell_s), _TICKS_S[-1])
    from_s = (window.from_us - window.whole_from_us) / 1e6
    text = ""
    for number in range(math.ceil(from_s / step_s), math.ceil((from_s + cells * cell_s) / step_s)):
        seconds = number * step_s
        label = format_clock(seconds) + (f"{seconds % 1:.1f}"[1:] if step_s < 1 else "")
        at = int((seconds - from_s) / cell_s)
        if at >= len(text) and at + len(label) <= cells:
            text = f"{text:{at}}{label} "
    return text


# Lanes


def _lane(
    name: str,
    top: str,
    value: str,
    cells: Sequence[float | None],
    high: float,
    hue: str,
    rows: int,
    cursor: int,
) -> Iterator[Line]:
    """A chart from 0 to `high`, its two ends at the left and the value at the cursor at the right."""
    for row, (text, style) in enumerate(zip(area(cells, high, rows), body_styles(hue, rows), strict=True)):
        end = top if row == 0 else "0" if row == rows - 1 else ""
        lead = f"{left(name if row == 0 else '', _LEAD - len(end) - 2)} {end} "
        yield (
            Span(lead, "dim"),
            Span(text[:cursor], style),
            Span("┃", "accent"),
            Span(text[cursor + 1 :], style),
            Span(right(value if row == 0 else "", _VALUE), "title"),
        )


def _telemetry_lanes(
    detail: RunDetail, series: TelemetrySeries, window: TimeWindow, cells: int, rows: int, cursor: int
) -> Iterator[Iterator[Line]]:
    limits = limits_of(detail.run.summary.machine, series.device_index)
    for metric in charted(series.device_index):
        if not series.of(metric.key).known:
            continue
        over_time = series.of(metric.key, window.from_us)
        drawn = over_time.cells(window.span_us * 1e-6 / cells, cells, min if metric.unit == "MHz" else max)
        top = metric.top(limits, max(over_time.known, default=0.0))
        yield _lane(
            metric.name, metric.axis(top), metric.text(drawn[cursor]), drawn, top, metric.hue, rows, cursor
        )


def _marks(timed: Sequence[_Timed], window: TimeWindow, cells: int, cursor: int) -> Iterator[Line]:
    """When clocks were held back and when other programs had the CPU, as lines."""
    here = next((one for one in timed if one.first_us <= window.cursor_us <= one.last_us), None)
    if any(one.held for one in timed):
        held = _by_cell(timed, window, cells, lambda one: float(bool(one.held)), max)
        share = format_percent(sum(bool(one.held) for one in timed) / len(timed))
        yield _line("slowed", held, 0.5, (here.held if here else "") or share, cursor)
    waited = _by_cell(timed, window, cells, lambda one: one.waited, max)
    most = f"most {format_percent(max((one.waited for one in timed), default=0.0))}"
    yield _line(
        "other programs", waited, CROWDED_SHARE, most if here is None else format_percent(here.waited), cursor
    )


def _line(name: str, values: Sequence[float | None], most: float, value: str, cursor: int) -> Line:
    spans = [Span(f"{name:{_LEAD}}", "dim")]
    for place, one in enumerate(values):
        is_over = one is not None and one > most
        text, style = ("━", "warn") if is_over else ("─", "track")
        spans.append(Span("┃", "accent") if place == cursor else Span(text, style))
    return (*spans, Span(right(value, _VALUE), "title"))


def _by_cell(
    timed: Sequence[_Timed],
    window: TimeWindow,
    cells: int,
    value_of: Callable[[_Timed], float],
    combine: Callable[[float, float], float],
) -> list[float | None]:
    """A value of the blocks in each cell; None where nothing was timed."""
    found: list[float | None] = [None] * cells
    for one in timed:
        first, last = _cell_of(one.first_us, window, cells), _cell_of(one.last_us, window, cells)
        for cell in range(max(first, 0), min(last, cells - 1) + 1):
            before = found[cell]
            found[cell] = value_of(one) if before is None else combine(before, value_of(one))
    return found


def _opened(detail: RunDetail, here: Sequence[MeasuredSpan], width: int, height: int) -> Iterator[Line]:
    """The launch at the cursor beside the case's others and its profiled step, where there is room."""
    cases = {case.case_id: case for case in detail.run.cases}
    for span in here:
        case = cases.get(span.case_id)
        words = None if case is None else _launch_words(case, span.launch_id)
        if case is None or words is None or height < 3:
            continue
        title = (Span(case_name(case), "title"), Span(f"  launch {launch_number(case, span.launch_id)}"))
        yield section(title, width, (Span("enter opens it", "dim"),))
        yield from paragraph(words, width, indent=2)
        height -= 3
        breakdown = breakdown_of(detail.passes[case.case_id], case) if case.case_id in detail.passes else None
        if isinstance(breakdown, StepBreakdown):
            step = list(step_lines(case, breakdown, width))
            yield from step if len(step) <= height else ()
            height -= len(step)


def _launch_words(case: CaseResult, launch_id: int) -> str | None:
    """The rate of a launch, without the waiting where that is known, and how far it is from the others'."""
    launches = zip(measured_blocks(case), own_launches_of(case), strict=True)
    rates = {blocks[0].launch_id: 1 / hodges_lehmann(seconds) for blocks, seconds in launches}
    mine = rates.pop(launch_id, None)
    if mine is None:
        return None
    words = f"{format_rate(mine, case.case.unit)} in this launch"
    if rates:
        others = median(rates.values())
        words += f", {format_rate(others, case.case.unit)} in its {counted(len(rates), 'other launch')}"
        words += f" ({format_change(mine / others)})"
    return words


def _cell_of(t_us: int, window: TimeWindow, cells: int) -> int:
    return (t_us - window.from_us) * cells // window.span_us


def _moment(since_us: int) -> str:
    """Time since the first reading: `3.4 s`, `2:03.4`, `1:02:03.4`."""
    seconds, tenth = divmod(round(since_us / 100_000), 10)
    return f"{format_clock(seconds)}.{tenth}" if seconds >= 60 else f"{seconds}.{tenth} s"
