"""A run of loads on a server: its curve as bars with the times beside, and what limits its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gputui.model.absent import Missing
from gputui.services.results.browser import RunDetail
from gputui.services.serving.curve import SEARCH, ServingRun, serving_of
from gputui.services.serving.text import (
    curve_table,
    measured_levels,
    serving_notes,
    unmeasured_lines,
)
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import section
from gputui.tui.widgets.table_lines import table_lines

_MARGIN = "   "


@lru_cache(maxsize=8)
def loads_of(detail: RunDetail) -> ServingRun | None:
    """The loads of a run, whose requests are sorted once, not for each picture; None for another kind."""
    found = serving_of(detail.run, detail.loads)
    return None if isinstance(found, Missing) else found


def load_lines(loads: ServingRun, width: int, most: int | None = None) -> Iterator[Line]:
    """The curve: a row for each load, a bar for its output tokens per second; `most` rows of it."""
    levels = measured_levels(loads)
    if not levels:
        return
    legend = (Span("bar: output tokens/s", "dim"),)
    yield section((Span("loads", "title"),), width, legend)
    shown = levels[:most]
    marks = [level.kind == SEARCH for level in shown]
    yield from table_lines(curve_table(shown, styles="compute"), width, margin=3, marks=marks)
    if len(shown) < len(levels):
        yield fitted((Span(f"{_MARGIN}{len(levels) - len(shown)} more: enter", "dim"),), width)


def note_lines(loads: ServingRun, width: int) -> Iterator[Line]:
    """Loads without a result, and what limits the meaning of the others."""
    for text in unmeasured_lines(loads):
        yield from paragraph(f"{_MARGIN}{clean(text)}", width, "warn", indent=len(_MARGIN) + 2)
    for text in serving_notes(loads):
        yield from paragraph(f"{_MARGIN}{clean(text)}", width, "dim", indent=len(_MARGIN) + 2)
