"""Large charts: what is charted and its value, the ends of both axes, a line for a limit."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.model.absent import Missing
from gputui.model.live import DeviceSample
from gputui.tui.monitor.frame import FIGURE_STYLES, Frame, span_text
from gputui.tui.monitor.metrics import ALWAYS, PaneMetric, number
from gputui.tui.monitor.recording import clock_text
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut, filled, fitted, left, right, width_of
from gputui.tui.widgets.charts import NO_READING, body_styles, is_short
from gputui.tui.widgets.history import SECOND_NS
from gputui.tui.widgets.load import LoadLevel
from gputui.tui.widgets.sections import with_line

_AXIS = 9
"""Cells before a chart: the ends of its axis, and a blank."""
_GAP = 2
_TWO_FROM, _THREE_FROM = 72, 170
"""From these widths on, charts are side by side."""
_LEAST_ROWS = ((18, 6), (9, 4), (0, 3))
"""From a number of rows on, how many a chart with its title has at least, where there are several."""


def charts(
    frame: Frame, device: DeviceSample, metrics: Sequence[PaneMetric], width: int, height: int
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
            text = metric.text(metric.amount(device.values), frame.units)
            title = _title(frame, device, metric, text, each)
            here.append([title, *_plot(frame, device, metric, each, share - 1)])
        here += [filled((), each, share)] * (columns - len(here))
        lines += [_beside([block[row] for block in here], width) for row in range(share)]
        if band + 1 < bands:
            lines += filled((), width, gap)
    lines.append(_beside([_time(frame, each)] * columns, width))
    return filled(lines, width, height)


def _beside(parts: Sequence[Line], width: int) -> Line:
    spans: list[Span] = []
    for place, part in enumerate(parts):
        spans += [*([Span(" " * _GAP)] if place else []), *part]
    return fitted(spans, width)


def chosen_metrics(frame: Frame, device: DeviceSample) -> list[PaneMetric]:
    """The metrics that get a chart; of those that the device never had, only the first few do."""
    return [
        metric
        for place, metric in enumerate(frame.metrics)
        if place < ALWAYS
        or metric.amount(device.values) is not None
        or frame.history.series(device.device, metric.id) is not None
    ]


def figure_style(frame: Frame, device: DeviceSample, metric: PaneMetric) -> str:
    """Bold, or the colour of a limit that is near."""
    if device.problem is not None:
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


def _title(frame: Frame, device: DeviceSample, metric: PaneMetric, text: str, width: int) -> Line:
    """The metric, its value as text, and a note at the right."""
    lead = min(_AXIS, max(width - 12, 0))
    style = figure_style(frame, device, metric)
    spans = [Span(" " * lead), Span(f"{metric.label}  ", "dim"), Span(f"{text}  ", style)]
    used = sum(width_of(span.text) for span in spans)
    note = fitting_note(clean(metric.note(device.values, frame.units)), width - used)
    return fitted((*spans, Span(" " * (width - used - width_of(note))), Span(note, "dim")), width)


def _plot(frame: Frame, device: DeviceSample, metric: PaneMetric, width: int, rows: int) -> list[Line]:
    """The chart with its axis; why there is none for a value that was never read."""
    if rows < 1:
        return []
    lead = min(_AXIS, max(width - 12, 0))
    if metric.amount(device.values) is None and frame.history.series(device.device, metric.id) is None:
        missing = device.values.get(metric.key)
        why = cut(clean(missing.reason), width - lead - 1) + " " if isinstance(missing, Missing) else ""
        rest = NO_READING * (width - lead - width_of(why))
        unread = fitted((Span(" " * lead), Span(why, "dim"), Span(rest, "track")), width)
        return filled([unread], width, rows)
    ceiling = frame.ceiling(device, metric)
    drawn = frame.chart(device.device, metric, ceiling, width - lead, rows)
    styles = body_styles(metric.family, rows) if device.problem is None else ("stale",) * rows
    mark = metric.mark(device.values)
    marked = None if mark is None else rows - 1 - min(int(mark / ceiling * rows), rows - 1)
    top, bottom = metric.axis(ceiling, frame.units), "0" if rows > 1 else ""
    gauge_row = int(marked == 0 and rows > 1)
    lines: list[Line] = []
    for row, (body, body_style) in enumerate(zip(drawn, styles, strict=True)):
        label = top if row == 0 else bottom if row == rows - 1 else ""
        axis = Span(right(cut(label, lead - 1), lead - 1) + " " if lead else "", "dim")
        shown: Sequence[Span] = with_line(body, body_style) if row == marked else (Span(body, body_style),)
        if row == gauge_row != marked:
            shown = with_gauge(frame, device, metric, Span(body, body_style), drawn[-1], ceiling) or shown
        lines.append((axis, *shown))
    return lines


def with_gauge(
    frame: Frame, device: DeviceSample, metric: PaneMetric, body: Span, lowest: str, ceiling: float
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
    filled_part, rest = frame.loads.gauge(key, amount, ceiling, blank - 1, frame.now_ns)
    history = Span(body.text[blank:], body.style)
    return [Span(filled_part, metric.family), Span(rest + " ", "track"), history]


def fitting_note(note: str, room: int) -> str:
    """The parts of a note that fit, as they are separated by commas; a number is never cut."""
    while note and width_of(note) > room:
        note = note.rpartition(", ")[0]
    return note


def _time(frame: Frame, width: int) -> Line:
    """The ends of the time axis, and its middle."""
    lead = min(_AXIS, max(width - 12, 0))
    room = width - lead
    first, middle = f"{span_text(frame.span_ns)} ago", clock_text(frame.span_ns / SECOND_NS / 2)
    if room < 24:
        return fitted((Span(" " * lead + left(first, room - 3) + "now", "dim"),), width)
    half = room // 2 - len(middle) // 2
    return fitted((Span(" " * lead + left(left(first, half) + middle, room - 3) + "now", "dim"),), width)
