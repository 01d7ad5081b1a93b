"""Why a run is as fast as it is, in a sentence: where the time of a step of its main case goes."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.analysis.findings import BOUND_SHARE, HOST_CAUSES, IDLE_TO_BE_LAUNCH_BOUND, LOADER, WORTH_A_LINE
from gputui.model.absent import Missing
from gputui.model.profiled import ProfiledPass
from gputui.model.result import Run
from gputui.model.units import format_percent, listed
from gputui.services.results.headline import case_subject, main_case
from gputui.services.results.roofline import PEAK_TESTS, peak_name, uses_of
from gputui.services.results.step_breakdown import StepBreakdown, is_believed
from gputui.services.results.step_tables import main_step, step_parts
from gputui.services.results.throughput import speeds_of
from gputui.services.results.waiting import is_undecidable

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
    step = "a step"
    if main_case(run) is not case:
        step = f"a step of {case_subject(case.case, [one.case for one, _ in speeds_of(run)])}"
    reached = [
        (use.of_measured, use.unit)
        for use in uses_of(case, run.cases, run.summary.machine)
        if not (isinstance(use.of_measured, Missing) or is_undecidable(case))
    ]
    of_peak, unit = max(reached, default=(0.0, "flop"))
    peak = f"{format_percent(of_peak)} of this box's own {peak_name(PEAK_TESTS[unit])} peak"
    limit = f": {'compute' if unit == 'flop' else 'memory'} is the limit" if of_peak >= BOUND_SHARE else ""
    more = f", and reaches {peak}{limit}" if reached else ""
    return step_sentence(breakdown, step, more, is_on_gpu=case.case.variant.device_class == "gpu")


def step_sentence(breakdown: StepBreakdown, step: str, more: str = "", *, is_on_gpu: bool) -> str:
    """What a step waits for, where a finding would say that it waits; else of what it mostly is, and `more`.

    `step` is what it is called. What most of the waiting is for is the limit.
    """
    idle, whole = breakdown.idle, sum(breakdown.idle.values())
    waits = (
        (sum(idle.get(name, 0.0) for name in HOST_CAUSES), IDLE_TO_BE_LAUNCH_BOUND, "the CPU"),
        (idle.get(LOADER, 0.0), WORTH_A_LINE, "the data loader"),
    )
    limits = [(share, what) for share, least, what in waits if share >= least]
    if not limits:
        busy = [
            f"{format_percent(one.share)} {one.name}"
            for one in breakdown.shares
            if one.share >= WORTH_A_LINE and one.name not in idle
        ]
        part, share, _ = step_parts(breakdown)[0]
        parts = f"{listed(busy)} on the {'GPU' if is_on_gpu else 'CPU'}, {format_percent(share)} {part}"
        return f"{step[:1].upper()}{step[1:]} is {parts}{more}."
    largest = max(idle, key=idle.__getitem__)
    how_much = "most of it" if idle[largest] > whole / 2 else "above all"
    most = f", {how_much} {_WAITING_FOR[largest]}" if largest in _WAITING_FOR else ""
    if not is_on_gpu:
        return f"The CPU spends {format_percent(whole)} of {step} between operators{most}."
    limit = "".join(f": {what} is the limit" for share, what in limits if share > whole / 2)
    return f"The GPU waits {format_percent(whole)} of {step}{most}{limit}."
