"""What the build of a step uses: random numbers, a precision, torch.compile, and the loop of a training."""

from __future__ import annotations

import atexit
import importlib.util
import math
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import (
    Any,  # Any: torch's types, which may not be installed  # Any: torch's types  # Any: torch's types
)

from ..contract import Figure, Precision, Request, Step, Unsupported
from ..profiling.allocations import PhaseOf, no_phases

POOL_NUMBERS = 2**22 - 3
"""A prime, so that no row of a matrix is a copy of another, and no tensor of the one before."""


class NumberPool:
    """Fills tensors with the numbers of one tensor in turn, from its start again after its end.

    They have its device and dtype, and memory of their own.
    """

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers
        self._at = 0

    def tensor(self, *shape: int) -> Any:
        """The next numbers, in this shape."""
        import torch

        made = torch.empty(math.prod(shape), dtype=self._numbers.dtype, device=self._numbers.device)
        filled = 0
        while filled < made.numel():
            count = min(self._numbers.numel() - self._at, made.numel() - filled)
            made[filled : filled + count] = self._numbers[self._at : self._at + count]
            filled, self._at = filled + count, (self._at + count) % self._numbers.numel()
        return made.view(shape)


def resolve(requested: str, device: str) -> Precision:
    """What a requested precision becomes here. Raises Unsupported if the device has no such mode."""
    if requested == "fp32":
        return Precision(requested, "fp32", device)
    if requested == "tf32":
        if device != "cuda":
            raise Unsupported("TF32 exists on NVIDIA GPUs only")
        import torch

        if torch.version.hip or torch.cuda.get_device_capability()[0] < 8:
            raise Unsupported("TF32 needs compute capability 8.0")
        return Precision(requested, "tf32", device)
    if requested != "amp":
        raise Unsupported(f"no precision is called {requested}")
    return Precision(requested, "amp-fp16" if device == "mps" or _lacks_bf16(device) else "amp-bf16", device)


def _lacks_bf16(device: str) -> bool:
    if device != "cuda":
        return False
    import torch

    return not torch.cuda.is_bf16_supported(including_emulation=False)


COMPILE = "compile"
COMPILE_FIGURE = Figure("compile_s", "compiling, before the first step", "s", "less", "median")


def compiled(work: Any, request: Request) -> Any:
    """A module or function in the request's mode: unchanged, or through torch.compile.

    It is compiled on the first call, with inductor's defaults, for the shapes of that call, and without
    caches of earlier processes. Raises Unsupported if this machine lacks what the compiler needs.
    """
    if request.mode != COMPILE:
        return work
    lacking = what_is_lacking(request.device)
    if lacking:
        raise Unsupported(lacking)
    _forget_earlier_work()
    import torch
    import torch._inductor.config

    torch._inductor.config.force_disable_caches = True
    return torch.compile(work, dynamic=False)


def what_is_lacking(device: str, which: Callable[[str], str | None] = shutil.which) -> str:
    """What inductor needs and this machine lacks; empty if nothing is missing."""
    if device == "cuda":
        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs triton on a GPU, and this interpreter has none"
        return "" if _compiler("CC", ("cc", "gcc", "clang"), which) else "torch.compile needs a C compiler"
    if not _compiler("CXX", ("c++", "g++", "clang++"), which):
        return "torch.compile needs a C++ compiler on a CPU, and there is none on the path"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "torch.compile needs Python.h of this interpreter, and it is not installed"
    return ""


def _compiler(variable: str, names: tuple[str, ...], which: Callable[[str], str | None]) -> bool:
    chosen = os.environ.get(variable)
    return any(which(name) for name in ((chosen.split()[0],) if chosen and chosen.split() else names))


@cache
def _forget_earlier_work() -> None:
    """Compile from scratch, into a directory that is deleted with this process."""
    place = tempfile.mkdtemp(prefix="gputui-compile-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = place
    os.environ["TRITON_CACHE_DIR"] = str(Path(place) / "triton")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"


def training_step(loss: Callable[[], Any], optimizer: Any, request: Request) -> Step:
    """Build the step of a training workload from its loss and its optimizer."""
    return step_in_phases([compiled(loss, request)], optimizer, request)[1]


def step_in_phases(
    losses: Sequence[Callable[[], Any]], optimizer: Any, request: Request
) -> tuple[Callable[[PhaseOf], None], Step]:
    """A step on the sum of some losses, one after the other; also as a function that marks its phases."""
    import torch

    precision = request.precision
    scaler = torch.amp.GradScaler(request.device) if precision.needs_scaler() else None
    last: list[Any] = []

    def run(phase: PhaseOf = no_phases) -> None:
        optimizer.zero_grad(set_to_none=True)
        last.clear()
        for loss in losses:
            with phase("forward"), precision.autocast():
                value = loss()
            with phase("backward"):
                (value if scaler is None else scaler.scale(value)).backward()
            last.append(value.detach())
            del value
        with phase("optimizer"):
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()

    return run, Step(
        run,
        loss=lambda: float(sum(last)),
        loss_scale=None if scaler is None else lambda: float(scaler.get_scale()),
    )


def next_token_loss(model: Callable[[Any], Any], tokens: Any) -> Any:
    """Cross-entropy of each token (batch, context + 1), from the scores of those before it."""
    import torch

    scores = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))
