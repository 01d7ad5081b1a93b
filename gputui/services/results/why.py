"""Why a run is as fast as it is, in a sentence: where the time of a step of its main case goes."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.analysis.findings import BOUND_SHARE, KINDS, LOADER, WORTH_A_LINE, waits_of
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
_HELD_UP = {
    **_WAITING_FOR,
    "idle: queue": "for queued work that another stream or a peer holds up",
    "idle: profiler": "for the profiler itself",
}
"""Said only of what is more than half of the waiting: a limit may be another."""
_LIMITS = {KINDS[0]: "the data loader", KINDS[1]: "the CPU"}
_ON_A_CPU = {KINDS[0]: "in the data loader", KINDS[1]: "between operators"}
_MOSTLY = 0.5


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

    `step` is what it is called. What more than half of the waiting is for is the limit.
    """
    idle, whole = breakdown.idle, sum(breakdown.idle.values())
    shares = [(one.name, phase, share) for one in breakdown.shares for phase, share in one.phases]
    waits = waits_of(shares, is_on_device=is_on_gpu)
    if not waits and whole <= _MOSTLY:
        busy = [
            f"{format_percent(one.share)} {one.name}"
            for one in breakdown.shares
            if one.share >= WORTH_A_LINE and one.name not in idle
        ]
        part, share, _ = step_parts(breakdown)[0]
        parts = f"{listed(busy)} on the {'GPU' if is_on_gpu else 'CPU'}, {format_percent(share)} {part}"
        return f"{step[:1].upper()}{step[1:]} is {parts}{more}."
    if not is_on_gpu and waits:
        where = [f"{format_percent(share)} of {step} {_ON_A_CPU[kind]}" for kind, share in waits.items()]
        return f"The CPU spends {listed(where)}."
    largest = max(idle, key=idle.__getitem__)
    is_most = idle[largest] > _MOSTLY * whole
    words = (_HELD_UP if is_most else _WAITING_FOR).get(largest)
    most = f", {'most of it' if is_most else 'above all'} {words}" if words else ""
    limit = "".join(
        f": {_LIMITS[kind]} is the limit" for kind, share in waits.items() if share > _MOSTLY * whole
    )
    return f"The {'GPU' if is_on_gpu else 'CPU'} waits {format_percent(whole)} of {step}{most}{limit}."
