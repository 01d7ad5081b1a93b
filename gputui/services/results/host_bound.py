"""Whether the host holds a GPU back, so that a step takes clearly longer than the GPU needs for it.

Such a row says how fast the host launches work. It stays, and counts nowhere as the speed of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gputui.model.absent import Missing
from gputui.model.result import CaseResult, worked_out_once
from gputui.model.units import format_percent
from gputui.worker.steps import STEP_TIMES

HOST_BOUND = "host-bound"
LIFTS = "A larger batch, torch.compile or a CUDA graph may lift that; the rule is not yet tried on a GPU"
NOT_OF_GPU = f"{HOST_BOUND}: the rate is not the GPU's"
BUSY_SHARE = 0.9
"""A GPU that needs less of a step waits for its host. A queue that never runs empty keeps it busier."""
STEP_KEYS = tuple(figure.key for figure in STEP_TIMES)


@worked_out_once
def is_host_bound(case: CaseResult) -> bool:
    """Whether even the fastest block of a launch leaves the GPU idle, as enqueuing its steps takes longer.

    By the median launch. False where host and device time were not measured, and of work that is the host's.
    """
    launches = list(_step_times_s(case))
    if not launches or case.case.workload_class == "host":
        return False
    busy = median(device_s / min(steps_s) for device_s, _, steps_s in launches)
    return busy < BUSY_SHARE and median(host_s - device_s for device_s, host_s, _ in launches) > 0


@worked_out_once
def busy_share(case: CaseResult) -> float | Missing:
    """Of a step as it was timed, what the GPU needs for it; at most 1."""
    shares = [device_s / median(steps_s) for device_s, _, steps_s in _step_times_s(case)]
    return min(median(shares), 1.0) if shares else Missing("host and device time of a step are not known")


def busy_words(case: CaseResult) -> str:
    """`GPU busy 37 %` of a case that is host-bound; empty for others."""
    share = busy_share(case) if is_host_bound(case) else Missing("it is not")
    return "" if isinstance(share, Missing) else f"GPU busy {format_percent(share)}"


def _step_times_s(case: CaseResult) -> Iterator[tuple[float, float, list[float]]]:
    """Of each launch that has them, device and host time of a step, and a step's time in each block."""
    for one in case.measurements:
        found = {figure.key: figure.value for figure in one.figures}
        device_s, host_s = (found.get(key, Missing("not measured")) for key in STEP_KEYS)
        if one.outcome == "ok" and one.blocks and isinstance(device_s, float) and isinstance(host_s, float):
            yield device_s, host_s, [block.block_ns * 1e-9 / block.steps for block in one.blocks]
