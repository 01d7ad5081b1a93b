"""What the doctor sees of a healthy box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from builders import H200, make_interpreter, make_machine
from monitor_samples import sample

from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, Value
from gputui.services.doctor.checks import (
    SystemState,
)

QUIET: Mapping[str, Value] = {
    "sm_busy_pct": 0,
    "throttle_bits": 0,
    "pcie_width": 16,
    "ecc_uncorrected_count": 0,
}


GIB = 1 << 30


def make_box(gpus: int = 1, **changes: object) -> SystemState:
    """A healthy box with idle GPUs."""
    machine = make_machine(*["NVIDIA H200"] * gpus)
    machine = replace(machine, memory=replace(machine.memory, shm_bytes=8 * GIB))
    idle = dict.fromkeys(range(gpus), QUIET) | {HOST: {"load_1min": 0.1}}
    box = SystemState(
        machine=machine,
        sample=sample(gpus, processes=0, changes=idle),
        user="ann",
        interpreter=make_interpreter(*[H200] * gpus),
        found_as="this Python",
        passed_over=(),
        settings={},
    )
    return replace(box, **changes)  # type: ignore[arg-type]


def limited(vendor: str = "nvidia", **changes: float | Missing) -> SystemState:
    """A box whose GPU has this power limit."""
    machine = make_machine("NVIDIA H200")
    known = {"power_default_limit_w": 700.0, **changes}
    gpu = replace(machine.gpus[0], vendor=vendor, **known)  # type: ignore[arg-type]
    return make_box(machine=replace(machine, gpus=(gpu,)))
