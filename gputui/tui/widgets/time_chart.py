"""A metric over time with the ends of its axes: what every screen draws of one, so that they agree."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.metrics import Metric, Values
from gputui.model.series import TimeSeries
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut, fitted, left, right, width_of
from gputui.tui.widgets.sections import area_lines

_AXIS = 9
"""Cells before a chart: the ends of its axis, and a blank."""


def axis_cells(width: int) -> int:
    """Cells before a chart of this width; a narrow one has no axis."""
    return min(_AXIS, max(width - 12, 0))


def time_chart(
    metric: Metric,
    series: TimeSeries,
    limits: Values,
    figure: float | None,
    note: str,
    span_s: float,
    width: int,
    rows: int,
) -> list[Line]:
    """A title with a figure and a note, and the first `span_s` seconds as an area of so many rows."""
    room = width - axis_cells(width)
    top = metric.top(limits, max(series.known, default=0.0))
    columns = series.cells(span_s / room, room)
    title = chart_title(metric.name, Span(metric.text(figure), "title"), note, width)
    drawn = area_lines(columns, top, rows, room, metric.hue, metric.mark_at(limits))
    return [title, *with_axis(drawn, metric.axis(top), width)]


def chart_title(name: str, figure: Span, note: str, width: int) -> Line:
    """The metric, its value as text, and a note at the right."""
    spans = [Span(" " * axis_cells(width)), Span(f"{name}  ", "dim"), figure]
    room = max(width - sum(width_of(span.text) for span in spans), 0)
    note = fitting_note(clean(note), room - 2)
    return fitted((*spans, Span(" " * (room - width_of(note))), Span(note, "dim")), width)


def fitting_note(note: str, room: int) -> str:
    """The parts of a note that fit, as they are separated by commas; a number is never cut."""
    while note and width_of(note) > room:
        note = note.rpartition(", ")[0]
    return note


def with_axis(rows: Sequence[Sequence[Span]], top: str, width: int) -> list[Line]:
    """The rows of a chart, the first after the upper end of its axis and the last after its lower one."""
    lead = axis_cells(width)
    lines: list[Line] = []
    for place, row in enumerate(rows):
        label = top if place == 0 else "0" if place == len(rows) - 1 else ""
        lines.append((Span(right(cut(label, lead - 1), lead - 1) + " " if lead else "", "dim"), *row))
    return lines


def time_axis(first: str, middle: str, last: str, width: int) -> Line:
    """The ends of the axis of time below a chart, and its middle where there is room."""
    lead = axis_cells(width)
    room = width - lead - len(last)
    if len(first) + len(middle) + len(last) + 4 > room:
        middle = ""
    half = (width - lead) // 2 - len(middle) // 2
    words = left(left(first, half) + middle, room) if middle else left(first, room)
    return fitted((Span(f"{' ' * lead}{words}{last}", "dim"),), width)
