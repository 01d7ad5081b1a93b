"""Where the time and memory of a step go, from the profiled pass of a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from gputui.analysis.attribution import BELIEVED_INFLATION
from gputui.model.absent import Missing
from gputui.model.profiled import IDLE, Operator, ProfiledPass
from gputui.model.result import CaseResult


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
    """One profiled pass, per step."""

    step_ns: float
    inflation: float | Missing
    """Profiled step against the timed one of the same run."""
    shares: tuple[Share, ...]
    """They sum to 1; the largest first."""
    operators: tuple[Operator, ...]
    """Of equal phase, name and shapes added up over types; the largest first."""


def breakdown_of(found: ProfiledPass, case: CaseResult) -> StepBreakdown | Missing:
    """The shares of a profiled pass; Missing with the reason if it is unreliable."""
    if not found.is_valid:
        return Missing(found.reason)
    step_ns = found.window_ns / found.steps
    timed_ns = timed_step_ns(case)
    phases: dict[str, Counter[str]] = {}
    for part in found.slices:
        name = f"idle: {part.cause.replace('_', ' ')}" if part.time_class == IDLE else part.time_class
        phases.setdefault(name.replace("_", " "), Counter())[part.phase] += part.time_ns
    shares = [
        Share(
            name,
            tuple((phase, ns / found.window_ns) for phase, ns in by_phase.most_common()),
            by_phase.total() / found.window_ns,
        )
        for name, by_phase in phases.items()
    ]
    return StepBreakdown(
        step_ns=step_ns,
        inflation=timed_ns if isinstance(timed_ns, Missing) else step_ns / timed_ns,
        shares=tuple(sorted(shares, key=lambda s: -s.share)),
        operators=_over_types(found.operators),
    )


def timed_step_ns(case: CaseResult) -> float | Missing:
    """Wall time of the median timed step in nanoseconds, over all launches that measured the case."""
    steps = [b.wall_ns / b.steps for m in case.measurements if m.outcome == "ok" for b in m.blocks]
    return median(steps) if steps else Missing("no step was timed")


def is_believed(breakdown: StepBreakdown) -> bool:
    """Whether profiled steps were about as fast as timed ones."""
    low, high = BELIEVED_INFLATION
    return not isinstance(breakdown.inflation, Missing) and low <= breakdown.inflation <= high


def _over_types(rows: Sequence[Operator]) -> tuple[Operator, ...]:
    found: dict[tuple[str, str, str, str], list[Operator]] = {}
    for row in rows:
        found.setdefault((row.phase, row.category, row.operator, row.shapes), []).append(row)
    return tuple(sorted(map(added_up, found.values()), key=lambda row: -row.time_ns))


def added_up(rows: Sequence[Operator]) -> Operator:
    """Rows as one, which is called as the first; without types where these differ."""
    return replace(
        rows[0],
        dtypes=rows[0].dtypes if len({row.dtypes for row in rows}) == 1 else "",
        calls=sum(row.calls for row in rows),
        events=sum(row.events for row in rows),
        time_ns=sum(row.time_ns for row in rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        kernels=sum(row.kernels for row in rows),
    )
