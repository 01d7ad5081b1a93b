"""Times of blocks in the order they were measured, as a chart of characters."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gputui.model.result import CaseResult
from gputui.model.units import format_percent, format_seconds
from gputui.services.speeds import CROWDED_SHARE
from gputui.tui.lines import Line, Span
from gputui.tui.monitor.charts import ascii_glyph, braille_glyph, level_of

_AXIS = 9
"""Cells of the numbers at the left."""
_HEADROOM = 0.1
"""Below the fastest block, as a share of the range: it must not look as if it took no time."""


class _Point:
    """One dot column: what stands for one block or, where they are too many, for neighbours."""

    def __init__(self, seconds: float, launch: int, is_crowded: bool) -> None:
        self.seconds = seconds
        self.launch = launch
        self.is_crowded = is_crowded


def block_chart(case: CaseResult, width: int, rows: int, *, ascii_only: bool) -> tuple[Line, ...]:
    """Seconds per step of each block, with launches and crowded blocks marked below; none without blocks.

    The axis does not begin at 0: it spans what was seen.
    """
    points = _points(case)
    room = max(width - _AXIS - 1, 10)
    if not points:
        return ()
    columns = _spread(points, 2 * room)
    low, high = min(p.seconds for p in points), max(p.seconds for p in points)
    bottom = low - max((high - low) * _HEADROOM, low * 1e-6)
    glyph = ascii_glyph if ascii_only else braille_glyph
    levels = [level_of(p.seconds - bottom, high - bottom, 4 * rows) for p in columns]
    cells = [glyph(levels[i], levels[min(i + 1, len(levels) - 1)], rows) for i in range(0, len(levels), 2)]
    middle = format_seconds(median(p.seconds for p in points))
    labels = {0: format_seconds(high), rows - 1: format_seconds(low)}
    lines: list[Line] = []
    for row in range(rows):
        text = "".join(cell[row] for cell in cells)
        lines.append((Span(f"{labels.get(row, ''):>{_AXIS}} ", "dim"), Span(text, "chart")))
    pairs = [columns[i : i + 2] for i in range(0, len(columns), 2)]
    lines.append((Span(f"{'launch':>{_AXIS}} ", "dim"), Span(_launches(pairs), "dim")))
    if any(p.is_crowded for p in points):
        marks = "".join("!" if any(p.is_crowded for p in pair) else " " for pair in pairs)
        lines.append((Span(f"{'crowded':>{_AXIS}} ", "dim"), Span(marks, "warn")))
    spread = format_percent(high / low - 1)
    said = f"median {middle} per step, the slowest {spread} above the fastest, {_count(points)}"
    lines.append((Span(f"{'':{_AXIS}} {said}"[:width], "dim"),))
    return tuple(lines)


def _points(case: CaseResult) -> list[_Point]:
    found = []
    for measurement in case.measurements:
        for block in measurement.blocks:
            waited, used = block.waited_ns, block.cpu_ns
            wanted = (waited or 0) + (used or 0)
            is_crowded = waited is not None and wanted > 0 and waited / wanted > CROWDED_SHARE
            found.append(_Point(block.block_ns * 1e-9 / block.steps, measurement.launch_id, is_crowded))
    return found


def _spread(points: Sequence[_Point], most: int) -> list[_Point]:
    """At most so many columns: a few blocks become wide, of many neighbours the slowest is seen."""
    if len(points) <= most:
        each = max(min(most // len(points), 8), 1)
        return [point for point in points for _ in range(each)]
    found = []
    for column in range(most):
        part = points[column * len(points) // most : (column + 1) * len(points) // most]
        slowest = max(part, key=lambda p: p.seconds)
        found.append(_Point(slowest.seconds, part[0].launch, any(p.is_crowded for p in part)))
    return found


def _launches(pairs: Sequence[Sequence[_Point]]) -> str:
    """The number of a launch where it begins; a bar where there is no room for it."""
    text = ""
    last: int | None = None
    for place, pair in enumerate(pairs):
        if pair[0].launch != last:
            last = pair[0].launch
            text = text[:place].ljust(place) + f"|{last}"
    return text[: len(pairs)]


def _count(points: Sequence[_Point]) -> str:
    launches = len({p.launch for p in points})
    return f"{len(points)} blocks in {launches} launch{'es' if launches > 1 else ''}"
