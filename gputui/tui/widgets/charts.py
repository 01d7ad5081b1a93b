"""Metrics over time made of characters, with the ends of their axes: what every screen draws of one.

`in_ascii` translates them with the rest of their line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from gputui.document.drawings import BLOCKS, NO_READING, level_of
from gputui.document.spans import Line, Span, cut, width_of
from gputui.document.theme import TONES
from gputui.metrics import Metric, Values
from gputui.model.result import TimeSeries
from gputui.tui.widgets.cells import clean, fitted, left, right, side_by_side

_AXIS = 9
"""Cells before a chart: the ends of its axis, and a blank."""
_GAP = 3


@lru_cache(maxsize=1024)
def column(level: int, rows: int) -> tuple[str, ...]:
    """A column of blocks filled to a number of eighths, a character for each row, top first."""
    return tuple(BLOCKS[min(max(level - 8 * row, 0), 8)] for row in reversed(range(rows)))


def is_short(reach: int, width: int) -> bool:
    """Whether a history reaches over so few cells of its chart that a gauge reads better.

    A chart that has just been lengthened is never that empty.
    """
    return 3 * reach < width


def area(values: Sequence[float | None], high: float, rows: int = 1) -> tuple[str, ...]:
    """Values as columns that rise from below, a row of characters per line, top first.

    The lowest eighth shows that there is a reading: 0 has it, None has not. The highest stays free, so that a
    full column does not touch the row above.
    """
    eighths = [0 if value is None else level_of(value, high, 8 * rows - 1) for value in values]
    columns = [column(level, rows) for level in eighths]
    return tuple("".join(column[row] for column in columns) for row in range(rows))


def body_styles(family: str, rows: int) -> tuple[str, ...]:
    """The style of each row of an area, top first: tones that rise softly; a single row has the lowest."""
    if rows == 1:
        return (f"{family} 1",)
    return tuple(f"{family} {1 + round(row / (rows - 1) * (TONES - 1))}" for row in reversed(range(rows)))


def area_with_axis(
    values: Sequence[float | None],
    high: float,
    rows: int,
    width: int,
    family: str,
    top: str,
    *,
    mark: float | None = None,
    name: str = "",
) -> list[Line]:
    """An area of `rows` rows behind its axis from 0 to `top`; a dotted line is at `mark`.

    Values are as many as there is room for, or fewer. The axis names what is drawn where it has a middle.
    """
    room = width - axis_cells(width)
    drawn = [f"{text:{room}}" for text in area(values, high, rows)]
    marked = mark_row(mark, high, rows) if rows > 1 else None
    return with_axis(painted(drawn, body_styles(family, rows), marked), top, width, name=name)


def mark_row(mark: float | None, high: float, rows: int) -> int | None:
    """The row of a chart, from its top, in which a limit lies."""
    return None if mark is None else rows - 1 - min(int(mark / high * rows), rows - 1)


def painted(drawn: Sequence[str], styles: Sequence[str], marked: int | None) -> list[tuple[Span, ...]]:
    """The rows of a chart in their styles; in the marked one, empty cells are part of a line."""
    rows: list[tuple[Span, ...]] = [(Span(body, style),) for body, style in zip(drawn, styles, strict=True)]
    if marked is not None:
        rows[marked] = tuple(
            Span(NO_READING * len(part), "track") if part.isspace() else Span(part, styles[marked])
            for part in re.findall(" +|[^ ]+", drawn[marked])
        )
    return rows


def axis_cells(width: int) -> int:
    """Cells before a chart of this width; a narrow one has no axis."""
    return min(_AXIS, max(width - 12, 0))


def time_chart(
    metric: Metric,
    series: TimeSeries,
    values: Sequence[float | None],
    limits: Values,
    figure: str,
    note: str,
    width: int,
    rows: int,
) -> list[Line]:
    """A title with a figure and a note, and `values` of a series as an area of so many rows."""
    top, mark = metric.top(limits, max(series.known, default=0.0)), metric.mark_at(limits)
    title = chart_title(metric.name, Span(figure, "title"), note, width)
    return [title, *area_with_axis(values, top, rows, width, metric.hue, metric.axis(top), mark=mark)]


def abreast_cells(width: int, abreast: int) -> int:
    return (width - _GAP * (abreast - 1)) // abreast


def above_axis(charts: Sequence[Sequence[Line]], axis: Line, width: int, abreast: int) -> list[Line]:
    """Charts from left to right, so many abreast, each column of them above the axis of time."""
    columns = [[*chain.from_iterable(charts[place::abreast]), axis] for place in range(abreast)]
    return side_by_side(columns[: len(charts)], width, _GAP)


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


def with_axis(
    rows: Sequence[Sequence[Span]], top: str, width: int, bottom: str = "0", name: str = ""
) -> list[Line]:
    """The rows of a chart, the first after the upper end of its axis and the last after its lower one."""
    lead = axis_cells(width)
    labels = {len(rows) // 2: name, len(rows) - 1: bottom, 0: top}
    lines: list[Line] = []
    for place, row in enumerate(rows):
        label = labels.get(place, "")
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
