"""Steps of the workloads on tensors so small that only the host's work is left: all layers, no width."""

from __future__ import annotations

import time
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gputui.worker import models
from gputui.worker.contract import Precision, Request, Step, Workload

SMALL = dict.fromkeys(("width", "context", "height", "m", "n", "k"), 8)
SMALL |= dict.fromkeys(("heads", "classes", "batch"), 2) | dict.fromkeys(("hidden", "vocabulary"), 16)
SMALL |= {"image": 32, "cache": 64, "prompt": 4, "elements": 1024}


def tiny_step(workload: Workload, size: str, precision: str) -> Step:
    """The step of a size on the CPU with its own number of layers, as a GPU's worker builds it."""
    declared = workload.sizes[size].parameters
    smaller = {name: min(SMALL[name], int(declared[name])) for name in declared if name in SMALL}
    used = Precision(precision, "amp-bf16" if precision == "amp" else precision, "cpu")
    fused = torch.optim.SGD
    with (
        mock.patch.multiple(models, STAGE_WIDTHS=(4, 4, 4, 4), STEM_CHANNELS=4),
        mock.patch("torch.optim.SGD", lambda *given, **named: fused(*given, **{**named, "fused": True})),
    ):
        return workload.build(Request({**declared, **smaller}, "cpu", used, threads=1, seed=1))


class _Counter(TorchDispatchMode):  # type: ignore[misc]  # torch is not read by mypy
    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.operators += 1
        return operator(*args, **(kwargs or {}))


def operators_of(step: Step) -> int:
    """Operators that one step dispatches, the first one left out."""
    step.run()
    with _Counter() as counter:
        step.run()
    return int(counter.operators)


def host_s_of(step: Step, times: int = 25) -> float:
    """CPU seconds of a step, the least of some."""
    taken_s = []
    for _ in range(times):
        begun_s = time.process_time()
        step.run()
        taken_s.append(time.process_time() - begun_s)
    return min(taken_s)
