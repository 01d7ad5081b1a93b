"""The page that says why a step takes as long as it does: of a trace, a stored run, or a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from gputui.analysis.findings import Finding
from gputui.document.drawings import gauge_spans, stacked_bar
from gputui.document.page import Page
from gputui.document.spans import Line, Span, cut, line_width, wrapped
from gputui.document.table import Table
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.results.step_answer import (
    StepAnswer,
    all_of_them,
    from_to,
    gain_text,
    limit,
    sentence,
    source_of,
    tells_nothing,
)
from gputui.services.results.step_tables import step_parts
from gputui.services.traces.overview import category_table, kernel_table, largest_operators

_NUMBER, _LABEL, _BAR = 4, 11, 10
"""Cells of a cause's number, of what stands before its text at least, and of its bar."""
_LEAST_TEXT = 20
_END_LINES = 7
"""Below the notes: what all causes bring, what a change did, two commands, blank lines, the prompt."""


NextSteps = Sequence[tuple[str, str]]
"""Commands, and what they are for."""


def write_step_answer(
    page: Page,
    answer: StepAnswer,
    most: int | None,
    next_steps: NextSteps = (),
    change: str = "",
    stored: str = "",
) -> None:
    """The answer, its evidence and causes; with `most`, so many operators and kernels, and all notes.

    Below them what a `change` of the program did, where the answer is `stored`, and what to do next.
    """
    page.line(sentence(answer), "title")
    page.line(answer.where, "dim")
    if not tells_nothing(answer.found):
        page.line()
        page.table(Table((stacked_bar(step_parts(answer.breakdown, names_waits=True)),)))
    for number, cause in enumerate(answer.causes, 1):
        page.line()
        source = source_of(cause.line, answer.begun_utc_us, Path())
        for line in _cause_lines(number, cause, source, page, has_gain=answer.is_explained):
            page.spans(line)
    if words := limit(answer):
        page.line()
        page.line(words)
    if most is not None:
        _write_tables(page, answer, most)
    notes = Page(page.out)
    for note in ("", *answer.notes) if answer.notes else ():
        notes.line(note, "dim")
    room = page.out.height - page.height - _END_LINES if page.out.is_terminal else notes.height
    has_room = notes.height <= room or most is not None
    if has_room:
        page.add(notes)
    left_out = "" if has_room else f"{counted(len(answer.notes), 'note')}: --top 5"
    together, beside = all_of_them(answer), "; ".join(filter(None, (left_out, stored)))
    if together or beside:
        page.line()
        if len(together) + len(beside) < page.width:
            page.spans(_spread((Span(together),), (Span(beside, "dim"),), page.width))
        else:
            page.part((together, beside))
    if change:
        page.line(change, "title")
    if next_steps and not left_out:
        page.line()
    _write_next_steps(page, next_steps)


def _cause_lines(number: int, cause: Finding, source: str, page: Page, *, has_gain: bool) -> Iterator[Line]:
    share = cause.gain_ns / cause.step_ns
    took = f"{format_seconds(cause.gain_ns * 1e-9)} {format_percent(share):>5}  "
    figures = (Span(took, "warn"), *gauge_spans(share, 1.0, _BAR, "warn"))
    yield _spread((Span(f"{number:<{_NUMBER}}"), Span(cause.title, "title")), figures, page.width)
    gains = [
        Span(f"at best {from_to(cause.step_ns, cause.at_best_ns)}", "dim"),
        Span(gain_text(cause.step_ns, cause.at_best_ns), "title good"),
    ]
    if not (has_gain and cause.has_at_best):
        gains = [Span("", ""), Span("", "")]
    narrow, wide = (page.width - _NUMBER - len(gain.text) - 2 for gain in gains)
    place = cause.line if len(cause.line) <= narrow else f"…{cause.line[1 - narrow :]}"
    label_width = max(len(place) + 2, _LABEL)
    if narrow - label_width < _LEAST_TEXT:
        label_width = _LABEL  # of the advice alone
    left: list[tuple[Span, str]] = []
    if place:
        left.append((Span(place, "accent"), cut(source, narrow - len(place) - 2) if source else ""))
    label = "change to" if cause.code else "try"
    text = cause.code or cause.change
    texts = [text] if len(text) <= wide - label_width else wrapped(text, narrow - label_width)
    if not left and len(texts[0]) > narrow - label_width:
        gains = gains[::-1]
    left += [(Span("" if place else label, "dim"), text) for place, text in enumerate(texts) if text]
    for one, gain in zip_longest(left, gains):
        label_span, text = one or (Span(""), "")
        space = Span(" " * max(label_width - len(label_span.text), 2))
        begin = (Span(" " * _NUMBER), label_span, space, Span(text))
        if one or (gain and gain.text):
            yield _spread(begin, (gain,) if gain else (), page.width)


def _spread(left: Sequence[Span], right: Sequence[Span], width: int) -> Line:
    """Both at their ends of a line; the left one is cut where there is too little room."""
    room = width - line_width(right) - 1
    *first, last = left
    shown = Span(cut(last.text, max(room - line_width(first), 1)), last.style)
    return (*first, shown, Span(" " * (width - line_width((*first, shown, *right)))), *right)


def _write_tables(page: Page, answer: StepAnswer, most: int) -> None:
    tables = (
        category_table(answer.found),
        largest_operators(answer.found, answer.device, page.width, most),
        kernel_table(answer.found, page.width, most),
    )
    for table in tables:
        if table is not None and table.rows:
            page.part(table)


def _write_next_steps(page: Page, next_steps: NextSteps) -> None:
    room = page.width - 5
    widest = max((len(typed) for typed, what_for in next_steps if len(typed + what_for) <= room), default=0)
    for typed, what_for in next_steps:
        has_room = len(typed) <= widest and widest + len(what_for) <= room
        comment = f"{typed:{widest}}   {what_for}"[len(typed) :] if has_room else ""
        page.spans((Span("$ ", "dim"), Span(typed, "accent"), Span(comment, "dim")))
