"""One case on three sides and more: rates, costs, and the intervals of costs on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputui.analysis.judgement import Judgement
from gputui.document.intervals import Interval, intervals
from gputui.document.table import Column, Drawing, Table
from gputui.model.units import format_change_interval
from gputui.services.compare.columns import ENERGY, PEAK, ComparisonColumn
from gputui.services.compare.pairing import Cell, Row
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.row_text import (
    costs_text,
    doubted_point_text,
    letter_of,
    rate_text,
    style_of,
    time_text,
)
from gputui.services.compare.rows_table import RowOfSides
from gputui.tui.screens.compare.evidence_parts import heading_line
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.table_lines import table_lines


def sides_lines(rows: RowOfSides, name: str, width: int, most: int, hint: str) -> list[Line]:
    """A line for each side, with its rate and what a unit of work costs on it."""
    known = next(row for row in rows if row is not None)
    sides: list[tuple[str, Cell, Row | None]] = [("a", known.a, None)]
    sides += [(letter_of(place), row.b, row) for place, row in enumerate(rows) if row is not None]
    fastest = fastest_text(known.a, {letter: row for letter, _, row in sides if row is not None})
    return [heading_line(name, width, hint), *_table(sides, width, fastest)][:most]


def _table(sides: Sequence[tuple[str, Cell, Row | None]], width: int, fastest: str) -> list[Line]:
    costs, unit = costs_text([cell for _, cell, _ in sides])
    columns = [
        Column("", [Span(letter, "title") for letter, _, _ in sides]),
        Column("rate", [rate_text(cell) for _, cell, _ in sides], True),
        Column("vs a", [_point(row.rate if row else None) for _, _, row in sides], True),
        Column("95 %", [_ends(row.rate if row else None) for _, _, row in sides], True),
        Column("", [Span("fastest", "title") if letter == fastest else "" for letter, _, _ in sides]),
        Column(f"$ per {unit}", costs, True),
        Column("vs a", [_point(row.cost if row else None) for _, _, row in sides], True),
        Column("95 %", [_ends(row.cost if row else None) for _, _, row in sides], True),
        Column("a step", [time_text(cell) for _, cell, _ in sides], True),
        Column("of peak", [_value(PEAK, cell) for _, cell, _ in sides], True),
        Column("energy", [_value(ENERGY, cell) for _, cell, _ in sides], True),
    ]
    known = [column for column in columns if any(text not in ("", "—") for text in column.texts)]
    ordered: list[Column | Drawing] = [replace(column, priority=place) for place, column in enumerate(known)]
    drawn = [
        [Interval(*row.cost.ratio, letter, style_of(row.cost))] if row and row.cost.ratio else []
        for letter, _, row in sides
    ]
    ordered += [replace(intervals(drawn), priority=len(known))] if any(drawn) else []
    return list(table_lines(Table(tuple(ordered)), width))


def _value(column: ComparisonColumn, cell: Cell) -> Span:
    value = column.on_side(cell, in_full=False)
    return Span(value if isinstance(value, str) else "—", "" if isinstance(value, str) else "dim")


def _point(judgement: Judgement | None) -> Span:
    if judgement is None or judgement.ratio is None:
        return Span("")
    return Span(doubted_point_text(judgement), style_of(judgement) if judgement.differs else "")


def _ends(judgement: Judgement | None) -> Span:
    if judgement is None or judgement.ratio is None:
        return Span("")
    ratio, low, high = judgement.ratio
    return Span(format_change_interval(low, high, ratio), "dim")
