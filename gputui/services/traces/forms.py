"""Why a step takes as long as it does, and how two differ: in each form of a document, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any  # JSON

from gputui.analysis.findings import Finding
from gputui.document.markup import escaped, html_of, markdown_list, markdown_of, page_of, safe, with_units
from gputui.document.table import Section, Table, table_of
from gputui.model.absent import fields_of
from gputui.model.journal import IDLE, ProfiledPass
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.compare.why import part_table, time_text
from gputui.services.results.step_answer import (
    StepAnswer,
    all_of_them,
    answer_of_trace,
    from_to,
    gain_text,
    limit,
    sentence,
)
from gputui.services.results.step_breakdown import CATEGORY_WORDS, efficiency_text, operator_table, step_parts
from gputui.services.traces.difference import (
    TraceDifference,
    kernel_table,
    notes,
    sentences,
    short_kernel,
    side_lines,
)
from gputui.services.traces.imported import TraceRun
from gputui.services.traces.window import described

_LEAST_SHARE = 0.01
_FIGURES_WIDTH = 50
_OPERATORS_TOLD = 10


def answer_of(run: TraceRun) -> StepAnswer:
    """Where the time of its steps goes, as far as a trace without peaks and telemetry tells."""
    where = f"{run.device or 'CPU'}; {run.name}: {described(run.window)}"
    return answer_of_trace(run.found, run.device, where, run.notes)


def held_back(found: TraceDifference) -> list[str]:
    """What slows down the first trace of each side."""
    answers = (("a", answer_of(found.a[0])), ("b", answer_of(found.b[0])))
    return [f"{letter}  {text}" for letter, answer in answers for text in answer.texts]


def tables_of(answer: StepAnswer, width: int, most: int) -> list[Table]:
    """What a step is made of, and so many of its operators and kernels."""
    kernels = _kernel_table(answer.found, width, most)
    tables = (category_table(answer.found), largest_operators(answer, width, most), kernels)
    return [table for table in tables if table.rows]


def category_table(found: ProfiledPass) -> Table:
    """Device time by category, and idle time by cause; they sum to the step."""
    sums: Counter[str] = Counter()
    for operator in found.operators:
        sums[operator.category] += operator.time_ns
    for part in found.slices:
        if part.time_class == IDLE:
            sums[f"idle: {part.cause.replace('_', ' ')}"] += part.time_ns
    shown = [one for one in sums.most_common() if one[1] >= _LEAST_SHARE * found.window_ns]
    rest_ns = sums.total() - sum(ns for _, ns in shown)
    if rest_ns:
        shown.append((counted(len(sums) - len(shown), "other"), rest_ns))
    rows = [
        (CATEGORY_WORDS.get(name, name), time_text(ns // found.steps), format_percent(ns / found.window_ns))
        for name, ns in shown
    ]
    return table_of(("part of a step", "time", "share"), rows, (1, 2))


def largest_operators(answer: StepAnswer, width: int, most: int) -> Table:
    """The operators with the most time, and how well they use the device."""
    rows = answer.found.operators[:most]
    room = max(20, width - _FIGURES_WIDTH)
    names = [short_kernel(row.operator.removeprefix("aten::"), room) for row in rows]
    efficiencies = [efficiency_text(row, answer.found, answer.device) for row in rows]
    return operator_table(answer.found, rows, names=names, efficiencies=efficiencies)


def _kernel_table(found: ProfiledPass, width: int, most: int) -> Table:
    """The kernels with the most time; none on a CPU."""
    rows = [
        (
            short_kernel(row.name, max(20, width - _FIGURES_WIDTH)),
            f"{row.calls / found.steps:.3g}",
            time_text(row.time_ns // found.steps),
            time_text(row.longest_ns),
        )
        for row in found.kernels[:most]
    ]
    return table_of(("kernel", "calls", "per step", "longest"), rows, (1, 2, 3))


def as_json(answer: StepAnswer, ran: str = "", change: str = "") -> Mapping[str, Any]:
    """All of it, in nanoseconds of a step; `ran` was profiled, and a `change` of it did that."""
    steps = answer.found.steps
    parts = step_parts(answer.breakdown, names_waits=True)
    return {
        "sentence": sentence(answer),
        "where": answer.where,
        "ran": ran or None,
        "change": change or None,
        "is_on_gpu": answer.is_on_gpu,
        "steps": steps,
        "step_ns": answer.step_ns,
        "profiled_step_ns": answer.profiled_ns,
        "own_step_ns": answer.own_ns or None,
        "parts": [{"name": name, "share": share} for name, share, _ in parts],
        "causes": [
            {
                **fields_of(one, "kind", "title"),
                "line": one.line or None,
                "evidence": one.evidence,
                "change": one.change or None,
                "code": one.code or None,
                "gain_ns": one.gain_ns,
                "at_best_ns": one.at_best_ns if one.has_at_best else None,
                "confidence": one.confidence,
            }
            for one in answer.findings
        ],
        "at_best_ns": answer.at_best_ns,
        "limit": limit(answer) or None,
        "operators": [
            {
                **fields_of(row, "operator", "phase", "category", "shapes"),
                "time_ns": row.time_ns / steps,
                "calls": row.calls / steps,
            }
            for row in answer.breakdown.operators[:_OPERATORS_TOLD]
        ],
        "notes": answer.notes,
    }


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
