"""Attribution against the clock: what it blames for a difference is what takes longer when timed alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gputui.analysis.attribution import Attribution, ProfiledSide, divide_difference
from gputui.recording.supervisor import _profiled
from gputui.worker.profiled_launch import ProfiledLaunch
from gputui.worker.workloads import workload_named

RUNS = 5
CLEARLY = 1.5
"""Ratio of an operator timed alone, from which its sign within a step is beyond doubt."""


class Heard:
    """Takes the place of the channel: what was sent stays here."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **message: Any) -> None:
        self.messages.append(message)


def side(precision: str) -> ProfiledSide:
    """A small GPT's training step under the profiler, on one thread."""
    heard = Heard()
    described = {
        "device": "cpu",
        "threads": 1,
        "seed": 1,
        "allowance_s": 60,
        "trace": "",
        "cases": [{"case_id": 0, "workload": "gpt_train", "size": "mini", "precision": precision}],
    }
    workload = workload_named("gpt_train")
    ProfiledLaunch(described, heard, time.monotonic_ns(), workload).run()  # type: ignore[arg-type]
    (message,) = json.loads(json.dumps(heard.messages))
    found = _profiled(0, message)
    assert (found.is_valid, found.fault()) == (True, "")
    return ProfiledSide(found, found.window_ns // found.steps, is_on_device=False)


def seconds(work: Callable[[], object]) -> float:
    """The fastest of many calls."""
    times = []
    for _ in range(30):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
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
        parts = [torch.randn(2, 6, 256, 64, dtype=dtype, requires_grad=True) for _ in range(3)]
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
        found = [divide_difference(side("fp32"), side("amp")) for _ in range(RUNS)]
    finally:
        torch.set_num_threads(threads)

    for category, ratio in expected.items():
        differences_ns = [in_backward(one, category) for one in found]
        told = ", ".join(f"{ns / 1e6:+.1f}" for ns in differences_ns)
        print(f"{category} alone takes {ratio:.2f} x as long in bfloat16; within a step, ms: {told}")
        if ratio > CLEARLY:
            assert all(ns > 0 for ns in differences_ns), told
        elif ratio < 1 / CLEARLY:
            assert all(ns < 0 for ns in differences_ns), told
    for one in found:
        assert sum(part.difference_ns for part in one.parts) == one.difference_ns
