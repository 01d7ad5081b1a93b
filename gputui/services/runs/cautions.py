"""What a plan will meet on this machine that its user should know before it starts."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan, PlannedLaunch
from gputui.model.units import format_bytes
from gputui.services.profiles.loader import Profile
from gputui.services.profiles.torch_builds import unused_gpu
from gputui.worker.failures import MORE_SHM

LEAST_SHM_BYTES = 1 << 30
"""Loader workers and NCCL pass data through /dev/shm; Docker gives 64 MiB, which kills them."""
_COLOURS = 3
_AHEAD = 2
"""Batches that torch's DataLoader keeps ready for each of its workers."""


def unanswered(profile: Profile, plan: Plan) -> Iterator[str]:
    """That a profile which compares the CPU with the GPU in every case finds no GPU to measure."""
    on_gpu = [case.outcome for case in plan.cases if case.case.variant.device_class == "gpu"]
    if on_gpu and None not in on_gpu and all({"cpu", "gpu"} <= {*entry.devices} for entry in profile.cases):
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
