"""Where the time and memory of a step go, and how fast its operators are, from a case's profiled pass: as
values, and as the words and tables that `show`, the Results screen and traces share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.analysis.attribution import BELIEVED_INFLATION, ProfiledSide, doubtful, slices_seen
from gputui.analysis.findings import BOUND_SHARE
from gputui.analysis.work import CAUSAL, FULL, PRODUCTS, bytes_of_call, flops_of_call
from gputui.document.drawings import BarPart
from gputui.document.table import Column, Table, table_of
from gputui.document.theme import FAMILIES, TONES
from gputui.facts.tables import find_gpu, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.journal import IDLE, MEMORY_PARTS, MemoryPoint, Operator, ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.model.units import (
    counted,
    format_bytes,
    format_percent,
    format_rate,
    format_ratio,
    format_seconds,
)
from gputui.services.results.expected import PEAK_WORKLOADS, Use, peak_name, uses_of
from gputui.services.results.headline import case_order
from gputui.services.results.labels import plain_name
from gputui.services.results.throughput import is_undecidable
from gputui.worker.profiling.op_categories import category_of_kernel, type_of_kernel
from gputui.worker.profiling.rows import added_up


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a step."""

    name: str
    """`compute`, `copy h2d`, `idle: python`, ..."""
    phases: tuple[tuple[str, float], ...]
    """Phase and its share of the step; the largest first."""
    share: float
    """0 to 1, of the step."""


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """One profiled pass, per step.

    A GPU waits longer where its host is profiled, and works as long: its idle time is that of the timed step.
    """

    step_ns: float
    """Of the timed step on a GPU, if its pass can be trusted; else of the profiled one."""
    inflation: float | Missing
    """Profiled step against that of the same process without the profiler, else against the timed one."""
    is_timed: bool
    """Whether `step_ns` is of the timed step."""
    shares: tuple[Share, ...]
    """They sum to 1; the largest first."""
    operators: tuple[Operator, ...]
    """Of equal phase, name and shapes added up over types; the largest first."""

    @property
    def idle(self) -> dict[str, float]:
        """The shares that are idle, by name."""
        return {one.name: one.share for one in self.shares if one.name.startswith("idle")}


def breakdown_of(
    found: ProfiledPass, case: CaseResult | None = None, *, is_on_gpu: bool = False
) -> StepBreakdown | Missing:
    """The shares of a profiled pass, beside the timed steps of its `case`, or else those before its window.

    Missing with the reason if it is unreliable. `is_on_gpu` is asked of what has no case.
    """
    if not found.is_valid:
        return Missing(found.reason)
    timed_ns: float | Missing = found.before_ns or Missing("no step was timed")
    if case is not None:
        timed_ns = timed_ns if found.before_ns else timed_step_ns(case)
        is_on_gpu = case.case.variant.device_class == "gpu"
    step_ns, is_timed = found.window_ns / found.steps, False
    if is_on_gpu and not isinstance(timed_ns, Missing):
        is_timed = not doubtful(ProfiledSide(found, round(timed_ns), is_on_device=True))
        step_ns = timed_ns if is_timed else step_ns
    phases: dict[str, Counter[str]] = {}
    for part, part_ns in slices_seen(ProfiledSide(found, round(step_ns), is_on_gpu)):
        name = f"idle: {part.cause}" if part.time_class == IDLE else part.time_class
        phases.setdefault(name.replace("_", " "), Counter())[part.phase] += part_ns
    whole_ns = sum(by_phase.total() for by_phase in phases.values())
    shares = [
        Share(
            name,
            tuple((phase, ns / whole_ns) for phase, ns in by_phase.most_common()),
            by_phase.total() / whole_ns,
        )
        for name, by_phase in phases.items()
    ]
    over_types: dict[tuple[str, str, str, str], list[Operator]] = {}
    for row in found.operators:
        over_types.setdefault((row.phase, row.category, row.operator, row.shapes), []).append(row)
    return StepBreakdown(
        step_ns=step_ns,
        inflation=timed_ns if isinstance(timed_ns, Missing) else found.window_ns / found.steps / timed_ns,
        is_timed=is_timed,
        shares=tuple(sorted(shares, key=lambda s: -s.share)),
        operators=tuple(sorted(map(added_up, over_types.values()), key=lambda row: -row.time_ns)),
    )


def timed_step_ns(case: CaseResult) -> float | Missing:
    """Wall time of the median timed step in nanoseconds, over all launches that measured the case."""
    steps = [b.wall_ns / b.steps for m in case.measurements if m.outcome == "ok" for b in m.blocks]
    return median(steps) if steps else Missing("no step was timed")


def is_believed(breakdown: StepBreakdown) -> bool:
    """Whether profiled steps were about as fast as timed ones, or say where the time of those goes."""
    low, high = BELIEVED_INFLATION
    inflation = breakdown.inflation
    return breakdown.is_timed or (not isinstance(inflation, Missing) and low <= inflation <= high)


BOUND_OF_SHEET = 0.4
"""Share of a data sheet's peak from which an operator is bound by it: large products and copies reach some
70 % of a sheet, and a step that is bound by something reaches 60 % of what they do."""
_NO_MEASURE = Missing("peaks are those of the data sheet")
_OVER_A_BUS = ("copy_h2d", "copy_d2h")
_PRECISIONS = {
    "BFloat16": "bf16",
    "Half": "fp16",
    "Float8_e4m3fn": "fp8",
    "Float8_e5m2": "fp8",
}


def uses_of_operator(row: Operator, found: ProfiledPass, device: str) -> tuple[Use, ...]:
    """FLOPs first, then bytes; none where the trace does not tell them, or where kernels are missing.

    `device`: its name, empty for a CPU, of which no peaks are kept.
    """
    time_ns = row.kernel_ns if device else row.time_ns
    if not row.calls or not time_ns or _is_unsure(row, found, device):
        return ()
    per_s = row.calls / time_ns * 1e9
    gpu = find_gpu(device, None) if device else Missing("gputui has no peak figures for CPUs")
    precision = _precision(row, found)
    flops = flops_of_call(row.operator, row.shapes)
    narrowed_to = 2 if precision in ("bf16", "fp16") and row.category in PRODUCTS else None
    moved = bytes_of_call(row.operator, row.shapes, row.dtypes, narrowed_to)
    peaks = (gpu, gpu) if isinstance(gpu, Missing) else (peak_for(gpu, precision), peak_bandwidth(gpu))
    return tuple(
        Use(unit, per_s * each, peak if isinstance(peak, Missing) else per_s * each / peak, _NO_MEASURE)
        for unit, each, peak in zip(("flop", "B"), (flops, moved), peaks, strict=True)
        if not isinstance(each, Missing) and each
    )


def _is_unsure(row: Operator, found: ProfiledPass, device: str) -> bool:
    """Whether some calls may have had nothing to do, have no kernel in the window, or cross a bus; or whether
    the work of a GPU, which NCCL needs, was not recorded."""
    if not device:
        is_elsewhere = any(one.operator.startswith("nccl:") for one in found.operators)
        return is_elsewhere or row.operator == "aten::contiguous"
    crosses = (k.operator == row.operator and k.time_class in _OVER_A_BUS for k in found.kernels)
    return row.kernels % row.calls > 0 or any(crosses)


def _precision(row: Operator, found: ProfiledPass) -> str:
    """What it computes in: its inputs may be converted first, which the names of kernels tell.

    Empty if it is not certain: products in fp32 run in tf32 where that is allowed.
    """
    types = set(row.dtypes.split(","))
    if len(types) == 1 and types <= set(_PRECISIONS):
        return _PRECISIONS[types.pop()]
    names = {k.name for k in found.kernels if category_of_kernel(k.name) in ("gemm", "conv")}
    marks = {type_of_kernel(name) for name in names}
    return marks.pop() if len(marks) == 1 else ""


def efficiency_text(row: Operator, found: ProfiledPass, device: str) -> str:
    """`611 TFLOP/s, 62 %: compute-bound`; of memory where that is the nearer limit, empty if unknown.

    What exceeds the memory's peak comes from a cache. An attention of which the trace does not tell whether
    it is causal is taken for one that is not.
    """
    uses = uses_of_operator(row, found, device)
    if not uses:
        return ""
    known = [(use.of_sheet, use) for use in uses if not isinstance(use.of_sheet, Missing)]
    at_most = "up to " if row.category == "attention" and not row.shapes.endswith((CAUSAL, FULL)) else ""
    if len(known) < len(uses):
        return at_most + format_rate(uses[0].per_s, uses[0].unit)
    share, use = max(known, key=lambda one: one[0])
    word = "compute-bound" if use.unit == "flop" else "memory-bound" if share <= 1 else "in cache"
    if share < BOUND_OF_SHEET:
        (share, use), word = known[0], "neither"
    return f"{at_most}{format_rate(use.per_s, use.unit)}, {format_percent(share)}: {word}"


def product_sentence(found: ProfiledPass, device: str) -> str:
    """`matrix products run at 613 TFLOP/s for 9.00 ms a step: 62 % of the data sheet's peak`.

    Of all whose rate is known, together, but for those that memory holds up; empty if there is none.
    """
    rated: list[tuple[Operator, float]] = []
    least_ns = 0.0
    for row in found.operators:
        uses = uses_of_operator(row, found, device) if row.category in ("gemm", "conv") else ()
        shares = [use.of_sheet for use in uses if not isinstance(use.of_sheet, Missing)]
        if len(shares) > 1 and shares[0] >= shares[1]:
            rated.append((row, uses[0].per_s))
            least_ns += shares[0] * row.kernel_ns
    time_ns = sum(row.kernel_ns for row, _ in rated)
    if not time_ns:
        return ""
    rate = format_rate(sum(per_s * row.kernel_ns for row, per_s in rated) / time_ns, "flop")
    took, share = format_seconds(time_ns / found.steps * 1e-9), format_percent(least_ns / time_ns)
    each = "a step" if found.steps > 1 else "in all"
    return f"matrix products run at {rate} for {took} {each}: {share} of the data sheet's peak"


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
    """How long a profiled step took, compared to others of its process, or else to the timed ones."""
    took = format_seconds(found.window_ns / found.steps * 1e-9)
    text = f"{took} by the clock in {counted(found.steps, 'profiled step')}"
    if isinstance(breakdown.inflation, Missing):
        return text
    other = "as without the profiler" if found.before_ns else "as a timed one"
    doubt = "" if is_believed(breakdown) else ", so shares are rough"
    return f"{text}, {format_ratio(breakdown.inflation)} as long {other}{doubt}"


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
