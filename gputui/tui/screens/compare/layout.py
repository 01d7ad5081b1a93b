"""Which parts of a comparison a screen of a size has room for, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.services.compare.columns import ComparisonColumn
from gputui.services.compare.row_text import letter_of
from gputui.services.compare.rows_table import RowOfSides
from gputui.tui.screens.compare.pages import headline_lines, top_lines
from gputui.tui.screens.compare.pane import (
    ShownRow,
    beside_lines,
    differences_lines,
    launches_lines,
    pane_lines,
    rule_between,
    settling_lines,
    turning_lines,
    unsure_lines,
)
from gputui.tui.screens.compare.rows_table import RowsTable, table_of
from gputui.tui.terminal.lines import Line
from gputui.tui.widgets.sections import stacked

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
    left_width: int
    """Of the table and what is below it."""
    beside_width: int
    """0 where evidence is below the table."""
    has_unsure: bool = False
    """Whether undecided rows have a block below the table."""
    has_command: bool = False
    """Whether what would settle the selected row stands below it."""


def has_evidence(height: int) -> bool:
    """Whether a body of this height has room for more than the rows."""
    return height >= _HIGH


def lay_out(
    shown: ShownRow,
    rows: Sequence[RowOfSides],
    value: ComparisonColumn,
    width: int,
    height: int,
) -> CompareLayout:
    """The parts for a body of this size; `height` is without header, message and keys."""
    loaded, place = shown.loaded, shown.place
    comparisons = loaded.answer.comparisons
    is_tall = height >= _TALL
    beside_width = round(width * _BESIDE_SHARE) if width >= _WIDE and is_tall else 0
    left_width = width - beside_width
    top: tuple[Line, ...] = ()
    if has_evidence(height):
        headline = 3 if is_tall or len(rows) < height // 2 else 2
        top = top_lines(loaded, place, width, max(height // 4, 2), headline, is_tall=is_tall)
    room = max(height - len(top) - 1, 1)
    table_width = left_width - 2 if beside_width else left_width - 1
    table = table_of(
        comparisons, rows, place, loaded.ignore, value, table_width, has_groups=height >= _VERY_TALL
    )
    needed = sum(len(entry.lines) for entry in table.entries)
    if beside_width:
        rows_height = min(needed, room)
        turning = turning_lines(comparisons[place], table_width) if len(comparisons) == 1 else []
        differences = differences_lines(comparisons[place], letter_of(place), table_width)
        free = room - rows_height - sum(len(block) + 1 for block in (turning, differences) if block) - 1
        unsure = unsure_lines(shown, table_width, free)
        blocks = [turning, unsure, differences]
        if shown.row is not None:
            left = room - rows_height - sum(len(block) + 1 for block in blocks if block)
            blocks.append(
                launches_lines(shown.row, f"a{letter_of(place)}", shown.name, table_width, left - 1)
            )
        beside = rule_between(
            _filled(beside_lines(shown, beside_width - 2, height - len(top)), height - len(top)), beside_width
        )
        below = stacked(blocks, room - rows_height)
        return CompareLayout(
            top,
            table,
            rows_height,
            tuple(below),
            tuple(beside),
            left_width,
            beside_width,
            has_unsure=any(line in below for line in unsure[:1]),
        )
    if not has_evidence(height):
        least = (
            _LEAST_PANE - 2 if len(comparisons) == 1 else len(comparisons) + 3
        )  # all sides below a heading
        if height >= _LEAST_ANSWER:
            most = min(max(height - 1 - needed - least, 2), _MOST_ANSWER)
            top = tuple(headline_lines(loaded, width, most))
        room = max(height - len(top) - 1, 1)
        if room - needed < least:
            return CompareLayout(top, table, room, (), (), width, 0)
        low_pane = pane_lines(shown, width, room - needed)
        return CompareLayout(top, table, needed, tuple(low_pane), (), width, 0)
    gap = 1 if is_tall else 0
    whole = pane_lines(shown, width, room)
    pane_height = min(len(whole) + gap, max(room - needed, min(_LEAST_PANE, len(whole)) + gap))
    rows_height = min(needed, max(room - pane_height, _LEAST_ROWS))
    left = room - rows_height
    below = [*[()] * gap, *pane_lines(shown, width, left - gap)]
    unsure = unsure_lines(shown, width)
    below += stacked(
        [
            unsure,
            turning_lines(comparisons[place], width) if len(comparisons) == 1 else [],
            differences_lines(comparisons[place], letter_of(place), width),
        ]
        if is_tall
        else [],
        left - len(below),
    )
    has_unsure = any(line in below for line in unsure[:1])
    settling = [] if is_tall else settling_lines(shown, width)
    if settling and len(below) + len(settling) <= left:
        below += settling
        return CompareLayout(top, table, rows_height, tuple(below), (), width, 0, has_command=True)
    return CompareLayout(top, table, rows_height, tuple(below), (), width, 0, has_unsure)


def _filled(lines: Sequence[Line], height: int) -> list[Line]:
    return [*lines, *[()] * (height - len(lines))]
