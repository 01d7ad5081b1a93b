"""The profiled pass of a case: a few steps more under torch.profiler, in the worker that has just timed it.

The only module that knows torch's events; it makes plain rows of them.
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any  # Any: JSON, and torch's types

from ..accelerator import ACTIVITIES, allocator, synchronize
from ..contract import Step
from ..failures import reason_of
from .allocations import points_of_a_step
from .step_breakdown import Partition, TraceEvent, partition

OUR_WINDOW = "gputui::window"
OUR_STEP = "gputui::step"
LONGEST_SHAPES = 120
_TINY_CALLS = 1000
_SCALARS = ("Scalar", "ScalarList", "")
_KINDS = {
    "cpu_op": "op",
    "user_annotation": "range",
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "memset",
    "overhead": "overhead",
}
"""Kineto's names of activities, besides `…_runtime` and `…_driver` of each kind of device; others, such as
device copies of ranges, are ignored."""
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
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Of mallopt, malloc.h of glibc."""
_DEVICE_KINDS = ("kernel", "copy", "memset")


class NoTrace(Exception):
    """This torch produced no readable trace."""


@dataclass(frozen=True)
class TracedWindow:
    """A traced window of steps."""

    events: tuple[TraceEvent, ...]
    start_ns: int
    end_ns: int
    thread: int
    """The host thread that did the steps."""
    step_starts_ns: tuple[int, ...]
    profile: Any = None
    """torch's own, which can write a Chrome trace."""


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
    kept_bytes = reserve_bytes if device == "cpu" else 0

    def left_ns() -> int:
        return ends_ns - time.monotonic_ns()

    def window_of(steps: int) -> TracedWindow:
        if kept_bytes:
            keep_heap(min(kept_bytes, (steps + 1) * _HEAP_BYTES))
        return traced(step.run, steps, device, partial(synchronize, device))

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


def traced(run: Callable[[], object], steps: int, device: str, wait: Callable[[], object]) -> TracedWindow:
    """Do `steps` steps under the profiler and wait for the device. Raises NoTrace."""
    from torch.profiler import profile, record_function

    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()  # a collection inside the window would count as some operator's time
    try:
        watched = profile(activities=_activities(device), record_shapes=True)
        with watched as profiled, record_function(OUR_WINDOW):
            for _ in range(steps):
                with record_function(OUR_STEP):
                    run()
            wait()
    finally:
        if was_enabled:
            gc.enable()
    return _window(profiled)


def event_cost_ns() -> int:
    """What tracing one event costs the host here, measured on tiny operators."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    one = torch.zeros(1)

    def loop_ns() -> int:
        begun_ns = time.perf_counter_ns()
        for _ in range(_TINY_CALLS):
            one.add_(1)
        return time.perf_counter_ns() - begun_ns

    loop_ns()
    bare_ns = min(loop_ns() for _ in range(3))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True):
        loop_ns()
        watched_ns = min(loop_ns() for _ in range(3))
    return max(watched_ns - bare_ns, 0) // _TINY_CALLS


def _activities(device: str) -> list[Any]:
    """The host's activities, and the device's where this torch can trace it. Raises NoTrace if it cannot."""
    from torch.profiler import ProfilerActivity, supported_activities

    wanted = ACTIVITIES.get(device, "PrivateUse1")
    activities = [ProfilerActivity.CPU]
    if wanted:
        activity = getattr(ProfilerActivity, wanted, None)
        if activity not in supported_activities():
            raise NoTrace(f"this torch cannot watch what {device} does")
        activities.append(activity)
    return activities


def _window(profiled: Any) -> TracedWindow:
    try:
        raw = profiled.profiler.kineto_results.events()
        ours = [e for e in raw if e.name() in (OUR_WINDOW, OUR_STEP) and _is_of_host(e)]
        bounds = next(e for e in ours if e.name() == OUR_WINDOW)
        starts_ns = tuple(sorted(e.start_ns() for e in ours if e.name() == OUR_STEP))
        whole = bounds.start_ns(), bounds.end_ns(), bounds.start_thread_id()
        return TracedWindow(tuple(_events(raw)), *whole, starts_ns, profiled)
    except (AttributeError, StopIteration, TypeError) as error:
        raise NoTrace(f"this torch's trace cannot be read ({type(error).__name__})") from error


def _events(raw: Iterable[Any]) -> Iterable[TraceEvent]:
    for event in raw:
        kind = _kind_of(event)
        name = event.name()
        if not kind or name in (OUR_WINDOW, OUR_STEP) or name.startswith("ProfilerStep"):
            continue
        is_call = kind in ("op", "range", "overhead")
        on_host = is_call or kind == "runtime"
        shapes, dtypes = tensors_among(event.shapes(), event.dtypes()) if kind == "op" else ("", "")
        start_ns = event.start_ns()
        yield TraceEvent(
            name=name,
            kind=kind,
            start_ns=start_ns,
            end_ns=start_ns + event.duration_ns(),
            thread=event.start_thread_id() if on_host else 0,
            stream=0 if on_host else event.device_resource_id(),
            correlation=0 if is_call else event.correlation_id(),
            operator=0 if is_call else event.linked_correlation_id(),
            number=event.correlation_id() if kind in ("op", "range") else 0,
            shapes=shapes[:LONGEST_SHAPES],
            dtypes=dtypes[:LONGEST_SHAPES],
        )


def _is_of_host(event: Any) -> bool:
    return str(event.device_type()) == "DeviceType.CPU"


def _kind_of(event: Any) -> str:
    """The kind of an event; empty for one that the partition does not use."""
    if hasattr(event, "activity_type"):
        kind = str(event.activity_type())
        return "runtime" if kind.endswith(("_runtime", "_driver")) else _KINDS.get(kind, "")
    name = event.name()  # before torch 2.6 an event has no activity type
    if _is_of_host(event):
        if name.startswith(("cu", "hip", "ze")) and event.linked_correlation_id() > 0:
            return "runtime"
        return "range" if int(event.scope()) == 7 else "op"
    if hasattr(event, "is_user_annotation") and event.is_user_annotation():
        return ""  # a range's copy on the device's track
    if name.startswith("Memcpy"):
        return "copy"
    return "memset" if name.startswith("Memset") else "kernel"


def tensors_among(shapes: Iterable[Any], types: Iterable[Any]) -> tuple[str, str]:
    """Shapes and dtypes of the tensors among the inputs of an operator: `8x64,64x64` and `float,float`."""
    kept = [(s, t) for s, t in zip(shapes, types, strict=False) if s and t not in _SCALARS]
    names = (str(t).removeprefix("c10::").replace("long int", "int64") for _, t in kept)
    return ",".join("x".join(map(str, shape)) for shape, _ in kept), ",".join(names)


def fault_of(device: str, window: TracedWindow, found: Partition, steps: int) -> str:
    """Why the trace cannot be trusted; empty if it can."""
    kinds = {e.kind for e in window.events}
    if "op" not in kinds:
        return "the trace holds no operator"
    if device == "cpu":
        return ""
    if kinds.isdisjoint(_DEVICE_KINDS):
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


def launches_without_work(events: Sequence[TraceEvent]) -> tuple[int, int]:
    """Launches of kernels whose kernel is not in the trace, and all launches.

    Launches into a graph that is being captured start nothing.
    """
    launched = {e.correlation for e in events if e.kind in _DEVICE_KINDS}
    runtime = [e for e in events if e.kind == "runtime"]
    begins = sorted(e.start_ns for e in runtime if "StreamBeginCapture" in e.name)
    captures = list(
        zip(begins, sorted(e.end_ns for e in runtime if "StreamEndCapture" in e.name), strict=False)
    )
    calls = [
        e
        for e in runtime
        if "LaunchKernel" in e.name and not any(start <= e.start_ns < end for start, end in captures)
    ]
    return sum(e.correlation not in launched for e in calls), len(calls)


def uneven_share(events: Sequence[TraceEvent], step_starts_ns: Sequence[int]) -> float:
    """How much the work of each operator differs between steps that do the same: a share of all work, 0 for
    fewer than 3 steps.

    Where nothing is lost it is 0; where a share p of n kernels is missing at random it is about the mean
    deviation of that, 0.8 sqrt(p / n_per_operator_and_step): 0.7 to 0.9 % for 2 % of a ResNet's.
    """
    if len(step_starts_ns) < 3:
        return 0.0
    called_ns = {e.correlation: e.start_ns for e in events if e.kind == "runtime"}
    operators = {e.number: (e.name, e.shapes) for e in events if e.kind == "op"}
    counts: dict[tuple[str, str], Counter[int]] = {}
    for event in events:
        if event.kind in _DEVICE_KINDS:
            step = bisect.bisect_right(step_starts_ns, called_ns.get(event.correlation, event.start_ns)) - 1
            operator = operators.get(event.operator, ("", ""))
            counts.setdefault(operator, Counter())[step] += 1
    steps = range(len(step_starts_ns))
    total = sum(found.total() for found in counts.values())
    uneven = 0.0
    for found in counts.values():
        usual = median(found[step] for step in steps)
        uneven += sum(abs(found[step] - usual) for step in steps)
    return uneven / total if total else 0.0


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
    counts = ("steps", "window_ns", "events", "event_cost_ns", "unmatched_ns", "trace_bytes")
    nothing = {**dict.fromkeys(counts, 0), **dict.fromkeys(("operators", "slices", "kernels", "memory"), ())}
    return {"is_valid": False, "reason": reason, "memory_reason": reason, **nothing}
