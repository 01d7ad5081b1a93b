"""The profiled pass of a case: a few steps more, in the worker that has just timed it."""

from __future__ import annotations

import ctypes
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any  # Any: JSON

from ..accelerator import allocator, synchronize
from ..contract import Step
from ..failures import reason_of
from ..profiling.allocations import points_of_a_step
from ..profiling.lost_kernels import launches_without_work, uneven_share
from ..profiling.profiler import NoTrace, TracedWindow, event_cost_ns, traced
from ..profiling.step_breakdown import Partition, partition

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Of mallopt, malloc.h of glibc."""


def keep_heap(reserve_bytes: int) -> bool:
    """Touch this many bytes of heap that the process never returns; returns whether that worked.

    The profiler allocates thousands of small objects per step between the large blocks that operators free.
    The large ones then no longer fit, so the heap grows by 70 MB a step, and the kernel's zeroing of new
    pages is a third of the step (measured: 17 000 page faults and 300 ms against 160 ms; with this 0 and 165
    ms). Only glibc is known to do so, and to have mallopt.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc, free = libc.mallopt, libc.malloc, libc.free
    except (AttributeError, OSError):
        return False
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    mallopt(_TRIM_THRESHOLD, -1)
    mallopt(_MMAP_MAX, 0)
    piece = malloc(reserve_bytes)
    if not piece:
        return False
    ctypes.memset(piece, 1, reserve_bytes)
    free(piece)
    return True


MOST_EVENTS = 50_000
"""In a window. Reading this many takes under a second and 300 MiB (measured; memory grows by 3 KiB each)."""
LEAST_STEPS, MOST_STEPS = 3, 20
WARM_STEPS = 3
"""Of a step that is built for its pass."""
_WINDOW_SHARE = 0.4
"""Share of the remaining time that the window may take, if LEAST_STEPS fit into it."""
_WINDOW_NS = 1_500_000_000
"""A longer window shows nothing new, if LEAST_STEPS fit into it."""
_HEAP_BYTES = 75_000_000
"""So much the heap of a CPU grows with each step under the profiler; see `keep_heap`."""
_MEMORY_STEPS = 3
"""So many steps are as long as profiling the memory of two of them takes."""
UNEVEN_WORK = 0.005
"""If the work of operators differs by more than this share between steps of a window, some of it was lost."""
LOST_LAUNCHES = 0.02
"""If more than this share of launches started nothing, kernels were lost."""
UNMATCHED_SHARE = 0.2
"""If more than this share of device time has no operator, the operator rows mean little."""


def profiled_pass(
    step: Step,
    device: str,
    step_ns: float,
    ends_ns: int,
    *,
    trace: Path | None = None,
    reserve_bytes: int = 0,
    step_file: Path | None = None,
) -> dict[str, Any]:
    """Trace some steps of a warm case, divide their time, profile their memory: the fields of its message.

    The window shrinks to one step where `ends_ns`, of CLOCK_MONOTONIC, leaves time for no more. On a CPU,
    up to `reserve_bytes` of heap are set aside first. Raises NoTrace, and whatever the step raises.
    """
    wait, kept_bytes = partial(synchronize, device), reserve_bytes if device == "cpu" else 0

    def left_ns() -> int:
        return ends_ns - time.monotonic_ns()

    def window_of(steps: int) -> TracedWindow:
        if kept_bytes:
            keep_heap(min(kept_bytes, (steps + 1) * _HEAP_BYTES))
        return traced(step.run, steps, device, wait)

    if step.timed:
        raise NoTrace("its steps are done in other processes, where nobody watches")
    if left_ns() < step_ns:
        raise NoTrace(f"a step takes {step_ns / 1e9:.3g} s, and no time was left to profile one")
    steps, window = 1, window_of(1)
    traced_ns = window.end_ns - window.start_ns
    more = steps_of_window(len(window.events), traced_ns, left_ns())
    if more > 1:
        steps, window = more, window_of(more)
    found = partition(window.events, window.start_ns, window.end_ns, window.thread)
    reason = fault_of(device, window, found, steps)
    points, memory_reason = list[dict[str, Any]](), "no time was left for it"
    if left_ns() >= _MEMORY_STEPS * traced_ns:
        points, memory_reason = _memory(step, device, step_file)
    if trace is not None:
        trace.parent.mkdir(parents=True, exist_ok=True)
        window.profile.export_chrome_trace(str(trace))
    return {
        **without_result(reason),
        "is_valid": not reason,
        "steps": steps,
        "window_ns": found.window_ns,
        "events": len(window.events),
        "event_cost_ns": event_cost_ns(),
        "unmatched_ns": found.unmatched_ns,
        "operators": [] if reason else [asdict(row) for row in found.rows],
        "slices": [] if reason else [asdict(part) for part in found.slices],
        "kernels": [] if reason else [asdict(kernel) for kernel in found.kernels],
        "memory": points,
        "memory_reason": memory_reason,
        "trace_bytes": trace.stat().st_size if trace is not None else 0,
    }


def steps_of_window(events_per_step: int, step_ns: int, left_ns: int) -> int:
    """How many steps the window holds, from the events per step and the time left; 0 if none fits."""
    in_time = left_ns // max(step_ns, 1)
    wanted = max(_WINDOW_NS // max(step_ns, 1), LEAST_STEPS)
    in_share = max(int(in_time * _WINDOW_SHARE), min(LEAST_STEPS, in_time))
    return max(min(MOST_EVENTS // max(events_per_step, 1), in_share, wanted, MOST_STEPS), 0)


def fault_of(device: str, window: TracedWindow, found: Partition, steps: int) -> str:
    """Why the trace cannot be trusted; empty if it can."""
    works = sum(e.kind in ("kernel", "copy", "memset") for e in window.events)
    operators = sum(e.kind == "op" for e in window.events)
    if not operators:
        return "the trace holds no operator"
    if device == "cpu":
        return ""
    if not works:
        return f"the trace holds no work of the {device} device"
    lost, launches = launches_without_work(window.events)
    if lost > LOST_LAUNCHES * launches:
        return f"{lost} of {launches} launches without a kernel: some are missing in the trace"
    uneven = uneven_share(window.events, window.step_starts_ns)
    if uneven > UNEVEN_WORK:
        return f"the work of {steps} equal steps differs by {uneven:.1%}: some is missing in the trace"
    busy_ns = sum(s.time_ns for s in found.slices if s.time_class != "idle")
    if found.unmatched_ns > UNMATCHED_SHARE * busy_ns:
        return f"{found.unmatched_ns / busy_ns:.0%} of the device's time belongs to no known operator"
    return ""


def _memory(step: Step, device: str, step_file: Path | None) -> tuple[list[dict[str, Any]], str]:
    try:
        points = points_of_a_step(device, step.run)
    except Exception as error:  # torch may raise anything; the rest of the pass is valid
        return [], reason_of(error, step_file)
    counted = allocator(device)
    reserved = counted.memory_reserved() if counted else None  # by its cache
    return [
        {"point": name, **{f"{part}_bytes": n for part, n in parts.items()}, "reserved_bytes": reserved}
        for name, parts in points.items()
    ], ""


def without_result(reason: str) -> dict[str, Any]:
    """The message of a pass without a result."""
    return {
        "is_valid": False,
        "reason": reason,
        "steps": 0,
        "window_ns": 0,
        "events": 0,
        "event_cost_ns": 0,
        "unmatched_ns": 0,
        "operators": [],
        "slices": [],
        "kernels": [],
        "memory": [],
        "memory_reason": reason,
        "trace_bytes": 0,
    }
