"""Checks whether this machine can measure and is healthy, with a line for each thing that matters."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.document.spans import ranges
from gputui.errors import GputuiError, clean_text
from gputui.machine.describing import describe_machine
from gputui.machine.gpus import gpu_settings
from gputui.machine.layers import storage_warning
from gputui.machine.tree import Tree
from gputui.metrics import number, with_unit
from gputui.model.absent import Missing, known
from gputui.model.machine import Gpu, Interpreter, Layer, Machine, TorchDevice
from gputui.model.telemetry import LiveSample
from gputui.model.units import counted, format_bytes, three_digits
from gputui.services.doctor.disturbances import (
    Check,
    State,
    gpu_checks,
    in_the_way,
    load_checks,
    other_runs,
    power_limit_checks,
)
from gputui.services.profiles.interpreters import choose_interpreter, help_for, unused_gpu
from gputui.services.runs.start import LEAST_SHM_BYTES
from gputui.services.snapshot import current_user, take_snapshot
from gputui.services.support.paths import default_result_file, hash_key, missing_home, run_directories
from gputui.sources.nvml_calls import BLOCKED, NO_PERMISSION, NO_POWER, VERSIONS_DIFFER, Values, nvml_reason
from gputui.store.opening import expanded
from gputui.store.reading import open_result
from gputui.worker.failures import MORE_SHM
from gputui.worker.variables import VARIABLES, falsifies, set_in

LEAST_FREE_BYTES = 1 << 30
"""Journals of a long run with telemetry reach hundreds of MB."""
QUICK_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "kvm")
"""Clock sources read without a system call; any other costs microseconds per read."""
BUILT_FOR_IT = "name a Python with a torch built for this box (--python EXE), or install one:"


@dataclass(frozen=True, slots=True)
class SystemState:
    """The input of all checks, gathered once."""

    machine: Machine
    sample: LiveSample
    user: str
    """The current user; empty if unknown."""
    interpreter: Interpreter | GputuiError | None
    """None if it was not asked for."""
    found_as: str
    """Where the interpreter was found: `this Python`, `--python`."""
    passed_over: tuple[str, ...]
    """Earlier candidates with torch, each with what it lacks."""
    settings: Mapping[int, Values]
    """By GPU of NVIDIA's, of what the driver was asked beside its readings."""
    elsewhere: tuple[Check, ...] = ()
    """What was found of the environment, the clocks, the identity, other runs and the files."""


def judged(box: SystemState) -> tuple[Check, ...]:
    """The results of all CHECKS, in order, and what was found elsewhere."""
    return (*(check for check_of in CHECKS for check in check_of(box)), *box.elsewhere)


def gathered(
    *,
    python: str | None = None,
    db: Path | None = None,
    on_step: Callable[[str], None] = lambda what: None,
    asks_torch: bool = True,
) -> SystemState:
    """Look at this machine; takes a second, and longer if torch has to be probed first.

    `on_step` gets the name of each step; without `asks_torch` no torch is looked for. Leaves nothing behind:
    an empty temporary file tests whether a directory can be written. Raises GputuiError if the stated Python
    is unusable.
    """
    on_step("the driver and the host")
    sample = take_snapshot(processes=True)
    machine = describe_machine(hash_key=hash_key(makes=False))
    interpreter: Interpreter | GputuiError | None = None
    found_as, passed_over = "", tuple[str, ...]()
    if asks_torch:
        on_step("Python and torch")
        try:
            chosen = choose_interpreter(python)
            interpreter, found_as, passed_over = chosen, chosen.found_as, chosen.passed_over
        except GputuiError as error:
            if python is not None:
                raise
            interpreter = error
    on_step("files")
    result_file = expanded(default_result_file() if db is None else db).absolute()
    return SystemState(
        machine=machine,
        sample=sample,
        user=current_user(),
        interpreter=interpreter,
        found_as=found_as,
        passed_over=passed_over,
        settings=gpu_settings(
            [
                gpu.device
                for gpu in sample.gpus
                if gpu.problem is None and gpu.source == "nvml" and gpu.parent is None
            ]
        ),
        elsewhere=(
            *variable_checks(set_in(os.environ)),
            *clock_checks(Tree(Path("/"), os.environ)),
            *identity_checks(machine),
            *other_runs(),
            *file_checks(result_file, run_directories(), machine.layers, missing_home()),
        ),
    )


# The checks

_BROKEN_DRIVER = (
    (VERSIONS_DIFFER, "restart the box; a container, with the driver's libraries of its host"),
    (NO_PERMISSION, "join the group that owns /dev/nvidia*; start a container with --gpus all"),
    (NO_POWER, "connect them, or tell the provider"),
    (BLOCKED, "see dmesg; restart the box, or take another"),
)
"""Answers of the driver where there is a GPU that nothing can use, and what to do about each."""


def _driver(box: SystemState) -> Iterator[Check]:
    machine = box.machine
    if not machine.gpus:
        step = "CPU cases run without a GPU; on a GPU box, make its driver visible here"
        why = machine.gpus_absent
        broken = next((step for code, step in _BROKEN_DRIVER if why.startswith(nvml_reason(code))), "")
        state: State = "problem" if broken else "note"
        yield Check("driver", state, f"no GPU found: {why}", broken or step)
        return
    names = dict.fromkeys(gpu.name for gpu in machine.gpus)
    counted = ", ".join(f"{sum(g.name == name for g in machine.gpus)}x {name}" for name in names)
    driver, cuda = (known(one) or "unknown" for one in (machine.driver_version, machine.cuda_driver_version))
    is_nvidia = any(gpu.vendor == "nvidia" for gpu in machine.gpus)
    versions = f"{driver}, CUDA up to {cuda}" if is_nvidia else f"amdgpu {driver}"
    yield Check("driver", "ok", f"{versions}: {counted}")


def _torch(box: SystemState) -> Iterator[Check]:
    yield from _chosen_torch(box)
    for found in box.passed_over:
        step = "to measure that one, update it; or name another: --python EXE"
        yield Check("torch", "note", f"passed over: {found}", step)


def _chosen_torch(box: SystemState) -> Iterator[Check]:
    if box.interpreter is None:
        return
    if isinstance(box.interpreter, GputuiError):
        yield Check("torch", "problem", box.interpreter.message, box.interpreter.hint)
        return
    runtime = box.interpreter.runtime
    unused = unused_gpu(box.interpreter, box.machine)
    if isinstance(runtime.torch_version, Missing):
        step = "name a Python that has torch: --python EXE; record, and commands in profiles, need none"
        found = f"Python {runtime.python_version} ({box.found_as}): {runtime.torch_version.reason}"
        command = "" if unused is None else unused.command
        yield Check("torch", "problem", found, f"{step}; or install it:" if command else step, command)
        return
    found = f"{runtime.torch_version}, Python {runtime.python_version} ({box.found_as})"
    gpus = [d for d in box.interpreter.devices if d.torch_device != "cpu"]
    if unused is not None and not gpus:
        step = BUILT_FOR_IT if unused.command else unused.step or "this shows why:"
        state: State = "note" if unused.is_wanted else "problem"
        yield Check("torch", state, f"{found} sees no GPU: {unused.why}", step, unused.command or unused.look)
        return
    yield Check("torch", "ok", found)
    for device in gpus:
        yield _torch_device(device, box.interpreter, box.machine)


def _torch_device(device: TorchDevice, interpreter: Interpreter, machine: Machine) -> Check:
    topic = f"torch {device.torch_device}:{device.index}"
    if not device.runs_here:
        step, command = help_for(device, interpreter, machine)
        return Check(topic, "problem", f"{device.name}: {device.why_not}", step or BUILT_FOR_IT, command)
    capability = f", compute capability {device.compute_capability}" if device.compute_capability else ""
    becomes = "no native bf16: amp becomes fp16" if device.compute_capability else "no bf16: amp becomes fp32"
    halves = "bf16" if device.bf16 else becomes
    return Check(topic, "ok", f"{device.name}{capability}, {halves}")


def variable_checks(variables: Mapping[str, str]) -> Iterator[Check]:
    """Of environment variables that are set and change arithmetic or launching."""
    for name, value in variables.items():
        found = f"{name}={value}: {VARIABLES[name][0]}"
        if falsifies(name):
            step = "gputui's own workloads run without it, your steps and programs with it"
            yield Check("variable", "note", found, step, f"unset {name}")
        else:
            yield Check("variable", "ok", found)


def _gpus(box: SystemState) -> Iterator[Check]:
    for gpu in box.sample.gpus:
        found = list(gpu_checks([gpu], box.sample, box.user))
        yield from found
        is_well = gpu.problem is None and not any(check.topic == f"GPU {gpu.label}" for check in found)
        if is_well and gpu.parent is None:
            celsius, lanes = number(gpu.values, "temperature_c"), number(gpu.values, "pcie_width")
            parts = (
                "" if celsius is None else with_unit(celsius, "°C"),
                "" if lanes is None else f"PCIe x{lanes:.0f}",
                "not slowed, no memory errors" if "ecc_uncorrected_count" in gpu.values else "not slowed",
            )
            yield Check(f"GPU {gpu.label}", "ok", ", ".join(filter(None, parts)))


def _gpu_settings(box: SystemState) -> Iterator[Check]:
    yield from power_limit_checks(box.machine, [gpu.index for gpu in box.machine.gpus])
    for sample in box.sample.gpus:
        partitions = number(sample.values, "partition_count") or 1
        if partitions > 1:
            found = (
                f"divided into {partitions:.0f} partitions, which share what is read of power, clock and heat"
            )
            yield Check(f"GPU {sample.label} partitions", "note", found)
    for gpu in box.machine.gpus:
        if gpu.ecc_enabled is False:
            found = "memory is not checked for errors (ECC is off)"
            yield Check(f"GPU {gpu.index} memory", "note", found)
        if gpu.mig_enabled is True:
            yield _mig(gpu, box.sample)
    for index, values in box.settings.items():
        yield from _settings_of(index, values)


def _mig(gpu: Gpu, sample: LiveSample) -> Check:
    topic, instances = f"GPU {gpu.index} MIG", [each for each in sample.gpus if each.parent == gpu.index]
    if not instances:
        found = f"{gpu.name}: MIG is on, but no instance is visible: nothing can run on it"
        return Check(
            topic, "note", found, "make instances, or end MIG:", f"sudo nvidia-smi -i {gpu.index} -mig 0"
        )
    names = ", ".join(f"{each.label} {clean_text(each.mig_profile)}".rstrip() for each in instances)
    return Check(topic, "note", f"{gpu.name} is divided into instances ({names}): each is measured by itself")


def _settings_of(index: int, values: Values) -> Iterator[Check]:
    set_mhz, default_mhz = (number(values, f"sm_clock_{one}_mhz") for one in ("set", "default"))
    up, down = (number(values, f"nvlinks_{one}") for one in ("up", "down"))
    of = f"sudo nvidia-smi -i {index}"
    if number(values, "is_prohibited"):
        yield Check(f"GPU {index} mode", "problem", "no program may use it", "to allow that:", f"{of} -c 0")
    if number(values, "retired_pages_pending"):
        found = "a bad page of its memory is left out when the GPU is reset"
        yield Check(
            f"GPU {index} memory",
            "problem",
            found,
            "end what runs on it, and:",
            f"sudo nvidia-smi --gpu-reset -i {index}",
        )
    if set_mhz and default_mhz and set_mhz < default_mhz:
        found = f"clock set to {set_mhz:.0f} of {default_mhz:.0f} MHz"
        yield Check(f"GPU {index} clock", "note", found, "to set it back:", f"{of} -rac")
    if up and down:
        found = f"{down:.0f} of {up + down:.0f} NVLink connections are down"
        step = "restart the box; if they stay down, tell the provider, or take another"
        yield Check(f"GPU {index} NVLink", "problem", found, step)


def _cpus(box: SystemState) -> Iterator[Check]:
    cpu = box.machine.cpu
    if cpu.usable_threads < cpu.host_threads:
        found = f"{three_digits(cpu.usable_threads)} of {cpu.host_threads} threads, set by {cpu.limited_by}"
        yield Check("CPU", "note", f"{found}: the CPU is measured with these only", "")
    else:
        cores = counted(cpu.usable_cores, "core")
        yield Check("CPU", "ok", f"{cores}, {cpu.host_threads} threads, no limit")
    yield from load_checks(box.machine, box.sample)


def _memory(box: SystemState) -> Iterator[Check]:
    memory = box.machine.memory
    found = f"{format_bytes(memory.usable_bytes)} of {format_bytes(memory.host_bytes)}"
    if memory.usable_bytes < memory.host_bytes:
        yield Check("memory", "note", f"{found}, set by {memory.limited_by}")
    else:
        yield Check("memory", "ok", format_bytes(memory.usable_bytes))
    shm = memory.shm_bytes
    if isinstance(shm, Missing):
        yield Check("/dev/shm", "unknown", shm.reason)
    elif shm < LEAST_SHM_BYTES:
        yield Check(
            "/dev/shm", "note", f"{format_bytes(shm)}: loader workers may die of a bus error", MORE_SHM
        )
    else:
        yield Check("/dev/shm", "ok", format_bytes(shm))


def clock_checks(tree: Tree) -> Iterator[Check]:
    source = tree.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if isinstance(source, Missing):
        yield Check("clock", "unknown", source.reason)
    elif source in QUICK_CLOCKS:
        yield Check("clock", "ok", source)
    else:
        yield Check("clock", "note", f"{source} needs a system call to read: very short steps look longer")
    if tree.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") == "powersave":
        found = "governor powersave: the clock rises late, so speeds of the CPU vary"
        yield Check("CPU clock", "note", found, "", "sudo cpupower frequency-set -g performance")


def file_checks(
    result_file: Path, runs: Path, layers: tuple[Layer, ...], instead_of_home: str
) -> Iterator[Check]:
    """Whether the result file and the directory of runs can be read and written, and have room.

    Permissions alone are not enough: /proc has them, and so have many network file systems. `instead_of_home`
    says where files go if this user has no home that can be written; else it is empty.
    """
    refused = _why_unwritable(result_file.parent)
    # do not open a file that is open already: closing it would drop the lock that DuckDB has on it
    if not refused and _is_seen(result_file) and not os.access(result_file, os.W_OK):
        refused = "no permission to write"
    if (error := _file_error(result_file)) is not None:
        yield Check("result file", "problem", error.message, error.hint)
    elif refused:
        step = "choose another with --db, or set $GPUTUI_DB"
        yield Check("result file", "problem", f"{result_file}: {refused}", step)
    else:
        warning = storage_warning(result_file, layers)
        yield Check("result file", "note" if warning else "ok", warning or str(result_file))
    if instead_of_home:
        yield Check("home", "note", instead_of_home)
    if refused := _why_unwritable(runs):
        found = f"{runs}: {refused}: no run can start"
        yield Check("run directories", "problem", found, "set $GPUTUI_STATE to a directory you can write to")
    for what, place in (("result file", result_file.parent), ("run directories", runs)):
        try:
            free = shutil.disk_usage(_first_there(place)).free
        except OSError as error:
            yield Check("disk", "unknown", f"{what}: {error.strerror or 'cannot be asked'}")
            continue
        if free < LEAST_FREE_BYTES:
            found = f"{format_bytes(free)} free for the {what}"
            step = "free some space, or a run ends early and keeps what is finished"
            yield Check("disk", "note", found, step)


def _is_seen(path: Path) -> bool:
    """Unlike `Path.exists`, false below a directory that this user cannot enter."""
    return os.access(path, os.F_OK)


def _first_there(place: Path) -> Path:
    """The directory itself, or its nearest existing ancestor."""
    return next(one for one in (place, *place.parents) if _is_seen(one))


def _why_unwritable(directory: Path) -> str:
    """Why no file can be made in it, with the system's reason; empty if one can."""
    first = _first_there(directory)
    try:
        tempfile.TemporaryFile(dir=first).close()
    except OSError as error:
        return f"cannot create a file in {first}: {error.strerror}"
    return ""


def _file_error(path: Path) -> GputuiError | None:
    """Why a result file cannot be read, if it exists."""
    try:
        if path.exists():
            with open_result(path) as opened:
                opened.summaries()
    except GputuiError as error:
        return error
    except OSError as error:
        return GputuiError(f"{path}: {error.strerror}", "choose another with --db")
    return None


def identity_checks(machine: Machine) -> Iterator[Check]:
    known_by = {
        "stated": "the name you gave it",
        "product-uuid": "the UUID of its firmware",
        "machine-id": "its machine-id",
        "gpus": "its GPUs",
    }
    found = next((known_by[one.kind] for one in machine.identities if one.kind in known_by), "")
    if found:
        yield Check("identity", "ok", f"recognized by {found}")
    elif not machine.is_sure:
        found = "no fixed id: after a reboot, or in another container or account, it is seen as a new box"
        yield Check("identity", "note", found, "name it: gputui run --machine NAME, or set GPUTUI_MACHINE")


CHECKS: tuple[Callable[[SystemState], Iterator[Check]], ...] = (
    _driver,
    _gpus,
    _gpu_settings,
    _torch,
    _cpus,
    _memory,
)
"""To add a check of the machine or its GPUs, write a function and add its name here."""


GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("GPUs", ("GPU", "torch cuda", "torch mps", "torch xpu")),
    ("software", ("driver", "torch", "variable")),
    ("results", ("result file", "run directories", "home", "disk")),
    ("host", ("",)),
)
"""Names, and how the topics begin that belong to each; the first that fits counts."""


def worst_first(checks: Collection[Check]) -> list[Check]:
    """Faults, cautions, what is unknown, and what is ok, each in the order of CHECKS; for people.

    What is wrong with several GPUs alike stands there once, as of `GPUs 0-7`, with one command for all.
    """
    alike: dict[Check, list[str]] = {}
    for check in checks:
        gpu = re.match(r"GPU (\d+)(?= |$)", check.topic)
        if gpu is None or check.state == "ok":
            alike.setdefault(check, [])
        else:
            topic = check.topic.replace(gpu[1], "{}", 1)
            command = check.command.replace(f"-i {gpu[1]}", "-i {}")
            alike.setdefault(replace(check, topic=topic, command=command), []).append(gpu[1])
    folded = [_of_all(check, gpus) for check, gpus in alike.items()]
    return sorted(folded, key=lambda check: STATES.index(check.state))


def _of_all(check: Check, gpus: Sequence[str]) -> Check:
    """A check of these GPUs, whose numbers stand as `{}`; itself where there is none."""
    if not gpus:
        return check
    which = f"{'s' * (len(gpus) > 1)} {', '.join(ranges(map(int, gpus)))}"
    command = check.command.replace("-i {}", f"-i {','.join(gpus)}")
    return replace(check, topic=check.topic.replace(" {}", which), command=command)


def group_of(topic: str) -> str:
    """The name of the group to which a topic belongs."""
    return next(name for name, beginnings in GROUPS if topic.startswith(beginnings))


STATES: tuple[State, ...] = ("problem", "note", "unknown", "ok")
"""The worst first."""


def readiness(checks: Sequence[Check], gpus: Collection[int]) -> str:
    """`Ready to measure on 7 of 8 GPUs. 1 fault, 2 cautions.`; `gpus` are the indexes of those seen."""
    faults = [check for check in checks if check.state == "problem"]
    told = Counter(check.state for check in worst_first(checks))
    words: tuple[tuple[State, str], ...] = (("problem", "fault"), ("note", "caution"))
    counts = [counted(told[state], word) for state, word in words if told[state]]
    count = f"{', '.join(counts)}." if counts else "Nothing is wrong."
    torch = next((check for check in faults if check.topic == "torch"), None)
    if any(check.topic in ("result file", "run directories") for check in faults):
        return f"Not ready to measure: results cannot be stored. {count}"
    if torch is not None:
        why = "torch sees no GPU" if " sees no GPU" in torch.found else "no usable torch"
        return f"Not ready to measure: {why}. {count}"
    failed = {
        index
        for index in gpus
        for check in faults
        if f"{check.topic} ".startswith((f"GPU {index} ", f"torch cuda:{index} "))
    }
    ready = len(gpus) - len(failed)
    if not gpus:
        where = "the CPU; no GPU found"
    elif any(check.topic == "torch" and " sees no GPU" in check.found for check in checks):
        where = "the CPU; the GPU is hidden"
    elif not ready:
        where = "the CPU only"
    elif failed:
        where = f"{ready} of {len(gpus)} GPUs"
    else:
        where = f"all {ready} GPUs" if ready > 1 else "the GPU"
    if (now := in_the_way(checks, of_cpu=where.startswith("the CPU"))) is not None:
        what = "another gputui run is going" if now.topic == "another run" else f"other programs use {where}"
        return f"Not now: {what}. {count}"
    return f"Ready to measure on {where}. {count}"
