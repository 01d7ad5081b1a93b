"""A profiled step as a sentence, words and tables, which `show`, the Results screen and traces share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gputui.analysis.findings import BOUND_SHARE
from gputui.document.drawings import BarPart
from gputui.document.table import Column, Table, table_of
from gputui.document.theme import FAMILIES, TONES
from gputui.model.absent import Missing
from gputui.model.journal import MEMORY_PARTS, MemoryPoint, Operator, ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.model.units import counted, format_bytes, format_percent, format_ratio, format_seconds
from gputui.services.results.expected import PEAK_WORKLOADS, peak_name, uses_of
from gputui.services.results.headline import case_order
from gputui.services.results.labels import plain_name
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of, is_believed
from gputui.services.results.throughput import is_undecidable

_MOST_PARTS, _LEAST_PART = 4, 0.01
"""Of a step: how many are named, so that with the others each has a hue, and from which share."""

POINTS = {
    "start": "at start",
    "after_forward": "+ forward",
    "after_backward": "+ backward",
    "after_optimizer": "+ optimizer",
    "peak": "at peak",
}


CATEGORY_WORDS = {
    "gemm": "matmul",
    "cast_copy": "casts and copies",
    "softmax_loss": "softmax and loss",
    "embedding_index": "indexing",
    "view_alloc": "views and allocation",
    "idle: data wait": "waiting for the loader",
    "idle: launch": "launch gaps",
    "idle: runtime api": "driver calls",
    "idle: dispatch": "dispatch gaps",
    "idle: sync": "waiting for each other",
    "idle: python": "Python between calls",
    "idle: kernel gap": "gaps between kernels",
    "idle: queue": "queued work waiting",
    "idle: profiler": "the profiler itself",
}
"""What a person calls the categories and causes whose names do not speak for themselves."""


def step_words(breakdown: StepBreakdown, found: ProfiledPass) -> str:
    """How long a profiled step took, compared to the timed ones."""
    took = format_seconds(found.window_ns / found.steps * 1e-9)
    text = f"{took} by the clock in {counted(found.steps, 'profiled step')}"
    if isinstance(breakdown.inflation, Missing):
        return text
    doubt = "" if is_believed(breakdown) else ", so shares are rough"
    return f"{text}, {format_ratio(breakdown.inflation)} as long as a timed one{doubt}"


def profiled_cases(run: Run, passes: Mapping[int, ProfiledPass]) -> list[CaseResult]:
    """The main one first; those whose pass has no result last."""
    found = [case for case in run.cases if case.case_id in passes]
    return sorted(found, key=lambda case: (not passes[case.case_id].is_valid, case_order(case.case)))


def main_step(run: Run, passes: Mapping[int, ProfiledPass]) -> tuple[CaseResult, StepBreakdown] | Missing:
    """The main case of those with a valid profiled pass; Missing with the reason."""
    for case in profiled_cases(run, passes):
        found = breakdown_of(passes[case.case_id], case)
        return found if isinstance(found, Missing) else (case, found)
    return Missing("no step was profiled")


def step_of(run: Run, passes: Mapping[int, ProfiledPass]) -> tuple[str, Sequence[BarPart]]:
    """`a step of GPT training amp, 85.3 ms` and its parts; why they are not known, and none.

    `passes` are the profiled ones of the run, by case.
    """
    found = main_step(run, passes)
    if isinstance(found, Missing):
        return f"where the time of a step goes is not known: {found.reason}", ()
    case, breakdown = found
    rough = "" if is_believed(breakdown) else " when it was profiled, so shares are rough"
    took = format_seconds(breakdown.step_ns / 1e9)
    return f"a step of {name_in_run(case, run)}, {took}{rough}", step_parts(breakdown)


def name_in_run(case: CaseResult, run: Run) -> str:
    """`GPT training amp`; of what was measured in one precision only the first word."""
    workload, precision = case.case.work.workload, case.case.variant.precision
    others = {one.case.variant.precision for one in run.cases if one.case.work.workload == workload}
    return f"{plain_name(workload)} {precision}" if len(others) > 1 else plain_name(workload)


def step_parts(breakdown: StepBreakdown, *, names_waits: bool = False) -> list[BarPart]:
    """What a step is made of, by category of operator, the largest first; then what was idle.

    With `names_waits`, the largest cause of idle time is a separate part, in the place of one category.
    """
    idle = sum(breakdown.idle.values())
    most = _MOST_PARTS - names_waits
    by_category = Counter[str]()
    for op in breakdown.operators:
        by_category[CATEGORY_WORDS.get(op.category, op.category)] += op.time_ns
    busy = [(name, ns / by_category.total() * (1 - idle)) for name, ns in by_category.items() if ns]
    busy = busy or [(one.name, one.share) for one in breakdown.shares if one.name not in breakdown.idle]
    busy.sort(key=lambda part: -part[1])
    shown = [part for part in busy[:most] if part[1] >= _LEAST_PART]
    shown.append(("others", sum(share for _, share in busy) - sum(share for _, share in shown)))
    if names_waits and breakdown.idle:
        cause = max(breakdown.idle, key=breakdown.idle.__getitem__)
        shown.append((CATEGORY_WORDS.get(cause, cause), breakdown.idle[cause]))
        idle -= breakdown.idle[cause]
    parts = [(name, share, f"{FAMILIES[n % len(FAMILIES)]} {TONES}") for n, (name, share) in enumerate(shown)]
    rest = ("other idle time" if names_waits else "idle", idle, "track")
    return [part for part in (*parts, rest) if part[1] >= _LEAST_PART]


def operator_table(
    found: ProfiledPass,
    operators: Sequence[Operator],
    step_ns: float = 0.0,
    names: Sequence[str] = (),
    efficiencies: Sequence[str] = (),
) -> Table:
    """Operators with their share of a step; efficiencies, shapes and categories go first where there is no
    room.

    `step_ns`: of a step, that of the pass by default. `names` may be shorter ones.
    """
    whole_ns = step_ns * found.steps or found.window_ns
    names = names or [row.operator.removeprefix("aten::") for row in operators]
    of = [f"{row.calls / found.steps:.3g}" if row.calls else "" for row in operators]
    categories = [CATEGORY_WORDS.get(row.category, row.category) for row in operators]
    return Table(
        (
            Column("operator", names, breaks=True),
            Column("per step", [format_seconds(row.time_ns * 1e-9 / found.steps) for row in operators], True),
            Column("share", [format_percent(row.time_ns / whole_ns) for row in operators], True),
            Column("calls", of, True, 1),
            Column("phase", [row.phase for row in operators], priority=2),
            Column("category", categories, priority=3),
            Column("shapes", [row.shapes for row in operators], priority=4),
            *([Column("efficiency", efficiencies, priority=5)] if any(efficiencies) else []),
        )
    )


def parts_of(point: MemoryPoint) -> dict[str, int]:
    """Bytes by what they are for."""
    return {part: getattr(point, f"{part}_bytes") for part in MEMORY_PARTS}


def memory_table(found: ProfiledPass) -> Table:
    """What torch holds at the points of a step, by what it is for."""
    headings = ("memory", *MEMORY_PARTS, "sum")
    rows = [
        (
            POINTS[point.point],
            *(format_bytes(size) if size else "0" for size in parts_of(point).values()),
            format_bytes(point.allocated_bytes),
        )
        for point in found.memory
    ]
    return table_of(headings, rows, range(1, len(headings)), keeps=1)


def reached_peak(case: CaseResult, run: Run) -> str:
    """`reaches 72 % of this box's own matmul peak: compute is the limit`; empty if that was not measured."""
    reached = [
        (use.of_measured, use.unit)
        for use in uses_of(case, run.cases, run.summary.machine)
        if not (isinstance(use.of_measured, Missing) or is_undecidable(case))
    ]
    if not reached:
        return ""
    of_peak, unit = max(reached)
    limit = f": {'compute' if unit == 'flop' else 'memory'} is the limit" if of_peak >= BOUND_SHARE else ""
    return (
        f"reaches {format_percent(of_peak)} of this box's own {peak_name(PEAK_WORKLOADS[unit])} peak{limit}"
    )
