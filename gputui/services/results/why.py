"""Why a run is as fast as it is, in a sentence: where the time of a step of its main case goes."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.analysis.findings import BOUND_SHARE, HOST_CAUSES, IDLE_TO_BE_LAUNCH_BOUND, LOADER, WORTH_A_LINE
from gputui.model.absent import Missing
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.model.units import format_percent, listed
from gputui.services.results.headline import case_subject, main_case
from gputui.services.results.roofline import PEAK_TESTS, peak_name, uses_of
from gputui.services.results.step_breakdown import StepBreakdown, is_believed
from gputui.services.results.step_tables import main_step, step_parts
from gputui.services.results.throughput import speeds_of

_WAITING_FOR = {
    "idle: launch": "for launches",
    "idle: dispatch": "for the dispatch of operators",
    "idle: python": "for Python between calls",
    "idle: runtime api": "for calls of the driver",
    "idle: kernel gap": "between kernels",
    LOADER: "for the data loader",
}


def why_sentence(run: Run, passes: Mapping[int, ProfiledPass]) -> str:
    """`A step is 97 % compute on the GPU, 50 % matmul, and reaches 43 % of this box's own matmul peak.`

    `passes` are the profiled ones of the run, by case. Empty if none can be trusted.
    """
    found = main_step(run, passes)
    if isinstance(found, Missing) or not is_believed(found[1]):
        return ""
    case, breakdown = found
    cases = [one.case for one, _ in speeds_of(run)]
    step = "a step" if main_case(run) is case else f"a step of {case_subject(case.case, cases)}"
    return _waits(case, breakdown, step) or _computes(run, case, breakdown, step)


def _waits(case: CaseResult, breakdown: StepBreakdown, step: str) -> str:
    """What it waits for, where a finding would say that it waits; else empty."""
    idle = {one.name: one.share for one in breakdown.shares if one.name.startswith("idle")}
    host = sum(share for name, share in idle.items() if name in HOST_CAUSES)
    by_host, by_loader = host >= IDLE_TO_BE_LAUNCH_BOUND, idle.get(LOADER, 0.0) >= WORTH_A_LINE
    if not (by_host or by_loader):
        return ""
    whole, largest = sum(idle.values()), max(idle, key=lambda name: idle[name])
    how_much = "most of it" if idle[largest] > whole / 2 else "above all"
    most = f", {how_much} {_WAITING_FOR[largest]}" if largest in _WAITING_FOR else ""
    if case.case.variant.device_class != "gpu":
        return f"The CPU spends {format_percent(whole)} of {step} between operators{most}."
    limit = ""
    if largest == LOADER:
        limit = ": the data loader is the limit"
    elif by_host and largest in HOST_CAUSES:
        limit = ": the CPU is the limit"
    return f"The GPU waits {format_percent(whole)} of {step}{most}{limit}."


def _computes(run: Run, case: CaseResult, breakdown: StepBreakdown, step: str) -> str:
    """What most of it is, how much that is of what the box can do, and whether that is the limit."""
    busy = [
        f"{format_percent(one.share)} {one.name}"
        for one in breakdown.shares
        if one.share >= WORTH_A_LINE and not one.name.startswith("idle")
    ]
    part, share, _ = step_parts(breakdown)[0]
    device = case.case.variant.device_class.upper()
    text = f"{step[:1].upper()}{step[1:]} is {listed(busy)} on the {device}, {format_percent(share)} {part}"
    reached = [
        (use.of_measured, use.unit)
        for use in uses_of(case, run.cases, run.summary.machine)
        if not isinstance(use.of_measured, Missing)
    ]
    if not reached:
        return f"{text}."
    of_peak, unit = max(reached)
    peak = f"of this box's own {peak_name(PEAK_TESTS[unit])} peak"
    limit = f": {'compute' if unit == 'flop' else 'memory'} is the limit" if of_peak >= BOUND_SHARE else ""
    return f"{text}, and reaches {format_percent(of_peak)} {peak}{limit}."
