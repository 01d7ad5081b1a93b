"""Where the time and memory of a step go, from a case's profiled pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median

from gputui.analysis.attribution import BELIEVED_INFLATION, ProfiledSide, doubtful, slices_seen
from gputui.model.absent import Missing
from gputui.model.journal import IDLE, Operator, ProfiledPass
from gputui.model.result import CaseResult
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
