"""One case on three sides and more: rates, costs and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gputui.analysis.cost import Cost
from gputui.analysis.judgement import Judgement
from gputui.document.table import Column, Table
from gputui.model.units import cost_unit, format_change_interval, format_usd
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
from gputui.tui.widgets.cells import fitted, width_of
from gputui.tui.widgets.table_lines import table_lines

_LABEL = 14


def sides_lines(rows: RowOfSides, name: str, width: int, most: int, hint: str) -> list[Line]:
    """A line for each side, then what a unit of work costs on each, on one axis."""
    known = next(row for row in rows if row is not None)
    sides: list[tuple[str, Cell, Row | None]] = [("a", known.a, None)]
    sides += [(letter_of(place), row.b, row) for place, row in enumerate(rows) if row is not None]
    fastest = fastest_text(known.a, {letter: row for letter, _, row in sides if row is not None})
    lines = [heading_line(name, width, hint)]
    lines += _table(sides, width, fastest)[: max(most - 1, 0)]
    costs = [
        (letter, cell.cost)
        for letter, cell, _ in sides
        if isinstance(cell.cost, Cost) and cell.cost.usd_per_million > 0
    ]
    if len(costs) > 1 and most - len(lines) >= len(costs) + 3:
        millions, unit = cost_unit(min(cost.usd_per_million for _, cost in costs), known.case.unit)
        lines += [(), (Span(f"  cost per {unit}, 95 %", "dim"),), *_costs(costs, millions, width)]
    return lines


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
    ordered = (replace(column, priority=place) for place, column in enumerate(known))
    return list(table_lines(Table(tuple(ordered)), width))


def _value(column: ComparisonColumn, cell: Cell) -> Span:
    value = column.on_side(cell, in_full=False)
    return Span(value if isinstance(value, str) else "—", "" if isinstance(value, str) else "dim")


def _point(judgement: Judgement | None) -> Span:
    if judgement is None or judgement.ratio is None:
        return Span("")
    return Span(
        f"{doubted_point_text(judgement)}{' ' if judgement.is_decided else ''}",
        style_of(judgement) if judgement.differs else "",
    )


def _ends(judgement: Judgement | None) -> Span:
    if judgement is None or judgement.ratio is None:
        return Span("")
    ratio, low, high = judgement.ratio
    return Span(format_change_interval(low, high, ratio), "dim")


def _costs(costs: Sequence[tuple[str, Cost]], millions: float, width: int) -> list[Line]:
    """Each interval on one logarithmic axis, with the letter of its side as its mark."""
    low, high = min(cost.low for _, cost in costs), max(cost.high for _, cost in costs)
    low, high = low / 1.02, high * 1.02
    room = max(min(width - _LABEL - 4, 90), 10)

    def cell(usd: float) -> int:
        return min(round(math.log(usd / low) / math.log(high / low) * (room - 1)), room - 1)

    lines: list[Line] = []
    for letter, cost in costs:
        first, point, last = (cell(usd) for usd in (cost.low, cost.usd_per_million, cost.high))
        lines.append(
            (
                Span(f"  {letter} ", "title"),
                Span(f"{format_usd(cost.usd_per_million * millions):>{_LABEL - 6}}  "),
                Span("─" * first, "track"),
                Span("━" * (point - first) + letter[0] + "━" * (last - point), "accent"),
                Span("─" * (room - 1 - last), "track"),
            )
        )
    ends = format_usd(low * millions), format_usd(high * millions)
    lines.append((Span(" " * _LABEL + ends[0] + ends[1].rjust(room - width_of(ends[0])), "dim"),))
    return [fitted(line, width) for line in lines]
