"""Repeats the cases of a stored run: which can be, why others cannot, and what differs here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import Case
from gputui.model.result import Run
from gputui.services.compare.pairing import differences
from gputui.services.profiles.loader import (
    Profile,
    ProfileCase,
    ProfileCommand,
    can_be_profiled,
    shipped_profiles,
)
from gputui.services.profiles.planner import case_of
from gputui.services.results.labels import needs_budget
from gputui.services.results.selectors import split_selector
from gputui.store.reading import open_result
from gputui.store.selecting import find_run
from gputui.version import version
from gputui.worker import declared_as
from gputui.worker.contract import Workload
from gputui.worker.workloads import WORKLOADS

REPEATED = ("ok", "oom", "failed", "interrupted")
"""Outcomes of cases that were tried there; what it could not do there is not repeated."""


@dataclass(frozen=True, slots=True)
class RepeatedRun:
    """The run that is repeated."""

    text: str
    """As the user typed it."""
    run: Run
    profiled: frozenset[int]
    """Cases that had a profiled pass."""
    selector: str
    """`F@RUN` of this very run, as it can be typed."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """What is repeated of a run."""

    profile: Profile
    refused: tuple[tuple[str, str], ...]
    """Cases that this version cannot repeat, with the reason."""
    left_out: int
    """Cases that were not tried there either."""


def read_model(text: str) -> RepeatedRun:
    """The run that `F@RUN` names, or the newest of `F`.

    Raises GputuiError if the file cannot be read or the run is unknown.
    """
    path, selector = split_selector(text)
    with open_result(path) as file:
        summaries = file.summaries()
        if not summaries:
            raise GputuiError(f"--like {text}: no run in it", "gputui runs lists those of a file")
        found = find_run(summaries, selector or "latest")
        run, profiled = file.run(found.run_id), frozenset(file.profiled(found.run_id))
        return RepeatedRun(text, run, profiled, f"{path}@{found.short_id}")


def repetition_of(model: RepeatedRun, given: Profile | None = None) -> Repetition:
    """A profile that measures the same cases as often, within the same time.

    `given` holds the programs and the workload of the user's that the run had: result files hold neither.
    Raises GputuiError if nothing of the run can be repeated, with the reasons.
    """
    refused: list[tuple[str, str]] = []
    commands: list[ProfileCommand] = []
    groups: dict[tuple[str, ...], ProfileCase] = {}
    summary = model.run.summary
    weights = {  # how the profile divides the budget if it is a shipped one, otherwise equally
        case.workload: case.weight
        for profile in shipped_profiles()
        if (profile.name, profile.version) == (summary.profile, summary.profile_version)
        for case in profile.cases
    }
    tried = [case for case in model.run.cases if case.outcome in REPEATED or needs_budget(case)]
    for result in tried:
        case = result.case
        if case.is_program:
            command = _command(case, given)
            if isinstance(command, Missing):
                refused.append((case.name, command.reason))
            else:
                commands.append(command)
            continue
        workload = _workload(case, given)
        if isinstance(workload, Missing):
            refused.append((case.name, workload.reason))
            continue
        _add(groups, case, result.case_id in model.profiled and can_be_profiled(workload), weights)
    if not groups and not commands:
        why = "; ".join(f"{name}: {reason}" for name, reason in refused[:4]) or "it tried no case"
        raise GputuiError(
            f"--like {model.text}: nothing of run {summary.short_id} can be repeated: {why}",
            "gputui show lists its cases",
        )
    profile = Profile(
        name=summary.profile,
        version=summary.profile_version,
        title=summary.profile,
        question=f"How does this box do the cases of run {summary.short_id}?",
        budget_s=summary.budget_s,
        replicates=launches_per_case(model.run),
        cases=tuple(groups.values()),
        commands=tuple(commands),
        own=None if given is None else given.own,
        own_file="" if given is None else given.own_file,
        repeats=summary.short_id,
    )
    return Repetition(profile, tuple(refused), len(model.run.cases) - len(tried))


def launches_per_case(run: Run) -> int:
    """As many as a run that finished began of any case, which may be fewer than it had planned."""
    begun = max((len({m.replicate for m in case.measurements}) for case in run.cases), default=0)
    is_complete = run.summary.status == "finished" and begun > 0
    return min(begun, run.summary.replicates) if is_complete else run.summary.replicates


def differences_here(
    model: RepeatedRun, machine: Machine, runtime: Runtime
) -> tuple[tuple[str, str, str], ...]:
    """(what, there, here) for each recorded property that differs here."""
    there = model.run.summary
    here = replace(there, gputui_version=version(), machine=machine, runtime=runtime)
    return differences(there, here)


def _workload(case: Case, given: Profile | None) -> Workload | Missing:
    """The workload that declares this case's work as one of its sizes and supports its variant."""
    work, variant = case.work, case.variant
    known = {workload.name: workload for workload in WORKLOADS}
    if given is not None and given.own is not None:
        known[given.own.name] = given.own
    workload = known.get(work.workload)
    if workload is None:
        return Missing("is not a built-in workload: name the .py file that defines it as well")
    if workload.version != work.version:
        return Missing(f"is version {work.version} there and {workload.version} here: different work")
    if work.size not in workload.sizes:
        return Missing(f"there is no size {work.size} here, only {', '.join(workload.sizes)}")
    for value, allowed, what in (
        (variant.device_class, workload.device_classes, "device"),
        (declared_as(variant.precision), workload.precisions, "precision"),
        (variant.mode, workload.modes, "mode"),
    ):
        if value not in allowed:
            return Missing(f"cannot run with {what} {value} here, only {', '.join(allowed)}")
    if case_of(workload, work.size, variant).work.key == work.key:
        return workload
    theirs, ours = dict[str, object](work.parameters), dict[str, object](workload.sizes[work.size].parameters)
    told = [
        f"{name} {theirs.get(name, '—')} there, {ours.get(name, '—')} here"
        for name in {**theirs, **ours}
        if theirs.get(name) != ours.get(name)
    ]
    why = "; ".join(told) or "it is implemented differently"
    return Missing(f"its size {work.size} is different work here: {why}")


_OTHERS = {
    "record": "is a recording: repeat it with gputui record -- COMMAND",
    "serve": "is a load on a server: repeat it with gputui serve-bench URL",
}
"""What another command than `run` measures, by the first word of its name."""


def _command(case: Case, given: Profile | None) -> ProfileCommand | Missing:
    """The command of a profile that made this case."""
    if why := _OTHERS.get(case.work.workload.partition(":")[0]):
        return Missing(why)
    commands = () if given is None else given.commands
    command = next((one for one in commands if one.workload == case.work.workload), None)
    if command is None:
        return Missing("is a program, and result files hold no commands: give its profile.toml as well")
    if command.case.work.key != case.work.key or command.case.variant != case.variant:
        return Missing("differs in the given profile: version, pattern, unit, units or device")
    return command


def _add(
    groups: dict[tuple[str, ...], ProfileCase], case: Case, is_profiled: bool, weights: dict[str, float]
) -> None:
    """Group a case with those that differ only in precision, so that they share launches again."""
    work, variant = case.work, case.variant
    key = (work.workload, work.size, variant.device_class, variant.threads, variant.mode)
    known = groups.get(key)
    precisions: Collection[str] = () if known is None else known.precisions
    groups[key] = ProfileCase(
        workload=work.workload,
        sizes=(work.size,),
        devices=(variant.device_class,),
        precisions=tuple(dict.fromkeys((*precisions, variant.precision))),
        threads=(variant.threads,) if variant.device_class == "cpu" else ("all",),
        weight=weights.get(work.workload, 1.0),
        modes=(variant.mode,),
        is_profiled=is_profiled or (known is not None and known.is_profiled),
    )
