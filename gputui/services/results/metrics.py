"""Results of a case other than its speed, over all launches; and the times of a load, as cases."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gputui.model.absent import Missing
from gputui.model.journal import Figure
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Measurement, worked_out_once
from gputui.model.units import TIME_UNIT

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
        observations=sum(f.observations for f in figures if not isinstance(f.value, Missing)),
        launches=len(values),
    )
    return metric, tuple(values)


LOAD_TIMES = {
    "ttft_p50_s": "TTFT p50",
    "ttft_p95_s": "TTFT p95",
    "ttft_p99_s": "TTFT p99",
    "tpot_p50_s": "TPOT p50",
    "tpot_p95_s": "TPOT p95",
    "e2e_p50_s": "E2E p50",
    "e2e_p95_s": "E2E p95",
}
"""Figures of a load at which both sides did the same, with their names. Not of a limit, which each side
meets at a different rate."""
_TIME = "time"
"""The parameter that turns a load into one of its times."""
LAG = "client_lag_p99_s"
"""How late the client's own wake-ups were in a launch of a load."""
LATE_S = 0.002
"""From here on other processes had the CPUs that the client needed. In 12 runs of one server on a 2-core box
at loads of 5 to 14 the lag was 1 to 170 ms, in 6 runs with a free CPU at most 1 ms."""


def time_of(case: Case) -> str:
    """The key of the time that it is, one of LOAD_TIMES; empty for other cases."""
    return str(dict(case.work.parameters).get(_TIME, "")) if case.is_time else ""


def is_limit(case: Case) -> bool:
    """Whether it is the largest load that keeps given limits: each side stops at a different one."""
    return case.is_load and dict(case.work.parameters).get("load") == "search"


AS_OFFERED = Missing("as offered")
"""Of tokens per second at a rate that a server keeps up with: they are those that were asked for."""


def is_as_offered(case: Case) -> bool:
    """Whether its tokens per second are as offered: of a rate, where no server overloads."""
    return case.is_load and not case.is_time and dict(case.work.parameters).get("load") == "open"


def load_name(case: Case) -> str:
    """The workload without the name of a time."""
    return case.work.workload.removesuffix(f" {LOAD_TIMES.get(time_of(case), '')}")


def load_of(case: Case) -> Hashable:
    """What a load and its times share."""
    return load_name(case), tuple(one for one in case.work.parameters if one[0] != _TIME)


@worked_out_once
def times_of(result: CaseResult) -> dict[str, CaseResult]:
    """The times of a measured load by key, each as a case; none of any other case."""
    case, found = result.case, dict[str, CaseResult]()
    for key, title in LOAD_TIMES.items() if case.is_load and not is_limit(case) else ():
        measurements = tuple(one for m in result.measurements if (one := _timed(m, key)) is not None)
        if measurements:
            work = replace(
                case.work,
                workload=f"{case.work.workload} {title}",
                parameters=tuple(sorted((*case.work.parameters, (_TIME, key)))),
            )
            timed = replace(case, work=work, unit=TIME_UNIT, units_per_step=1.0)
            found[key] = replace(result, case=timed, measurements=measurements)
    return found


def _timed(measurement: Measurement, key: str) -> Measurement | None:
    """The launch as one step that takes the time; None if it does not have it."""
    value = next((figure.value for figure in measurement.figures if figure.key == key), Missing("unknown"))
    if measurement.outcome != "ok" or isinstance(value, Missing) or value <= 0 or not measurement.blocks:
        return None
    ns = max(round(value * 1e9), 1)
    block = replace(measurement.blocks[0], steps=1, wall_ns=ns, device_ns=None, cpu_ns=None, waited_ns=None)
    return replace(
        measurement,
        blocks=(block,),
        figures=tuple(figure for figure in measurement.figures if figure.key == LAG),
    )


def late_by(result: CaseResult) -> float:
    """How late the client was in the typical launch, beside the TTFT that this is; 0 of other cases."""
    if not time_of(result.case).startswith("ttft"):
        return 0.0
    times = [m.blocks[0].block_ns * 1e-9 for m in result.measurements]
    return median(_lags(result) or [0.0]) / median(times)


def late_share(result: CaseResult) -> float:
    """Of the launches of a load, the share in which the client woke up late; 0 to 1, and 0 of other cases."""
    lags = _lags(result)
    return sum(lag > LATE_S for lag in lags) / len(lags) if lags else 0.0


def _lags(result: CaseResult) -> list[float]:
    return [
        figure.value
        for measurement in result.measurements
        if measurement.outcome == "ok"
        for figure in measurement.figures
        if figure.key == LAG and not isinstance(figure.value, Missing)
    ]
