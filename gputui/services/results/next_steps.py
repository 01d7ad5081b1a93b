"""What to type after a run: the commands that go further than its table, the most useful first."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.analysis.peak_tests import BELOW_NORMAL
from gputui.model.result import Run, RunSummary
from gputui.model.units import counted
from gputui.services.profiles.loader import Profile, shipped_profiles
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import case_order
from gputui.services.results.labels import day
from gputui.services.results.references import PREFIX
from gputui.services.results.selectors import from_here
from gputui.services.results.throughput import contention_of
from gputui.worker.workloads import WORKLOADS

_ROUNDED_TO_S = 10


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command to type next."""

    command: str
    why: str


def next_steps(
    results: Sequence[Run],
    path: Path,
    stored: Collection[RunSummary] = (),
    *,
    is_profiled: bool = False,
    like: str = "",
) -> Iterator[NextStep]:
    """Two or three commands after runs that ended together.

    `stored` are the runs of their file that measured a case. `is_profiled`: the only run has profiled passes,
    so `show -v` has the step breakdowns. `like` is the run that they repeat, as `F@RUN`; empty for none.
    """
    if not results:
        return
    here = from_here(str(path))
    file, newest = shlex.quote(here), results[-1]
    measured = [run for run in results if any(case.outcome == "ok" for case in run.cases)]
    is_busy = any(map(_was_busy, measured))
    yield from _on_an_idle_box(newest, here, like) if is_busy else _with_more_time(newest, file)
    if not measured:
        if not newest.summary.status_reason.startswith("stopped by"):
            yield NextStep(f"gputui show {newest.summary.short_id} {file} -v", "why nothing was measured")
        yield NextStep(f"gputui rm {newest.summary.short_id} {file}", "removes this run")
        return
    below = [check for run in measured for check in performance_checks(run) if check.word == BELOW_NORMAL]
    if below:
        yield NextStep("gputui doctor", "what is wrong with the box")
    names = [shlex.quote(f"{here}@{run.summary.short_id}") for run in measured]
    standing = below[0].standing if below and len(measured) == 1 else None
    if standing is not None and standing.judges:
        command = f"gputui compare {PREFIX}{standing.reference} {names[0]}"
        yield NextStep(command, f"every case vs {standing.model}")
    if below and len(measured) == 1:
        yield NextStep(f"gputui share {names[0]} -o report.md", "for the provider")
    if like:
        yield NextStep(
            shlex.join(("gputui", "compare", like)) + f" {' '.join(names)}", "this run vs that one"
        )
        return
    if len(names) > 1:
        yield NextStep(f"gputui compare {' '.join(names)}", "one vs the other")
        return
    gpus = {case.device_index for case in newest.cases if case.outcome == "ok"} - {None}
    if len(gpus) > 1:
        yield NextStep(f"gputui compare {names[0]} --by gpu", f"which of the {len(gpus)} GPUs stands out")
    earlier = _earlier(newest.summary, stored)
    if earlier is not None:
        name = shlex.quote(f"{here}@{earlier.short_id}")
        yield NextStep(f"gputui compare {name} {names[0]}", f"vs the run of {day(earlier)}")
    if is_profiled:
        yield NextStep(f"gputui show {newest.summary.short_id} {file} -v", "where the time of a step goes")
    if earlier is None and not is_busy:
        has_others = len({run.machine.machine_id for run in stored}) > 1
        side = names[0] if has_others else file
        yield NextStep(f"gputui compare {side} OTHER.db", "once another box has run the same")


def _was_busy(run: Run) -> bool:
    """Whether other processes had the CPUs during its main case, the one that its headline is about."""
    cases = [case for case in run.cases if case.outcome == "ok"]
    return contention_of(min(cases, key=lambda case: case_order(case.case))) > 0


def _on_an_idle_box(run: Run, path: str, like: str) -> Iterator[NextStep]:
    """The same run again; a larger budget would not help a busy box."""
    file = shlex.quote(path)
    profile = _profile_of(run)
    if like:
        command = f"gputui run --like {shlex.quote(like)} --db {file}"
    elif profile is not None:
        budget_s = run.summary.budget_s
        budget = "" if budget_s == profile.budget_s else f" --budget {math.ceil(budget_s)}"
        command = f"{_run_of(profile, run)} --db {file}{budget}"
    else:
        built_in = {workload.name for workload in WORKLOADS}
        if any(case.case.work.workload not in built_in for case in run.cases):
            return  # where its program or STEP.py lies is not stored
        again = shlex.quote(f"{path}@{run.summary.short_id}")
        command = f"gputui run --like {again} --db {file}"
    yield NextStep(command, "again, once the box is idle")


def _with_more_time(run: Run, file: str) -> Iterator[NextStep]:
    """The same run with as much time as it needs, where at least half of the cases had too little."""
    lost = sum(case.outcome == "skipped" and "budget" in case.reason for case in run.cases)
    measured = sum(case.outcome == "ok" for case in run.cases)
    profile = _profile_of(run)
    if profile is None or not lost or lost < measured:
        return
    usual_s = profile.budget_s
    needed_s = run.summary.budget_s * (lost + measured) / max(measured, 1)
    rounded_s = math.ceil(needed_s / _ROUNDED_TO_S) * _ROUNDED_TO_S
    budget = (
        f" --budget {rounded_s}"
        if measured and (rounded_s < usual_s or run.summary.budget_s >= usual_s)
        else ""
    )
    why = f"{lost} of {counted(lost + measured, 'case')} had too little time"
    yield NextStep(f"{_run_of(profile, run)} --db {file}{budget}", why)


def _profile_of(run: Run) -> Profile | None:
    return next((one for one in shipped_profiles() if one.name == run.summary.profile), None)


def _run_of(profile: Profile, run: Run) -> str:
    """The command that runs a profile, or those of its workloads that the run was limited to."""
    there = dict.fromkeys(case.workload for case in profile.cases)
    chosen = {case.case.work.workload for case in run.cases}
    only = [f" --only {name}" for name in there if name in chosen] if chosen < there.keys() else []
    return f"gputui run {profile.name}{''.join(only)}"


def _earlier(run: RunSummary, stored: Collection[RunSummary]) -> RunSummary | None:
    """The newest finished run before it of the same profile."""
    alike = [
        other
        for other in stored
        if (other.profile, other.profile_version, other.status)
        == (run.profile, run.profile_version, "finished")
        and other.started_utc_us < run.started_utc_us
    ]
    return max(alike, key=lambda other: other.started_utc_us, default=None)
