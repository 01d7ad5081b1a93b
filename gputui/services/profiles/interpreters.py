"""Which Python to measure with, why its torch uses no GPU of a box, and which of torch's builds would."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: the JSON of a probe

from gputui.errors import MachineLacks
from gputui.model.absent import Missing, known
from gputui.model.machine import Gpu, Interpreter, Machine, Runtime, TorchDevice
from gputui.model.plan import Plan
from gputui.recording.probing import (
    NAMELESS,
    PROBE_TIMEOUT_S,
    chosen_interpreter,
    interpreter_from_plain,
    probe_interpreter,
)
from gputui.services.support.paths import make_directory, probe_cache
from gputui.worker.accelerator import VISIBILITY
from gputui.worker.foreign_json import read_json_file
from gputui.worker.probe import OLDEST_TORCH


def choose_interpreter(
    stated: str | None,
    environ: Mapping[str, str] = os.environ,
    *,
    timeout_s: float = PROBE_TIMEOUT_S,
    on_probe: Callable[[str], None] = lambda path: None,
) -> Interpreter:
    """The stated interpreter, or the first whose torch can measure; if there is none, the one gputui runs in.

    `on_probe` gets the path before an interpreter is probed, since importing torch can take a minute. Raises
    MachineLacks if the stated one, or its torch, is too old, and GputuiError if it cannot measure, or does
    not answer in `timeout_s` seconds.
    """
    return chosen_interpreter(stated, environ, lambda path: _probe_cached(path, timeout_s, on_probe))


def _probe_cached(path: str, timeout_s: float, on_probe: Callable[[str], None]) -> dict[str, Any]:
    """Probe, or return the cached result if nothing has changed.

    A result is valid for one boot, driver, set of MIG instances, interpreter file, torch and set of visible
    devices.
    """
    cached = probe_cache() / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"
    try:
        known: dict[str, Any] = read_json_file(cached)
        answer: dict[str, Any] = known["answer"]
        if known["state"] == _state(path, answer):
            interpreter_from_plain(answer)
            return answer
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache, or written by another version: probe again
    on_probe(path)
    answer = probe_interpreter([path], timeout_s)
    if "torch_file" in answer:
        try:
            make_directory(cached.parent)
            scratch = cached.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps({"state": _state(path, answer), "answer": answer}))
            scratch.replace(cached)
        except OSError:
            pass  # an unwritable cache only costs time
    return answer


def _state(path: str, answer: Mapping[str, Any]) -> list[Any]:
    """Everything a result depends on. Raises OSError or KeyError if a file is gone."""
    boot, driver = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/driver/nvidia/version")
    return [
        *(file.read_text() if file.exists() else "" for file in (boot, driver)),
        Path(path).stat().st_mtime_ns,
        Path(answer["torch_file"]).stat().st_mtime_ns,
        [os.environ.get(name) for name in (*VISIBILITY, "PYTHONPATH")],
        sorted(map(str, Path("/proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*/ci*"))),
        list(OLDEST_TORCH),
    ]


_INDEX = "https://download.pytorch.org/whl"


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """A build of torch, the newest release that has it, and what it runs on."""

    cuda: str
    torch: str
    least_driver: int
    """Branch of NVIDIA's driver: any of CUDA's major version runs all of its minor ones."""
    least_capability: tuple[int, int]
    most_capability: tuple[int, int]
    """Compute capabilities of the oldest and newest GPUs for which it has kernels."""
    newest_python: tuple[int, int]
    source: str

    @property
    def words(self) -> str:
        """What pip installs it from.

        The label behind `+` makes pip replace another build of this release, and keeps PyPI's out. PyPI is
        asked as well because PyTorch's index does not always have what torch depends on (pytorch#172926).
        """
        label = f"cu{self.cuda.replace('.', '')}"
        return f"torch=={self.torch}+{label} --extra-index-url {_INDEX}/{label}"


_DRIVERS = "docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
BUILDS = (
    TorchBuild(
        "13.0", "2.13.0", 580, (7, 5), (12, 9), (3, 14), f"{_DRIVERS}; pytorch#187075; pytorch#182849"
    ),
    TorchBuild("12.6", "2.13.0", 525, (5, 0), (9, 9), (3, 14), f"{_DRIVERS}; pytorch#187075; pytorch#182849"),
    TorchBuild(
        "12.8", "2.11.0", 525, (7, 5), (12, 9), (3, 14), f"{_DRIVERS}; pytorch#175253; pytorch#178665"
    ),
    TorchBuild("11.8", "2.7.1", 450, (5, 0), (9, 9), (3, 13), f"{_DRIVERS}; pytorch#147383; pytorch#95648"),
)
"""The best first. Drivers are from NVIDIA's table; releases, kernels and Pythons from PyTorch's matrices."""
ROCM = f"torch==2.13.0+rocm7.2 --index-url {_INDEX}/rocm7.2"
"""For AMD GPUs (pytorch#187075). Only that index: PyPI may have other packages under the names it needs."""


def build_for(driver: int | None, capability: tuple[int, int] | None) -> TorchBuild | None:
    """The best build for a branch of the driver and a compute capability; what is unknown fits."""
    fitting = (
        build
        for build in BUILDS
        if (driver is None or driver >= build.least_driver)
        and (capability is None or build.least_capability <= capability <= build.most_capability)
    )
    return next(fitting, None)


@dataclass(frozen=True, slots=True)
class UnusedGpu:
    """A GPU of the box that torch cannot use, and what helps."""

    reason: str
    """A whole sentence, with torch and the GPU."""
    why: str
    """The same without them."""
    step: str
    """What helps, in words; empty if `command` is all."""
    command: str = ""
    """The pip line for this box, whole; empty if another build does not help."""
    look: str = ""
    """A command, whole, that shows why torch does not see it; empty if that is known."""
    is_wanted: bool = False

    @property
    def hint(self) -> str:
        """What helps; a command comes last, so that it can be copied."""
        steps = ["to measure the CPU: --device cpu", *([self.step] if self.step else [])]
        steps += [f"to use the GPU: {self.command}"] if self.command else []
        return "; ".join([*steps, *([f"to see why: {self.look}"] if self.look else [])])


def unused_gpu(interpreter: Interpreter, machine: Machine) -> UnusedGpu | None:
    """The first GPU of a box if torch can use none of them; None if it can use one, or the box has none."""
    gpus = [device for device in interpreter.devices if device.torch_device != "cpu"]
    if any(device.runs_here for device in gpus):
        return None
    nvidia = _of_nvidia(machine)
    name, is_amd, capability = "an AMD GPU", not nvidia, ""
    if gpus:
        name, is_amd = gpus[0].name, False
    elif nvidia:
        name, capability = nvidia[0].name, known(nvidia[0].compute_capability) or ""
    elif not interpreter.amd_gpus:
        return None
    hidden_by = interpreter.hidden_by
    if hidden_by and (is_amd or hidden_by.startswith("CUDA")):
        why = f"{hidden_by} hides it"
        step = f"to measure it: unset {hidden_by}"
        return UnusedGpu(f"{hidden_by} hides {name} from torch", why, step, is_wanted=True)
    runtime = interpreter.runtime
    why = gpus[0].why_not if gpus else _why_unseen(runtime, machine)
    step, command, look = "", f"{_pip(interpreter)} {ROCM}", ""
    if not why:
        why, command = "CUDA_VISIBLE_DEVICES, or the container, may hide it", ""
        look = f"{shlex.quote(interpreter.executable)} -c 'import torch; torch.cuda.init()'"
        if is_amd:
            why = "its user may lack the groups render and video, or HIP_VISIBLE_DEVICES hides it"
        elif (interpreter.first_gpu or 0) >= len(nvidia):
            why = f"CUDA_VISIBLE_DEVICES begins with {interpreter.first_gpu}, which no GPU of this box has"
            step, look = "to use the GPU: unset CUDA_VISIBLE_DEVICES", ""
    elif gpus:
        step, command = help_for(gpus[0], interpreter, machine)
    elif not is_amd:
        step, command = install_for(interpreter, machine, capability)
    if isinstance(runtime.torch_version, Missing):
        reason = f"{name} is idle: {why}"
    else:
        reason = f"torch {runtime.torch_version} cannot use {name}: {why}"
    return UnusedGpu(reason, why, step, command, look)


def _why_unseen(runtime: Runtime, machine: Machine) -> str:
    """What the build of torch has to do with it; empty if it should see the GPU."""
    if isinstance(runtime.torch_version, Missing):
        return runtime.torch_version.reason
    if isinstance(runtime.torch_hip, str):
        return "it is a build for ROCm" if _of_nvidia(machine) else ""
    if isinstance(runtime.torch_cuda, Missing):
        return f"it is a build without {'CUDA' if _of_nvidia(machine) else 'ROCm'}"
    if not _of_nvidia(machine):
        return "it is a build for CUDA"
    newest = known(machine.cuda_driver_version)
    if newest and _number(runtime.torch_cuda) > _number(newest):
        driver = _driver(machine) or "the driver"
        return f"it was built for CUDA {runtime.torch_cuda}, {driver} goes up to {newest}"
    return ""


def check_gpu_is_used(plan: Plan, interpreter: Interpreter, machine: Machine) -> None:
    """Raise MachineLacks if cases of this plan are left out because torch cannot use the GPU of this box.

    The rest would look like an answer, and be one about the CPU. A GPU that the user hid is none.
    """
    unused = unused_gpu(interpreter, machine)
    if unused is None or unused.is_wanted:
        return
    if any(case.reason == unused.reason for case in plan.cases):
        raise MachineLacks(unused.reason, unused.hint)


def help_for(device: TorchDevice, interpreter: Interpreter, machine: Machine) -> tuple[str, str]:
    """What to do in words, or else the pip line, about a GPU that torch sees and cannot use."""
    if device.why_not == NAMELESS:
        return "name it yourself, as nvidia-smi -L does: CUDA_VISIBLE_DEVICES=MIG-... gputui run", ""
    return install_for(interpreter, machine, device.compute_capability)


def install_for(interpreter: Interpreter, machine: Machine, capability: str) -> tuple[str, str]:
    """What to do in words, or else the pip line, for this driver and a GPU of this compute capability."""
    build = build_for(_branch(machine), _pair(capability))
    if build is None:
        driver = _driver(machine) or "this driver"
        on = f" on compute capability {capability}" if capability else ""
        return f"no torch that can be measured runs with {driver}{on}: install a newer driver", ""
    python = _pair(interpreter.runtime.python_version)
    if python is not None and python > build.newest_python:
        newest = ".".join(map(str, build.newest_python))
        return f"that build needs Python {newest} or older: name one with --python", ""
    return "", f"{_pip(interpreter)} {build.words}"


def _of_nvidia(machine: Machine) -> list[Gpu]:
    return [gpu for gpu in machine.gpus if gpu.vendor == "nvidia"]


def _pip(interpreter: Interpreter) -> str:
    return f"{shlex.quote(interpreter.executable)} -m pip install"


def _branch(machine: Machine) -> int | None:
    """The branch of NVIDIA's driver, 535 of 535.54.03; the oldest of its CUDA if it is unknown."""
    if branch := _number(known(machine.driver_version) or ""):
        return branch
    major = _number(known(machine.cuda_driver_version) or "")
    fitting = (build.least_driver for build in BUILDS if _number(build.cuda) <= major)
    return max(fitting, default=0) if major else None


def _number(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _driver(machine: Machine) -> str:
    version = known(machine.driver_version)
    return f"driver {version}" if version else ""


def _pair(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
