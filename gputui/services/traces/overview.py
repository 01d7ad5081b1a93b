"""One trace: where its steps spend their time, in tables."""

from __future__ import annotations

from collections import Counter

from gputui.document.table import Table, table_of
from gputui.model.journal import IDLE, ProfiledPass
from gputui.model.units import counted, format_percent
from gputui.services.compare.why import time_text
from gputui.services.results.step_answer import StepAnswer, answer_of_trace
from gputui.services.results.step_breakdown import efficiency_text
from gputui.services.results.step_tables import CATEGORY_WORDS, operator_table
from gputui.services.traces.difference import TraceDifference, short_kernel
from gputui.services.traces.imported import TraceRun
from gputui.services.traces.window import described

_LEAST_SHARE = 0.01
_FIGURES_WIDTH = 50


def answer_of(run: TraceRun) -> StepAnswer:
    """Where the time of its steps goes, as far as a trace without peaks and telemetry tells."""
    where = f"{run.device or 'CPU'}; {run.name}: {described(run.window)}"
    return answer_of_trace(run.found, run.device, where, run.notes, run.started_utc_us)


def held_back(found: TraceDifference) -> list[str]:
    """What slows down the first trace of each side."""
    answers = (("a", answer_of(found.a[0])), ("b", answer_of(found.b[0])))
    return [f"{letter}  {text}" for letter, answer in answers for text in answer.texts]


def category_table(found: ProfiledPass) -> Table:
    """Device time by category, and idle time by cause; they sum to the step."""
    sums: Counter[str] = Counter()
    for operator in found.operators:
        sums[operator.category] += operator.time_ns
    for part in found.slices:
        if part.time_class == IDLE:
            sums[f"idle: {part.cause.replace('_', ' ')}"] += part.time_ns
    rows = [
        (CATEGORY_WORDS.get(name, name), time_text(ns // found.steps), format_percent(ns / found.window_ns))
        for name, ns in sums.most_common()
        if ns >= _LEAST_SHARE * found.window_ns
    ]
    rest = [ns for ns in sums.values() if ns < _LEAST_SHARE * found.window_ns]
    if sum(rest):
        rows.append(
            (
                counted(len(rest), "other"),
                time_text(sum(rest) // found.steps),
                format_percent(sum(rest) / found.window_ns),
            )
        )
    return table_of(("part of a step", "time", "share"), rows, (1, 2))


def largest_operators(found: ProfiledPass, device: str, width: int, most: int) -> Table:
    """The operators with the most time, and how well they use the device."""
    rows = found.operators[:most]
    room = max(20, width - _FIGURES_WIDTH)
    names = [short_kernel(row.operator.removeprefix("aten::"), room) for row in rows]
    efficiencies = [efficiency_text(row, found, device) for row in rows]
    return operator_table(found, rows, names=names, efficiencies=efficiencies)


def kernel_table(found: ProfiledPass, width: int, most: int) -> Table | None:
    """The kernels with the most time; None on a CPU."""
    rows = [
        (
            short_kernel(row.name, max(20, width - _FIGURES_WIDTH)),
            f"{row.calls / found.steps:.3g}",
            time_text(row.time_ns // found.steps),
            time_text(row.longest_ns),
        )
        for row in found.kernels[:most]
    ]
    return table_of(("kernel", "calls", "per step", "longest"), rows, (1, 2, 3)) if rows else None
