"""A user's workload: read by the interpreter that will measure it, and turned into a profile."""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # Any: JSON

from gputui.errors import GputuiError
from gputui.model.plan import Plan
from gputui.model.units import format_seconds, format_whole_seconds
from gputui.recording.probing import describe_step, try_steps
from gputui.services.profiles.loader import Profile, ProfileCase, can_be_profiled, find_profile
from gputui.worker.contract import Request, Size, Step, Workload
from gputui.worker.failures import IN_LOG

PASSES, SECONDS_PER_CASE = 3, 30.0
"""For steps that take up to half a second."""
SPARE = 1.2
"""Times what a trial says: other processes may come."""
MOST_S = 600.0
"""The longest run that is made of a user's workload unasked, if one pass fits into it."""


def is_step_file(name: str) -> bool:
    """Whether the argument names a workload file rather than a profile."""
    return name.endswith(".py")


def profile_named(name: str, python: str) -> Profile:
    """A shipped profile, one of a TOML file, or that of a user's workload, which `python` reads."""
    return profile_of_step(Path(name), python) if is_step_file(name) else find_profile(name)


def profile_of_step(path: Path, python: str) -> Profile:
    """The profile that measures every size, device and precision of a user's workload.

    `python` reads the file. Raises GputuiError if there is none, or it violates the contract: with the file,
    the line, and what was expected.
    """
    if not path.is_file():
        raise GputuiError(f"{path} does not exist", f"gputui new-workload {path} writes one that runs")
    path = path.absolute()
    return profile_as_described(describe_step((python,), path), path)


def profile_as_described(plain: dict[str, Any], path: Path) -> Profile:
    """The profile of a workload as an interpreter has described it. Raises GputuiError if it could not."""
    if "error" in plain:
        raise GputuiError(plain["error"], "compare it with what `gputui new-workload FILE` writes")
    sizes = {name: Size(**size) for name, size in plain["sizes"].items()}
    workload = Workload(
        name=plain["name"],
        version=plain["version"],
        title=plain["title"],
        question=plain["question"],
        workload_class=plain["workload_class"],
        unit=plain["unit"],
        sizes=sizes,
        precisions=tuple(plain["precisions"]),
        device_classes=tuple(plain["device_classes"]),
        needs_torch=plain["needs_torch"],
        build=_only_in_a_worker,
        is_alone=bool(plain["is_alone"]),
    )
    case = ProfileCase(
        workload=workload.name,
        sizes=tuple(sizes),
        devices=workload.device_classes,
        precisions=workload.precisions,
        threads=("all",),
        weight=1.0,
        is_profiled=can_be_profiled(workload),
    )
    cases = len(sizes) * len(workload.device_classes) * len(workload.precisions)
    return Profile(
        name=path.stem,
        version=workload.version,
        title=workload.title,
        question=workload.question,
        budget_s=SECONDS_PER_CASE * cases,
        replicates=PASSES,
        cases=(case,),
        own=workload,
        own_file=str(path),
    )


def after_trial(plan: Plan) -> tuple[Plan, list[str]]:
    """The plan of a user's workload without the cases whose first steps fail, and with the budget that the
    steps of the others need; and what to say of both.

    Passes beyond the first are given up rather than that it takes longer than MOST_S.
    """
    failed: dict[int, tuple[str, str]] = {}
    trial = try_steps(plan, failed)
    said = [  # `my_step.py line 7: ValueError: too short`: where, and the last line of the log
        f"{plan.cases[case_id].case.name} failed when it was tried: "
        + f"{reason.partition(IN_LOG)[0].rpartition(': ')[0]}: {message}".lstrip(": ")
        for case_id, (reason, message) in failed.items()
    ]
    plan = _without(plan, {case_id: reason.partition(IN_LOG)[0] for case_id, (reason, _) in failed.items()})
    step_s, passes_s = trial or (0.0, 0.0)
    budget_s = math.ceil(SPARE * max(min(passes_s, MOST_S), passes_s / plan.replicates))
    if budget_s <= plan.budget_s:
        return plan, said
    step, budget = format_seconds(step_s), format_whole_seconds(budget_s)
    said.append(f"a step takes {step}: the run gets {budget}, or what --budget gives it")
    return replace(plan, budget_s=budget_s), said


def _without(plan: Plan, failed: Mapping[int, str]) -> Plan:
    """The plan where these cases have failed, by number and with the reason, and are not launched."""

    def kept(case_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(case_id for case_id in case_ids if case_id not in failed)

    return replace(
        plan,
        cases=tuple(
            replace(one, outcome="failed", reason=failed[one.case_id]) if one.case_id in failed else one
            for one in plan.cases
        ),
        launches=tuple(
            replace(launch, case_ids=kept(launch.case_ids), profiled=kept(launch.profiled))
            for launch in plan.launches
            if kept(launch.case_ids)
        ),
    )


def write_template(path: Path) -> None:
    """Write a commented workload that runs as it is. Raises GputuiError if the file exists."""
    if path.suffix != ".py":
        raise GputuiError(f"{path} is not a Python file name", f"name it {path.stem or 'my_step'}.py")
    text = (
        importlib.resources.files("gputui.services.profiles").joinpath("step_template.txt").read_text("utf-8")
    )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise GputuiError(
            f"{path} already exists and will not be overwritten", "choose another name"
        ) from error
    except OSError as error:
        raise GputuiError(f"{path} cannot be written ({error.strerror})", "choose another path") from error


def _only_in_a_worker(request: Request) -> Step:
    raise RuntimeError("a user's workload is built in the interpreter that measures it")
