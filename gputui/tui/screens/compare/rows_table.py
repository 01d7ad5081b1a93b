"""The rows of a comparison as entries of a list: the table that every form shows, with a cursor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.document.spans import Line, Span, width_of
from gputui.document.table import columns_that_fit, lines_of
from gputui.services.compare.columns import ComparisonColumn
from gputui.services.compare.pairing import Comparison, Row
from gputui.services.compare.row_text import letter_of
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_table
from gputui.tui.widgets.cells import fitted
from gputui.tui.widgets.lines_list import MARKER, Entry

_GAP = 2
"""Cells between columns."""
_NAMES_B = re.compile(r"\bb\b")
"""In a reason: it is said of the second side, whatever its letter is."""


@dataclass(frozen=True, slots=True)
class RowsTable:
    """What the table shows."""

    heading: Line
    entries: tuple[Entry, ...]
    """The key of a row is its place among all rows."""
    text: str
    """Headings and cells with tabs between them, without the drawing."""
    shown: tuple[str, ...]
    """The letters of the sides in sight that are not the baseline."""


def table_of(
    comparisons: Sequence[Comparison],
    rows: Sequence[RowOfSides],
    place: int,
    ignore: str,
    value: ComparisonColumn,
    width: int,
    *,
    has_groups: bool,
) -> RowsTable:
    """What says most in this width; of more sides than have room those from `place` on.

    With `has_groups`, classes of workloads have headings and their means follow their rows, else all means
    come last.
    """
    made = rows_table(
        comparisons,
        rows,
        ignore,
        value=value,
        place=place,
        note=lambda row: " !" if row.flags else " *" if row.note else "",
        is_drawn=True,
        has_groups=has_groups,
        is_beside_evidence=True,
    )
    room = width - len(MARKER)
    columns = columns_that_fit(made.table.columns, room, _GAP)
    (heading,), *lines = lines_of(columns, room, gap=_GAP, cuts=True)
    entries: list[Entry] = []
    for number, (item, of_item) in enumerate(zip(made.items, lines, strict=True)):
        if number in made.groups:
            entries.append(Entry((_group_line(made.groups[number], width),)))
        indent = () if item.key >= 0 else (Span(" " * len(MARKER)),)
        entries.append(Entry(tuple((*indent, *fitted(line, room)) for line in of_item), item.key))
    written = [column for column in columns if not isinstance(column.cells[0], list)] if made.items else []
    letters = [letter_of(side) for side in range(len(comparisons))]
    headings = {column.heading for column in columns}
    return RowsTable(
        (Span(" " * len(MARKER)), *fitted(heading, room)),
        tuple(entries),
        "\n".join("\t".join(cells) for cells in zip(*((c.heading, *c.texts) for c in written), strict=True)),
        tuple(letter for letter in letters if f"{letter} vs a" in headings),
    )


def _group_line(name: str, width: int) -> Line:
    rule = width - width_of(name) - 1
    return Span(name, "dim"), Span(" " + "─" * max(rule, 0), "track")


def row_line(
    rows: RowOfSides, place: int, names: Sequence[str], value: ComparisonColumn, *, has_reason: bool
) -> str:
    """What there is no room for in a row: why values are absent, the reason of its verdict, remarks.

    It is of the side at `place`; `names` are of the sides against the baseline.
    """
    known = first_of(rows)
    is_pair = len(rows) == 1
    sides = [("b" if is_pair else name, row.b) for name, row in zip(names, rows, strict=True) if row]
    reasons = value.reasons([("a", known.a), *sides])
    absent = "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in reasons.items())
    row = rows[place]
    reason = row.verdict.reason if row is not None and has_reason else ""
    name = names[place]
    is_called_b = row is not None and _NAMES_B.search(f"{reason} {row.note}") is not None
    b = "b" if is_pair or is_called_b else name
    told = "" if row is None else "; ".join(filter(None, (reason, remarks(row, b))))
    if told and not is_pair:
        told = f"{name}: {told}" if b == name else f"{name} as b: {told}"
    return "; ".join(filter(None, (absent, told)))


def remarks(row: Row, b: str = "b") -> str:
    """What disturbed a row, and what a reader must know of it; `b` is what its second side is called."""
    sides: dict[str, list[str]] = {}
    for flag in row.flags:
        sides.setdefault(flag.word, []).append(b if flag.side == "b" else flag.side)
    return "; ".join(filter(None, (*(f"{' and '.join(of)} {word}" for word, of in sides.items()), row.note)))
