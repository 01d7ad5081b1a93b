"""A run on one page: the answer, its rates as bars, a step as one bar, and the telemetry with its axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.analysis.peak_tests import ABOVE_LIMIT, BELOW_NORMAL
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.model.result import CaseResult, Run
from gputui.model.telemetry import HOST
from gputui.model.units import (
    counted,
    format_bytes,
    format_hourly,
    format_percent,
    format_rate,
    format_seconds,
    three_digits,
)
from gputui.services.compare.why import CATEGORY_WORDS
from gputui.services.results.browser import RunDetail
from gputui.services.results.costs import cost_cells
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import case_order, run_headline
from gputui.services.results.labels import (
    case_name,
    day,
    device_words,
    interval_words,
    mostly_assumed,
    run_notes,
    shared_case_words,
    short_result_name,
    torch_words,
)
from gputui.services.results.roofline import peak_share
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.throughput import speeds_of
from gputui.services.serving.text import server_line
from gputui.services.traces.overview import sentence
from gputui.store.reading import TelemetrySeries
from gputui.tui.screens.results.largest_operators import largest_operators
from gputui.tui.screens.results.load_lines import headline, load_lines, loads_of, note_lines
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.terminal.theme import TONES
from gputui.tui.widgets.cells import clean, fitted, left, right, side_by_side, width_of
from gputui.tui.widgets.charts import round_ceiling
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import area_lines, gauge_spans, section
from gputui.tui.widgets.wrapping import wrapped

_MOST_CHARTS = 4
_MARGIN = "   "
_WIDE = 100
_RATE, _UNIT, _SPREAD, _PEAK = 5, 7, 14, 13
_LEAST_SHARE = 0.01
_LEAST_OF_STEP = 0.001
_LEAST_BAR = 8
_BELOW_SHARES = 7
"""A heading, a blank line and the least that is worth showing of operators."""
_AXIS = 9
_MIB = 2**20
_SCROLLBAR = 1
_CHART_ROWS, _MOST_CHART_ROWS = 3, 8
_FAMILIES = ("compute", "memory", "power", "clock", "link")


@dataclass(frozen=True, slots=True)
class _Chart:
    """One metric of the telemetry."""

    key: str
    title: str
    family: str
    show: Callable[[float], str]
    most: Callable[[Run, int], float | None]
    """The upper end of its axis; None for the highest value."""
    line: Callable[[Run, int], float | None] = lambda run, device: None
    """A limit within the axis, shown as a line."""


def overview_page(detail: RunDetail, width: int, height: int) -> tuple[Line, ...]:
    """All of it; the page is scrolled where a terminal is low, and charts use the room of a high one."""
    room = width - _SCROLLBAR
    run = detail.run
    lines = [*_answer(detail, room), *_facts(detail, room), ()]
    loads = loads_of(detail)
    if loads is not None:
        lines += [*load_lines(loads, room), *note_lines(loads, room), ()]
        series = main_series(detail)
        return tuple(lines) if series is None else (*lines, *_grown(run, series, room, height - len(lines)))
    measured = speeds_of(run)
    if measured:
        lines += [*_rates(run, measured, room), ()]
    profiled = [(case, found) for case, found in _profiled(detail) if not isinstance(found, Missing)]
    main = min(profiled, key=lambda pair: case_order(pair[0].case)) if profiled else None
    if main is not None:
        lines += [*step_lines(*main, room), ()]
    series = main_series(detail)
    if series is not None:
        lines += _grown(run, series, room, height - len(lines))
    elif main is not None:
        lines += _where(main[1], room, height - len(lines))
        lines += largest_operators(detail, *main, room, height - len(lines))
    return tuple(lines)


def _answer(detail: RunDetail, width: int) -> Iterator[Line]:
    run = detail.run
    words = {check.word for check in performance_checks(run)}
    style = "alarm" if ABOVE_LIMIT in words else "warn" if BELOW_NORMAL in words else "title"
    loads = loads_of(detail)
    text = run_headline(run) if loads is None else headline(detail, loads)
    if run.summary.profile == TRACE_PROFILE and detail.passes:
        text = sentence(next(iter(detail.passes.values())), run.cases[0].device_name)
    for row in wrapped(clean(text), width - 1, 4):
        yield fitted((Span(row, style),), width)


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
    ]
    facts = [(name, clean(text)) for name, text in facts if text]
    abreast = 2 if width >= _WIDE else 1
    each = width // abreast
    short = [fact for fact in facts if width_of(fact[1]) <= each - 11]
    for place in range(0, len(short), abreast):
        spans: list[Span] = []
        for name, text in short[place : place + abreast]:
            spans += [Span(left(name, 10), "dim"), Span(left(text, each - 11) + " ")]
        yield fitted(spans, width)
    for name, text in facts:
        if (name, text) not in short:
            for number, row in enumerate(wrapped(text, width - 11, 3)):
                yield fitted((Span(left("" if number else name, 10), "dim"), Span(row)), width)


# Rates


def _rates(run: Run, measured: Sequence[tuple[CaseResult, SpeedEstimate]], width: int) -> Iterator[Line]:
    shares = [peak_share(case, run.cases, run.summary.machine) for case, _ in measured]
    of_sheet = any(share is not None and share.of == "peak" for share in shares)
    legend = "bar: of the data sheet's peak" if of_sheet else "bar: of this box's peak test"
    right_words = (Span(legend, "dim"),) if any(shares) else ()
    yield section((Span("rates", "title"),), width, right_words)
    shared = shared_case_words(case.case for case, _ in measured) if len(measured) > 1 else []
    names = [clean(short_result_name(case, [*shared, "gpu"], is_short=True)) for case, _ in measured]
    _, *costs = cost_cells(measured, run.summary.price)
    cost = max(map(len, costs), default=0)
    name = min(max(map(len, names)) + 1, 34)
    taken = len(_MARGIN) + name + _RATE + _UNIT + _SPREAD + 4 + (_PEAK + 1 if any(shares) else 0)
    has_costs = cost > 0 and width - taken - cost - 2 >= 8
    room = width - taken - (cost + 2 if has_costs else 0) - 2
    has_bars = any(shares) and room >= 8
    for (case, speed), label, share, price in zip(measured, names, shares, costs, strict=True):
        number, _, unit = format_rate(speed.units_per_s, case.case.unit).partition(" ")
        spans = [
            Span(_MARGIN + left(label, name) + " "),
            Span(right(number, _RATE), "title"),
            Span(f" {left(unit, _UNIT)}", "dim"),
            Span(" " + right(interval_words(speed), _SPREAD) + " "),
        ]
        if has_bars:
            bar = gauge_spans(share.share, 1.0, room, "compute") if share else (Span(" " * room),)
            spans += [Span(" "), *bar]
        if any(shares):
            spans.append(Span(" " + right("" if share is None else share.text, _PEAK)))
        if has_costs:
            spans.append(Span("  " + right(price, cost)))
        yield fitted(spans, width)


# A step


def _profiled(detail: RunDetail) -> Iterator[tuple[CaseResult, StepBreakdown | Missing]]:
    for case in detail.run.cases:
        if case.case_id in detail.passes:
            yield case, breakdown_of(detail.passes[case.case_id], case)


def step_lines(case: CaseResult, breakdown: StepBreakdown, width: int) -> Iterator[Line]:
    """One bar whose parts have a gap between them; the legend names them by their numbers."""
    title = (
        Span(f"a step of {clean(case_name(case))}", "title"),
        Span(f"  {format_seconds(breakdown.step_ns / 1e9)}"),
    )
    yield section(title, width, (Span("of the profiled pass", "dim"),))
    parts = _parts(breakdown)
    room = width - len(_MARGIN) - (len(parts) - 1)
    bar, numbered = [Span(_MARGIN)], [Span(_MARGIN)]
    legend: list[tuple[Span, ...]] = []
    widths = [max(round(share * room), 1) for _, share in parts]
    widths[widths.index(max(widths))] -= max(sum(widths) - room, 0)
    for number, ((name, share), cells) in enumerate(zip(parts, widths, strict=True)):
        family = _FAMILIES[number % len(_FAMILIES)]
        words, style = ("dim", "track") if name.startswith("idle") else (family, f"{family} {TONES}")
        between = Span(" ") if number else Span("")
        bar += [between, Span("█" * cells, style)]
        numbered += [between, Span(f"{number + 1}", words), Span("█" * (cells - 1), style)]
        legend.append(
            (Span(f"{number + 1} ", words), Span(name, ""), Span(f" {format_percent(share)}", words))
        )
    yield fitted(bar, width)
    yield fitted(numbered, width)
    row: list[Span] = [Span(_MARGIN)]
    for entry in legend:
        if sum(len(span.text) for span in (*row, *entry)) + 2 > width and len(row) > 1:
            yield fitted(row[:-1], width)
            row = [Span(_MARGIN)]
        row += [*entry, Span("   ")]
    yield fitted(row[:-1], width)


def _parts(breakdown: StepBreakdown) -> list[tuple[str, float]]:
    """What a step is made of, by category of operator where the device worked, the largest first."""
    by_category: dict[str, float] = {}
    total_ns = sum(op.time_ns for op in breakdown.operators)
    busy = sum(share.share for share in breakdown.shares if not share.name.startswith("idle"))
    for op in breakdown.operators:
        by_category[op.category] = by_category.get(op.category, 0.0) + op.time_ns
    found = [
        (CATEGORY_WORDS.get(name, name), time_ns / total_ns * busy)
        for name, time_ns in by_category.items()
        if total_ns
    ]
    if not found:
        found = [(share.name, share.share) for share in breakdown.shares if not share.name.startswith("idle")]
    found.sort(key=lambda part: -part[1])
    shown = [part for part in found[:6] if part[1] >= _LEAST_SHARE]
    rest = sum(share for _, share in found) - sum(share for _, share in shown)
    idle = sum(share.share for share in breakdown.shares if share.name.startswith("idle"))
    if rest >= _LEAST_SHARE:
        shown.append(("others", rest))
    return [*shown, ("idle", idle)] if idle >= _LEAST_SHARE else shown


def share_lines(breakdown: StepBreakdown, width: int) -> Iterator[Line]:
    """A bar for each kind of time in a step, with the phases that it is of."""
    room = max(width - 34, _LEAST_BAR)
    for share in breakdown.shares:
        if share.share < _LEAST_OF_STEP:
            continue
        bar = gauge_spans(share.share, 1.0, room, "chart")
        yield (Span(f"{share.name[:22]:22} "), *bar, Span(f" {format_percent(share.share):>7}"))
        phases = ", ".join(
            f"{phase} {format_percent(part)}" for phase, part in share.phases if part >= _LEAST_OF_STEP
        )
        yield from ((Span(f"  {line[0].text}", "dim"),) for line in paragraph(phases, width - 2))


def _where(breakdown: StepBreakdown, width: int, height: int) -> list[Line]:
    """The kinds of time as bars, where that leaves room for operators."""
    shares = list(share_lines(breakdown, width - len(_MARGIN)))
    if len(shares) + _BELOW_SHARES > height:
        return []
    title = section((Span("where its time goes", "title"),), width, (Span("tab Step", "dim"),))
    return [title, *((Span(_MARGIN), *line) for line in shares), ()]


# Telemetry


def _power_limit(run: Run, device: int) -> float | None:
    gpu = next((gpu for gpu in run.summary.machine.gpus if gpu.index == device), None)
    return None if gpu is None or isinstance(gpu.power_limit_w, Missing) else gpu.power_limit_w


def _slows_at(run: Run, device: int) -> float | None:
    gpu = next((gpu for gpu in run.summary.machine.gpus if gpu.index == device), None)
    return None if gpu is None or isinstance(gpu.temperature_limit_c, Missing) else gpu.temperature_limit_c


def _gpu_memory(run: Run, device: int) -> float | None:
    gpu = next((gpu for gpu in run.summary.machine.gpus if gpu.index == device), None)
    return None if gpu is None or isinstance(gpu.memory_bytes, Missing) else gpu.memory_bytes / _MIB


def _itself(run: Run, device: int) -> float | None:
    return None


_OF_GPU: tuple[_Chart, ...] = (
    _Chart("power_w", "power", "power", lambda w: f"{w:.0f} W", _power_limit),
    _Chart("sm_clock_mhz", "clock", "clock", lambda mhz: f"{three_digits(mhz / 1000)} GHz", _itself),
    _Chart("memory_used_mib", "memory", "memory", lambda mib: format_bytes(mib * _MIB), _gpu_memory),
    _Chart(
        "temperature_c",
        "temperature",
        "clock",
        lambda c: f"{c:.0f} °C",
        lambda run, device: max(100.0, _slows_at(run, device) or 0.0),
        _slows_at,
    ),
    _Chart("sm_busy_pct", "busy", "compute", lambda pct: f"{pct:.0f} %", lambda run, device: 100.0),
)
_OF_HOST: tuple[_Chart, ...] = (
    _Chart(
        "cpu_busy_pct",
        "CPU, threads busy",
        "compute",
        lambda pct: three_digits(pct / 100),
        lambda run, device: 100.0 * run.summary.machine.cpu.host_threads,
    ),
    _Chart("cpu_clock_mhz", "clock", "clock", lambda mhz: f"{three_digits(mhz / 1000)} GHz", _itself),
    _Chart(
        "memory_used_bytes",
        "memory",
        "memory",
        format_bytes,
        lambda run, device: float(run.summary.machine.memory.host_bytes),
    ),
    _Chart("load_1min", "load", "link", three_digits, _itself),
)


def main_series(detail: RunDetail) -> TelemetrySeries | None:
    """Of the device that was measured: a GPU with a case that has a rate, else the host."""
    used = {case.device_index for case in detail.run.cases if case.outcome == "ok"}
    by_device = {one.device_index: one for one in detail.series}
    wanted = [index for index in by_device if index in used] or ([HOST] if HOST in by_device else [])
    return by_device[min(wanted)] if wanted else None


def _grown(run: Run, series: TelemetrySeries, width: int, height: int) -> list[Line]:
    """Telemetry, with charts as high as there is room for."""
    lines = list(telemetry_lines(run, series, width))
    above_each_other = (len(lines) - 2) // (_CHART_ROWS + 1)
    rows = min((height - 2) // max(above_each_other, 1) - 1, _MOST_CHART_ROWS)
    return lines if rows <= _CHART_ROWS else list(telemetry_lines(run, series, width, rows=rows))


def telemetry_lines(
    run: Run, series: TelemetrySeries, width: int, most: int = _MOST_CHARTS, rows: int = _CHART_ROWS
) -> Iterator[Line]:
    """At most so many metrics of one device over the run, as areas of so many rows with axes."""
    device = series.device_index
    charts = [
        chart
        for chart in (_OF_HOST if device == HOST else _OF_GPU)
        if any(math.isfinite(value) for value in series.columns.get(chart.key, ()))
    ][:most]
    if not charts:
        return
    seconds = (series.t_us[-1] - series.first_us) / 1e6
    name = "host" if device == HOST else f"GPU {device}"
    whole = (Span(f"whole run, {format_seconds(seconds)}", "dim"),)
    yield section((Span("telemetry", "title"), Span(f"  {name}")), width, whole)
    abreast = 2 if width >= _WIDE else 1
    each = (width - 3 * (abreast - 1)) // abreast
    blocks = [_chart_lines(run, series, chart, each, rows) for chart in charts]
    axis: Line = (Span(f"{' ' * _AXIS}0:00{right(_clock(seconds), each - _AXIS - 4)}", "dim"),)
    columns = [[line for block in blocks[place::abreast] for line in block] for place in range(abreast)]
    columns = [[*column, axis] for column in columns if column]
    padded = [[(*line, Span("  ")) for line in column] for column in columns[:-1]]
    yield from side_by_side([*padded, columns[-1]], width)


def _chart_lines(run: Run, series: TelemetrySeries, chart: _Chart, width: int, rows: int) -> list[Line]:
    """A title with the median and the highest value, and an area between 0 and the end of its axis."""
    values = list(series.columns[chart.key])
    finite = [value for value in values if math.isfinite(value)]
    highest = max(finite)
    top = chart.most(run, series.device_index) or (
        highest if chart.key.endswith("mhz") else round_ceiling(highest)
    )
    title = (Span(" " * _AXIS), Span(f"{chart.title}  ", "dim"), Span(chart.show(median(finite)), "title"))
    used = sum(len(span.text) for span in title)
    notes: tuple[str, ...] = (f"median; most {chart.show(highest)}", f"most {chart.show(highest)}", "")
    mark = chart.line(run, series.device_index)
    if mark is not None:
        notes = (f"median; most {chart.show(highest)}, slows at {chart.show(mark)}", *notes)
    note = next(text for text in notes if used + len(text) < width)
    lines: list[Line] = [fitted((*title, Span(right(note, max(width - used, 0)), "dim")), width)]
    room = width - _AXIS
    columns = _columns(series, values, room)
    for number, row in enumerate(area_lines(columns, top, rows, room, chart.family, mark)):
        end = chart.show(top) if number == 0 else "0" if number == rows - 1 else ""
        lines.append((Span(f"{right(end, _AXIS - 1)} ", "dim"), *row))
    return lines


def _columns(series: TelemetrySeries, values: Sequence[float], cells: int) -> list[float | None]:
    """The mean in each cell of time; a cell without a reading repeats the one before, if there is one."""
    first_us, last_us = series.first_us, max(series.t_us[-1], series.first_us + 1)
    sums: list[list[float]] = [[] for _ in range(cells)]
    for t_us, value in zip(series.t_us, values, strict=True):
        if math.isfinite(value):
            sums[min((t_us - first_us) * cells // (last_us - first_us), cells - 1)].append(value)
    columns: list[float | None] = []
    for cell in sums:
        columns.append(sum(cell) / len(cell) if cell else columns[-1] if columns else None)
    return columns


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
