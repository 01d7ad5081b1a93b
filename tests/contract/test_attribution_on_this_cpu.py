"""Attribution checked by timing: the operators it blames for a difference take longer when timed alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pytest
import torch

from gputui.analysis.attribution import Attribution, ProfiledSide, divide_difference
from gputui.model.journal import Operator, ProfiledPass, TimeSlice
from gputui.worker.contract import Request, Step
from gputui.worker.profiling.profiled_pass import traced
from gputui.worker.profiling.step_breakdown import partition
from gputui.worker.steps import resolve
from gputui.worker.workloads import workload_named

RUNS, WINDOWS = 2, 15
CLEARLY = 2.0
"""Ratio of an operator timed alone, beyond which the sign within a step is certain."""


def made(precision: str) -> Step:
    """The training step of one layer of a small GPT on short texts, warmed up."""
    workload = workload_named("gpt_train")
    parameters = {**workload.sizes["mini"].parameters, "layers": 1, "context": 64, "batch": 8}
    step = workload.build(Request(parameters, "cpu", resolve(precision, "cpu"), 1, 1, 60.0))
    for _ in range(3):
        step.run()
    return step


def watched(step: Step) -> tuple[Operator, ...]:
    """One step of it under the profiler."""
    window = traced(step.run, 1, "cpu", lambda: None)
    found = partition(window.events, window.start_ns, window.end_ns, window.thread)
    return tuple(Operator(**asdict(row)) for row in found.rows)


def undisturbed(windows: Sequence[tuple[Operator, ...]]) -> ProfiledSide:
    """A step whose operators each take their minimum over all windows."""
    least: dict[tuple[str, str, str, str], Operator] = {}
    for row in (row for rows in windows for row in rows):
        key = (row.phase, row.operator, row.shapes, row.dtypes)
        if key not in least or row.time_ns < least[key].time_ns:
            least[key] = row
    rows = tuple(least.values())
    slices = tuple(TimeSlice(row.phase, "compute", "", row.time_ns) for row in rows)
    window_ns = sum(part.time_ns for part in slices)
    lines = sum(row.events for row in rows)
    found = ProfiledPass(0, 0, True, "", 1, window_ns, lines, 0, 0, rows, slices, (), (), "not asked for", 0)
    assert found.fault() == ""
    return ProfiledSide(found, window_ns, is_on_device=False)


def attributed(fp32: Step, amp: Step) -> Attribution:
    """Of interleaved windows, so that load from others affects both."""
    windows = [(watched(fp32), watched(amp)) for _ in range(WINDOWS)]
    return divide_difference(*(undisturbed(side) for side in zip(*windows, strict=True)))


def seconds(work: Callable[[], object]) -> float:
    """CPU time of the fastest of many calls."""
    times = []
    for _ in range(30):
        begun = time.thread_time()
        work()
        times.append(time.thread_time() - begun)
    return min(times)


def ratio_of_product() -> float:
    """A linear layer of that GPT: bfloat16 against float."""
    times = {}
    for dtype in (torch.bfloat16, torch.float):
        inputs, weight = torch.randn(512, 384, dtype=dtype), torch.randn(1536, 384, dtype=dtype)
        times[dtype] = seconds(lambda i=inputs, w=weight: torch.nn.functional.linear(i, w))  # type: ignore[misc]
    return times[torch.bfloat16] / times[torch.float]


def ratio_of_attention() -> float:
    """Backward of its attention: bfloat16 against float."""
    times = {}
    for dtype in (torch.bfloat16, torch.float):
        parts = [torch.randn(8, 6, 64, 64, dtype=dtype, requires_grad=True) for _ in range(3)]
        out = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        grad = torch.randn_like(out)
        times[dtype] = seconds(lambda o=out, p=parts, g=grad: torch.autograd.grad(o, p, g, retain_graph=True))  # type: ignore[misc]
    return times[torch.bfloat16] / times[torch.float]


def in_backward(found: Attribution, category: str) -> int:
    part = next(part for part in found.parts if part.category == category)
    return dict(part.phases)["backward"]


@pytest.mark.slow
def test_amp_on_this_cpu_is_blamed_and_praised_for_what_the_clock_says_in_every_run() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected = {"attention": ratio_of_attention(), "gemm": ratio_of_product()}
        fp32, amp = made("fp32"), made("amp")
        found = [attributed(fp32, amp) for _ in range(RUNS)]
    finally:
        torch.set_num_threads(threads)

    for category, ratio in expected.items():
        differences_ns = [in_backward(one, category) for one in found]
        message = ", ".join(f"{ns / 1e6:+.1f}" for ns in differences_ns)
        print(f"{category} alone takes {ratio:.2f} x as long in bfloat16; within a step, ms: {message}")
        if ratio > CLEARLY:
            assert all(ns > 0 for ns in differences_ns), message
        elif ratio < 1 / CLEARLY:
            assert all(ns < 0 for ns in differences_ns), message
    for one in found:
        assert sum(part.difference_ns for part in one.parts) == one.difference_ns
