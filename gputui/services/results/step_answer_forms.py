"""The answer to why a step takes as long as it does, as Markdown to act on, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any  # JSON

from gputui.document.markup import escaped, markdown_list, markdown_table
from gputui.document.table import Table, table_of
from gputui.model.units import format_percent, format_seconds, three_digits
from gputui.services.results.step_answer import (
    StepAnswer,
    all_of_them,
    from_to,
    gain_text,
    limit,
    sentence,
)
from gputui.services.results.step_tables import CATEGORY_WORDS, step_parts

_OPERATORS_TOLD = 10
_NOT_KNOWN = (
    "Gains are bounds: what a step takes at best without a cause, everything else unchanged.",
    "These are some steps of one process: how processes vary is not known.",
)


def brief(answer: StepAnswer, ran: str = "", change: str = "") -> str:
    """At most 60 lines of Markdown; names from a trace cannot become markup.

    `ran` is the command that was profiled, `change` what a change of it did.
    """
    parts = [
        f"# {escaped(sentence(answer))}\n",
        markdown_list(filter(None, (f"ran: {ran}" if ran else "", answer.where, change))),
        *(
            f"## {number}. {escaped(words)}\n\n{markdown_list(_lines(answer, number - 1))}"
            for number, words in enumerate((one.title for one in answer.causes), 1)
        ),
        f"{escaped(limit(answer))}\n" if limit(answer) else "",
        f"{all_of_them(answer)}\n" if all_of_them(answer) else "",
        f"## Largest operators, per step\n\n{markdown_table(_operators(answer))}",
        f"## Notes, and what is not known\n\n{markdown_list((*answer.notes, *_NOT_KNOWN))}",
    ]
    return "\n".join(part for part in parts if part)


def _lines(answer: StepAnswer, place: int) -> Iterable[str]:
    cause = answer.causes[place]
    share = format_percent(cause.gain_ns / cause.step_ns)
    yield f"evidence: {cause.evidence}"
    yield f"where: {cause.line or 'not known'}"
    if cause.code or cause.change:
        yield f"change to: {cause.code}" if cause.code else f"try: {cause.change}"
    gain = gain_text(cause.step_ns, cause.at_best_ns)
    best = f"; at best {from_to(cause.step_ns, cause.at_best_ns)}{f', {gain}' if gain else ''}"
    it_is = f"{format_seconds(cause.gain_ns * 1e-9)}, {share}"
    yield f"gain: {it_is}{best}" if cause.has_at_best else f"it is: {it_is}"


def _operators(answer: StepAnswer) -> Table:
    steps, window_ns = answer.found.steps, answer.found.window_ns
    rows = [
        (
            row.operator.removeprefix("aten::"),
            CATEGORY_WORDS.get(row.category, row.category),
            format_seconds(row.time_ns / steps * 1e-9),
            format_percent(row.time_ns / window_ns),
            three_digits(row.calls / steps),
            row.shapes,
        )
        for row in answer.breakdown.operators[:_OPERATORS_TOLD]
    ]
    return table_of(("operator", "kind", "time", "share", "calls", "shapes"), rows, (2, 3, 4))


def as_json(answer: StepAnswer, ran: str = "", change: str = "") -> Mapping[str, Any]:
    """All of it, in nanoseconds of a step; arguments as those of `brief`."""
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
                "kind": one.kind,
                "title": one.title,
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
                "operator": row.operator,
                "phase": row.phase,
                "category": row.category,
                "shapes": row.shapes,
                "time_ns": row.time_ns / steps,
                "calls": row.calls / steps,
            }
            for row in answer.breakdown.operators[:_OPERATORS_TOLD]
        ],
        "notes": list(answer.notes),
    }
