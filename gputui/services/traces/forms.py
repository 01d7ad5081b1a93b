"""Why a step takes as long as it does, and how two differ, as parts of a document in each of its forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.analysis.findings import Finding
from gputui.document.markup import escaped, html_of, markdown_list, markdown_of, page_of, safe, with_units
from gputui.document.table import Section, Table
from gputui.model.units import format_percent, format_seconds
from gputui.services.compare.why import part_table
from gputui.services.results.step_answer import StepAnswer, all_of_them, from_to, gain_text, limit, sentence
from gputui.services.traces.difference import (
    TraceDifference,
    kernel_table,
    notes,
    sentences,
    side_lines,
)
from gputui.services.traces.overview import held_back, largest_operators

PagePart = str | Table | tuple[str, ...] | Section
_ANY_WIDTH, _KERNEL_NAME_WIDTH = 10_000, 160
_OPERATORS_TOLD = 10
_NOT_KNOWN = (
    "Gains are bounds: what a step takes at best without a cause, everything else unchanged.",
    "These are some steps of one process: how processes vary is not known.",
)


def answer_parts(answer: StepAnswer, tables: Sequence[Table] = ()) -> Iterator[PagePart]:
    """What holds a step up and what would make it shorter, below the sentence that says so."""
    for cause in answer.causes:
        yield Section(cause.title, (_amount(answer, cause), tuple(_lines(cause))))
    yield from filter(None, (limit(answer), all_of_them(answer)))
    yield from tables


def _amount(answer: StepAnswer, cause: Finding) -> str:
    """`98.0 ms, 24 %; at best 412 to 314 ms, 31 % faster`."""
    share = format_percent(cause.gain_ns / cause.step_ns)
    gain = gain_text(cause.step_ns, cause.at_best_ns)
    best = f"; at best {from_to(cause.step_ns, cause.at_best_ns)}{f', {gain}' if gain else ''}"
    has_gain = cause.has_at_best and answer.is_explained
    return f"{format_seconds(cause.gain_ns * 1e-9)}, {share}{best if has_gain else ''}"


def _lines(cause: Finding) -> Iterator[str]:
    yield cause.evidence
    for line in cause.lines[:1]:
        yield f"where: {line.words}, {format_percent(line.share)} of it"
    if cause.code or cause.change:
        yield f"change to: {cause.code}" if cause.code else f"try: {cause.change}"


def brief(answer: StepAnswer, ran: str = "", change: str = "") -> str:
    """At most 60 lines of Markdown; names from a trace cannot become markup.

    `ran` is the command that was profiled, `change` what a change of it did.
    """
    about = filter(None, (f"ran: {ran}" if ran else "", answer.where, change))
    operators = largest_operators(answer, _ANY_WIDTH, _OPERATORS_TOLD)
    parts = (*answer_parts(answer, (operators,)), (*answer.notes, *_NOT_KNOWN))
    return "\n".join((f"# {escaped(sentence(answer))}\n", markdown_list(about), *map(markdown_of, parts)))


def difference_parts(found: TraceDifference, width: int, *, is_drawn: bool = False) -> Iterator[PagePart]:
    """What is known of a difference, below the sentences that say it."""
    yield tuple(side_lines(found))
    if not found.not_comparable:
        yield part_table(found.attribution, is_drawn=is_drawn)
        kernels = kernel_table(found, width)
        yield from [kernels] if kernels.rows else []
    yield from filter(None, (tuple(held_back(found)), tuple(notes(found))))


def difference_as_page(found: TraceDifference) -> str:
    """A page that fetches and runs nothing; names from traces cannot become markup."""
    first, *rest = sentences(found)
    names = " vs ".join(safe(side[0].name) for side in (found.b, found.a))
    parts = difference_parts(found, _KERNEL_NAME_WIDTH, is_drawn=True)
    lead = f'<h1>{with_units(safe(first))}</h1><p class="lead">{safe(" ".join(rest))}</p>'
    return page_of(names, f"{lead}{''.join(map(html_of, parts))}")


def difference_as_markdown(found: TraceDifference) -> str:
    """The answer, the sides, and the tables; names from traces cannot become markup."""
    first, *rest = sentences(found)
    lead = f"**{escaped(first)}** {escaped(' '.join(rest))}\n"
    return "\n".join((lead, *map(markdown_of, difference_parts(found, _ANY_WIDTH))))
