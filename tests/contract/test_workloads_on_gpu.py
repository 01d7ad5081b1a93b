"""Properties that only a CUDA device can show: nothing in a step synchronizes, and every copy arrives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from gputui.worker.contract import Request, Step, Workload
from gputui.worker.steps import resolve
from gputui.worker.workloads import WORKLOADS, workload_named, xfer

pytestmark = pytest.mark.gpu

WAITED_FOR = {"infer_lat", "style_fps"}
"""Workloads whose results reach the host, as that is their work."""
SMALLEST = [
    (workload, size)
    for workload in WORKLOADS
    if "gpu" in workload.device_classes and workload is not xfer.WORKLOAD
    for size in workload.sizes
    if size.partition("-")[0] == "mini"
]
each_smallest = pytest.mark.parametrize(
    ("workload", "size"), SMALLEST, ids=lambda value: getattr(value, "name", value)
)


def built(workload: Workload, size: str, precision: str = "fp32") -> Step:
    used = resolve(precision, "cuda")
    used.apply()
    return workload.build(Request(workload.sizes[size].parameters, "cuda", used, 1, 1))


@contextmanager
def no_waiting() -> Iterator[None]:
    """Raise if an operation makes the host wait for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@each_smallest
def test_a_step_only_enqueues_unless_its_answer_reaches_the_host(workload: Workload, size: str) -> None:
    step = built(workload, size)
    step.run()
    step.run()
    if workload.name in WAITED_FOR:
        with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
            step.run()
    else:
        with no_waiting():
            step.run()


@each_smallest
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_the_numbers_of_some_steps_are_finite(workload: Workload, size: str, precision: str) -> None:
    if precision not in workload.precisions:
        precision = workload.precisions[0]
    step = built(workload, size, precision)
    for _ in range(5):
        step.run()
    assert all(math.isfinite(number()) for number in (step.loss, step.result) if number is not None)


@pytest.mark.parametrize("name", list(xfer.WORKLOAD.sizes))
def test_a_transfer_has_moved_every_byte_when_its_block_ends(name: str) -> None:
    step = xfer.build(Request(xfer.WORKLOAD.sizes[name].parameters, "cuda", resolve("fp32", "cuda"), 1, 1))
    moved_to = step.run()
    torch.cuda.synchronize()
    count = int(xfer.WORKLOAD.sizes[name].parameters["bytes"])
    generator = torch.Generator().manual_seed(1)
    pattern = torch.randint(256, (min(count, 2**22),), dtype=torch.uint8, generator=generator)
    for target in moved_to if isinstance(moved_to, tuple) else (moved_to,):
        assert torch.equal(target.cpu(), pattern.repeat(count // pattern.numel()))


@pytest.mark.parametrize("name", ["4k-h2d", "1m-d2h", "256m-both"])
def test_a_transfer_of_pinned_memory_only_enqueues(name: str) -> None:
    step = xfer.build(Request(xfer.WORKLOAD.sizes[name].parameters, "cuda", resolve("fp32", "cuda"), 1, 1))
    step.run()
    with no_waiting():
        step.run()


def test_a_model_generates_on_the_device_what_it_generates_when_begun_again() -> None:
    workload = workload_named("decode")
    described = workload.sizes["mini"].parameters | {"layers": 2, "cache": 16, "prompt": 4}
    step = workload.build(Request(described, "cuda", resolve("fp32", "cuda"), 1, 1))
    texts = []
    for _ in range(2):
        scores = [step.run() for _ in range(12)]
        texts.append(torch.stack([one for one in scores if isinstance(one, torch.Tensor)]))
    torch.testing.assert_close(texts[0], texts[1])
