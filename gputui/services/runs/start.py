"""From a user's request to runs that can be started: shared by the command line and the screens."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TypeVar

from gputui.errors import GputuiError, MachineLacks
from gputui.machine.describing import describe_machine
from gputui.machine.layers import storage_warning
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan, PlannedLaunch
from gputui.model.units import format_bytes
from gputui.recording.probing import ChosenInterpreter, executable_at
from gputui.recording.run_directory import Spec
from gputui.services.prices import STATED, check_instance, price_of
from gputui.services.profiles.interpreters import choose_interpreter
from gputui.services.profiles.loader import MAX_BLOCKS, MAX_BUDGET_S, MAX_REPLICATES, Profile, find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.profiles.torch_builds import check_gpu_is_used, unused_gpu
from gputui.services.profiles.user_workload import after_trial, is_step_file, profile_of_step
from gputui.services.runs.process import new_run_id, target_of, writable_target
from gputui.services.support.paths import hash_key
from gputui.store.reading import open_result
from gputui.store.selecting import are_one_box, check_label, known_by
from gputui.store.writing import check_writable
from gputui.worker import MIN_BLOCKS
from gputui.worker.failures import MORE_SHM
from gputui.worker.procs.multihost import address_of

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


T = TypeVar("T")
N = TypeVar("N", int, float)
_SHOWN = 40
"""How much of a wrong value an error shows."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `gputui run`."""

    profile: str = "quick"
    """A name, a .toml file, or a workload in a .py file; empty if another run defines what is measured."""
    db: Path | None = None
    """None for the default result file."""
    pythons: tuple[str, ...] = ()
    """Interpreters, one run each; empty for the first that has torch."""
    choices: Choices = field(default_factory=Choices)
    label: str = ""
    machine: str = ""
    """What the user calls this box; empty to know it by what it is."""
    price: float | None = None
    """USD per hour for the whole machine."""
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Runs that can be started."""

    specs: tuple[Spec, ...]
    target: Path
    """The result file, absolute; it can be written."""
    machine: Machine
    warnings: tuple[str, ...]
    """That the file would be lost with the machine, and what the runs will meet on it."""
    profile: Profile
    """What the last run measures."""


def prepare(
    options: RunOptions,
    *,
    on_probe: Callable[[str], None] = lambda path: None,
    on_planned: Callable[[Plan, ChosenInterpreter, Path], None] = lambda plan, chosen, target: None,
    profile_of: Callable[[Profile | None, Machine, ChosenInterpreter], Profile] | None = None,
) -> Prepared:
    """Check the request and plan one run per interpreter; starts nothing.

    Blocks while interpreters are probed and steps of a user's own workload are tried, up to a minute each;
    calls `on_probe` before, with what it checks. `profile_of` supplies
    what is measured if it is not the requested profile. Raises GputuiError for the first thing that is wrong.
    """
    check_label(options.label)
    is_shipped = bool(options.profile) and not is_step_file(options.profile)
    shipped = find_profile(options.profile) if is_shipped else None
    target = writable_target(options.db)
    machine = describe_machine(name=options.machine, hash_key=hash_key())
    if options.instance is not None and options.price is None:
        check_instance(options.instance, machine)
    price = price_of(options.price, options.instance, machine)
    if options.choices.rendezvous:
        _check_rendezvous(options.choices.rendezvous)
    specs = []
    profiles = []
    met: list[str] = []
    for stated in options.pythons or (None,):
        chosen = choose_interpreter(stated, on_probe=on_probe)
        profile = shipped
        if options.profile and profile is None:
            profile = profile_of_step(Path(options.profile), chosen.interpreter.executable)
        if profile_of is not None:
            profile = profile_of(profile, machine, chosen)
        if profile is None:
            raise ValueError("a run needs a profile, or a run to repeat")
        profiles.append(profile)
        plan = resolve_plan(profile, chosen.interpreter, machine, options.choices)
        check_something_runs(profile, plan, chosen, machine)
        if profile.own is not None and options.choices.budget_s is None:
            on_probe(f"how long a step of {Path(profile.own.file).name} takes")
            plan, said = after_trial(plan)
            met += said
        met += (*unanswered(profile, plan), *cautions(plan, chosen.interpreter, machine))
        on_planned(plan, chosen, target)
        runtime = chosen.interpreter.runtime
        specs.append(
            Spec(new_run_id(), plan, runtime, options.label, price, options.machine, hash_key(), str(target))
        )
    lost = storage_warning(target, machine.layers)
    warnings = (*([lost] if lost else []), *dict.fromkeys(met))
    return Prepared(tuple(specs), target, machine, warnings, profiles[-1])


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


def check_something_runs(profile: Profile, plan: Plan, chosen: ChosenInterpreter, machine: Machine) -> None:
    """Raise MachineLacks if no case of the plan can run here, or none on the GPU of this box because torch
    cannot use it, with what would help."""
    version = chosen.interpreter.runtime.torch_version
    if not plan.launches and isinstance(version, Missing) and profile.cases:
        unused = unused_gpu(chosen.interpreter, machine)
        command = unused.command if unused is not None and unused.command else "pip install torch"
        raise MachineLacks(
            f"profile {profile.name} needs torch: {version.reason} in {chosen.interpreter.executable}"
            + "".join(f"; {found}" for found in chosen.passed_over),
            f"name an interpreter that has it: --python ~/envs/torch/bin/python; or install it: {command}",
        )
    check_gpu_is_used(plan, chosen.interpreter, machine)
    if plan.launches:
        return
    reasons = dict.fromkeys(c.reason for c in plan.cases if c.reason)
    raise MachineLacks(
        f"profile {profile.name}: nothing can run here: {'; '.join(reasons)}", "gputui profiles"
    )


def launches_from(text: str) -> int:
    """Parse a number of launches. Raises GputuiError unless it is from 1 to 100."""
    return _whole("--launches", text, 1, MAX_REPLICATES)


def blocks_from(text: str) -> int:
    """Parse a number of blocks. Raises GputuiError unless it is from 5 to 10000."""
    return _whole("--blocks", text, MIN_BLOCKS, MAX_BLOCKS)


def _whole(option: str, text: str, least: int, most: int) -> int:
    hint = f"a whole number from {least} to {most}"
    return _number(option, text, int, hint, "a whole number", least, most)


def budget_from(text: str) -> float:
    """Parse a time in seconds. Raises GputuiError unless it is from 1 to those of a day."""
    hint = f"seconds from 1 to {MAX_BUDGET_S}, such as 300"
    return _number("--budget", text, float, hint, least=1, most=MAX_BUDGET_S)


def price_from(text: str) -> float:
    """Parse a price; `price_of` checks whether it is plausible. Raises GputuiError."""
    return _number("--price", text, float, "USD per hour for the whole box, such as 2.49")


def _number(
    option: str,
    text: str,
    kind: type[N],
    hint: str,
    what: str = "a number",
    least: float | None = None,
    most: float | None = None,
) -> N:
    try:
        number = kind(text)
    except ValueError:
        raise GputuiError(f"{option}: {text[:_SHOWN]!r} is not {what}", hint) from None
    if least is not None and most is not None and not least <= number <= most:
        raise GputuiError(f"{option}: {text[:_SHOWN].strip()} is not in the range {least} to {most}", hint)
    return number


def rendezvous_from(text: str) -> str:
    """Parse an address. Raises GputuiError unless it is `ADDRESS:PORT`."""
    try:
        address_of(text)
    except ValueError:
        raise GputuiError(
            f"--rendezvous: {text[:_SHOWN]!r} is not ADDRESS:PORT",
            "an address of this box that the other hosts can reach, and a free port: 10.0.0.1:29400",
        ) from None
    return text


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


def command_line(options: RunOptions) -> str:
    """The shell command that does the same as the options of a form."""
    return shlex.join(["gputui", "run", options.profile, *option_words(options)])


def option_words(options: RunOptions) -> list[str]:
    """What was filled into a form, as options of a command line."""
    choices = options.choices
    stated = {
        "db": options.db,
        "python": options.pythons,
        "device": choices.device,
        "only": choices.only,
        "precision": choices.precisions,
        "launches": choices.replicates,
        "budget": None if choices.budget_s is None else f"{choices.budget_s:g}",
        "label": options.label,
        "price": options.price,
    }
    return list(words_of(stated))


def words_of(options: Mapping[str, object]) -> Iterator[str]:
    """Options by name as words of a command line; None, False and empty texts are left out."""
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, Sequence) and not isinstance(value, str) else (value,):
            if one is True:
                yield option
            elif one is not None and one is not False and one != "":
                text = str(one)
                yield from (f"{option}={text}",) if text.startswith("-") else (option, text)


@dataclass(frozen=True, slots=True)
class Draft:
    """The same options as text that is still being typed."""

    profile: str = "quick"
    device: str = ""
    only: str = ""
    """Separated by spaces or commas."""
    precision: str = ""
    """Separated like `only`."""
    launches: str = ""
    budget: str = ""
    python: str = ""
    """Separated by spaces, quoted as in a shell."""
    hosts: str = ""
    """Other boxes that measure in place of this one, separated like `only`."""
    label: str = ""
    price: str = ""
    file: str = ""


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Draft))
Wrong = dict[str, GputuiError]
"""Errors by the field of the draft."""


def read_draft(draft: Draft) -> tuple[RunOptions, Wrong]:
    """Parse a draft; returns the errors too. Fast: touches no device and no file."""
    wrong: Wrong = {}
    launches, budget, price = (text.strip() for text in (draft.launches, draft.budget, draft.price))
    try:
        pythons = tuple(shlex.split(draft.python))
    except ValueError as error:
        pythons = ()
        wrong["python"] = GputuiError(f"--python {draft.python}: {error}", "close the quote")
    _noted(wrong, "label", lambda: check_label(draft.label))
    options = RunOptions(
        profile=draft.profile,
        db=Path(draft.file.strip()) if draft.file.strip() else None,
        pythons=pythons,
        choices=Choices(
            device=draft.device.strip(),
            only=_several(draft.only),
            precisions=_several(draft.precision),
            replicates=_noted(wrong, "launches", lambda: launches_from(launches) if launches else None),
            budget_s=_noted(wrong, "budget", lambda: budget_from(budget) if budget else None),
            seed=secrets.randbelow(2**31),
        ),
        label=draft.label,
        price=_noted(wrong, "price", lambda: price_from(price) if price else None),
    )
    return options, wrong


def _several(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """The result of checking a draft."""

    draft: Draft
    wrong: Wrong = field(default_factory=dict)
    """By field; `profile` for what no other field could fix."""
    plans: tuple[Plan, ...] = ()
    """One per interpreter; empty if none could be made."""
    profile: Profile | None = None
    chosen: tuple[ChosenInterpreter, ...] = ()
    machine: Machine | None = None


class DraftChecker:
    """Checks drafts as they are typed, caching what does not change. For one thread.

    Uses the same functions as `prepare`.
    """

    def __init__(self, machine: Machine | None = None, chosen: ChosenInterpreter | None = None) -> None:
        """The box, and the interpreter if none is stated; None to look for them."""
        self._machine = machine
        self._chosen = {} if chosen is None else {"": chosen}

    def check(
        self, draft: Draft, editing: str = "", on_probe: Callable[[str], None] = lambda path: None
    ) -> CheckedDraft:
        """All errors of a draft, and its plans.

        An interpreter is executed, and a file opened, only while their field is not being edited: half a path
        may be another program. Blocks while an interpreter is probed, up to a minute.
        """
        options, wrong = read_draft(draft)
        if self._machine is None:
            self._machine = describe_machine(hash_key=hash_key())
        machine = self._machine
        if "price" not in wrong:
            _noted(wrong, "price", lambda: price_of(options.price, None, machine))
        if options.db is not None and editing != "file":
            _noted(wrong, "file", lambda: check_writable(target_of(options.db)))
        stated = options.pythons or (None,)
        for named in options.pythons:
            _noted(wrong, "python", partial(executable_at, named))
        if "python" in wrong or (editing == "python" and any(p not in self._chosen for p in options.pythons)):
            return CheckedDraft(draft, wrong, machine=machine)
        plans: list[Plan] = []
        found: list[ChosenInterpreter] = []
        profile: Profile | None = None
        for python in stated:
            try:
                chosen = self._chosen.get(python or "") or choose_interpreter(python, on_probe=on_probe)
                self._chosen[python or ""] = chosen
            except GputuiError as error:
                wrong["python"] = error
                continue
            found.append(chosen)
            try:
                if is_step_file(options.profile):
                    profile = profile_of_step(Path(options.profile), chosen.interpreter.executable)
                else:
                    profile = find_profile(options.profile)
                plan = resolve_plan(profile, chosen.interpreter, machine, options.choices)
                plans.append(plan)
                check_something_runs(profile, plan, chosen, machine)
            except GputuiError as error:
                alone = {} if profile is None else _wrong_alone(profile, chosen, machine, options.choices)
                wrong = {**alone, _field_of(error, options.choices): error, **wrong}
        return CheckedDraft(draft, wrong, tuple(plans), profile, tuple(found), machine)

    def forget(self) -> None:
        """Probe everything again: something was installed, or plugged in."""
        self._machine = None
        self._chosen.clear()


def _noted(wrong: Wrong, name: str, check: Callable[[], T]) -> T | None:
    """What it returns; None if it raises an error, which is noted."""
    try:
        return check()
    except GputuiError as error:
        wrong.setdefault(name, error)
    return None


def _wrong_alone(profile: Profile, chosen: ChosenInterpreter, machine: Machine, choices: Choices) -> Wrong:
    """Errors of each choice by itself: a plan stops at the first."""
    wrong: Wrong = {}
    for name, alone in (
        ("device", Choices(device=choices.device)),
        ("only", Choices(only=choices.only)),
        ("precision", Choices(precisions=choices.precisions)),
    ):
        if alone != Choices():
            _noted(wrong, name, partial(resolve_plan, profile, chosen.interpreter, machine, alone))
    return wrong


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
