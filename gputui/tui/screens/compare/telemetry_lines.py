"""Power, clock and throttling of both sides while a row was timed, one above the other on one axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gputui.metrics import Metric, metric_named
from gputui.model.absent import Missing
from gputui.model.units import format_seconds
from gputui.services.compare.telemetry_overlay import CROWDED, MOST_LAUNCHES, THROTTLE, SideCurves
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.charts import strip
from gputui.tui.widgets.sections import paragraph

_NAME, _LABEL = 12, 34
"""Cells of the name of a metric, and of name, side and numbers at the left."""
_LEAST_SPAN = 0.02
"""Of the highest value that a strip is high, so that a megahertz does not look like a fall."""
_LEGENDS = {THROTTLE: "! slowed, c cap", CROWDED: "! by others"}
_MARKS = {1.0: "!", 2.0: "c"}


def telemetry_lines(sides: Sequence[SideCurves | Missing], letters: str, width: int) -> tuple[Line, ...]:
    """A strip for each metric and side, launches end to end; why there is none where nothing was sampled."""
    known = [side for side in sides if isinstance(side, SideCurves)]
    lines: list[Line] = [(Span("while it was timed", "dim"),)]
    reasons: dict[str, list[str]] = {}
    for letter, side in zip(letters, sides, strict=True):
        if isinstance(side, Missing):
            reasons.setdefault(side.reason, []).append(letter)
    for reason, without in reasons.items():
        lines += paragraph(f"  no telemetry of {' and '.join(without)}: {reason}", width, "dim", indent=4)
    longest_s = max((side.seconds for side in known), default=0.0)
    if longest_s <= 0:
        return tuple(lines)
    room = max(width - _LABEL - 1, 10)
    for metric in dict.fromkeys(metric_named(key, side.device) for side in known for key in side.curves):
        lines += _strips(metric, sides, letters, longest_s, room)
    lines += _disturbed(sides, letters, longest_s, room)
    for letter, side in zip(letters, sides, strict=True):
        if isinstance(side, SideCurves) and len(side.starts_s) > 1:
            marks = _marked(side, longest_s, room)
            lines.append(
                (Span(f"  {'launches':{_NAME}}{letter:{_LABEL - _NAME - 2}}", "dim"), Span(marks, "dim"))
            )
    end = format_seconds(longest_s)
    lines.append((Span(f"{'':{_LABEL}}{'0 s'.ljust(max(room - len(end), 4))}{end}", "dim"),))
    if any(len(side.starts_s) >= MOST_LAUNCHES for side in known):
        lines += paragraph(f"  the first {MOST_LAUNCHES} launches of a side are drawn", width, "dim")
    return tuple(lines)


def _strips(
    metric: Metric, sides: Sequence[SideCurves | Missing], letters: str, longest_s: float, room: int
) -> Iterator[Line]:
    found = [
        (letter, side, side.curves[metric.key])
        for letter, side in zip(letters, sides, strict=True)
        if isinstance(side, SideCurves) and metric.key in side.curves
    ]
    values = [value for _, _, curve in found for value in curve.known]
    low, high = min(values), max(values)
    bottom = min(low, high - _LEAST_SPAN * abs(high))
    for place, (letter, side, curve) in enumerate(found):
        values_at = []
        for column in range(room):
            t_s = (column + 0.5) / room * longest_s
            value = curve.at(t_s) if t_s <= side.seconds else math.nan
            values_at.append(value if math.isfinite(value) else None)
        ends = metric.between(min(curve.known), max(curve.known))
        name = metric.name if place == 0 else ""
        yield (
            Span(f"  {name:{_NAME}}", "dim"),
            Span(f"{letter}  ", "title"),
            Span(f"{ends:{_LABEL - _NAME - 5}}"),
            Span(strip(values_at, high, bottom).rstrip(), f"{metric.hue} 1"),
        )


def _disturbed(
    sides: Sequence[SideCurves | Missing], letters: str, longest_s: float, room: int
) -> Iterator[Line]:
    """Where a GPU was slowed or power-capped, or there was CPU contention."""
    is_first = True
    for letter, side in zip(letters, sides, strict=True):
        if isinstance(side, Missing) or isinstance(side.disturbed, Missing):
            continue
        curve = side.disturbed
        said, marks = "never", ""
        if any(curve.known):
            said = _LEGENDS[side.disturbance]
            times = ((column + 0.5) / room * longest_s for column in range(room))
            marks = "".join(_MARKS.get(curve.at(t), " ") if t <= side.seconds else " " for t in times)
        name = side.disturbance if is_first else ""
        is_first = False
        yield (Span(f"  {name:{_NAME}}{letter}  {said:{_LABEL - _NAME - 5}}"), Span(marks.rstrip(), "warn"))


def _marked(side: SideCurves, longest_s: float, room: int) -> str:
    """A bar where each launch begins."""
    cells = [" "] * room
    for start_s in side.starts_s:
        cells[min(int(start_s / longest_s * room), room - 1)] = "|"
    return "".join(cells).rstrip()
