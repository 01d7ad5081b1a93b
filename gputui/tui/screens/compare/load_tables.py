"""Tables on the page of a row: its results on both sides, and every load that the servers were offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import section
from gputui.tui.widgets.table_lines import table_lines


@dataclass(frozen=True, slots=True)
class _Result:
    """One result on both sides."""

    title: str
    a: str
    b: str
    change: str
    verdict: str
    """Why there is none, if `change` is empty."""
    style: str


def result_lines(row: Row, width: int, letter: str = "b", *, is_brief: bool = False) -> Iterator[Line]:
    """A line for each result besides the rate; of a load on a server also its rate and its cost.

    `letter` is the side that is not the baseline. In brief it has no intervals, and no
    results that do not compare.
    """
    results = list(_results(row, point_text if is_brief else change_text))
    if is_brief:
        results = [one for one in results if one.change]
    if results:
        rows = [
            (Span(one.title, "dim"), one.a, one.b, one.change, Span(one.verdict, one.style))
            for one in results
        ]
        headings = ("", "a", letter, f"{letter} vs a", "verdict")
        yield from table_lines(table_of(headings, rows, (1, 2), (0, 4)), width, folds=True)


def _results(row: Row, shown: Callable[[Judgement], str]) -> Iterator[_Result]:
    if row.case.is_load:
        change = "" if row.rate.ratio is None else shown(row.rate)
        verdict = judged_word(row.rate) if change else row.rate.reason
        yield _Result(
            row.rate.respect, rate_text(row.a), rate_text(row.b), change, verdict, style_of(row.rate)
        )
        _, unit = costs_text((row.a, row.b))
        if unit and row.cost.ratio is not None:
            on_a, on_b = (cost_text(cell, (row.a, row.b), with_interval=False) for cell in (row.a, row.b))
            word = judged_word(row.cost)
            yield _Result(f"cost per {unit}", on_a, on_b, shown(row.cost), word, style_of(row.cost))
    for figure in row.figures:
        judged = figure.judgement
        change = "" if judged.ratio is None else shown(judged)
        style = style_of(judged) if change else "dim"
        yield _Result(figure.title, *figure_values(figure), change, figure_verdict(figure), style)


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
