"""How much the launches and runs of each box vary, as the runs at hand show it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputui.analysis.spread import (
    ASSUMED,
    BoxSpread,
    assumed_runs,
    learn_launches,
    learn_runs,
    pooled,
    run_prior_sd,
)
from gputui.analysis.statistics import hodges_lehmann, sample_variance
from gputui.analysis.verdict import launch_scatter, log_time
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, Run, Spread
from gputui.services.results.metrics import time_of, times_of
from gputui.services.results.throughput import (
    is_undecidable,
    own_launches_of,
    own_paired_launches,
    paired_prior_of,
    prior_of,
)

RUNS_TAKEN = 20
"""Of a box, the newest: more would change little."""
RUNS_APART_US = 600 * 1_000_000
"""Runs that follow each other sooner find the box as the last one left it, and show too little of it."""


@dataclass(frozen=True, slots=True)
class BoxVariation:
    """What the runs of one box tell of how much its launches and runs vary."""

    launches: Mapping[str, BoxSpread]
    """By device class, and by each time of loads."""
    rows: Mapping[Hashable, Spread]
    """Of each case on its own."""
    runs: Mapping[str, Spread]
    """Between runs, likewise."""
    pairs: Mapping[Hashable, Spread] = field(default_factory=dict)
    """Of the log ratio of two cases between launches in which they were interleaved."""

    def launch_spread(self, result: CaseResult) -> Spread:
        """Of one launch of this case."""
        box = self.launches.get(_kind(result), ASSUMED)
        return box.of_row(self.rows.get(_identity(result)), prior_of(result))

    def run_spread(self, result: CaseResult) -> Spread:
        """Of one run of this case."""
        table_sd = run_prior_sd(result.case.variant.device_class)
        return self.runs.get(_kind(result)) or assumed_runs(table_sd)

    def pair_spread(self, a: CaseResult, b: CaseResult) -> Spread:
        """Of their log ratio in one launch."""
        return ASSUMED.of_row(self.pairs.get(_pair(a, b)), max(paired_prior_of(a), paired_prior_of(b)))

    def judged(self, result: CaseResult, interleaved: Iterable[CaseResult] = ()) -> CaseResult:
        """A measured case of this box with what is known of its spread, also beside other cases."""
        return replace(
            result,
            launch_spread=self.launch_spread(result),
            run_spread=self.run_spread(result),
            pair_spreads=tuple((other.case_id, self.pair_spread(result, other)) for other in interleaved),
        )


NOTHING_KNOWN = BoxVariation({}, {}, {})


def variation_by_machine(runs: Iterable[Run]) -> dict[str, BoxVariation]:
    """What these runs tell of each of their machines."""
    by_machine: dict[str, dict[str, Run]] = {}
    for run in runs:
        by_machine.setdefault(run.summary.machine.machine_id, {})[run.summary.run_id] = run
    return {machine: _variation(list(found.values())) for machine, found in by_machine.items()}


def with_spreads(run: Run, variation: BoxVariation) -> Run:
    """The run with what is known of its box in each case that it measured."""
    measured = [case for case in run.cases if case.outcome == "ok"]
    by_launch: dict[Hashable, list[CaseResult]] = {}
    for case in measured:
        by_launch.setdefault(_launched(case), []).append(case)

    def judged(case: CaseResult) -> CaseResult:
        if case.outcome != "ok":
            return case
        return variation.judged(case, (one for one in by_launch[_launched(case)] if one is not case))

    return replace(run, cases=tuple(map(judged, run.cases)))


def _variation(runs: Sequence[Run]) -> BoxVariation:
    newest = sorted(runs, key=lambda run: run.summary.started_utc_us)[-RUNS_TAKEN:]
    seen = [[one for r in run.cases for one in (r, *times_of(r).values())] for run in newest]
    telling = [[r for r in of_run if r.outcome == "ok" and not is_undecidable(r)] for of_run in seen]
    kinds = {_kind(result) for of_run in telling for result in of_run}
    launches: dict[str, BoxSpread] = {}
    rows: dict[Hashable, Spread] = {}
    between: dict[str, Spread] = {}
    for kind in kinds:
        mine = [[r for r in of_run if _kind(r) == kind] for of_run in telling]
        within, across = [_scatters(of_run) for of_run in mine], [_scatters(_joined(newest, mine))]
        launches[kind] = _learnt(within if any(within) else across)
        rows |= _rows(across) | _rows(within)
        between[kind] = _between(_apart(newest, mine), launches[kind], rows)
    return BoxVariation(launches, rows, between, _paired(newest, telling))


def _paired(runs: Sequence[Run], results: Sequence[Sequence[CaseResult]]) -> dict[Hashable, Spread]:
    """Of each two cases that were interleaved, over all launches that one software did."""
    ratios: dict[tuple[Hashable, Hashable], list[float]] = {}
    for run, of_run in zip(runs, results, strict=True):
        for a, b in itertools.combinations(of_run, 2):
            launches = Missing("") if _launched(a) != _launched(b) else own_paired_launches(a, b)
            for launch in () if isinstance(launches, Missing) else launches:
                a_to_b = hodges_lehmann([math.log(x / y) for x, y in launch])
                is_turned = a.case.variant.precision > b.case.variant.precision
                key = _pair(a, b), _software(run)
                ratios.setdefault(key, []).append(-a_to_b if is_turned else a_to_b)
    found: dict[Hashable, list[Spread]] = {}
    for (pair, _), logs in ratios.items():
        if len(logs) > 1:
            found.setdefault(pair, []).append(Spread(sample_variance(logs), len(logs) - 1.0))
    return {pair: pooled(scatters) for pair, scatters in found.items()}


def _rows(groups: Sequence[Sequence[tuple[CaseResult, Spread]]]) -> dict[Hashable, Spread]:
    """Of each case, over all groups."""
    found: dict[Hashable, list[Spread]] = {}
    for result, scatter in (one for group in groups for one in group):
        found.setdefault(_identity(result), []).append(scatter)
    return {row: pooled(scatters) for row, scatters in found.items()}


def _scatters(results: Sequence[CaseResult]) -> list[tuple[CaseResult, Spread]]:
    found = ((r, launch_scatter(own_launches_of(r))) for r in results)
    return [(result, scatter) for result, scatter in found if isinstance(scatter, Spread)]


def _learnt(groups: Sequence[Sequence[tuple[CaseResult, Spread]]]) -> BoxSpread:
    """From the scatters of each run. Cases that differ in precision only shared their launches."""
    runs: list[dict[Hashable, Spread]] = []
    launches = 0
    for group in groups:
        rows: dict[Hashable, list[Spread]] = {}
        for result, scatter in group:
            relative = replace(scatter, variance=scatter.variance / prior_of(result) ** 2)
            rows.setdefault(_launched(result), []).append(relative)
        # cases that shared their launches know together no more degrees of freedom than one
        mean = {row: replace(pooled(some), df=max(one.df for one in some)) for row, some in rows.items()}
        runs.append(mean)
        launches += sum(round(scatter.df) + 1 for scatter in runs[-1].values())
    return learn_launches(runs, launches)


def _joined(runs: Sequence[Run], results: Sequence[Sequence[CaseResult]]) -> list[CaseResult]:
    """Each case with the launches of all runs of one software: what runs of one launch differ by."""
    found: dict[Hashable, CaseResult] = {}
    for run, result in ((run, r) for run, of_run in zip(runs, results, strict=True) for r in of_run):
        key = _identity(result), _software(run)
        known = found.get(key)
        measurements = result.measurements if known is None else known.measurements + result.measurements
        found[key] = replace(result, measurements=measurements)
    return list(found.values())


def _apart(
    runs: Sequence[Run], results: Sequence[Sequence[CaseResult]]
) -> list[tuple[Run, Sequence[CaseResult]]]:
    """Runs that began long enough after one another, with their results."""
    found: list[tuple[Run, Sequence[CaseResult]]] = []
    last_us = 0
    for run, of_run in zip(runs, results, strict=True):
        if run.summary.started_utc_us - last_us >= RUNS_APART_US:
            found.append((run, of_run))
            last_us = run.summary.started_utc_us
    return found


def _between(
    runs: Sequence[tuple[Run, Sequence[CaseResult]]], prior: BoxSpread, rows: Mapping[Hashable, Spread]
) -> Spread:
    means: dict[Hashable, list[tuple[float, float]]] = {}
    launched: set[Hashable] = set()
    device = ""
    for run, result in ((run, result) for run, of_run in runs for result in of_run):
        launches = own_launches_of(result)
        middle = log_time(launches)
        if isinstance(middle, Missing):
            continue
        device = result.case.variant.device_class
        spread = prior.of_row(rows.get(_identity(result)), prior_of(result))
        key = _identity(result), _software(run)
        means.setdefault(key, []).append((middle, spread.variance / len(launches)))
        launched.add(_launched(result))
    return learn_runs(list(means.values()), rows=len(launched), table_sd=run_prior_sd(device))


def _kind(result: CaseResult) -> str:
    """Rows of one kind vary alike: those of a device class, or one time of all loads."""
    return f"{result.case.variant.device_class} {time_of(result.case)}".rstrip()


def _identity(result: CaseResult) -> Hashable:
    """A case on one device: GPUs of a box differ, and say nothing of how much one varies."""
    return result.case.work.key, result.case.variant, result.device_index


def _software(run: Run) -> Hashable:
    """Runs that differ in it differ for a reason, and say nothing of how much a box varies."""
    return run.summary.runtime, run.summary.machine.driver_version, run.summary.machine.kernel


def _pair(a: CaseResult, b: CaseResult) -> Hashable:
    """The same for two cases in either order."""
    return _launched(a), frozenset({a.case.variant.precision, b.case.variant.precision})


def _launched(result: CaseResult) -> Hashable:
    """What is the same for all cases of one launch."""
    return result.case.work.key, replace(result.case.variant, precision=""), result.device_index
