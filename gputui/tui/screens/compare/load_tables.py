"""Tables on the page of a row: its results on both sides, and every load that the servers were offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
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
)
from gputui.services.compare.row_text import verdict_text as judged_word
from gputui.services.results.load_times import load_of
from gputui.services.serving.curve import Level, ServingRun
from gputui.services.serving.text import FULL_HEADINGS, full_row, server_line, serving_notes, unmeasured_lines
from gputui.tui.screens.compare.evidence_parts import FAMILIES_OF_SIDES
from gputui.tui.screens.compare.rows_table import style_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, right, width_of
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import gauge_spans, section

_MARGIN = "  "
_LEAST_TITLE = 12
_LEAST_BAR, _MOST_BAR = 8, 50
_LEFT_OUT = ("95 %", "/user", "lag p99", "p99")
"""Columns that a narrow terminal does without, in this order."""


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
    if not results:
        return
    headings = _Result("", "a", letter, f"{letter} vs a", "verdict", "dim")
    shown = (headings, *results)
    sides = [max(map(width_of, texts)) for texts in zip(*((one.a, one.b) for one in shown), strict=True)]
    change = max(width_of(one.change) for one in shown)
    verdict = max(width_of(one.verdict) for one in shown if one.change)
    room = change + 2 + verdict
    taken = len(_MARGIN) + sum(sides) + room + 6
    title = min(max(width_of(one.title) for one in shown), max(width - 1 - taken, _LEAST_TITLE))
    before = len(_MARGIN) + title + sum(sides) + 6
    for one in shown:
        figures = "".join(f"  {right(text, wide)}" for text, wide in zip((one.a, one.b), sides, strict=True))
        head = (Span(f"{_MARGIN}{left(one.title, title)}", "dim"), Span(figures, "dim" * (one is headings)))
        if one.change:
            style = "dim" if one is headings else ""
            yield (*head, Span(f"  {left(one.change, change)}", style), Span(f"  {one.verdict}", one.style))
            continue
        first, *more = paragraph(one.verdict, max(room, width - before) + 1, "dim")
        yield (*head, Span("  "), *first)
        yield from ((Span(" " * before), *line) for line in more)


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
    rows = [full_row(level) for _, level in levels]
    kept = _kept(rows, width)
    wide = [max(width_of(cells[place]) for cells in (FULL_HEADINGS, *rows)) for place in kept]
    name, rate, *rest = wide
    bar = min(width - _taken(wide), _MOST_BAR)
    has_bar = bar >= _LEAST_BAR
    blank = f"  {' ' * bar}" if has_bar else ""
    heads = [FULL_HEADINGS[place] for place in kept]
    head = f"{_MARGIN}{left(heads[0], name)}     {right(heads[1], rate)}{blank}"
    behind = "".join(f"  {right(text, cells)}" for text, cells in zip(heads[2:], rest, strict=True))
    yield fitted((Span(head + behind, "dim"),), width)
    most = max((_output(level) for _, level in levels), default=0.0) or 1.0
    failed, name_before = kept.index(FULL_HEADINGS.index("failed")), ""
    for (letter, level), cells in zip(levels, rows, strict=True):
        texts = [clean(cells[place]) for place in kept]
        label, name_before = texts[0] if texts[0] != name_before else "", texts[0]
        is_here = load_of(level.case) == load_of(row.case)
        family = FAMILIES_OF_SIDES["ab".index(letter)]
        gauge = (Span("  "), *gauge_spans(_output(level), most, bar, family)) if has_bar else ()
        spans = [
            Span("▸ " if is_here and label else _MARGIN, "accent"),
            Span(left(label, name), "title" if is_here else ""),
            Span(f"  {letter}  ", "title"),
            Span(right(texts[1], rate), "title"),
            *gauge,
        ]
        for place, (text, room) in enumerate(zip(texts[2:], rest, strict=True), 2):
            spans.append(Span(f"  {right(text, room)}", "warn" if place == failed and text != "0" else ""))
        yield fitted(spans, width)


def _kept(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit, with a bar where there is room for one."""
    kept = list(range(len(FULL_HEADINGS)))
    for name in ("", *_LEFT_OUT):
        kept = [place for place in kept if FULL_HEADINGS[place] != name]
        wide = [max(width_of(cells[place]) for cells in (FULL_HEADINGS, *rows)) for place in kept]
        if _taken(wide) - 2 <= width:
            break
    return kept


def _taken(wide: Sequence[int]) -> int:
    """Cells of the columns with the letter of the side, and of the gap before a bar."""
    return len(_MARGIN) + sum(wide) + 2 * (len(wide) - 1) + 3 + 2


def _output(level: Level) -> float:
    return 0.0 if isinstance(level.output_per_s, Missing) else level.output_per_s
