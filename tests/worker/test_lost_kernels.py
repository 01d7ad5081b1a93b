"""A trace that lost work of the device is recognized, whatever was lost; a whole one is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from gputui.worker.profiling.profiled_pass import (
    TracedWindow,
    _events,
    fault_of,
    launches_without_work,
    uneven_share,
)
from gputui.worker.profiling.step_breakdown import TraceEvent, partition

STEPS, OPERATORS, KERNELS = 6, 50, 20
STEP_NS = 1_000_000


def call(name: str, at: int, correlation: int = 0, operator: int = 0) -> TraceEvent:
    return TraceEvent(name, "runtime", at, at + 400, thread=1, correlation=correlation, operator=operator)


def steps_of_work() -> list[TraceEvent]:
    """Six steps of 50 operators, each of which launches 20 kernels: 1,000 kernels a step."""
    made = []
    for number in range(STEPS * OPERATORS):
        step, operator = divmod(number, OPERATORS)
        begin, name = step * STEP_NS + operator * 20_000, f"aten::op{operator}"
        made.append(TraceEvent(name, "op", begin, begin + 19_000, thread=1, number=number + 1))
        for k in range(KERNELS):
            at, launch = begin + 900 * k, number * KERNELS + k
            made.append(call("cudaLaunchKernel", at, launch, number + 1))
            work = TraceEvent(f"k{operator}", "kernel", at + 500, at + 900, correlation=launch)
            made.append(replace(work, operator=number + 1))
    return made


STARTS = tuple(step * STEP_NS for step in range(STEPS))


def without(events: Sequence[TraceEvent], share: float, *, launches_too: bool) -> list[TraceEvent]:
    chance = random.Random(3)
    lost = {e.correlation for e in events if e.kind == "kernel" and chance.random() < share}
    return [
        e
        for e in events
        if e.correlation not in lost or not (e.kind == "kernel" or (launches_too and e.kind == "runtime"))
    ]


def found_in(events: Sequence[TraceEvent]) -> str:
    end_ns = STEPS * STEP_NS
    window = TracedWindow(tuple(events), 0, end_ns, 1, STARTS)
    return fault_of("cuda", window, partition(events, 0, end_ns, 1), STEPS)


def test_a_whole_trace_is_believed() -> None:
    events = steps_of_work()
    assert uneven_share(events, STARTS) == 0
    assert launches_without_work(events) == (0, STEPS * OPERATORS * KERNELS)
    assert found_in(events) == ""


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_kernels_that_were_lost_with_their_launches_show_in_unequal_steps(share: float) -> None:
    assert "equal steps differs by" in found_in(without(steps_of_work(), share, launches_too=True))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_kernels_that_were_lost_alone_show_in_their_launches(share: float) -> None:
    assert "launches without a kernel" in found_in(without(steps_of_work(), share, launches_too=False))


def test_launches_into_a_captured_graph_start_nothing_and_lose_nothing() -> None:
    captured = [call("cudaLaunchKernel", 20 + k, 100 + k) for k in range(50)]
    events = [call("cudaStreamBeginCapture", 10), *captured, call("cudaStreamEndCapture", 90)]
    assert launches_without_work(events) == (0, 0)


def test_a_window_of_copies_alone_is_believed() -> None:
    events = []
    for number in range(1, STEPS + 1):
        begin = (number - 1) * STEP_NS
        events += [
            TraceEvent("aten::copy_", "op", begin, begin + 1_000, thread=1, number=number),
            call("cudaMemcpyAsync", begin + 10, number, number),
            TraceEvent("Memcpy HtoD", "copy", begin + 500, begin + 900, correlation=number, operator=number),
        ]
    assert found_in(events) == ""


@dataclass(frozen=True)
class OldEvent:
    """An event as torch 2.4 and 2.5 list it: without an activity type."""

    event_name: str
    device: str
    annotates: bool = False

    def name(self) -> str:
        return self.event_name

    def device_type(self) -> str:
        return f"DeviceType.{self.device}"

    def is_user_annotation(self) -> bool:
        return self.annotates

    def scope(self) -> int:
        return 0

    def start_ns(self) -> int:
        return 5

    def duration_ns(self) -> int:
        return 7

    def start_thread_id(self) -> int:
        return 1

    def correlation_id(self) -> int:
        return 9

    def linked_correlation_id(self) -> int:
        return 0

    def device_resource_id(self) -> int:
        return 7

    def shapes(self) -> list[list[int]]:
        return []

    def dtypes(self) -> list[str]:
        return []


def test_before_torch_2_6_a_range_on_the_devices_track_is_no_kernel() -> None:
    kernel = OldEvent("ampere_sgemm", "CUDA")
    annotation = replace(kernel, event_name="DistributedDataParallel.forward", annotates=True)
    assert [e.kind for e in _events([kernel, annotation, OldEvent("aten::mm", "CPU")])] == ["kernel", "op"]
