"""All that the verdict of one row rests on: both distributions of blocks, intervals, the boxes, and why."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.verdict import RatioEstimate
from gputui.model.absent import Missing
from gputui.services.compare.columns import COST, ENERGY, PEAK, ComparisonColumn
from gputui.services.compare.pairing import Cell, Row
from gputui.services.compare.row_text import change_text, rate_text, time_text
from gputui.services.compare.telemetry_overlay import SideCurves
from gputui.services.compare.why import Why
from gputui.services.results.labels import interval_words
from gputui.services.serving.curve import ServingRun
from gputui.tui.screens.compare.evidence_parts import block_lines, blocks_heading, sure_lines, title_line
from gputui.tui.screens.compare.load_tables import load_lines, load_notes, result_lines
from gputui.tui.screens.compare.telemetry_lines import telemetry_lines
from gputui.tui.screens.compare.why_lines import why_lines
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.paragraphs import paragraph

_ROWS = 3
_TITLES = {COST.name: "cost", ENERGY.name: "energy", PEAK.name: "of peak"}


def evidence_page(
    row: Row,
    name: str,
    why: Why | None,
    curves: Sequence[SideCurves | Missing],
    steps: Sequence[str],
    width: int,
    loads: Sequence[ServingRun | Missing] = (),
) -> tuple[Line, ...]:
    """All that is known of a row, from its blocks to its reasons.

    `curves` are what the boxes did meanwhile, `steps` what would let the row be judged, `loads` all that the
    servers of both sides were offered; empty where the row is of something else.
    """
    lines: list[Line] = [title_line(row, name, width - 1)]
    for text in (row.verdict.reason, row.note):
        if text:
            lines += paragraph(text, width, "warn")
    if steps:
        lines.append((Span("what would help", "title"),))
        lines += [line for step in steps for line in paragraph(f"  {step}", width, indent=4)]
    if blocks := block_lines(row, "ab", width - 1, _ROWS):
        lines += [(), blocks_heading(_ROWS), *blocks]
    lines.append(())
    if row.case.is_load:
        lines += result_lines(row, width)
        lines += [(), *load_lines(loads, row, width), ()]
        lines += _values(row, width, (ENERGY, PEAK) if row.cost.ratio is not None else (COST, ENERGY, PEAK))
    else:
        for letter, cell in (("a", row.a), ("b", row.b)):
            lines += paragraph(f"{letter}  {_side(cell)}", width, indent=3)
        lines += [*_values(row, width), ()]
        if isinstance(row.estimate, RatioEstimate):
            lines += paragraph(f"b vs a: {change_text(row.rate)}", width)
    lines += sure_lines(row, width)
    if row.case.is_load:
        lines += [(), *load_notes(loads, width)]
    else:
        lines += [(), *result_lines(row, width)] if row.figures else []
        lines += why_lines(why, width)
    lines += [(), *telemetry_lines(curves, "ab", width)]
    return tuple(lines)


def _side(cell: Cell) -> str:
    if cell.result is None:
        return "does not have this case"
    speed = cell.speed
    if isinstance(speed, Missing):
        return speed.reason
    launches = f"{speed.launches} launch{'es' if speed.launches != 1 else ''}"
    blocks = f"{speed.blocks} blocks"
    if speed.independent < speed.blocks:
        blocks += f" (neighbours resemble each other: worth {speed.independent})"
    rate = f"{rate_text(cell)} (95 %: {interval_words(speed)})"
    return f"{rate}, {time_text(cell)} per step, {blocks} in {launches}"


def _values(row: Row, width: int, columns: Sequence[ComparisonColumn] = (COST, ENERGY, PEAK)) -> list[Line]:
    """Cost, energy and share of the peak of both sides, or why there is none."""
    lines: list[Line] = []
    for column in columns:
        title = _TITLES[column.name]
        values = [column.on_side(cell, (row.a, row.b)) for cell in (row.a, row.b)]
        reasons = [value.reason for value in values if isinstance(value, Missing)]
        if len(reasons) == len(values) and len(set(reasons)) == 1:
            said = reasons[0]
        else:
            said = ", ".join(
                f"{letter} {f'none ({value.reason})' if isinstance(value, Missing) else value}"
                for letter, value in zip("ab", values, strict=True)
            )
            unit = column.unit(row) if column.unit and len(reasons) < len(values) else ""
            said += f" per {unit}" if unit else ""
        style = "dim" if len(reasons) == len(values) else ""
        lines += paragraph(f"{title:8} {said}", width, style, indent=9)
    return lines
