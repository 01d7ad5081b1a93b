"""Makes a plan from a profile, an interpreter and a machine: what will run here, what will not, and why.

All decisions fall before anything is measured: whoever starts a run on a rented box first sees what it costs.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from gputui.errors import GputuiError, MachineLacks
from gputui.facts.tables import GpuFacts, find_gpu, peak_bandwidth, peak_for
from gputui.machine.gpus import gpu_addresses
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine, TorchDevice
from gputui.model.plan import (
    Case,
    Plan,
    PlannedCase,
    PlannedCommand,
    PlannedDevice,
    PlannedLaunch,
    Variant,
    Work,
)
from gputui.model.units import counted, format_seconds
from gputui.services.profiles.interpreters import unused_gpu
from gputui.services.profiles.loader import (
    Profile,
    ProfileCase,
    ProfileCommand,
    can_be_profiled,
    shipped_with,
)
from gputui.worker import MIN_BLOCKS, PRECISIONS, declared_as
from gputui.worker.accelerator import GRAPHS, why_not_alone
from gputui.worker.contract import Size, Workload
from gputui.worker.workloads import WORKLOADS

PASSES_IN_ORDER = 2
"""On a busy box a run may end in the second pass; what people come for then has two launches."""
CPU_SHARE = 0.3
"""Of the time of a run that measures a GPU: what its CPU cases may take at most."""
CORE_FLOP_PER_S = 1e11
"""Of a fast CPU core: AVX-512 in fp32. What takes too long at this rate takes too long on any CPU."""
SHARED_MEMORY_FRACTION = 0.5
"""Variants share a worker only if together they fit into this share of the free device memory."""


ALL = "all"
"""As the device: every GPU that torch sees, or the driver where no torch is needed."""
_MEASURE_CPU = "--device cpu measures the CPU"


@dataclass(frozen=True, slots=True)
class Choices:
    """How the user narrowed a run."""

    device: str = ""
    """Empty for all in the profile; else `cpu`, `gpu`, `gpu:N`, a GPU's UUID, or ALL: each GPU in turn."""
    only: tuple[str, ...] = ()
    """Each `WORKLOAD[:SIZE[:PRECISION]]`; empty for all."""
    precisions: tuple[str, ...] = ()
    """Of PRECISIONS; empty for all. Programs have none, and are left out if any is named."""
    replicates: int | None = None
    budget_s: float | None = None
    """None for the profile's, scaled with the launches per case."""
    most_blocks: int | None = None
    rendezvous: str = ""
    """`ADDRESS:PORT` on this host where other hosts connect; empty if there are none."""
    seed: int = 0
    keeps_traces: bool = False
    """Keep a Chrome trace of every case that can be profiled, and profile them all."""


class _Target(NamedTuple):
    """A device class of the profile on this machine: a device, or the reason there is none."""

    device: PlannedDevice | None
    torch_device: TorchDevice | None = None
    outcome: str = ""
    reason: str = ""


def resolve_plan(
    profile: Profile, interpreter: Interpreter, machine: Machine, choices: Choices = Choices()
) -> Plan:
    """The plan of one run.

    Raises MachineLacks if a requested device is missing, GputuiError for an invalid `device`, an `only` or a
    precision that the profile lacks, or if no case is left.
    """
    only = _meant(profile, choices.only)
    _check_precisions(profile, choices.precisions)
    classes = _device_classes(choices.device)
    replicates = choices.replicates or profile.replicates
    devices = [choices.device]
    if choices.device == ALL:
        seen = _gpus_of(interpreter) or machine.gpus
        devices = [f"gpu:{number}" for number in range(len(seen))] or [ALL]
    budget_s = choices.budget_s or profile.budget_of(replicates) * len(devices)
    made = _Cases(profile, interpreter, machine, choices, budget_s)
    for command in () if choices.precisions else profile.commands:
        if command.device in classes and (not only or any(o.workload == command.workload for o in only)):
            for device in devices:
                made.add_command(command, device)
    meant = [(entry, [one for one in only if one.workload == entry.workload]) for entry in profile.cases]
    entries = [(entry, named) for entry, named in meant if named or not only]
    targets = {
        c: [_target(c, device, interpreter, machine) for device in devices]
        for c in (classes if entries else ())
    }
    for entry, named in entries:
        sizes = entry.sizes
        if entry.is_ladder and not any(one.size for one in named):
            sizes = (_rung(entry, profile.workload_named(entry.workload), choices.device, interpreter),)
        for device_class, size in product([d for d in entry.devices if d in classes], sizes):
            if precisions := _precisions(entry, size, named, choices.precisions):
                made.add(entry, size, precisions, device_class, targets[device_class])
    if not made.cases:
        raise _nothing_asked(profile, choices)
    return Plan(
        profile=profile.name,
        profile_version=profile.version,
        seed=choices.seed,
        replicates=replicates,
        budget_s=budget_s,
        cases=tuple(made.cases),
        launches=_passes(made.cases, made.launches, replicates, choices.seed),
        most_blocks=choices.most_blocks or profile.most_blocks,
        rendezvous=choices.rendezvous,
        keeps_traces=choices.keeps_traces,
        interpreter=(interpreter.executable,),
        commands=tuple(made.commands),
        step_file=profile.own_file,
    )


def _nothing_asked(profile: Profile, choices: Choices) -> GputuiError:
    """That no case of a profile is left, with the options that leave none."""
    asked = [
        *([f"--device {choices.device}"] if choices.device else []),
        *(f"--only {name}" for name in choices.only),
        *(f"--precision {name}" for name in choices.precisions),
    ]
    options = " or ".join(dict.fromkeys(words.split()[0] for words in asked))
    return GputuiError(
        f"{profile.called}: has no case for {' '.join(asked)}",
        f"leave {options} out, or choose another profile",
    )


class _Cases:
    """The cases of a run, and the launches that measure each of them once."""

    def __init__(
        self,
        profile: Profile,
        interpreter: Interpreter,
        machine: Machine,
        choices: Choices,
        budget_s: float,
    ) -> None:
        self._profile, self._choices, self._budget_s = profile, choices, budget_s
        self._interpreter, self._machine = interpreter, machine
        self.cases: list[PlannedCase] = []
        self.launches: list[PlannedLaunch] = []
        self.commands: list[PlannedCommand] = []

    def add_command(self, command: ProfileCommand, device: str) -> None:
        """A program, which is launched if it can run here."""
        target = _command_target(command, device, self._interpreter, self._machine)
        case_id = len(self.cases)
        outcome = target.outcome if target.device is None else None
        self.cases.append(PlannedCase(case_id, command.case, outcome, target.reason))
        if target.device is not None:
            cores = self._machine.cpu.usable_cores
            self.launches.append(
                PlannedLaunch(0, 0, (case_id,), target.device, cores, command.weight, needs_torch=False)
            )
            self.commands.append(PlannedCommand(case_id, command.argv, command.pattern, _working_directory()))

    def add(
        self,
        entry: ProfileCase,
        size: str,
        precisions: Sequence[str],
        device_class: str,
        targets: Sequence[_Target],
    ) -> None:
        """One size of an entry in these precisions, on each device of a class."""
        workload = self._profile.workload_named(entry.workload)
        all_threads = entry.threads if device_class == "cpu" else ("host",)
        for threads, mode, target in product(all_threads, entry.modes, targets):
            here = precisions
            if target is not targets[0]:  # what cannot run is listed once
                can_run = [p for p in here if self._obstacle(workload, p, mode, target)[0] is None]
                here = can_run if workload.sizes[size].gpus == 1 else ()
            cases = [
                case_of(workload, size, Variant(device_class, precision, mode, threads)) for precision in here
            ]
            if cases:
                self._add_group(entry, workload, cases, target)

    def _add_group(
        self, entry: ProfileCase, workload: Workload, cases: Sequence[Case], target: _Target
    ) -> None:
        """Cases that differ in precision only: one worker measures them all if they fit into its memory."""
        variant, size = cases[0].variant, workload.sizes[cases[0].work.size]
        target = _with_more_gpus(target, size.gpus, self._interpreter)
        if size.hosts > 1 and not self._choices.rendezvous and target.device is not None:
            reason = f"{size.hosts} hosts are needed: see --rendezvous and gputui join"
            target = _Target(None, target.torch_device, "unsupported", reason)
        threads = 1 if variant.threads == "1" else self._machine.cpu.usable_cores
        to_run = []
        for case in cases:
            outcome, reason = self._obstacle(workload, case.variant.precision, variant.mode, target)
            if outcome is None and target.torch_device is None:
                outcome, reason = _out_of_time(case, threads, self._budget_s)
            note = _note(size, case, target) if outcome is None else ""
            planned = PlannedCase(len(self.cases), case, outcome, reason, note)
            self.cases.append(planned)
            to_run += [planned] if outcome is None else []
        if not to_run or target.device is None:
            return
        is_wanted = entry.is_profiled or self._choices.keeps_traces
        is_profiled = is_wanted and variant.mode == "eager" and can_be_profiled(workload)
        device = target.torch_device
        free_bytes = (
            self._machine.memory.usable_bytes
            if device is None
            else (device.free_bytes or device.memory_bytes)
        )
        fits = free_bytes is None or size.memory_bytes * len(to_run) <= SHARED_MEMORY_FRACTION * free_bytes
        for some in [to_run] if fits and not workload.is_alone else [[one] for one in to_run]:
            in_order = sorted(some, key=lambda one: declared_as(one.case.variant.precision) != "amp")
            launch = PlannedLaunch(
                launch_id=0,
                replicate=0,
                case_ids=tuple(one.case_id for one in some),
                device=target.device,
                threads=threads,
                weight=entry.weight * len(some),
                profiled=tuple(one.case_id for one in in_order if is_profiled),
                needs_torch=workload.needs_torch,
            )
            self.launches.append(launch)

    def _obstacle(
        self, workload: Workload, precision: str, mode: str, target: _Target
    ) -> tuple[str | None, str]:
        """Why a case will not be run, as (outcome, reason); (None, "") if it will."""
        if target.device is None:
            return target.outcome, target.reason
        runtime, device = self._interpreter.runtime, target.torch_device
        if workload.needs_torch and isinstance(runtime.torch_version, Missing):
            return "skipped", runtime.torch_version.reason
        if mode == "graph" and device is not None and device.torch_device not in GRAPHS:
            return "unsupported", f"torch captures no graphs on {device.torch_device}"
        if precision == "tf32":
            if device is None:
                return "unsupported", "TF32 is a mode of NVIDIA GPUs"
            too_old = not device.compute_capability or float(device.compute_capability) < 8.0
            if device.torch_device != "cuda" or too_old or isinstance(runtime.torch_hip, str):
                return "unsupported", f"{device.name} has no TF32: compute capability 8.0 is needed"
        return None, ""


def case_of(workload: Workload, size: str, variant: Variant) -> Case:
    """The case of a workload's declared size."""
    declared = workload.sizes[size]
    return Case(
        work=Work(
            workload.name, workload.version, size, workload.form, tuple(sorted(declared.parameters.items()))
        ),
        variant=variant,
        workload_class=workload.workload_class,
        unit=workload.unit,
        units_per_step=declared.units_per_step,
        flops_per_step=declared.flops_per_step,
        bytes_per_step=declared.bytes_in(variant.precision),
    )


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise GputuiError(
            f"the working directory is gone ({error.strerror})", "cd to one that exists"
        ) from error


def _command_target(
    command: ProfileCommand, asked: str, interpreter: Interpreter, machine: Machine
) -> _Target:
    """Where a program runs. It does not need torch: a GPU that only the driver knows suffices."""
    if shutil.which(command.argv[0]) is None:
        where = "is not an executable file" if "/" in command.argv[0] else "is not on the PATH"
        return _Target(None, None, "unsupported", f"{Path(command.argv[0]).name}: {where}")
    if command.device == "cpu":
        return _on_cpu(machine)
    found = _choose_gpu(_gpus_of(interpreter), asked)
    if found is not None:  # even if this torch has no kernels for it
        return _on_gpu(found, asked)
    device = _gpu_of_the_driver(asked, machine)
    if device is not None:
        return _Target(device)
    reason = "no such GPU in this box" if machine.gpus else f"no GPU: {machine.gpus_absent}"
    return _without_gpu(asked, reason, "leave --device out to measure what is here")


def _gpu_of_the_driver(asked: str, machine: Machine) -> PlannedDevice | None:
    """The requested GPU, or the first, among those that the driver lists."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    kind, _, number = asked.partition(":")
    if allowed == "" or kind in ("mps", "xpu"):
        return None
    addresses = {address.index: address for address in gpu_addresses()}
    if asked.startswith(("GPU-", "MIG-")):
        wanted = next((a.index for a in addresses.values() if asked in (a.uuid, *a.mig_uuids)), None)
        gpu = machine.gpu(wanted)
        return None if gpu is None else PlannedDevice("gpu", "cuda", gpu.name, asked, "")
    index = int(number or 0)
    if index >= len(machine.gpus):
        return None
    gpu = machine.gpus[index]
    address = addresses.get(gpu.index)
    if allowed is not None or address is None:  # counted among those that the user allowed
        return PlannedDevice("gpu", "cuda", gpu.name, str(index), "")
    return PlannedDevice("gpu", "cuda", gpu.name, address.uuid or str(index), address.pci_address)


class _Only(NamedTuple):
    """What one `--only` names."""

    workload: str
    size: str = ""
    precision: str = ""

    def holds(self, size: str, precision: str) -> bool:
        return self.size in ("", size) and self.precision in ("", precision)


def _meant(profile: Profile, only: Sequence[str]) -> list[_Only]:
    """What `WORKLOAD[:SIZE[:PRECISION]]` names, where the workload may be called by its title; of `step:NAME`
    and `command:NAME` the name is enough."""
    has = sorted({e.workload for e in profile.cases} | {c.workload for c in profile.commands})
    titles = {workload.name: workload.title for workload in WORKLOADS}
    found: list[_Only] = []
    for text in only:
        words = text.split(":")
        for count in range(len(words), max(len(words) - 3, 0), -1):
            name, rest = ":".join(words[:count]), words[count:]
            meant = [one for one in has if name in (one, one.rpartition(":")[2], titles.get(one))]
            if meant:
                found += [_narrowed(profile, text, workload, rest) for workload in meant]
                break
        else:
            name = next((name for name, title in titles.items() if words[0] in (name, title)), "")
            what = f"not in {profile.called}" if name else "not a workload"
            others = shipped_with(name) if name and not profile.repeats else ()
            there = f"; {', '.join(others)} would: gputui run {others[0]} --only {text}" if others else ""
            raise GputuiError(
                f"--only {text}: {what if text == words[0] else f'{words[0]} is {what}'}",
                f"{profile.called} has {', '.join(has)}{there}",
            )
    return found


def _narrowed(profile: Profile, text: str, workload: str, rest: Sequence[str]) -> _Only:
    """Raises GputuiError for a size or a precision that the profile does not measure of the workload."""
    entries = [entry for entry in profile.cases if entry.workload == workload]
    sizes = list(dict.fromkeys(size for entry in entries for size in entry.sizes))
    precisions = _may_be_asked(p for entry in entries for p in entry.precisions)
    for value, known, what in zip(rest, (sizes, precisions), ("size", "precision"), strict=False):
        if value and value not in known:
            listed = ", ".join(known) or "none"
            raise GputuiError(
                f"--only {text}: {value} is not a {what} of {workload} in {profile.called}",
                f"it has {listed}",
            )
    return _Only(workload, *rest)


def _may_be_asked(precisions: Iterable[str]) -> list[str]:
    """These, and where `amp` is among them also its types by name."""
    listed = list(dict.fromkeys(precisions))
    return listed + [p for p in PRECISIONS if p not in listed and declared_as(p) in listed]


def _precisions(
    entry: ProfileCase, size: str, meant: Sequence[_Only], asked: Sequence[str]
) -> tuple[str, ...]:
    """Those of an entry that `--only` and `--precision` leave; a type of `amp` only if they name it."""
    wanted = asked or (*entry.precisions, *(one.precision for one in meant))
    return tuple(
        p
        for p in _may_be_asked(entry.precisions)
        if p in wanted and (not meant or any(one.holds(size, p) for one in meant))
    )


def _check_precisions(profile: Profile, precisions: Sequence[str]) -> None:
    listed = _may_be_asked(p for entry in profile.cases for p in entry.precisions)
    has = [p for p in PRECISIONS if p in listed]
    for name in precisions:
        if name not in has:
            what = f"not in {profile.called}" if name in PRECISIONS else "not a precision"
            hint = (
                f"it has {', '.join(has)}" if has else "it has none: its programs choose their own precision"
            )
            raise GputuiError(f"--precision {name}: {what}", hint)


def _device_classes(device: str) -> tuple[str, ...]:
    if not device:
        return ("cpu", "gpu")
    if device == "cpu":
        return ("cpu",)
    if device == ALL or re.fullmatch(r"(gpu|cuda|mps|xpu)(:\d{1,3})?|(GPU|MIG)-[\w-]+", device):
        return ("gpu",)
    raise GputuiError(f"--device {device}: not a device", "cpu, gpu, gpu:N, the UUID of a GPU, or all")


def _target(device_class: str, asked: str, interpreter: Interpreter, machine: Machine) -> _Target:
    if device_class == "cpu":
        return _on_cpu(machine)
    gpus = _gpus_of(interpreter)
    chosen = _choose_gpu(gpus, asked)
    unused = unused_gpu(interpreter, machine)
    if chosen is None:
        if gpus:
            reason, hint = f"torch sees {counted(len(gpus), 'GPU')}, not this one", _MEASURE_CPU
        elif unused is not None:
            reason, hint = unused.reason, unused.hint
        else:
            reason, hint = f"no GPU: {machine.gpus_absent}", _MEASURE_CPU
        return _without_gpu(asked, reason, hint)
    if not chosen.runs_here:
        reason = f"{chosen.name}: {chosen.why_not}" if unused is None else unused.reason
        return _Target(None, chosen, "unsupported", reason)
    return _on_gpu(chosen, asked)


def _gpus_of(interpreter: Interpreter) -> list[TorchDevice]:
    """Those that torch sees."""
    return [device for device in interpreter.devices if device.torch_device != "cpu"]


def _on_cpu(machine: Machine) -> _Target:
    name = machine.cpu.model if isinstance(machine.cpu.model, str) else "CPU"
    return _Target(PlannedDevice("cpu", "cpu", name, "", ""))


def _without_gpu(asked: str, reason: str, hint: str) -> _Target:
    """Raises MachineLacks if a device was asked for."""
    if asked:
        raise MachineLacks(f"--device {asked}: {reason}", hint)
    return _Target(None, None, "skipped", reason)


def _choose_gpu(gpus: Sequence[TorchDevice], asked: str) -> TorchDevice | None:
    if asked.startswith(("GPU-", "MIG-")):
        return next((g for g in gpus if g.uuid == asked), None)
    kind, _, number = asked.partition(":")
    usable = [g for g in gpus if kind in ("", "gpu", g.torch_device)]
    if not number:  # any of them: the first that can run, if one can
        usable.sort(key=lambda gpu: not gpu.runs_here)
    index = int(number or 0)
    return usable[index] if index < len(usable) else None


def _on_gpu(chosen: TorchDevice, asked: str) -> _Target:
    """Raises MachineLacks for a GPU in whose place torch would take the first of its kind."""
    if why := why_not_alone(os.environ, chosen.torch_device, chosen.index):
        named = f"{chosen.name} is {chosen.torch_device} device {chosen.index}"
        raise MachineLacks(f"--device {asked}: {named}, and {why}", "show torch that one alone")
    visible = chosen.uuid or str(chosen.index)
    planned = PlannedDevice("gpu", chosen.torch_device, chosen.name, visible, chosen.pci_address)
    return _Target(planned, chosen)


def _with_more_gpus(target: _Target, needed: int, interpreter: Interpreter) -> _Target:
    """The target with as many GPUs as the work needs, the chosen one first; a CPU unchanged."""
    first = target.torch_device
    if needed == 1 or target.device is None or first is None:
        return target
    others = [d for d in interpreter.devices if d.torch_device == first.torch_device and d != first]
    chosen = [first, *(d for d in others if d.runs_here)][:needed]
    if len(chosen) < needed:
        return _Target(None, first, "unsupported", f"{needed} GPUs are needed, torch sees {len(chosen)}")
    visible = ",".join(d.uuid or str(d.index) for d in chosen)
    return target._replace(device=replace(target.device, visible=visible))


def _rung(entry: ProfileCase, workload: Workload, asked: str, interpreter: Interpreter) -> str:
    """The size that a ladder measures here, whichever devices are measured."""
    asked = "" if asked in ("cpu", ALL) else asked
    gpu = _choose_gpu(_gpus_of(interpreter), asked)
    if gpu is None:
        return entry.sizes[0]
    for size in entry.sizes[1:-1]:
        times = [times_s(workload.sizes[size], p, entry.modes[0], gpu) for p in entry.precisions]
        if all(not isinstance(pair, Missing) and pair[0] >= LEAST_RATIO * pair[1] for pair in times):
            return size
    return entry.sizes[-1]


def _out_of_time(case: Case, cores: int, budget_s: float) -> tuple[str | None, str]:
    """The outcome and reason of a case that no CPU of so many cores could time; (None, "") of others."""
    step_s = (case.flops_per_step or 0) / (CORE_FLOP_PER_S * cores)
    if step_s * MIN_BLOCKS <= CPU_SHARE * budget_s:
        return None, ""
    steps = f"{MIN_BLOCKS} steps of at least {format_seconds(step_s)} each"
    return "skipped", f"{steps} on {counted(cores, 'core')} do not fit into the budget"


def _note(size: Size, case: Case, target: _Target) -> str:
    """Whether the host will hold the GPU back, and what no GPU has run yet."""
    if target.torch_device is None:
        return ""
    notes = []
    times = times_s(size, case.variant.precision, case.variant.mode, target.torch_device)
    if not isinstance(times, Missing) and times[0] < LEAST_RATIO * times[1]:
        device, host = map(format_seconds, times)
        notes.append(f"may be host-bound: GPU {device}, host {host}")
    if case.variant.mode == "graph":
        notes.append("a CUDA graph, never seen on hardware")
    return "; ".join(notes)


def _passes(
    cases: Sequence[PlannedCase], groups: Sequence[PlannedLaunch], replicates: int, seed: int
) -> tuple[PlannedLaunch, ...]:
    """Every group once per pass: twice by importance, in case time runs out, then in new random orders.

    Each pass profiles one case of a group, and the last one those that are left.
    """
    groups = sorted(_balanced(groups), key=partial(_importance, cases))
    chance = random.Random(seed)
    launches: list[PlannedLaunch] = []
    for replicate in range(replicates):
        last = None if replicate + 1 == replicates else replicate + 1
        for group in chance.sample(groups, len(groups)) if replicate >= PASSES_IN_ORDER else groups:
            launches.append(
                replace(
                    group,
                    launch_id=len(launches),
                    replicate=replicate,
                    profiled=group.profiled[replicate:last],
                )
            )
    return tuple(launches)


def _balanced(groups: Sequence[PlannedLaunch]) -> list[PlannedLaunch]:
    """The groups with the weights of those on a CPU lowered where they would take more than their share."""
    weights = {"cpu": 0.0, "gpu": 0.0}
    for group in groups:
        weights[group.device.device_class] += group.weight
    most = weights["gpu"] * CPU_SHARE / (1 - CPU_SHARE)
    if not most or weights["cpu"] <= most:
        return list(groups)
    factors = {"cpu": most / weights["cpu"], "gpu": 1.0}
    return [replace(one, weight=one.weight * factors[one.device.device_class]) for one in groups]


_FIRST = ("gpt_train", "decode", "conv_train", "gemm", "membw")


def _importance(cases: Sequence[PlannedCase], launch: PlannedLaunch) -> tuple[bool, int, bool]:
    """Sorts launches: first what people come for."""
    case = cases[launch.case_ids[0]].case
    known = _FIRST.index(case.work.workload) if case.work.workload in _FIRST else len(_FIRST)
    is_on_gpu, is_one_thread = case.variant.device_class == "gpu", case.variant.threads == "1"
    return not is_on_gpu, known, is_one_thread


REACHED = 0.6
"""Of the data sheet's FLOP/s and bandwidth, what a step is taken to reach; few reach more."""
OPERATOR_S = 4.5e-6
"""Host time of an operator: 2.5 µs on one core of an EPYC (`tests/benchmarks/host_bound.py`), and a launch of
4 µs, which is assumed, for every second one."""
GRAPH_S = 30e-6
"""Host time of a replayed graph; assumed."""
LEAST_RATIO = 3.0
"""Of device time to host time; below it the host may hold the GPU back."""


def device_s(size: Size, precision_used: str, gpu: GpuFacts) -> float | Missing:
    """Seconds of a step at REACHED of the data sheet, by FLOPs or bytes, whichever take longer."""
    peak_per_s, bytes_per_s = peak_for(gpu, precision_used), peak_bandwidth(gpu)
    if isinstance(peak_per_s, Missing) or isinstance(bytes_per_s, Missing):
        return Missing(f"the data sheet of the {gpu.name} lacks a peak")
    precision = precision_used.partition("-")[0]
    traffic_bytes = size.amp_traffic_bytes * (1 if precision == "amp" else 2)
    needed_s = max(
        (size.flops_per_step or 0) / peak_per_s, (size.bytes_in(precision) or traffic_bytes) / bytes_per_s
    )
    return needed_s / REACHED if needed_s else Missing("neither its FLOPs nor its bytes are known")


def times_s(size: Size, precision: str, mode: str, device: TorchDevice) -> tuple[float, float] | Missing:
    """Seconds of the GPU and of the host in a step; `precision` is the one requested."""
    gpu = find_gpu(device.name, None if device.memory_bytes is None else device.memory_bytes / 2**30)
    if isinstance(gpu, Missing):
        return gpu
    if mode == "compile" or size.operators is None:
        return Missing("its operators are not counted")
    used = precision if precision != "amp" else "amp-bf16" if device.bf16 else "amp-fp16"
    needed_s = device_s(size, used, gpu)
    if isinstance(needed_s, Missing):
        return needed_s
    return needed_s, GRAPH_S if mode == "graph" else OPERATOR_S * size.operators
