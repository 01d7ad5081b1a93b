"""Which parts of a comparison a screen of a size has room for, and where; its rows as entries of a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.document.spans import Line, Span, width_of
from gputui.document.table import columns_that_fit, lines_of
from gputui.services.compare.columns import ComparisonColumn
from gputui.services.compare.pairing import Row
from gputui.services.compare.row_text import letter_of
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_table
from gputui.tui.screens.compare.loaded import ShownRow, headline_lines, rows_of, top_lines
from gputui.tui.screens.compare.pane import (
    beside_lines,
    differences_lines,
    launches_lines,
    pane_lines,
    rule_between,
    settling_lines,
    turning_lines,
    unsure_lines,
)
from gputui.tui.widgets.cells import fitted, stacked
from gputui.tui.widgets.scrolled import MARKER, Entry

_HIGH = 13
"""Lines of the body from which there is room for more than the rows."""
_TALL = 28
"""From here on blank lines separate blocks."""
_VERY_TALL = 40
"""From here on classes of workloads have headings."""
_WIDE = 160
"""Cells from which evidence stands beside the table."""
_BESIDE_SHARE = 0.36
_LEAST_PANE = 6
_LEAST_ANSWER, _MOST_ANSWER = 6, 4
"""Lines of a low body from which the answer stands above its rows, and how many it takes at most."""
_LEAST_ROWS = 5


@dataclass(frozen=True, slots=True)
class CompareLayout:
    """The lines of each part of the screen."""

    top: tuple[Line, ...]
    rows: RowsTable
    rows_height: int
    below: tuple[Line, ...]
    beside: tuple[Line, ...]
    beside_width: int
    """0 where evidence is below the table."""
    has_unsure: bool = False
    """Whether undecided rows have a block below the table."""
    has_command: bool = False
    """Whether what would settle the selected row stands below it."""


def lay_out(shown: ShownRow, value: ComparisonColumn, width: int, height: int) -> CompareLayout:
    """The parts for a body of this size; `height` is without header, message and keys."""
    is_tall = height >= _TALL
    beside_width = round(width * _BESIDE_SHARE) if width >= _WIDE and is_tall else 0
    table_width = width - beside_width - (2 if beside_width else 1)
    table = table_of(shown, value, table_width, has_groups=height >= _VERY_TALL)
    needed = sum(len(entry.lines) for entry in table.entries)
    if height < _HIGH:
        return _low_layout(shown, table, needed, width, height)
    headline = 3 if is_tall or len(rows_of(shown.loaded)) < height // 2 else 2
    top = top_lines(shown.loaded, shown.place, width, max(height // 4, 2), headline, is_tall=is_tall)
    room = max(height - len(top) - 1, 1)
    if beside_width:
        rows_height = min(needed, room)
        below, has_unsure = _blocks_below(shown, table_width, room - rows_height)
        beside = [*beside_lines(shown, beside_width - 2, room + 1), *[()] * (room + 1)][: room + 1]
        ruled = tuple(rule_between(beside, beside_width))
        return CompareLayout(top, table, rows_height, tuple(below), ruled, beside_width, has_unsure)
    gap = 1 if is_tall else 0
    whole = pane_lines(shown, width, room)
    pane_height = min(len(whole) + gap, max(room - needed, min(_LEAST_PANE, len(whole)) + gap))
    rows_height = min(needed, max(room - pane_height, _LEAST_ROWS))
    left = room - rows_height
    pane = [*[()] * gap, *pane_lines(shown, width, left - gap)]
    left -= len(pane)
    more, has_unsure = _blocks_below(shown, width, left) if is_tall else (settling_lines(shown, width), False)
    more = more if len(more) <= left else []
    return CompareLayout(
        *(top, table, rows_height, (*pane, *more), (), 0, has_unsure),
        has_command=bool(more) and not is_tall,
    )


def _low_layout(shown: ShownRow, table: RowsTable, needed: int, width: int, height: int) -> CompareLayout:
    """The rows, which need so many lines, where there is room for little more."""
    sides = len(shown.loaded.answer.comparisons)
    least = _LEAST_PANE - 2 if sides == 1 else sides + 3  # all sides below a heading
    top: tuple[Line, ...] = ()
    if height >= _LEAST_ANSWER:
        most = min(max(height - 1 - needed - least, 2), _MOST_ANSWER)
        top = tuple(headline_lines(shown.loaded, width, most))
    room = max(height - len(top) - 1, 1)
    if room - needed < least:
        return CompareLayout(top, table, room, (), (), 0)
    return CompareLayout(top, table, needed, (*pane_lines(shown, width, room - needed),), (), 0)


def _blocks_below(shown: ShownRow, width: int, height: int) -> tuple[list[Line], bool]:
    """What would change the answer, undecided rows, differences and launches, as far as each fits whole.

    And whether undecided rows are among them.
    """
    comparisons, letter = shown.loaded.answer.comparisons, letter_of(shown.place)
    comparison = comparisons[shown.place]
    turning = turning_lines(comparison, width) if len(comparisons) == 1 else []
    differences = differences_lines(comparison, letter, width)
    free = height - sum(len(block) + 1 for block in (turning, differences) if block) - 1
    unsure = unsure_lines(shown, width, free)
    blocks = [turning, unsure, differences]
    if shown.row is not None:
        left = height - sum(len(block) + 1 for block in blocks if block)
        blocks.append(launches_lines(shown.row, f"a{letter}", shown.name, width, left - 1))
    lines = stacked(blocks, height)
    return lines, any(line in lines for line in unsure[:1])


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
    selected: ShownRow,
    value: ComparisonColumn,
    width: int,
    *,
    has_groups: bool,
) -> RowsTable:
    """What says most in this width; of more sides than have room those from that of `selected` on.

    With `has_groups`, classes of workloads have headings and their means follow their rows, else all means
    come last.
    """
    comparisons = selected.loaded.answer.comparisons
    made = rows_table(
        comparisons,
        rows_of(selected.loaded),
        selected.loaded.ignore,
        value=value,
        place=selected.place,
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
