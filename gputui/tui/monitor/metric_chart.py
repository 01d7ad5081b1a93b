"""Large charts: what is charted and its value, the ends of both axes, a line for a limit."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.document.drawings import NO_READING
from gputui.metrics import Metric, number, with_unit
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample
from gputui.model.units import format_clock
from gputui.tui.monitor.frame import FIGURE_STYLES, Frame, span_text, why_spans
from gputui.tui.monitor.metrics import ALWAYS, note_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut, filled, fitted, ruled, side_by_side, width_of
from gputui.tui.widgets.charts import (
    axis_cells,
    body_styles,
    chart_title,
    is_short,
    mark_row,
    painted,
    time_axis,
    with_axis,
)
from gputui.tui.widgets.history import SECOND_NS
from gputui.tui.widgets.load import LoadLevel

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
            text = with_unit(metric.amount(device.values), metric.unit, frame.units)
            figure = Span(text, figure_style(frame, device, metric))
            title = chart_title(metric.name, figure, note_of(metric, device.values, frame.units), each)
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
    return with_axis(shown, metric.axis(ceiling, frame.units), width)


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
