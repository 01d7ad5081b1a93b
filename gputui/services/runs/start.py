"""From a user's request to runs that can be started: shared by the command line and the screens."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gputui.errors import GputuiError, MachineLacks
from gputui.machine.describing import describe_machine
from gputui.machine.layers import storage_warning
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan, PlannedLaunch
from gputui.model.units import format_bytes
from gputui.recording.run_directory import Spec
from gputui.services.prices import STATED, check_instance, price_of
from gputui.services.profiles.interpreters import check_gpu_is_used, choose_interpreter, unused_gpu
from gputui.services.profiles.loader import Profile, find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.profiles.user_workload import after_trial, is_step_file, profile_named
from gputui.services.runs.options import Draft, RunOptions, Wrong, read_draft
from gputui.services.runs.process import new_run_id, target_of, writable_target
from gputui.services.support.paths import hash_key
from gputui.store.reading import open_result
from gputui.store.selecting import are_one_box, check_label, known_by
from gputui.store.writing import check_writable
from gputui.worker.failures import MORE_SHM
from gputui.worker.ranks import address_of

LEAST_SHM_BYTES = 1 << 30
"""Loader workers and NCCL pass data through /dev/shm; Docker gives 64 MiB, which kills them."""
_COLOURS = 3
_AHEAD = 2
"""Batches that torch's DataLoader keeps ready for each of its workers."""


def unanswered(profile: Profile, plan: Plan) -> Iterator[str]:
    """That a profile of ours which compares the CPU with the GPU in every case finds no GPU to measure."""
    on_gpu = [case.outcome for case in plan.cases if case.case.variant.device_class == "gpu"]
    is_asked = profile.own is None and bool(on_gpu)  # of a step of the user's the CPU's rate is an answer
    if is_asked and None not in on_gpu and all({"cpu", "gpu"} <= {*entry.devices} for entry in profile.cases):
        yield (
            f"not answered here, without a GPU: {profile.question} Only the CPU is measured. Run it on a box"
            " with a GPU; why this one has none: gputui doctor"
        )


def cautions(plan: Plan, interpreter: Interpreter, machine: Machine) -> Iterator[str]:
    """A GPU that the user hid, and a /dev/shm that is too small for cases of this plan."""
    unused = unused_gpu(interpreter, machine)
    if unused is not None and any(case.reason == unused.reason for case in plan.cases):
        yield f"{unused.reason}: its cases are left out"
    shm_bytes = machine.memory.shm_bytes
    if isinstance(shm_bytes, Missing):
        return
    too_large = {
        case_id
        for launch in plan.launches
        for case_id in launch.case_ids
        if _shm_needed_bytes(plan, launch, case_id) > shm_bytes
    }
    works = (plan.cases[case_id].case.work for case_id in sorted(too_large))
    names = dict.fromkeys(f"{work.workload}:{work.size}" for work in works)
    if names:
        yield f"/dev/shm has {format_bytes(shm_bytes)}, too little for {', '.join(names)}: {MORE_SHM}"


def _shm_needed_bytes(plan: Plan, launch: PlannedLaunch, case_id: int) -> int:
    """Of the batches in flight of a data loader; for several GPUs what NVIDIA advises to give NCCL."""
    if launch.device.device_class == "gpu" and "," in launch.device.visible:
        return LEAST_SHM_BYTES
    work = plan.cases[case_id].case.work
    if work.workload != "loader":
        return 0
    parameters = {
        name: int(value) for name, value in work.parameters if name in ("workers", "batch", "image")
    }
    batch_bytes = parameters["batch"] * parameters["image"] ** 2 * _COLOURS
    return parameters["workers"] * _AHEAD * batch_bytes


@dataclass(frozen=True, slots=True)
class Prepared:
    """Runs that can be started."""

    specs: tuple[Spec, ...]
    target: Path
    """The result file, absolute; it can be written."""
    machine: Machine
    warnings: tuple[str, ...]
    """That the file would be lost with the machine, and what the runs will meet on it."""


def prepare(
    options: RunOptions,
    *,
    on_probe: Callable[[str], None] = lambda path: None,
    on_planned: Callable[[Plan, Interpreter, Path], None] = lambda plan, chosen, target: None,
    profile_of: Callable[[Profile | None, Machine, Interpreter], Profile] | None = None,
) -> Prepared:
    """Check the request and plan one run per interpreter; starts nothing.

    Blocks while interpreters are probed and steps of a user's own workload are tried, up to a minute each;
    calls `on_probe` before, with what it checks. `profile_of` supplies
    what is measured if it is not the requested profile. Raises GputuiError for the first thing that is wrong.
    """
    check_label(options.label)
    if options.profile and not is_step_file(options.profile):
        find_profile(options.profile)  # before anything is probed
    target = writable_target(options.db)
    machine = describe_machine(name=options.machine, hash_key=hash_key())
    if options.instance is not None and options.price is None:
        check_instance(options.instance, machine)
    price = price_of(options.price, options.instance, machine)
    if options.rendezvous:
        _check_rendezvous(options.rendezvous)
    specs = []
    met: list[str] = []
    for stated in options.pythons or (None,):
        chosen = choose_interpreter(stated, on_probe=on_probe)
        python = chosen.executable
        profile = profile_named(options.profile, python) if options.profile else None
        if profile_of is not None:
            profile = profile_of(profile, machine, chosen)
        if profile is None:
            raise ValueError("a run needs a profile, or a run to repeat")
        plan = resolve_plan(profile, chosen, machine, options)
        check_something_runs(profile, plan, chosen, machine)
        if profile.own is not None and options.budget_s is None:
            on_probe(f"how long a step of {Path(profile.own_file).name} takes")
            plan, said = after_trial(plan)
            met += said
        met += (*unanswered(profile, plan), *cautions(plan, chosen, machine))
        on_planned(plan, chosen, target)
        runtime = chosen.runtime
        specs.append(
            Spec(new_run_id(), plan, runtime, options.label, price, options.machine, hash_key(), str(target))
        )
    lost = storage_warning(target, machine.layers)
    warnings = (*([lost] if lost else []), *dict.fromkeys(met))
    return Prepared(tuple(specs), target, machine, warnings)


def price_stated_before(target: Path, machine: Machine) -> tuple[Price, str] | None:
    """The newest price in the file that was stated for this box, and the short id of its run.

    Raises GputuiError if the file cannot be read.
    """
    if not target.exists():
        return None
    with open_result(target) as file:
        for run in file.summaries():
            price = run.price
            if isinstance(price, Missing) or price.kind != STATED:
                continue
            if are_one_box(known_by(run.machine), known_by(machine)):
                return price, run.short_id
    return None


def check_something_runs(profile: Profile, plan: Plan, chosen: Interpreter, machine: Machine) -> None:
    """Raise MachineLacks if no case of the plan can run here, or none on the GPU of this box because torch
    cannot use it, with what would help."""
    version = chosen.runtime.torch_version
    if not plan.launches and isinstance(version, Missing) and profile.cases:
        unused = unused_gpu(chosen, machine)
        command = unused.command if unused is not None and unused.command else "pip install torch"
        raise MachineLacks(
            f"profile {profile.name} needs torch: {version.reason} in {chosen.executable}"
            + "".join(f"; {found}" for found in chosen.passed_over),
            f"name an interpreter that has it: --python ~/envs/torch/bin/python; or install it: {command}",
        )
    check_gpu_is_used(plan, chosen, machine)
    if plan.launches:
        return
    reasons = dict.fromkeys(c.reason for c in plan.cases if c.reason)
    raise MachineLacks(
        f"profile {profile.name}: nothing can run here: {'; '.join(reasons)}", "gputui profiles"
    )


def _check_rendezvous(rendezvous: str) -> None:
    """Raise GputuiError if this host cannot listen there, and at the next port, which torchrun uses."""
    address, first = address_of(rendezvous)
    for port in (first, first + 1):
        try:
            socket.create_server((address, port)).close()
        except OSError as error:
            code = error.errno or 0  # negative for unknown names
            why = os.strerror(code) if code > 0 else error.strerror
            raise GputuiError(
                f"--rendezvous {rendezvous}: this box cannot listen at {address}:{port} ({why})",
                "use an address of this box that the other hosts can reach, and two free ports in a row",
            ) from error


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """The result of checking a draft."""

    draft: Draft
    wrong: Wrong = field(default_factory=dict)
    """By field; `profile` for what no other field could fix."""
    plans: tuple[Plan, ...] = ()
    """One per interpreter; empty if none could be made."""
    profile: Profile | None = None
    chosen: tuple[Interpreter, ...] = ()
    machine: Machine | None = None


class DraftChecker:
    """Checks drafts, caching what does not change. For one thread.

    Uses the same functions as `prepare`.
    """

    def __init__(self, machine: Machine | None = None, chosen: Interpreter | None = None) -> None:
        """The box, and the interpreter if none is stated; None to look for them."""
        self._machine = machine
        self._chosen = {} if chosen is None else {"": chosen}

    def check(self, draft: Draft) -> CheckedDraft:
        """The errors of a draft, and its plans. Blocks while an interpreter is probed, up to a minute."""
        options, wrong = read_draft(draft)
        machine = self._machine = self._machine or describe_machine(hash_key=hash_key())
        if "price" not in wrong:
            _noted(wrong, "price", lambda: price_of(options.price, None, machine))
        if options.db is not None:
            _noted(wrong, "db", lambda: check_writable(target_of(options.db)))
        plans: list[Plan] = []
        found: list[Interpreter] = []
        profile: Profile | None = None
        for python in options.pythons or (None,):
            try:
                chosen = self._chosen.get(python or "") or choose_interpreter(python)
            except GputuiError as error:
                wrong["python"] = error
                continue
            self._chosen[python or ""] = chosen
            found.append(chosen)
            try:
                profile = profile_named(options.profile, chosen.executable)
                plan = resolve_plan(profile, chosen, machine, options)
                plans.append(plan)
                check_something_runs(profile, plan, chosen, machine)
            except GputuiError as error:
                wrong = {_field_of(error, options): error, **wrong}
        return CheckedDraft(draft, wrong, tuple(plans), profile, tuple(found), machine)

    def forget(self) -> None:
        """Probe everything again: something was installed, or plugged in."""
        self._machine = None
        self._chosen.clear()


def _noted(wrong: Wrong, name: str, check: Callable[[], object]) -> None:
    """Note the error that it raises."""
    try:
        check()
    except GputuiError as error:
        wrong.setdefault(name, error)


def _field_of(error: GputuiError, choices: Choices) -> str:
    """The field that an error is about: its message begins with the option, or names one that was stated."""
    said = error.message
    named = (
        ("only", said.startswith("--only")),
        ("precision", said.startswith("--precision")),
        ("device", bool("--device" in said and choices.device) or "--device cpu" in error.hint),
        ("precision", bool("--precision" in said and choices.precisions)),
    )
    return next((name for name, is_named in named if is_named), "profile")


def reasons_of(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    """Why cases would not run here: each reason with the names of its cases, as `skipped: no GPU`."""
    reasons: dict[str, tuple[str, ...]] = {}
    for case in plan.cases:
        if case.outcome is not None:
            key = f"{case.outcome}: {case.reason}"
            reasons[key] = (*reasons.get(key, ()), case.case.name)
    return reasons
