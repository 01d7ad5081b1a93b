"""What to type after a run: the commands that go further than its table, the most useful first."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gputui.analysis.peak_tests import BELOW_NORMAL
from gputui.model.journal import ProfiledPass
from gputui.model.plan import RECORD_PROFILE
from gputui.model.result import Run, RunSummary
from gputui.model.units import counted
from gputui.services.profiles.loader import Profile, shipped_profiles
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import main_case
from gputui.services.results.labels import day, is_recording, lacking, needs_budget
from gputui.services.results.references import PREFIX
from gputui.services.results.selectors import from_here
from gputui.services.results.throughput import contention_of
from gputui.worker import PRECISIONS, declared_as
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
    passes: Collection[ProfiledPass] = (),
    like: str = "",
    profile: Profile | None = None,
) -> Iterator[NextStep]:
    """Two or three commands after runs that ended together.

    `stored` are the runs of their file that measured a case. `passes` are those of the only run; from a valid
    one `show -v` has the operators. `like` is the run that they repeat, as `F@RUN`; empty for none.
    `profile` has the cases of that run; None if they are unknown.
    """
    if not results:
        return
    here = from_here(str(path))
    file, newest = shlex.quote(here), results[-1]
    measured = [run for run in results if any(case.outcome == "ok" for case in run.cases)]
    mains = [main for run in measured if (main := main_case(run)) is not None]
    is_busy = any(contention_of(main) > 0 for main in mains)
    shipped = (one for one in shipped_profiles() if one.name == newest.summary.profile)
    planned = profile if like else next(shipped, None)
    yield from (
        _on_an_idle_box(newest, here, like, planned) if is_busy else _to_the_end(newest, file, like, planned)
    )
    earlier = _earlier(newest.summary, stored)
    if earlier is not None and newest.summary.status != "finished":
        yield NextStep(f"gputui show {earlier.short_id} {file}", "the run before it, which is complete")
    if not measured:
        if is_recording(newest):
            yield NextStep(f"gputui replay {newest.summary.short_id} {file}", "plays its telemetry")
        elif not newest.summary.status_reason.startswith("stopped "):
            yield NextStep(f"gputui show {newest.summary.short_id} {file} -v", f"why {lacking(newest)}")
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
    if earlier is not None:
        name = shlex.quote(f"{here}@{earlier.short_id}")
        yield NextStep(f"gputui compare {name} {names[0]}", f"vs the run of {day(earlier)}")
    if any(one.is_valid for one in passes):
        yield NextStep(
            f"gputui show {newest.summary.short_id} {file} -v", "a step by operator, efficiency, the box"
        )
    if earlier is None and not is_busy:
        has_others = len({run.machine.machine_id for run in stored}) > 1
        side = names[0] if has_others else file
        yield NextStep(f"gputui compare {side} OTHER.db", "once another box has run the same")


def _on_an_idle_box(run: Run, path: str, like: str, profile: Profile | None) -> Iterator[NextStep]:
    """The same run again; where cases had too little time, with more."""
    why = "again, once the box is idle"
    if like or profile is not None:
        yield NextStep(command_again(run, shlex.quote(path), profile, like), why)
        return
    built_in = {workload.name for workload in WORKLOADS}
    if any(case.case.work.workload not in built_in for case in run.cases):
        return  # where its program or the .py file of its step lies is not stored
    again = shlex.quote(f"{path}@{run.summary.short_id}")
    yield NextStep(f"gputui run --like {again} --db {shlex.quote(path)}", why)


def _to_the_end(run: Run, file: str, like: str, profile: Profile | None) -> Iterator[NextStep]:
    """The same run, where it was stopped; with more time where at least half of its cases had too little."""
    if profile is None:
        return
    lost, measured = _lost_and_measured(run)
    if lost and lost >= measured:
        usual = f"the usual {profile.budget_of(run.summary.replicates):g} s"
        enough = f"time for all {counted(lost + measured, 'case')}"
        yield NextStep(
            command_again(run, file, profile, like), f"with {enough if _budget(run, profile) else usual}"
        )
    elif run.summary.status_reason.startswith("stopped "):
        yield NextStep(command_again(run, file, profile, like), "again, to the end")


def command_again(run: Run, file: str, profile: Profile | None, like: str = "") -> str:
    """The command that measures the same cases as often, in as much time, or as much as they need."""
    what = shlex.join(("--like", like)) if like else "" if profile is None else profile.name
    if profile is None:
        return f"gputui run {what} --db {file}"
    launches = run.summary.replicates
    chosen = "" if launches == profile.replicates else f" --launches {launches}"
    which = f"{_device(run, profile)}{_only(run, profile)}"
    return f"gputui run {what}{which}{chosen} --db {file}{_budget(run, profile)}"


def _device(run: Run, profile: Profile) -> str:
    """The option, where the run was limited to a device that its cases in the profile are not limited to."""
    kinds = {(one.case.work.workload, declared_as(one.case.variant.precision)) for one in run.cases}
    there = {
        device
        for entry in profile.cases
        if kinds.intersection(product((entry.workload,), map(declared_as, entry.precisions)))
        for device in entry.devices
    }
    here = {one.case.variant.device_class for one in run.cases}
    gpus = {one.device_index for one in run.cases} - {None}
    if "gpu" in here and len(gpus) > 1:
        return " --device all"
    if not there - here:
        return ""
    number = "".join(f":{gpu}" for gpu in gpus if gpu)
    return f" --device gpu{number}" if "gpu" in here else " --device cpu"


def _only(run: Run, profile: Profile) -> str:
    """The options that limit a profile to the cases of a run; empty if it had them all."""
    devices = {case.case.variant.device_class for case in run.cases}
    there: dict[str, set[tuple[str, str]]] = {}
    for entry in profile.cases:
        if devices.intersection(entry.devices):
            there.setdefault(entry.workload, set()).update(product(entry.sizes, entry.precisions))
    here: dict[str, set[tuple[str, str]]] = {}
    for case in (one.case for one in run.cases):
        here.setdefault(case.work.workload, set()).add((case.work.size, case.variant.precision))
    if not here.keys() <= there.keys():
        return ""
    names = [name for name in there if name in here]
    precisions = {precision for kinds in here.values() for _, precision in kinds}
    chosen_of = {
        name: {(size, p) for size, listed in there[name] for p in precisions if listed in (p, declared_as(p))}
        for name in names
    }
    if here != chosen_of:
        exact = [f" --only {name}:{size}:{kind}" for name in names for size, kind in sorted(here[name])]
        return "".join(exact)
    which = [f" --only {name}" for name in names] if len(names) < len(there) else []
    is_whole = all(here[name] == there[name] for name in names)
    chosen = [] if is_whole else [f" --precision {kind}" for kind in PRECISIONS if kind in precisions]
    return "".join((*which, *chosen))


def _budget(run: Run, profile: Profile) -> str:
    """The option, where the usual time of so many launches is not the right one."""
    lost, measured = _lost_and_measured(run)
    had_s, usual_s = run.summary.budget_s, profile.budget_of(run.summary.replicates)
    if not lost:
        return "" if had_s == usual_s else f" --budget {math.ceil(had_s)}"
    needed_s = had_s * (lost + measured) / max(measured, 1)
    rounded_s = math.ceil(needed_s / _ROUNDED_TO_S) * _ROUNDED_TO_S
    return f" --budget {rounded_s}" if measured and (rounded_s < usual_s or had_s >= usual_s) else ""


def _lost_and_measured(run: Run) -> tuple[int, int]:
    """How many cases had too little time, and how many had enough."""
    lost = sum(case.outcome == "skipped" and needs_budget(case) for case in run.cases)
    return lost, sum(case.outcome == "ok" for case in run.cases)


def _earlier(run: RunSummary, stored: Collection[RunSummary]) -> RunSummary | None:
    """The newest finished run before it of the same profile; of recordings, of the same label, if any."""
    alike = [
        other
        for other in stored
        if (other.profile, other.profile_version, other.status)
        == (run.profile, run.profile_version, "finished")
        and other.started_utc_us < run.started_utc_us
        and (run.profile != RECORD_PROFILE or (run.label and other.label == run.label))
    ]
    return max(alike, key=lambda other: other.started_utc_us, default=None)
