"""The profiled pass: one case in a separate worker, after all timing; reports one message."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from ..channel import Channel
from ..contract import Request, Step, Workload
from ..failures import reason_of
from ..profiling.allocations import points_of_a_step
from ..profiling.lost_kernels import launches_without_work, uneven_share
from ..profiling.profiler import NoTrace, TracedWindow, event_cost_ns, traced
from ..profiling.step_breakdown import Partition, partition
from ..steps.precision import resolve
from .malloc_tuning import keep_heap

MOST_EVENTS = 50_000
"""In a window. Reading this many takes under a second and 300 MiB (measured; memory grows by 3 KiB each)."""
LEAST_STEPS, MOST_STEPS = 3, 20
WARM_STEPS = 3
_WINDOW_SHARE = 0.4
"""Share of the remaining time that the window may take."""
_WINDOW_NS = 3_000_000_000
"""A longer window shows nothing new, if LEAST_STEPS fit into it."""
UNEVEN_WORK = 0.005
"""If the work of operators differs by more than this share between steps of a window, some of it was lost."""
LOST_LAUNCHES = 0.02
"""If more than this share of launches started nothing, kernels were lost."""
UNMATCHED_SHARE = 0.2
"""If more than this share of device time has no operator, the operator rows mean little."""


class ProfiledLaunch:
    """Runs the one case of a profiled launch and always reports a `profiled` message."""

    def __init__(
        self, described: dict[str, Any], channel: Channel, started_ns: int, workload: Workload
    ) -> None:
        self._case: dict[str, Any] = described["cases"][0]
        step_file = str(self._case.get("step_file") or "")
        self._step_file = Path(step_file) if step_file else None
        self._device = str(described["device"])
        self._threads = int(described["threads"])
        self._seed = int(described["seed"])
        self._deadline_ns = started_ns + round(float(described["allowance_s"]) * 1e9)
        self._trace = Path(described["trace"]) if described.get("trace") else None
        self._reserve_bytes = int(described.get("reserve_bytes", 0)) if self._device == "cpu" else 0
        self._channel = channel
        self._workload = workload

    def run(self) -> None:
        """Build, warm up, trace, partition the window, profile the memory, and report."""
        try:
            found = self._profiled()
        except BrokenPipeError:
            raise  # the supervisor is gone
        except Exception as error:  # torch and workloads may raise anything: that costs the pass, not the run
            found = _invalid(reason_of(error, self._step_file))
        self._channel.send("profiled", case_id=int(self._case["case_id"]), **found)

    def _profiled(self) -> dict[str, Any]:
        size = self._workload.sizes[self._case["size"]]
        precision = resolve(self._case["precision"], self._device)
        precision.apply()
        left_s = self._left_ns() / 1e9
        request = Request(size.parameters, self._device, precision, self._threads, self._seed, left_s)
        step = self._workload.build(request)
        try:
            return self._observed(step)
        finally:
            if step.close:
                step.close()

    def _observed(self, step: Step) -> dict[str, Any]:
        if step.timed:
            raise NoTrace("its steps are done in other processes, where nobody watches")
        begun_ns = time.monotonic_ns()
        step.run()
        self._wait()
        first_ns = time.monotonic_ns() - begun_ns
        if first_ns > self._left_ns():
            raise NoTrace(f"its first step took {first_ns / 1e9:.3g} s, and no time was left")
        for _ in range(WARM_STEPS - 1):
            begun_ns = time.monotonic_ns()
            step.run()
            self._wait()
            step_ns = time.monotonic_ns() - begun_ns
        if self._reserve_bytes:
            keep_heap(self._reserve_bytes)
        tried = traced(step.run, 1, self._device, self._wait)
        steps = self._steps(len(tried.events), step_ns)
        window = traced(step.run, steps, self._device, self._wait, self._trace)
        cost_ns = event_cost_ns()
        found = partition(window.events, window.start_ns, window.end_ns, window.thread)
        reason = self._fault(window, found, steps)
        points, memory_reason = self._memory(step, step_ns)
        kept = self._trace.stat().st_size if self._trace is not None and self._trace.exists() else 0
        return {
            **_invalid(reason),
            "is_valid": not reason,
            "steps": steps,
            "window_ns": found.window_ns,
            "events": len(window.events),
            "event_cost_ns": cost_ns,
            "unmatched_ns": found.unmatched_ns,
            "operators": [] if reason else [asdict(row) for row in found.rows],
            "slices": [] if reason else [asdict(part) for part in found.slices],
            "kernels": [] if reason else [asdict(kernel) for kernel in found.kernels],
            "memory": points,
            "memory_reason": memory_reason,
            "trace_bytes": kept,
        }

    def _steps(self, events_per_step: int, step_ns: int) -> int:
        """How many steps the window holds, from the events per step and the time left."""
        by_events = MOST_EVENTS // max(events_per_step, 1)
        by_time = int(self._left_ns() * _WINDOW_SHARE / max(step_ns, 1))
        enough = max(_WINDOW_NS // max(step_ns, 1), LEAST_STEPS)
        if by_time < 1:
            raise NoTrace(f"a step takes {step_ns / 1e9:.3g} s, and no time was left for a window of them")
        return max(min(by_events, by_time, enough, MOST_STEPS), min(LEAST_STEPS, by_time), 1)

    def _fault(self, window: TracedWindow, found: Partition, steps: int) -> str:
        """Why the trace cannot be trusted; empty if it can."""
        works = sum(e.kind in ("kernel", "copy", "memset") for e in window.events)
        operators = sum(e.kind == "op" for e in window.events)
        if not operators:
            return "the trace holds no operator"
        if self._device == "cpu":
            return ""
        if not works:
            return f"the trace holds no work of the {self._device} device"
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

    def _memory(self, step: Step, step_ns: int) -> tuple[list[dict[str, Any]], str]:
        if self._left_ns() < 6 * step_ns:
            return [], "no time was left for it"
        try:
            points = points_of_a_step(self._device, step.run)
        except Exception as error:  # torch may raise anything; the rest of the pass is valid
            return [], reason_of(error, self._step_file)
        reserved = self._reserved_bytes()
        return [
            {"point": name, **{f"{part}_bytes": n for part, n in parts.items()}, "reserved_bytes": reserved}
            for name, parts in points.items()
        ], ""

    def _reserved_bytes(self) -> int | None:
        """Bytes held by the caching allocator, which returns none within a step."""
        if self._device != "cuda":
            return None
        import torch

        return int(torch.cuda.memory_reserved())

    def _wait(self) -> None:
        if self._device != "cpu":
            import torch

            getattr(torch, self._device).synchronize()

    def _left_ns(self) -> int:
        return self._deadline_ns - time.monotonic_ns()


def _invalid(reason: str) -> dict[str, Any]:
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
