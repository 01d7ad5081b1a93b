"""Boxes of H200s for `gputui check`: what a short run of each GPU would have measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cuda_standin import RATES
from hand_made import make_run, measured, steady
from journals import GPU_MACHINE

from gputui.model.absent import Missing
from gputui.model.machine import Gpu, Machine
from gputui.model.plan import Case, Variant
from gputui.services.check import Measured
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import case_of
from gputui.store.reading import CaseConditions
from gputui.worker.workloads import workload_named

CASES = [
    case_of(workload_named(entry.workload), size, Variant("gpu", precision, "eager", "host"))
    for entry in find_profile("check").cases
    for size in entry.sizes
    for precision in entry.precisions
    if "gpu" in entry.devices
]
"""Of the profile `check`."""


def kind_of(case: Case) -> str:
    """As RATES calls it: `amp`, `fp32`, `copy`, `h2d`, `d2h`."""
    if case.work.workload == "gemm":
        return case.variant.precision
    return case.work.size[-3:] if case.work.workload == "xfer" else "copy"


def box_of(gpus: int, **changes: object) -> Machine:
    """A machine with so many H200s, of which the first is changed."""
    each = [replace(GPU_MACHINE.gpus[0], index=index) for index in range(gpus)]
    first: Gpu = replace(each[0], **changes)  # type: ignore[arg-type]
    return replace(GPU_MACHINE, gpus=(first, *each[1:]))


def measured_gpu(
    machine: Machine,
    index: int,
    factors: Mapping[str, float] | None = None,
    *,
    clock_mhz: float = 1980.0,
    slowed_share: float = 0.0,
) -> Measured:
    """One GPU, whose rates are those of a sound H200 times the factor of their kind."""
    results = []
    for number, case in enumerate(CASES):
        kind = kind_of(case)
        step_s = case.units_per_step / RATES[kind] / (factors or {}).get(kind, 1.0)
        used = "amp-bf16" if kind == "amp" else ""
        result = measured(case, steady(step_s), precision_used=used)
        results.append(replace(result, case_id=number, device_index=index))
    conditions = CaseConditions(
        0, 20, clock_mhz, clock_mhz, slowed_share, 0.0, Missing("too few samples"), Missing("no processes")
    )
    return Measured(make_run(*results, machine=machine), {0: conditions})


def measured_box(machine: Machine, factors: Mapping[int, Mapping[str, float]]) -> Sequence[Measured]:
    """All GPUs of a box, some with factors."""
    return [measured_gpu(machine, gpu.index, factors.get(gpu.index)) for gpu in machine.gpus]
