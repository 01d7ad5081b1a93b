"""A value beside the range that others measured, on one line of cells."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.tui.terminal.lines import Line, Span

_POINT, _RANGE, _TRACK = "●", "━", "─"


@dataclass(frozen=True, slots=True)
class Axis:
    """What the two ends of a line of cells stand for."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        """The cell of a value; the first or the last if it lies outside."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(int(share * self.cells), 0), self.cells - 1)


def range_plot(value: float, low: float, high: float | None, axis: Axis, style: str) -> tuple[Span, ...]:
    """`────●──━━━━──`: the value as a point, the range from `low` to `high`, or to the end if it is open."""
    first = axis.place(low)
    last = axis.cells - 1 if high is None else axis.place(high)
    kinds = [_RANGE if first <= cell <= last else _TRACK for cell in range(axis.cells)]
    kinds[axis.place(value)] = _POINT
    styles = {_RANGE: "dim", _TRACK: "track", _POINT: style}
    spans: list[Span] = []
    for kind in kinds:
        if spans and spans[-1].style == styles[kind]:
            spans[-1] = Span(spans[-1].text + kind, styles[kind])
        else:
            spans.append(Span(kind, styles[kind]))
    return tuple(spans)


def axis_labels(axis: Axis, marks: tuple[tuple[float, str], ...]) -> Line:
    """Labels that begin at the cells of their values; one that has no room or no value here is left out."""
    text = ""
    for value, label in marks:
        place = axis.place(value)
        is_inside = axis.low <= value <= axis.high and place + len(label) <= axis.cells
        if is_inside and (not text or place > len(text)):
            text = text.ljust(place) + label
    return (Span(text.ljust(axis.cells), "dim"),)
