"""One window of steps under torch.profiler, as plain rows: the only module that knows torch's events."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any  # Any: torch's types

from ..accelerator import ACTIVITIES
from .step_breakdown import TraceEvent

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
        bounds = next(e for e in raw if e.name() == OUR_WINDOW and str(e.device_type()) == "DeviceType.CPU")
        starts_ns = sorted(
            e.start_ns() for e in raw if e.name() == OUR_STEP and str(e.device_type()) == "DeviceType.CPU"
        )
        events = tuple(_events(raw))
        return TracedWindow(
            events, bounds.start_ns(), bounds.end_ns(), bounds.start_thread_id(), tuple(starts_ns), profiled
        )
    except (AttributeError, StopIteration, TypeError) as error:
        raise NoTrace(f"this torch's trace cannot be read ({type(error).__name__})") from error


def _events(raw: Iterable[Any]) -> Iterable[TraceEvent]:
    for event in raw:
        kind = _kind_of(event)
        name = event.name()
        if not kind or name in (OUR_WINDOW, OUR_STEP) or name.startswith("ProfilerStep"):
            continue
        on_host = kind in ("op", "range", "runtime", "overhead")
        shapes, dtypes = tensors_among(event.shapes(), event.dtypes()) if kind == "op" else ("", "")
        start_ns = event.start_ns()
        yield TraceEvent(
            name=name,
            kind=kind,
            start_ns=start_ns,
            end_ns=start_ns + event.duration_ns(),
            thread=event.start_thread_id() if on_host else 0,
            stream=0 if on_host else event.device_resource_id(),
            correlation=0 if kind in ("op", "range", "overhead") else event.correlation_id(),
            operator=0 if kind in ("op", "range", "overhead") else event.linked_correlation_id(),
            number=event.correlation_id() if kind in ("op", "range") else 0,
            shapes=shapes[:LONGEST_SHAPES],
            dtypes=dtypes[:LONGEST_SHAPES],
        )


def _kind_of(event: Any) -> str:
    """The kind of an event; empty for one that the partition does not use."""
    if hasattr(event, "activity_type"):
        kind = str(event.activity_type())
        return "runtime" if kind.endswith(("_runtime", "_driver")) else _KINDS.get(kind, "")
    name = event.name()  # before torch 2.6 an event has no activity type
    if str(event.device_type()) == "DeviceType.CPU":
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
