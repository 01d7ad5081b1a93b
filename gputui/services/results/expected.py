"""Is this box normal: the ceilings of a run beside what its devices reach elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.peak_tests import Expectation, PeakTest, PerformanceCheck, check_performance
from gputui.analysis.verdict import SpeedEstimate
from gputui.facts.gpus import find_gpu
from gputui.facts.plausible import expected
from gputui.model.absent import Missing
from gputui.model.machine import Machine
from gputui.model.result import CaseResult, Run
from gputui.services.results.throughput import speed_of

_PEAK_TESTS = {"gemm": "matmul", "membw": "copy"}
_LINKS = {"256m-h2d": "h2d_pinned", "256m-d2h": "d2h_pinned"}
"""Sizes of `xfer` that are what the figures of links were measured with: large copies, pinned memory."""
_SMALL = {("gemm", "mini"), ("gemm", "base"), ("membw", "mini")}
"""Sizes that do not fill a large GPU: the figures known from elsewhere are not of these."""


def performance_checks(run: Run) -> tuple[PerformanceCheck, ...]:
    """One judgement per device that has a measured ceiling, GPUs first.

    Of each ceiling and precision only the largest size counts, and it is judged only if it is not small: the
    figures known from elsewhere are of large products and copies. A link to the host counts where a figure is
    known of that very GPU. Of trainings no figures are known.
    """
    largest: dict[tuple[str, int | None, str, str, str], CaseResult] = {}
    for case in run.cases:
        variant = case.case.variant
        if not _measure(case) or case.outcome != "ok" or variant.threads == "1":
            continue
        key = (variant.device_class, case.device_index, case.device_name, _measure(case), variant.precision)
        known = largest.get(key)
        if known is None or known.case.units_per_step < case.case.units_per_step:
            largest[key] = case
    by_device: dict[tuple[str, int | None, str], list[PeakTest]] = {}
    for (device_class, index, name, _, _), case in largest.items():
        peak_test = _peak_test(case, _memory_gib(run.summary.machine, index))
        if peak_test is not None:
            by_device.setdefault((device_class, index, name), []).append(peak_test)
    ordered = sorted(by_device, key=lambda device: (device[0] != "gpu", device[1] or 0))
    return tuple(
        check_performance(name, by_device[device_class, index, name], index)
        for device_class, index, name in ordered
    )


def _peak_test(case: CaseResult, memory_gib: float | None) -> PeakTest | None:
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return None
    work, variant = case.case.work, case.case.variant
    measure = _measure(case)
    is_link = work.workload == "xfer"
    expectation = None
    is_small = variant.device_class == "gpu" and (work.workload, work.size) in _SMALL
    gpu = find_gpu(case.device_name, memory_gib) if variant.device_class == "gpu" else Missing("a CPU")
    if not isinstance(gpu, Missing) and not is_small:
        used = _precision_used(case)
        found = expected(gpu, measure, used)
        if not isinstance(found, Missing) and not (is_link and found.confidence == "low"):
            expectation = Expectation(
                found.measured_min,
                found.measured_max,
                found.warn_below,
                found.suspicious_above,
                is_one_report=len(found.source) == 1 and found.confidence != "high",
                is_unsure=found.confidence == "low",
            )
    if is_link and expectation is None:
        return None
    label = f"{work.workload} {variant.precision}" if measure == "matmul" else "copy"
    if is_link:
        label = "pinned copy to the GPU" if measure == "h2d_pinned" else "pinned copy from the GPU"
    if is_small:
        label = f"{work.size} {label}"
    return PeakTest(label, measure, speed.units_per_s, case.case.unit, expectation, is_small)


def _measure(case: CaseResult) -> str:
    """Its name in the facts; empty if they have nothing comparable."""
    work = case.case.work
    return _PEAK_TESTS.get(work.workload) or (_LINKS.get(work.size, "") if work.workload == "xfer" else "")


def _precision_used(case: CaseResult) -> str:
    used: Sequence[str] = [m.precision_used for m in case.measurements if m.outcome == "ok"]
    return used[-1]


def _memory_gib(machine: Machine, index: int | None) -> float | None:
    for gpu in machine.gpus:
        if gpu.index == index and not isinstance(gpu.memory_bytes, Missing):
            return gpu.memory_bytes / 2**30
    return None
