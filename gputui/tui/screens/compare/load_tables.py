"""Tables on the page of a row: its results on both sides, and every load that the servers were offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gputui.analysis.judgement import Judgement
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.services.compare.pairing import Row
from gputui.services.compare.row_text import (
    change_text,
    cost_text,
    costs_text,
    figure_values,
    figure_verdict,
    point_text,
    rate_text,
    style_of,
)
from gputui.services.compare.row_text import verdict_text as judged_word
from gputui.services.results.load_times import load_of
from gputui.services.serving.curve import Level, ServingRun
from gputui.services.serving.text import curve_table, server_line, serving_notes, unmeasured_lines
from gputui.tui.screens.compare.evidence_parts import FAMILIES_OF_SIDES
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean
from gputui.tui.widgets.sections import paragraph, section, table_lines


def result_lines(row: Row, width: int, letter: str = "b", *, is_brief: bool = False) -> Iterator[Line]:
    """A line for each result besides the rate; of a load on a server also its rate and its cost.

    `letter` is the side that is not the baseline. In brief it has no intervals, and no
    results that do not compare.
    """
    shown = point_text if is_brief else change_text
    rows = [one for one in _results(row, shown) if one[3] or not is_brief]
    if rows:
        headings = ("", "a", letter, f"{letter} vs a", "verdict")
        yield from table_lines(table_of(headings, rows, (1, 2), (0, 4)), width, folds=True)


def _results(row: Row, shown: Callable[[Judgement], str]) -> Iterator[tuple[str | Span, ...]]:
    """Title, both sides, the change, and the verdict or why there is none."""

    def result(title: str, sides: Iterable[str], judged: Judgement, word: str) -> tuple[str | Span, ...]:
        change = "" if judged.ratio is None else shown(judged)
        return Span(title, "dim"), *sides, change, Span(word, style_of(judged) if change else "dim")

    cells = row.a, row.b
    if not row.case.has_steps:
        word = row.rate.reason if row.rate.ratio is None else judged_word(row.rate)
        yield result(row.rate.respect, map(rate_text, cells), row.rate, word)
        _, unit = costs_text(cells)
        if unit and row.cost.ratio is not None:
            costs = (cost_text(cell, cells, with_interval=False) for cell in cells)
            yield result(f"cost per {unit}", costs, row.cost, judged_word(row.cost))
    for figure in row.figures:
        yield result(figure.title, figure_values(figure), figure.judgement, figure_verdict(figure))


def load_lines(sides: Sequence[ServingRun | Missing], row: Row, width: int) -> Iterator[Line]:
    """Every load, with a line for each side that was offered it."""
    known = [(letter, side) for letter, side in zip("ab", sides, strict=True) if isinstance(side, ServingRun)]
    levels = [
        (letter, level)
        for key in dict.fromkeys(_key(level) for _, side in known for level in side.levels)
        for letter, side in known
        for level in side.levels
        if _key(level) == key
    ]
    if levels:
        yield section((Span("every load", "title"),), width - 1, (Span("bar: output tokens/s", "dim"),))
        yield from _load_table(levels, row, width - 1)


def load_notes(sides: Sequence[ServingRun | Missing], width: int) -> Iterator[Line]:
    """The server of each side, and what limits the meaning of its loads."""
    for letter, side in zip("ab", sides, strict=True):
        if isinstance(side, Missing):
            yield from paragraph(f"{letter}  its loads are not known: {side.reason}", width, "dim", indent=3)
            continue
        yield from paragraph(f"{letter}  {clean(server_line(side))}", width, indent=3)
        for text in (*unmeasured_lines(side), *serving_notes(side)):
            yield from paragraph(f"   {clean(text)}", width, "dim", indent=5)


def _key(level: Level) -> tuple[str, int | None, float | None]:
    return level.kind, level.users, level.rate_per_s


def _load_table(levels: Sequence[tuple[str, Level]], row: Row, width: int) -> Iterator[Line]:
    styles = [FAMILIES_OF_SIDES["ab".index(letter)] for letter, _ in levels]
    names, *rest = curve_table([level for _, level in levels], is_full=True, styles=styles).columns
    assert isinstance(names, Column)
    here = [load_of(level.case) == load_of(row.case) for _, level in levels]
    is_first = [name != before for name, before in zip(names.texts, ("", *names.texts), strict=False)]
    labels = [
        Span(name if first else "", "title" if is_here else "")
        for name, first, is_here in zip(names.texts, is_first, here, strict=True)
    ]
    letters = [Span(letter, "title") for letter, _ in levels]
    table = Table((replace(names, cells=labels), Column("", letters), *rest))
    marks = [is_here and first for is_here, first in zip(here, is_first, strict=True)]
    yield from table_lines(table, width, marks=marks)
