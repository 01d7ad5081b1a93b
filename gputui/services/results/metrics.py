"""Results of a case other than its speed, over all its launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from gputui.model.absent import Missing
from gputui.model.journal import Figure
from gputui.model.result import CaseResult

_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {
    "median": median,
    "sum": sum,
    "max": max,
    "min": min,
}


@dataclass(frozen=True, slots=True)
class CaseMetric:
    """One figure of one case."""

    key: str
    title: str
    unit: str
    better: str
    """`less`, `more` or `neither`."""
    combine: str
    """How its launches became one value."""
    value: float | Missing
    low: float | None
    """The least and the greatest value of a launch: what was seen, no interval; None if there is none."""
    high: float | None
    observations: int
    """In all launches."""
    launches: int


LaunchValues = tuple[CaseMetric, tuple[float, ...]]
"""One figure of one case, and its values in the launches that have one, in their order."""


def metrics_of(case: CaseResult) -> tuple[CaseMetric, ...]:
    """The figures of a case, also of one that failed, in the order its workload declares them.

    If a launch was `ok`, the others do not count.
    """
    return tuple(metric for metric, _ in launch_values_of(case).values())


def launch_values_of(case: CaseResult) -> dict[str, LaunchValues]:
    """`metrics_of` by key, each with its value in every launch."""
    ok = [m for m in case.measurements if m.outcome == "ok"]
    by_key: dict[str, list[Figure]] = {}
    for measurement in ok or case.measurements:
        for figure in measurement.figures:
            by_key.setdefault(figure.key, []).append(figure)
    return {key: _combined(figures) for key, figures in by_key.items()}


def _combined(figures: Sequence[Figure]) -> LaunchValues:
    first = figures[0]
    values = [f.value for f in figures if not isinstance(f.value, Missing)]
    absent = next((f.value for f in figures if isinstance(f.value, Missing)), Missing("not measured"))
    metric = CaseMetric(
        key=first.key,
        title=first.title,
        unit=first.unit,
        better=first.better,
        combine=first.combine,
        value=_COMBINED[first.combine](values) if values else absent,
        low=min(values, default=None),
        high=max(values, default=None),
        observations=sum(f.observations for f in figures),
        launches=len(values),
    )
    return metric, tuple(values)
