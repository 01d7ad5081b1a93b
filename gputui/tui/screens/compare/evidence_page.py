"""What the verdict of one row rests on: both distributions of blocks, intervals, the boxes, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gputui.analysis.verdict import RatioEstimate, SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.units import format_change, format_percent, format_seconds
from gputui.services.compare.columns import COST, ENERGY, PEAK
from gputui.services.compare.pairing import Cell, Row
from gputui.services.compare.row_text import (
    boxes_text,
    change_text,
    figure_line,
    rate_text,
    time_text,
    verdict_text,
)
from gputui.services.compare.telemetry_overlay import SideCurves
from gputui.services.compare.why import Why
from gputui.services.results.throughput import launches_of
from gputui.tui.screens.compare.telemetry_lines import telemetry_lines
from gputui.tui.screens.compare.why_lines import why_lines
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.charts import ascii_glyph, braille_glyph, level_of
from gputui.tui.widgets.paragraphs import paragraph

_ROWS = 3
_LABEL = 3


def evidence_page(
    row: Row,
    name: str,
    why: Why | None,
    curves: Sequence[SideCurves | Missing],
    steps: Sequence[str],
    width: int,
    *,
    ascii_only: bool,
) -> tuple[Line, ...]:
    """All that is known of a row, from its blocks to its reasons.

    `curves` are what the boxes did meanwhile, `steps` what would let the row be judged.
    """
    lines: list[Line] = [(Span(name, "title"), Span(f"  {verdict_text(row.rate)}", _style(row)))]
    for text in (row.verdict.reason, row.note):
        if text:
            lines += paragraph(text, width, "warn")
    if steps:
        lines.append((Span("what would help", "title"),))
        lines += [line for step in steps for line in paragraph(f"  {step}", width, indent=4)]
    lines += [(), *distributions(row, width, ascii_only=ascii_only), ()]
    for letter, cell in (("a", row.a), ("b", row.b)):
        lines += paragraph(f"{letter}  {_side(cell)}", width, indent=3)
    lines += values_lines(row, width)
    lines.append(())
    if isinstance(row.estimate, RatioEstimate):
        lines += paragraph(f"b vs a: {change_text(row.rate)}", width)
        lines += [line for text in _method(row.estimate) for line in paragraph(text, width, "dim")]
    if row.holds_between_models is False and not isinstance(row.models_band, Missing):
        lines += paragraph(boxes_text(row.models_band), width, "dim")
    for figure in row.figures:
        lines += paragraph(figure_line(figure), width, indent=2)
    for flag in row.flags:
        lines += paragraph(
            f"! {flag.side} {flag.word}: {format_percent(flag.share)} of the time", width, "warn"
        )
    lines += why_lines(why, width, ascii_only=ascii_only)
    lines += [(), *telemetry_lines(curves, width, ascii_only=ascii_only)]
    return tuple(lines)


def _style(row: Row) -> str:
    return {"faster": "good", "slower": "warn"}.get(row.verdict.word, "dim")


def _side(cell: Cell) -> str:
    if cell.result is None:
        return "does not have this case"
    speed = cell.speed
    if isinstance(speed, Missing):
        return speed.reason
    per_step = cell.result.case.units_per_step
    low, high = (format_seconds(per_step / x) for x in (speed.high, speed.low))
    launches = f"{speed.launches} launch{'es' if speed.launches != 1 else ''}"
    blocks = f"{speed.blocks} blocks"
    if speed.independent < speed.blocks:
        blocks += f" (neighbours resemble each other: as good as {speed.independent})"
    return f"{rate_text(cell)}, {time_text(cell)} per step (95 %: {low} to {high}), {blocks} in {launches}"


def values_lines(row: Row, width: int) -> tuple[Line, ...]:
    """Cost, energy and share of the peak of both sides, or why there is none."""
    lines: list[Line] = []
    for column, title in ((COST, "cost"), (ENERGY, "energy"), (PEAK, "of peak")):
        values = [column.on_side(cell) for cell in (row.a, row.b)]
        reasons = [value.reason for value in values if isinstance(value, Missing)]
        if len(reasons) == len(values) and len(set(reasons)) == 1:
            said = reasons[0]
        else:
            said = ", ".join(
                f"{letter} {f'none ({value.reason})' if isinstance(value, Missing) else value}"
                for letter, value in zip("ab", values, strict=True)
            )
            said += f" for {column.unit(row)}" if column.unit else ""
        style = "dim" if len(reasons) == len(values) else ""
        lines += paragraph(f"{title:8} {said}", width, style, indent=9)
    return tuple(lines)


def _method(estimate: RatioEstimate) -> Iterator[str]:
    pairs = ", compared in pairs" if estimate.paired else ""
    launches = f"{estimate.launches_a}/{estimate.launches_b} launches"
    yield f"{estimate.method}; n {estimate.n_a}/{estimate.n_b} blocks, {launches}{pairs}"
    yield f"smallest detectable difference: {format_change(estimate.resolvable)}"
    if not estimate.replicated:
        yield "the spread between launches is assumed, not measured: --launches 3 measures it"


def distributions(row: Row, width: int, *, ascii_only: bool) -> tuple[Line, ...]:
    """How often blocks took how long, both sides over one axis of time, and the intervals of the speeds."""
    sides = [_seconds(cell) for cell in (row.a, row.b)]
    known = [seconds for side in sides for seconds in side]
    if not known:
        return ()
    bounds = [*known, *(edge for cell in (row.a, row.b) for edge in _interval(cell))]
    low, high = min(bounds), max(bounds)
    if high <= low:
        low, high = low * 0.99, high * 1.01
    room = max(width - _LABEL - 2, 20)
    lines: list[Line] = []
    for letter, cell, seconds in zip("ab", (row.a, row.b), sides, strict=True):
        heights = _histogram(seconds, low, high, 2 * room)
        most = max(heights, default=0)
        glyph = ascii_glyph if ascii_only else braille_glyph
        levels = [level_of(h, most, 4 * _ROWS) if h else -1 for h in heights]
        cells = [glyph(levels[i], levels[i + 1], _ROWS) for i in range(0, 2 * room, 2)]
        for place in range(_ROWS if seconds else 0):
            label = letter if place == _ROWS - 1 else ""
            lines.append((Span(f"{label:>{_LABEL - 1}} "), Span("".join(c[place] for c in cells), "chart")))
        edges = _interval(cell)
        if edges:
            lines.append((Span(" " * _LABEL), Span(_whisker(edges, low, high, room, ascii_only), "accent")))
        else:
            lines.append((Span(f"{letter:>{_LABEL - 1}} "), Span("no blocks", "dim")))
    left, right = format_seconds(low), f"{format_seconds(high)} per step"
    if right.startswith(f"{left} "):
        right += f" (+{format_percent(high / low - 1)})"
    lines.append((Span(" " * _LABEL + left + right.rjust(room - len(left)), "dim"),))
    return tuple(lines)


def _seconds(cell: Cell) -> list[float]:
    """Seconds per step of each block that counts."""
    if cell.result is None:
        return []
    units = cell.result.case.units_per_step
    return [seconds * units for launch in launches_of(cell.result) for seconds in launch]


def _interval(cell: Cell) -> tuple[float, ...]:
    """Low, middle and high of the time of a step."""
    if cell.result is None or not isinstance(cell.speed, SpeedEstimate):
        return ()
    units, speed = cell.result.case.units_per_step, cell.speed
    return units / speed.high, units / speed.units_per_s, units / speed.low


def _place(seconds: float, low: float, high: float, columns: int) -> int:
    """The column of a time; equal steps are equal ratios, so that sides of any distance fit."""
    share = math.log(seconds / low) / math.log(high / low)
    return min(max(int(share * columns), 0), columns - 1)


def _histogram(seconds: Sequence[float], low: float, high: float, columns: int) -> list[float]:
    """Smoothed a little: a block fills its column, and its neighbours by half."""
    heights = [0.0] * columns
    for one in seconds:
        place = _place(one, low, high, columns)
        for column, weight in ((place - 1, 0.5), (place, 1.0), (place + 1, 0.5)):
            if 0 <= column < columns:
                heights[column] += weight
    return heights


def _whisker(edges: Sequence[float], low: float, high: float, width: int, ascii_only: bool) -> str:
    """The 95 % interval as a line with its ends, and the estimate on it."""
    first, middle, last = (_place(edge, low, high, width) for edge in edges)
    line, left, right, mark = ("-", "|", "|", "o") if ascii_only else ("─", "├", "┤", "●")
    cells = [" "] * width
    cells[first : last + 1] = line * (last - first + 1)
    cells[first], cells[last] = left, right
    cells[middle] = mark
    return "".join(cells).rstrip()
