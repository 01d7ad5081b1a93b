"""Where the difference of a row lies: its parts with bars, and what holds each side back."""

from __future__ import annotations

from gputui.analysis.attribution import Attribution
from gputui.model.absent import Missing
from gputui.model.units import counted, format_percent
from gputui.services.compare.why import Why, part_name, sentence, signed
from gputui.services.compare.why_text import finding_lines, time_text
from gputui.services.results.conditions import NOT_PROFILED
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import left
from gputui.tui.widgets.paragraphs import paragraph

_NAME = 24
_CELL = 10
_WIDEST_BAR = 40


def why_lines(why: Why | None, width: int) -> tuple[Line, ...]:
    """A sentence, a row for each part, and findings; nothing of a row that says no difference."""
    if why is None:
        return ()
    lines: list[Line] = [(), (Span("why", "title"),)]
    if isinstance(why.attribution, Missing):
        lines += paragraph(f"unknown: {why.attribution.reason}", width, "dim")
        if NOT_PROFILED in why.attribution.reason:
            lines += paragraph("gputui run --trace makes a profiled pass of every case", width, "dim")
    else:
        lines += _attributed(why, why.attribution, width)
    for text in finding_lines(why):
        lines += paragraph(text, width, indent=2)
    return tuple(lines)


def _attributed(why: Why, found: Attribution, width: int) -> tuple[Line, ...]:
    shown = found.shown()
    rest_ns = found.difference_ns - sum(part.difference_ns for part in shown)
    others = len(found.parts) - len(shown)
    rows = [
        (part_name(part), time_text(part.time_a_ns), time_text(part.time_b_ns), part.difference_ns)
        for part in shown
    ]
    if others:
        rows.append((counted(others, "other"), "", "", rest_ns))
    room = min(width - 2 - _NAME - 3 * _CELL - 3, _WIDEST_BAR)
    bars = _Bars([row[3] for row in rows], room)
    lines: list[Line] = list(paragraph(sentence(why.row, found), width))
    lines.append((Span(f"  {'part of a step':{_NAME}}" + _cells("a", "b", "b - a"), "title"),))
    for name, on_a, on_b, difference_ns in rows:
        words = f"  {left(name, _NAME)}{_cells(on_a, on_b, signed(difference_ns))}  "
        lines.append((Span(words), *bars.of(difference_ns)))
    total = _cells(time_text(found.step_a_ns), time_text(found.step_b_ns), signed(found.difference_ns))
    lines.append((Span(f"  {'the step':{_NAME}}{total}", "title"),))
    doubts = f": {'; '.join(found.doubts)}" if found.doubts else ""
    trust = f"{format_percent(found.coverage)} of what moved is in what both have; confidence"
    return (*lines, *paragraph(f"{trust} {found.confidence}{doubts}", width, "dim"))


def _cells(*texts: str) -> str:
    return "".join(f"{text:>{_CELL}}" for text in texts)


class _Bars:
    """Bars from one line of zero: shorter on b to the left, longer to the right."""

    def __init__(self, values: list[int], width: int) -> None:
        self._less, self._more = max(0, -min(values, default=0)), max(0, *values, 0)
        self._room = width - 1 if width >= 6 and self._less + self._more else 0

    def of(self, value: int) -> tuple[Span, ...]:
        """One bar; nothing where there is no room."""
        if not self._room:
            return ()
        span = self._less + self._more
        before = round(self._room * self._less / span)
        length = round(self._room * abs(value) / span)
        if value < 0:
            length = min(length, before)
            return (Span(" " * (before - length)), Span("━" * length, "good"), Span("│", "track"))
        bar = "━" * min(length, self._room - before)
        return (Span(" " * before), Span("│", "track"), Span(bar, "warn"))
