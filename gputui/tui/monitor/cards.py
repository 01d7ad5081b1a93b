"""What the Monitor draws of a few GPUs and of the host: a card with a chart for each metric."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gputui.analysis.health import age
from gputui.document.drawings import NO_READING
from gputui.document.spans import Line, Span, cut, line_width, width_of
from gputui.metrics import GIB, Metric, memory_of, number, three_digits_of, with_unit, word
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample
from gputui.model.units import format_clock
from gputui.tui.monitor.frame import (
    FIGURE_STYLES,
    Frame,
    findings_spans,
    idle_text,
    is_idle,
    span_text,
    why_spans,
)
from gputui.tui.monitor.history import SECOND_NS, LoadLevel
from gputui.tui.monitor.layout import CARD_GAP, Rect
from gputui.tui.monitor.settings import ALWAYS, BY_ID, OF_GPUS, OF_THE_HOST, note_of
from gputui.tui.widgets.cells import clean, filled, fitted, left, ruled, side_by_side, wrapped
from gputui.tui.widgets.charts import (
    axis_cells,
    body_styles,
    chart_title,
    fitting_note,
    is_short,
    mark_row,
    painted,
    time_axis,
    with_axis,
)

_GAP = 2
_TWO_FROM, _THREE_FROM = 72, 170
"""From these widths on, charts are side by side."""
_LEAST_ROWS = ((18, 6), (9, 4), (0, 3))
"""From a number of rows on, how many a chart with its title has at least, where there are several."""


def selected_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """Charts of the selected GPU, or of the first, below what ails it and why."""
    gpu = next((one for one in frame.gpus if one.device == frame.selected), frame.gpus[0])
    parts = [Span(f"GPU {gpu.label}", "title"), *why_spans(frame, gpu, width - 24)]
    generation, lanes = number(gpu.values, "pcie_generation"), number(gpu.values, "pcie_width")
    if generation and lanes and gpu.problem is None:
        parts.append(Span(f"gen{generation:.0f} x{lanes:.0f}", "dim"))
    return [ruled(parts, width), *charts(frame, gpu, chosen_metrics(frame, gpu), width, height - 1)]


def charts(
    frame: Frame, device: DeviceSample, metrics: Sequence[Metric], width: int, height: int
) -> list[Line]:
    """As many charts of a device as have room, from left to right, above the time they cover."""
    if not metrics or height < 2:
        return filled((), width, height)
    columns = 3 if width >= _THREE_FROM else 2 if width >= _TWO_FROM else 1
    least = next(rows for room, rows in _LEAST_ROWS if height >= room)
    whole, room = -(-len(metrics) // columns), max((height - 1) // least, 1)
    bands = min(whole, room)
    if bands == whole:  # four charts as two and two, not as three and one
        columns = -(-len(metrics) // bands)
    each = (width - _GAP * (columns - 1)) // columns
    gap = int((height - 1) // bands >= 6)
    rows = height - 1 - gap * (bands - 1)
    lines: list[Line] = []
    for band in range(bands):
        share = rows // bands + (band < rows % bands)
        here = []
        for metric in metrics[band * columns : (band + 1) * columns]:
            text = with_unit(metric.amount(device.values), metric.unit)
            figure = Span(text, figure_style(frame, device, metric))
            title = chart_title(metric.name, figure, note_of(metric, device.values), each)
            here.append([title, *_plot(frame, device, metric, each, share - 1)])
        here += [filled((), each, share)] * (columns - len(here))
        lines += side_by_side(here, width, _GAP)
        if band + 1 < bands:
            lines += filled((), width, gap)
    middle = format_clock(frame.span_ns / SECOND_NS / 2)
    axis = time_axis(f"{span_text(frame.span_ns)} ago", middle, "now", each)
    lines += side_by_side([[axis]] * columns, width, _GAP)
    return filled(lines, width, height)


def chosen_metrics(frame: Frame, device: DeviceSample) -> list[Metric]:
    """The metrics that get a chart; of those that the device never had, only the first few do."""
    return [
        metric
        for place, metric in enumerate(frame.metrics)
        if place < ALWAYS
        or metric.amount(device.values) is not None
        or frame.history.series(device.device, metric.id) is not None
    ]


def figure_style(frame: Frame, device: DeviceSample, metric: Metric) -> str:
    """Bold, or the colour of a limit that is near; an absent figure is near none."""
    if device.problem is not None or metric.amount(device.values) is None:
        return "dim"
    load = LoadLevel.WORKING
    if metric.id in ("memory", "host-memory"):
        load = frame.load_of_memory(device)
    elif metric.id == "temperature":
        load = frame.load_of_temperature(device)
    elif metric.id in ("power", "clock"):
        load = frame.load_of_power(device)
    elif metric.id == "busy":
        load = frame.load_of_busy(device, number(device.values, "sm_busy_pct"))
    return "title" if load is LoadLevel.WORKING else FIGURE_STYLES[load]


def _plot(frame: Frame, device: DeviceSample, metric: Metric, width: int, rows: int) -> list[Line]:
    """The chart with its axis; why there is none for a value that was never read."""
    if rows < 1:
        return []
    lead = axis_cells(width)
    if metric.amount(device.values) is None and frame.history.series(device.device, metric.id) is None:
        missing = device.values.get(metric.key)
        why = cut(clean(missing.reason), width - lead - 1) + " " if isinstance(missing, Missing) else ""
        rest = NO_READING * (width - lead - width_of(why))
        unread = fitted((Span(" " * lead), Span(why, "dim"), Span(rest, "track")), width)
        return filled([unread], width, rows)
    ceiling = frame.ceiling(device, metric)
    drawn = frame.chart(device.device, metric, ceiling, width - lead, rows)
    styles = body_styles(metric.hue, rows) if device.problem is None else ("stale",) * rows
    marked = mark_row(metric.mark_at(device.values), ceiling, rows)
    shown = painted(drawn, styles, marked)
    gauge_row = int(marked == 0 and rows > 1)
    if gauge_row != marked:
        body = Span(drawn[gauge_row], styles[gauge_row])
        gauge = with_gauge(frame, device, metric, body, drawn[-1], ceiling)
        shown[gauge_row] = tuple(gauge) or shown[gauge_row]
    return with_axis(shown, metric.axis(ceiling), width)


def with_gauge(
    frame: Frame, device: DeviceSample, metric: Metric, body: Span, lowest: str, ceiling: float
) -> list[Span]:
    """A row of a chart whose history is short, with a gauge that reads at once before it.

    `lowest` is the chart's lowest row, which shows how far the history reaches. The gauge's end is the upper
    one of the axis. Nothing if there is more history, or no reading.
    """
    blank = len(lowest) - len(lowest.lstrip(" "))
    amount = None if device.problem is not None else metric.amount(device.values)
    if amount is None or not is_short(len(body.text) - blank, len(body.text)):
        return []
    key = (device.device, metric.id, "chart")
    gauge = frame.gauge(key, amount, ceiling, blank - 1, metric.hue)
    return [*gauge, Span(" ", "track"), Span(body.text[blank:], body.style)]


_CLOCK, _NVLINK = BY_ID["clock"], BY_ID["nvlink"]
_LABEL = 7
_THREE_CHARTS_FROM, _FOUR_CHARTS_FROM = 16, 28
"""From so many rows on, a card has more than two charts, one of them in place of the memory's gauge."""
_GAUGE_AT, _GAUGE = 14, 10
"""First cell and width of the gauge of `busy`."""


def gpu_cards(frame: Frame, boxes: Sequence[Rect], width: int) -> list[Line]:
    """A card in each box, in bands with a blank row between them where the layout has one."""
    lines: list[Line] = []
    for y in sorted({box.y for box in boxes}):
        lines = filled(lines, width, y)
        band = [
            gpu_card(frame, gpu, box.width, box.height)
            for gpu, box in zip(frame.gpus, boxes, strict=True)
            if box.y == y
        ]
        lines += side_by_side(band, width, CARD_GAP)
    return lines


def gpu_card(frame: Frame, device: DeviceSample, width: int, height: int) -> list[Line]:
    """Exactly `height` lines, at least eight."""
    lines = [_heading(frame, device, width)]
    if device.problem is not None:
        why = wrapped(clean(device.problem.reason), width, 3)
        return filled([*lines, *(fitted((Span(row),), width) for row in why)], width, height)
    charted = _charted(frame, device, height)
    has_gauge = all(metric.id != "memory" for metric in charted)
    room = height - 2 - has_gauge - len(charted)
    for place, metric in enumerate(charted):
        share = room // len(charted) + (place < room % len(charted))
        lines.append(_title(frame, device, metric, width))
        ceiling = frame.ceiling(device, metric)
        drawn = frame.chart(device.device, metric, ceiling, width, share)
        rows = [Span(*row) for row in zip(drawn, body_styles(metric.hue, share), strict=True)]
        shown = [] if metric.id == "busy" else with_gauge(frame, device, metric, rows[0], drawn[-1], ceiling)
        lines += [tuple(shown or rows[:1]), *((row,) for row in rows[1:])]
    if has_gauge:
        lines.append(_memory(frame, device, width))
    return filled([*lines, _links(device, width)], width, height)


def _charted(frame: Frame, device: DeviceSample, height: int) -> list[Metric]:
    """What has a chart, in the order of the settings; at least one metric."""
    count = 4 if height >= _FOUR_CHARTS_FROM else 3 if height >= _THREE_CHARTS_FROM else 2
    has_memory = count > 2 and any(metric.id == "memory" for metric in frame.metrics)
    charted: list[Metric] = []
    room = count - has_memory
    for metric in chosen_metrics(frame, device):
        if metric.id != "memory" and room:
            charted.append(metric)
            room -= 1
        elif metric.id == "memory" and has_memory:
            charted.append(metric)
    return charted or [OF_GPUS[0]]


def _heading(frame: Frame, device: DeviceSample, width: int) -> Line:
    """`─ 0 ─ POWER-CAPPED at 600 W ───────── 66 °C ─`."""
    is_selected = device.device == frame.selected
    findings = frame.findings[device.device]
    name = Span(("▸" if is_selected else "") + device.label, "accent" if is_selected else "title")
    end: list[Span] = []
    if device.problem is None:
        text = with_unit(number(device.values, "temperature_c"), "°C")
        load = frame.load_of_temperature(device)
        end = [Span(f" {text} ", FIGURE_STYLES[load] if load else "dim"), Span("─", "track")]
    state: list[Span] = []
    room = width - line_width((name, *end)) - 7
    if findings:
        state = [*findings_spans(findings, room, brief=True)]
    elif is_idle(frame, device):
        state = [Span(idle_text(frame, device), "dim")]
    begin = [Span("─ ", "track"), name, Span(" ─ " if state else " ", "track"), *state]
    rule = max(width - line_width((*begin, *end)) - (2 if state else 0), 0)
    return fitted(
        (*begin, Span((" " if state else "") + "─" * rule + ("─" if state else ""), "track"), *end), width
    )


def _title(frame: Frame, device: DeviceSample, metric: Metric, width: int) -> Line:
    text, clock_mhz = metric.text(metric.amount(device.values)), _CLOCK.amount(device.values)
    limit = number(device.values, "power_limit_w")
    if metric.id == "power" and limit is not None:
        text += f" of {limit:.0f}"
    if metric.id == "power" and clock_mhz is not None:
        clock = _CLOCK.text(clock_mhz)
        note = f"{clock} {_CLOCK.limit_text(device.values, after=clock)}".rstrip()
    else:
        note = clean(note_of(metric, device.values))
    spans = [Span(f"{metric.name:<{_LABEL}}", "dim"), Span(text, figure_style(frame, device, metric))]
    taken = line_width(spans)
    note = fitting_note(note, width - taken - 2)
    end = width - width_of(note)
    blank = end - taken
    if metric.id == "busy" and end >= _GAUGE_AT + _GAUGE + 2:
        blank = _GAUGE_AT - taken
        busy_pct = number(device.values, "sm_busy_pct")
        style = frame.load_of_busy(device, busy_pct).style("compute")
        gauge = frame.gauge((device.device, "busy"), busy_pct, 100.0, _GAUGE, style)
        spans += [Span(" " * blank), *gauge]
        blank = end - _GAUGE_AT - _GAUGE
    return fitted((*spans, Span(" " * blank), Span(note, "dim")), width)


def _memory(frame: Frame, device: DeviceSample, width: int) -> Line:
    used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
    scale, load = GIB, frame.load_of_memory(device)
    figure = f"{three_digits_of(None if used is None else used / scale):>4}"
    end = f" of {three_digits_of(total / scale)} GiB" if total else " GiB"
    room = max(width - _LABEL - 5 - len(end), 0)
    gauge = frame.gauge((device.device, "memory"), used, total or 0.0, room, load.style("memory"))
    head = Span(f"{'memory':<{_LABEL}}", "dim"), Span(figure + " ", FIGURE_STYLES[load])
    return fitted((*head, *gauge, Span(end, "dim")), width)


def _links(device: DeviceSample, width: int) -> Line:
    values = device.values
    generation, lanes = number(values, "pcie_generation"), number(values, "pcie_width")
    widest, received = number(values, "pcie_width_max"), number(values, "pcie_rx_bytes_per_s")
    is_narrow = bool(lanes and widest and lanes < widest)
    text = "PCIe" + (f" gen{generation:.0f}" if generation else "") + (f" x{lanes:.0f}" if lanes else "")
    text += f"  in {with_unit(received, 'B/s')}" if received is not None else ""
    both = _NVLINK.amount(values)
    end = f"NVLink {with_unit(both, 'B/s')}" if both else ""
    blank = width - width_of(text) - width_of(end)
    if blank < 2:
        end, blank = "", max(width - width_of(text), 0)
    return fitted((Span(text, "warn" if is_narrow else "dim"), Span(" " * blank), Span(end, "dim")), width)


_HOST_GAUGE = 12


def host_line(frame: Frame, width: int) -> Line:
    """`host  cpu 17 of 96 cores ━──  mem 230 of 1008 GiB ━──  load 17.4  disk 2 MB/s  net 313 MB/s`."""
    host = frame.sample.host
    spans = [Span("host", "title")]
    if host.problem is not None:
        return fitted((*spans, Span("  " + clean(host.problem.reason), "alarm")), width)
    values = host.values
    age_s = (frame.now_ns - host.t_ns) / 1e9
    if age_s >= frame.stale_after_s:
        spans.append(Span(f"  STALE {age(age_s)}", "warn"))
    room = _HOST_GAUGE if width >= 100 else 8 if width >= 76 else 0
    busy, limit = number(values, "cpu_busy_pct"), number(values, "cpu_limit_cores")
    of = f" of {limit:g} cores" if limit is not None else " cores"
    load = LoadLevel.IDLE if busy is None or not limit else frame.loads.at("cpu", busy / limit, frame.now_ns)
    spans += [
        Span("  cpu ", "dim"),
        Span(three_digits_of(None if busy is None else busy / 100)),
        Span(of, "dim"),
    ]
    if room:
        spans += [Span(" "), *frame.gauge("cpu", busy, 100 * (limit or 0), room, load.style("link"))]
    used, total = number(values, "memory_used_bytes"), number(values, "memory_total_bytes")
    load, scale = frame.load_of_memory(host), GIB
    of = f" of {three_digits_of(total / scale)}" if total else ""
    figure = three_digits_of(None if used is None else used / scale)
    spans += [Span("  mem ", "dim"), Span(figure, FIGURE_STYLES[max(load, LoadLevel.WORKING)])]
    spans.append(Span(f"{of} GiB", "dim"))
    if room:
        spans += [Span(" "), *frame.gauge("host memory", used, total or 0.0, room, load.style("memory"))]
    for part in _rest(frame, host, width):
        if line_width((*spans, part)) <= width:
            spans.append(part)
    return fitted(spans, width)


def _rest(frame: Frame, host: DeviceSample, width: int) -> list[Span]:
    values = host.values
    parts: list[Span] = []
    swap = number(values, "swap_used_bytes")
    if swap:
        text = memory_of(swap, number(values, "swap_total_bytes"))
        parts.append(Span(f"  swap {text}", "warn"))
    load = number(values, "load_1min")
    if load is not None:
        parts.append(Span(f"  load {load:.1f}", "dim"))
    if width < 100:
        return parts
    for metric in OF_THE_HOST:
        amount = metric.amount(values) if metric.unit == "B/s" else None
        if amount is not None:
            parts.append(Span(left(f"  {metric.name} {with_unit(amount, 'B/s')}", 17), "dim"))
    return parts


def without_gpus(frame: Frame, opening: str, width: int, height: int) -> list[Line]:
    """Why there is no GPU, what works without (`opening`), and the host in charts."""
    if height < 1:
        return []
    host = frame.sample.host
    lines: list[Line] = []
    for missing in frame.sample.absent.values():
        for row in wrapped(clean(missing.reason), width, 2):
            lines.append(fitted((Span(row),), width))
    if not lines:
        lines = [fitted((Span("no GPU was found"),), width)]
    lines = lines[: max(height - 1, 1)]
    if opening and height >= len(lines) + 8:
        for row in wrapped(f"You can still: {opening}", width, 2):
            parts = re.split(r"(\b\d\b)", row)
            lines.append(fitted([Span(part, "accent" * part.isdigit()) for part in parts], width))
    name = clean(word(host.values, "name")[:256]).strip()
    room = height - len(lines)
    if room < 5 or host.problem is not None:
        return filled([*lines, host_line(frame, width)], width, height)
    lines.append(fitted((Span("host", "title"), Span(f"  {cut(name, width - 6)}", "dim")), width))
    lines += charts(frame, host, OF_THE_HOST, width, room - 1)
    return filled(lines, width, height)
