"""Where the time and memory of a step go, and how fast its operators are, from a case's profiled pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median

from gputui.analysis.attribution import BELIEVED_INFLATION, ProfiledSide, doubtful, slices_seen
from gputui.analysis.work import CAUSAL, FULL, PRODUCTS, bytes_of_call, flops_of_call
from gputui.facts.tables import find_gpu, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.journal import IDLE, Operator, ProfiledPass
from gputui.model.result import CaseResult
from gputui.model.units import format_percent, format_rate, format_seconds
from gputui.services.results.expected import Use
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
    """Profiled step against the timed one of the same run."""
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
