"""Steps that are replayed as a graph, on a device whose graphs are operators recorded on a CPU.

No graph has been seen on hardware yet. What is tested is what a graph needs of a step: that all that changes
from one step to the next lies in tensors that stay where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any  # torch's own types
from unittest import mock

import pytest
import torch
from test_workloads import TINY
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gputui.worker import accelerator, steps
from gputui.worker.contract import Precision, Request, Step, Unsupported
from gputui.worker.workloads import workload_named

torch.set_num_threads(1)


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is not read by mypy
    """Notes each operator with the very tensors that it read and wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = operator(*args, **(kwargs or {}))
        self.calls.append((operator, args, kwargs or {}, given))
        return given

    def replay(self) -> None:
        """Run the operators again on the same tensors, without the code that called them."""
        for operator, args, kwargs, given in self.calls:
            again = operator(*args, **kwargs)
            for old, new in zip(tree_leaves(given), tree_leaves(again), strict=True):
                if torch.is_tensor(old) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class FakeGraph:
    """As `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.recorder = Recorder()

    def replay(self) -> None:
        """Repeat what was captured."""
        self.recorder.replay()


ENTERED: list[Any] = []
"""The streams on which something was launched or captured."""


def on_stream(stream: Any) -> Any:
    ENTERED.append(stream)
    return contextlib.nullcontext()


def on_graph(graph: FakeGraph, stream: Any) -> Recorder:
    ENTERED.append(stream)
    return graph.recorder


FAKE_TORCH = SimpleNamespace(
    CUDAGraph=FakeGraph,
    Stream=mock.MagicMock,
    current_stream=mock.MagicMock,
    stream=on_stream,
    graph=on_graph,
)
"""What torch has for a device of one stream; its tensors lie on the CPU."""


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in mode `graph` are captured by the fake device."""
    monkeypatch.setattr(accelerator, "module_of", lambda device: FAKE_TORCH)

    def recorded(run: Callable[[], object], request: Request) -> Callable[[], object]:
        return accelerator.captured("fake", run) if request.mode == steps.GRAPH else run

    monkeypatch.setattr(steps, "recorded", recorded)


def request_of(workload: str, mode: str, size: str, device: str = "cpu") -> Request:
    declared = workload_named(workload).sizes[size].parameters
    parameters = {**declared, **{n: v for n, v in TINY[workload].items() if n in declared}}
    return Request(parameters, device, Precision("fp32", "fp32", device), threads=1, seed=3, mode=mode)


def tiny(workload: str, mode: str, size: str) -> Step:
    return workload_named(workload).build(request_of(workload, mode, size))


def scores_of(step: Step, count: int) -> list[torch.Tensor]:
    return [torch.as_tensor(step.run()).clone() for _ in range(count)]


@pytest.mark.parametrize("size", ["mini", "mini-b8"])
def test_eager_and_replayed_decoding_write_the_same_tokens_also_after_the_text_starts_over(
    size: str, fake_device: None
) -> None:
    eager = scores_of(tiny("decode", "eager", size), 30)  # the cache holds 12 after the prompt
    replayed = scores_of(tiny("decode", "graph", size), 30)
    tokens = [[scores.argmax(dim=-1).tolist() for scores in run] for run in (eager, replayed)]
    assert tokens[0] == tokens[1]
    assert tokens[0][:12] == tokens[0][12:24]
    assert len({str(token) for token in tokens[0]}) > 1
    for one, other in zip(eager, replayed, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("size", ["mini-text", "mini-image"])
def test_a_replayed_request_gives_the_scores_of_an_eager_one(size: str, fake_device: None) -> None:
    (eager,) = scores_of(tiny("infer_lat", "eager", size), 1)
    for replayed in scores_of(tiny("infer_lat", "graph", size), 3):
        torch.testing.assert_close(replayed, eager)


def test_a_step_that_keeps_its_place_in_python_would_be_found(fake_device: None) -> None:
    place, cells = 0, torch.zeros(8)

    def run() -> None:
        nonlocal place
        cells[place] += 1
        place += 1

    replay = steps.recorded(run, request_of("decode", "graph", "mini"))
    assert cells.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]  # on a device, the captured call computes nothing
    assert ENTERED[-2] is ENTERED[-1], "libraries set themselves up on the stream of the capture"
    for _ in range(3):
        replay()
    assert cells.tolist() == [1, 1, 1, 4, 0, 0, 0, 0]


def test_a_cpu_has_no_launches_to_save_and_other_devices_no_graphs() -> None:
    def run() -> None:
        raise AssertionError("not to be called before the first step")

    assert steps.recorded(run, request_of("decode", "graph", "mini")) is run
    for device in ("mps", "xpu"):
        with pytest.raises(Unsupported, match=f"torch captures no graphs on {device}"):
            steps.recorded(run, request_of("decode", "graph", "mini", device))
