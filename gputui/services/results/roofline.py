"""How much of a device a case used: its FLOP/s and B/s against the data sheet and this box's own peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.verdict import SpeedEstimate
from gputui.facts.tables import GpuFacts, expected, find_gpu, memory_gib_of, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.machine import Machine
from gputui.model.result import CaseResult
from gputui.model.units import format_percent
from gputui.services.results.host_bound import is_host_bound
from gputui.services.results.labels import plain_name
from gputui.services.results.throughput import devices_of, is_undecidable, speed_of

IMPOSSIBLE = 1.1
"""Times the data sheet's peak: clocks may go beyond the sheet's by a few percent, but not so far.

Where `plausible.csv` knows healthy GPUs of this kind that boost further, their limit takes its place.
"""
BOOST = " (boost)"
"""Follows a share above the whole: cards with power to spare clock higher than their data sheet."""
_BEYOND = 1.005
PEAK_TESTS = {"flop": "gemm", "B": "membw"}


@dataclass(frozen=True, slots=True)
class Use:
    """FLOPs or bytes of memory traffic per second, as the workload counts them."""

    unit: str
    """`flop` or `B`."""
    per_s: float
    of_sheet: float | Missing
    """Share of the data sheet's peak for the type it computed in: MFU, or MBU for bytes."""
    of_measured: float | Missing
    """Share of what `gemm` in that type, or `membw`, reached on the same device in the same runs."""
    impossible_above: float = IMPOSSIBLE
    """Times the data sheet's peak: more must be an error of measurement."""

    @property
    def is_impossible(self) -> bool:
        """Whether it exceeds the physical peak so far that the measurement must be wrong."""
        return not isinstance(self.of_sheet, Missing) and self.of_sheet > self.impossible_above


def peak_name(workload: str) -> str:
    """What a peak test measures: `matmul`, or the `memory` that it copies."""
    return plain_name(workload).removesuffix(" copy")


def share_of_sheet(uses: Sequence[Use]) -> float | None:
    """Of the data sheet's peaks of compute and memory, the larger share that was used; None if unknown."""
    return max((use.of_sheet for use in uses if not isinstance(use.of_sheet, Missing)), default=None)


def share_text(share: float | None) -> str:
    """`76 %`, or `121 % (boost)` where the clock went beyond the data sheet's; empty if unknown."""
    if share is None:
        return ""
    return format_percent(share) + (BOOST if share >= _BEYOND else "")


def uses_of(case: CaseResult, beside: Sequence[CaseResult], machine: Machine) -> tuple[Use, ...]:
    """FLOPs first, then bytes; none of what the workload does not count, or of a case without a speed.

    `beside` are the cases among which this box's own ceilings are looked for. A ceiling is not graded by
    itself.
    """
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return ()
    steps_per_s = speed.units_per_s / case.case.units_per_step
    counted = (("flop", case.case.flops_per_step), ("B", case.case.bytes_per_step))
    return tuple(
        Use(
            unit,
            steps_per_s * per_step,
            _share(steps_per_s * per_step, sheet_peak(unit, case, machine)),
            _share(steps_per_s * per_step, measured_peak(unit, case, beside)),
            _impossible_above(unit, case, machine),
        )
        for unit, per_step in counted
        if per_step and case.case.work.workload != "xfer"  # whose bytes cross a bus
    )


def _share(per_s: float, peak: float | Missing) -> float | Missing:
    return peak if isinstance(peak, Missing) else per_s / peak


def sheet_peak(unit: str, case: CaseResult, machine: Machine) -> float | Missing:
    """The data sheet's operations or bytes per second of the devices of a case, in its type."""
    gpu_facts = facts_of(case, machine)
    if isinstance(gpu_facts, Missing):
        return gpu_facts
    peak = peak_for(gpu_facts, case.precision_used) if unit == "flop" else peak_bandwidth(gpu_facts)
    return peak if isinstance(peak, Missing) else devices_of(case.case) * peak


def _impossible_above(unit: str, case: CaseResult, machine: Machine) -> float:
    gpu_facts, peak = facts_of(case, machine), sheet_peak(unit, case, machine)
    if isinstance(gpu_facts, Missing) or isinstance(peak, Missing):
        return IMPOSSIBLE
    known = expected(gpu_facts, "matmul" if unit == "flop" else "copy", case.precision_used)
    if isinstance(known, Missing):
        return IMPOSSIBLE
    return max(IMPOSSIBLE, devices_of(case.case) * known.suspicious_above / peak)


def facts_of(case: CaseResult, machine: Machine) -> GpuFacts | Missing:
    """What is published of the GPU that a case ran on."""
    if case.case.variant.device_class != "gpu":
        return Missing("gputui has no peak figures for CPUs")
    return find_gpu(case.device_name, memory_gib_of(machine, case.device_index))


def measured_peak(
    unit: str, case: CaseResult, beside: Sequence[CaseResult], precision_used: str = ""
) -> float | Missing:
    """What `gemm` (unit `flop`) or `membw` (`B`) reached per second on the devices of a case.

    `gemm` in the type the case computed in, or in another one, such as `amp-bf16`; not while others had the
    CPUs for so long that it is unknown.
    """
    workload = PEAK_TESTS[unit]
    wanted = precision_used or case.precision_used
    if case.case.work.workload in PEAK_TESTS.values():
        return Missing("it is a peak test itself")
    found = [
        speed.units_per_s
        for other in beside
        if other.case.work.workload == workload
        and other.case.variant.device_class == case.case.variant.device_class
        and other.case.variant.threads == case.case.variant.threads
        and other.device_index == case.device_index
        and (unit == "B" or other.precision_used == wanted)
        and not is_undecidable(other)
        and not is_host_bound(other)
        and isinstance(speed := speed_of(other), SpeedEstimate)
    ]
    if not found:
        return Missing(f"{workload} was not measured in the same run")
    return devices_of(case.case) * max(found)
