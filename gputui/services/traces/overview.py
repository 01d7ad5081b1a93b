"""One trace: where its steps spend their time, in tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any  # JSON

from gputui.document.table import Table, table_of
from gputui.model.journal import IDLE, ProfiledPass
from gputui.model.units import counted, format_percent
from gputui.services.compare.why import time_text
from gputui.services.results.step_answer import StepAnswer, answer_of_trace, limit, sentence
from gputui.services.results.step_breakdown import efficiency_text
from gputui.services.results.step_tables import CATEGORY_WORDS, operator_table, step_parts
from gputui.services.traces.difference import TraceDifference, short_kernel
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
