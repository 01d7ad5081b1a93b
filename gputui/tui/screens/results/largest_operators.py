"""The operators that take most of a step, as bars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputui.document.bars import bars
from gputui.document.table import Table
from gputui.model.result import CaseResult
from gputui.services.results.browser import RunDetail
from gputui.services.results.step_breakdown import StepBreakdown
from gputui.services.results.step_tables import operator_table
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut
from gputui.tui.widgets.sections import section, table_lines

_LEAST_OPERATORS = 4
"""Fewer are not worth a heading."""
_NAME, _SHAPES = 40, 60
"""Cells at most."""


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
    table = operator_table(detail.passes[case.case_id], chosen, breakdown.step_ns)
    name, time, share, _, phase, _, shapes = table.written
    columns = (
        replace(name, cells=[cut(clean(text), _NAME) for text in name.texts]),
        phase,
        time,
        share,
        bars([op.time_ns / chosen[0].time_ns for op in chosen], 1.0, "chart"),
        replace(shapes, cells=[Span(cut(clean(text), _SHAPES), "dim") for text in shapes.texts]),
    )
    legend = (Span("bar: of the largest; tab Operators: all", "dim"),)
    yield section((Span("the largest operators", "title"),), width, legend)
    yield from table_lines(Table(columns), width, margin=3, has_headings=False)
