"""The operators that take most of a step, as bars."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.model.result import CaseResult
from gputui.services.results.browser import RunDetail
from gputui.services.results.step_breakdown import StepBreakdown
from gputui.tui.screens.results.tables import operator_rows
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left
from gputui.tui.widgets.sections import gauge_spans, section

_LEAST_OPERATORS = 4
"""Fewer are not worth a heading."""
_NAME, _TIME = 40, 10
_LEAST_BAR = 8
_WITH_SHAPES, _SHAPES = 110, 60


def largest_operators(
    detail: RunDetail, case: CaseResult, breakdown: StepBreakdown, width: int, height: int
) -> Iterator[Line]:
    """An operator a line with its time and share of the step, below a heading.

    Nothing if the height holds too few of them; with shapes where the width holds those too.
    """
    most = height - 1
    if most < _LEAST_OPERATORS or not any(op.time_ns for op in breakdown.operators):
        return
    chosen = sorted((op for op in breakdown.operators if op.time_ns), key=lambda op: -op.time_ns)[:most]
    cells = operator_rows(detail, case, chosen)
    name = min(max(len(row[0]) for row in cells), _NAME, width // 3)
    phase = max(len(row[4]) for row in cells)
    shapes = min(max(len(row[6]) for row in cells), _SHAPES) if width >= _WITH_SHAPES else 0
    room = width - 4 - name - phase - _TIME - 10 - (shapes + 2 if shapes else 0)
    legend = (Span("bar: of the largest; tab Operators: all", "dim"),)
    yield section((Span("the largest operators", "title"),), width, legend)
    for op, (label, time, share, _, of_phase, _, shape) in zip(chosen, cells, strict=True):
        spans = [
            Span(f"   {left(clean(label), name)}  "),
            Span(left(of_phase, phase), "dim"),
            Span(f"{time:>{_TIME}} {share:>6} "),
        ]
        if room >= _LEAST_BAR:
            spans += gauge_spans(op.time_ns / chosen[0].time_ns, 1.0, room, "chart")
        if shapes:
            spans.append(Span(f"  {left(clean(shape), shapes)}", "dim"))
        yield fitted(spans, width)
