"""Facts of a profiled step that is held up by what it is made of."""

from __future__ import annotations

from dataclasses import replace

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import (
    Finding,
    StepFacts,
    findings_of,
)
from gputui.model.absent import Missing
from gputui.model.journal import Kernel, LineTime, Operator, ProfiledPass, TimeSlice

MS = 1_000_000


NOT_MEASURED = Missing("not measured")


def facts(
    gemm_ms: float = 80,
    idle_ms: float = 20,
    cause: str = "sync",
    *more: Operator,
    on_gpu: bool = True,
    precision: str = "fp32",
    kernel_us: float = 100,
    peak: float | Missing = NOT_MEASURED,
    flops: int | None = None,
) -> StepFacts:
    """One profiled step: a product of 2 * 1000^3 operations, what else is named, and idle time."""
    gemm_ns, idle_ns = round(gemm_ms * MS), round(idle_ms * MS)
    window_ns = gemm_ns + idle_ns + sum(operator.time_ns for operator in more)
    found = ProfiledPass(
        launch_id=0,
        case_id=0,
        is_valid=True,
        reason="",
        steps=1,
        window_ns=window_ns,
        events=1,
        event_cost_ns=0,
        unmatched_ns=0,
        operators=(
            Operator("forward", "gemm", "aten::mm", "1000x1000,1000x1000", "float", 1, 1, gemm_ns, 0, 1),
            *more,
        ),
        slices=(
            TimeSlice("forward", "compute", "", gemm_ns),
            *(TimeSlice(operator.phase, "compute", "", operator.time_ns) for operator in more),
            TimeSlice("between", "idle", cause, idle_ns),
        ),
        kernels=(Kernel("sm90_gemm", "compute", "aten::mm", 800, round(800 * kernel_us * 1000), 1),),
        memory=(),
        memory_reason="not asked for",
        trace_bytes=0,
    )
    return StepFacts(ProfiledSide(found, window_ns, on_gpu, peak), precision, flops, None)


def seen(step: StepFacts, **changes: object) -> StepFacts:
    """The step with another pass."""
    found = replace(step.side.found, **changes)  # type: ignore[arg-type]
    return replace(step, side=replace(step.side, found=found))


def the(step: StepFacts, kind: str = "") -> Finding:
    """Its only finding, or the one of a kind."""
    (finding,) = [one for one in findings_of(step) if kind in ("", one.kind)]
    return finding


def called(
    name: str, calls: int, time_ms: float = 0, *, phase: str = "forward", category: str = "elementwise",
    types: str = "float", cpu_ms: float = 0, kernels: int = 0,
) -> Operator:  # fmt: skip
    times_ns = round(time_ms * MS), round(cpu_ms * MS)
    return Operator(phase, category, f"aten::{name}", "8x8", types, calls, calls, *times_ns, kernels)


def kinds(*found: StepFacts) -> list[list[str]]:
    return [[finding.kind for finding in findings_of(one)] for one in found]


def at_lines(step: StepFacts, *lines: LineTime) -> StepFacts:
    return seen(step, lines=lines)


def line(number: int, ms: float, operator: str = "", doing: str = "", phase: str = "between") -> LineTime:
    cause = "" if operator else "python"
    return LineTime(phase, operator, cause, doing, "train.py", number, "main", False, "", round(ms * MS))


def crowded(step: StepFacts, waited_share: float | None, others_cores: float | None) -> StepFacts:
    return seen(step, waited_share=waited_share, others_cores=others_cores)


def work(category: str, operator: str, ms: float, calls: int = 1, phase: str = "forward") -> Operator:
    return Operator(phase, category, operator, "", "", calls, calls, round(ms * MS), 0, calls)
