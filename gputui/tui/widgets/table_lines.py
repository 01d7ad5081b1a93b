"""A document's table as lines of a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.document.spans import Line, Span
from gputui.document.table import Table, changed, columns_that_fit, lines_of
from gputui.tui.widgets.cells import clean, fitted

_GAP = 2


def table_lines(
    table: Table,
    width: int,
    *,
    margin: int = 2,
    marks: Sequence[bool] = (),
    folds: bool = False,
    has_headings: bool = True,
) -> Iterator[Line]:
    """The columns that fit, a line for each row, or more where cells fold; the rest of a cell is cut.

    Rows may be marked with `▸` in the margin.
    """
    room = width - margin
    columns = columns_that_fit([changed(column, clean) for column in table.columns], room, _GAP)
    drawn = lines_of(columns, room, gap=_GAP, cuts=not folds)
    for number, lines in enumerate(drawn):
        if number == 0 and not has_headings:
            continue
        is_marked = number > 0 and bool(marks) and marks[number - 1]
        lead = Span(f"{'▸ ' if is_marked else '':>{margin}}", "accent")
        for line in lines:
            yield fitted((lead, *line), width)
