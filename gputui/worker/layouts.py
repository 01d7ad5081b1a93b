"""How images lie in memory: as a size says, or where it leaves that open, in the way that is faster here.

In: a request, and what builds a step in a layout. Out: the step.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any  # Any: torch's types, which may not be installed

from .accelerator import let_convolutions_be_tried, release
from .contract import Request, Step
from .failures import is_out_of_memory
from .timing import Stopwatch, steps_for, stopwatch_for

SEARCHED = "searched"
"""The parameter `layout` of sizes that leave it open."""
NHWC, NCHW = "nhwc", "nchw"
LEAST_GAIN = 0.03
"""By which NCHW must be faster to be taken, so that launches of one box agree."""
WARM_STEPS = 2
"""In the first of them cuDNN tries its algorithms."""
TRIALS = 3
TRIAL_S = 0.05
TRIAL_SHARE = 0.05
"""Of a case's time, after which no further trial of a layout begins."""


def memory_format(layout: str) -> Any:
    """torch's name of a layout."""
    import torch

    return torch.channels_last if layout == NHWC else torch.contiguous_format


def in_a_layout(
    request: Request,
    build: Callable[[Request, str], Step],
    *,
    on_cpu: str = NHWC,
    stopwatch: Stopwatch | None = None,
) -> Step:
    """The step in its size's layout; where that is searched, in the one in which a GPU takes less time.

    The trial is eager, also of a compiled step. Each precision has its own. On a CPU nothing is tried. cuDNN
    is left to try its algorithms for each shape: a step has one, and loads have a few, each met beforehand.
    """
    layout = str(request.parameters.get("layout", ""))
    if layout:
        let_convolutions_be_tried(request.device)
    if layout != SEARCHED:
        return build(request, layout)
    if request.device in ("cpu", "meta"):
        return build(request, on_cpu)
    stopwatch = stopwatch or stopwatch_for(request.device)
    step_ns = {one: _trial_ns(build, replace(request, mode="eager"), one, stopwatch) for one in (NHWC, NCHW)}
    found = NCHW if step_ns[NCHW] < (1 - LEAST_GAIN) * step_ns[NHWC] else NHWC
    return replace(build(request, found), layout=found)


def _trial_ns(
    build: Callable[[Request, str], Step], request: Request, layout: str, stopwatch: Stopwatch
) -> float:
    """What a warm step takes in this layout; infinite where it does not fit into memory."""
    step = None
    try:
        step = build(request, layout)
        stopwatch(step.run, WARM_STEPS)
        step_ns = spent_ns = float(stopwatch(step.run, 1).block_ns)
        count = steps_for(TRIAL_S, step_ns)
        for _ in range(TRIALS):
            if spent_ns > TRIAL_SHARE * request.time_s * 1e9:
                break
            taken_ns = stopwatch(step.run, count).block_ns
            step_ns, spent_ns = min(step_ns, taken_ns / count), spent_ns + taken_ns
        return step_ns
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return math.inf
    finally:
        step = None
        gc.collect()
        release(request.device)
