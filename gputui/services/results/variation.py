"""How much the launches and runs of each box vary, as the runs at hand show it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.priors import run_prior_sd
from gputui.analysis.quantiles import normal_quantile, t_quantile
from gputui.analysis.spread import (
    LaunchPrior,
    RunMean,
    Scatter,
    Spread,
    learn_launches,
    learn_runs,
    pooled,
)
from gputui.analysis.verdict import LAUNCHES_MEASURED, launch_scatter, log_time
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.result import CaseResult, Run
from gputui.services.results.throughput import contention_of, launches_of, prior_of

RUNS_TAKEN = 20
"""Of a box, the newest: more would change little."""
RUNS_APART_US = 600 * 1_000_000
"""Runs that follow each other sooner find the box as the last one left it, and show too little of it."""


@dataclass(frozen=True, slots=True)
class BoxVariation:
    """What the runs of one box tell of how much its launches and runs vary."""

    launches: Mapping[str, LaunchPrior | Missing]
    """By device class."""
    rows: Mapping[Hashable, Scatter]
    """Of each case on its own."""
    runs: Mapping[str, Spread]
    """Between runs, by device class."""

    def launch_spread(self, result: CaseResult) -> Spread | None:
        """Of one launch of this case; None where too little is known, or there was CPU contention."""
        prior = self.launches.get(result.case.variant.device_class)
        if not isinstance(prior, LaunchPrior) or contention_of(result) > 0:
            return None
        assumed = prior_of(result)
        spread = prior.moderated(self.rows.get(_identity(result.case)), assumed)
        if len(launches_of(result)) < LAUNCHES_MEASURED and _says_less(spread, assumed):
            return None
        return spread

    def run_spread(self, result: CaseResult) -> Spread:
        """Of one run of this case."""
        return self.runs.get(result.case.variant.device_class) or unknown_runs(result)


NOTHING_KNOWN = BoxVariation({}, {}, {})


def unknown_runs(result: CaseResult) -> Spread:
    """Between runs of this case on a box of which nothing is known."""
    return Spread(run_prior_sd(result.case.variant.device_class) ** 2, float("inf"))


def variation_by_machine(runs: Iterable[Run]) -> dict[str, BoxVariation]:
    """What these runs tell of each of their machines."""
    by_machine: dict[str, dict[str, Run]] = {}
    for run in runs:
        by_machine.setdefault(run.summary.machine.machine_id, {})[run.summary.run_id] = run
    return {machine: _variation(machine, list(found.values())) for machine, found in by_machine.items()}


def _variation(machine: str, runs: Sequence[Run]) -> BoxVariation:
    newest = sorted(runs, key=lambda run: run.summary.started_utc_us)[-RUNS_TAKEN:]
    calm = [[result for result in run.cases if _is_calm(result)] for run in newest]
    devices = {result.case.variant.device_class for of_run in calm for result in of_run}
    launches: dict[str, LaunchPrior | Missing] = {}
    rows: dict[Hashable, Scatter] = {}
    between: dict[str, Spread] = {}
    for device in devices:
        mine = [[r for r in of_run if r.case.variant.device_class == device] for of_run in calm]
        groups = [_scatters(of_run) for of_run in mine]
        prior = _learnt(f"{machine} {device}", groups)
        if isinstance(prior, Missing):
            groups = [_scatters(_joined(mine))]
            prior = _learnt(f"{machine} {device}", groups)
        launches[device] = prior
        for group in groups:
            for result, scatter in group:
                key = _identity(result.case)
                rows[key] = pooled([rows[key], scatter]) if key in rows else scatter
        if isinstance(prior, LaunchPrior):
            apart = _apart(newest, mine)
            between[device] = _between(f"{machine} {device}", apart, prior, rows)
    return BoxVariation(launches, rows, between)


def _says_less(spread: Spread, assumed_sd: float) -> bool:
    """Whether it makes a wider interval than the assumed sd does only because it is so badly known."""
    is_wider = t_quantile(0.975, spread.df) * math.sqrt(spread.variance) > normal_quantile(0.975) * assumed_sd
    return is_wider and spread.variance <= assumed_sd**2


def _is_calm(result: CaseResult) -> bool:
    return result.outcome == "ok" and contention_of(result) == 0


def _scatters(results: Sequence[CaseResult]) -> list[tuple[CaseResult, Scatter]]:
    found = ((r, launch_scatter(launches_of(r), prior_sd=prior_of(r))) for r in results)
    return [(result, scatter) for result, scatter in found if isinstance(scatter, Scatter)]


def _learnt(box: str, groups: Sequence[Sequence[tuple[CaseResult, Scatter]]]) -> LaunchPrior | Missing:
    """From the scatters of each run. Cases that differ in precision only shared their launches."""
    runs: list[dict[Hashable, Scatter]] = []
    launches = 0
    for group in groups:
        rows: dict[Hashable, list[Scatter]] = {}
        for result, scatter in group:
            relative = replace(scatter, variance=scatter.variance / prior_of(result) ** 2)
            rows.setdefault(_launched(result.case), []).append(relative)
        runs.append({row: _mean_of(found) for row, found in rows.items()})
        launches += sum(round(scatter.df) + 1 for scatter in runs[-1].values())
    return learn_launches(box, runs, launches)


def _mean_of(scatters: Sequence[Scatter]) -> Scatter:
    """Of cases that shared their launches: together they know no more degrees of freedom than one."""
    return Scatter(pooled(scatters).variance, max(scatter.df for scatter in scatters))


def _joined(runs: Sequence[Sequence[CaseResult]]) -> list[CaseResult]:
    """Each case with the launches of all runs: where runs have one launch each, what they differ by."""
    found: dict[Hashable, CaseResult] = {}
    for result in (result for of_run in runs for result in of_run):
        known = found.get(_identity(result.case))
        measurements = result.measurements if known is None else known.measurements + result.measurements
        found[_identity(result.case)] = replace(result, measurements=measurements)
    return list(found.values())


def _apart(runs: Sequence[Run], results: Sequence[Sequence[CaseResult]]) -> list[Sequence[CaseResult]]:
    """The results of runs that began long enough after one another."""
    found: list[Sequence[CaseResult]] = []
    last_us = 0
    for run, of_run in zip(runs, results, strict=True):
        if run.summary.started_utc_us - last_us >= RUNS_APART_US:
            found.append(of_run)
            last_us = run.summary.started_utc_us
    return found


def _between(
    box: str,
    runs: Sequence[Sequence[CaseResult]],
    prior: LaunchPrior,
    rows: Mapping[Hashable, Scatter],
) -> Spread:
    means: dict[Hashable, list[RunMean]] = {}
    launched: set[Hashable] = set()
    device = ""
    for result in (result for of_run in runs for result in of_run):
        launches = launches_of(result)
        middle = log_time(launches, prior_sd=prior_of(result))
        if isinstance(middle, Missing):
            continue
        device = result.case.variant.device_class
        spread = prior.moderated(rows.get(_identity(result.case)), prior_of(result))
        means.setdefault(_identity(result.case), []).append(RunMean(middle, spread.variance / len(launches)))
        launched.add(_launched(result.case))
    return learn_runs(box, list(means.values()), rows=len(launched), table_sd=run_prior_sd(device))


def _identity(case: Case) -> Hashable:
    return case.work.key, case.variant


def _launched(case: Case) -> Hashable:
    """What is the same for all cases of one launch."""
    return case.work.key, replace(case.variant, precision="")
