"""What steps are made of: random numbers, precisions, torch.compile, graphs, training, inference, latencies.

In: a model and a request. Out: a `Step`.
"""

from __future__ import annotations

import atexit
import importlib.util
import math
import os
import random
import shutil
import sysconfig
import tempfile
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any  # Any: torch's types, which may not be installed

from . import PRECISIONS, accelerator
from .contract import Figure, Precision, Request, Step, Unsupported, Value

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
    if requested not in PRECISIONS:
        raise Unsupported(f"no precision is called {requested}")
    if requested == "amp":
        return Precision(requested, accelerator.amp_of(device), device)
    if requested != "fp32":
        accelerator.require_precision(device, requested)
    return Precision(requested, requested, device)


COMPILE = "compile"
COMPILE_FIGURE = Figure("compile_s", "compiling, before the first step", "s", "less", "median")
STEP_TIMES = (
    Figure("device_step_s", "device time of a step", "s", "less", "median"),
    Figure("host_step_s", "host time of a step", "s", "less", "median"),
)
"""Of each case on a GPU: what the device takes for a step that is enqueued, and the host to enqueue one."""


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


GRAPH = "graph"


def recorded(run: Callable[[], object], request: Request) -> Callable[[], object]:
    """What repeats `run` in the request's mode: itself, or a graph of the operators of one call.

    A graph reads and writes the tensors of that call again, so `run` keeps its state in those. It is called
    a few times here. On a CPU, which launches nothing, it repeats itself. Raises Unsupported where torch has
    no graphs.
    """
    if request.mode != GRAPH or request.device in ("cpu", "meta"):
        return run
    return accelerator.captured(request.device, run)


def what_is_lacking(device: str, which: Callable[[str], str | None] = shutil.which) -> str:
    """What inductor needs and this machine lacks; empty if nothing is missing."""
    if device in accelerator.TRITON:
        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs triton on a GPU, and this interpreter has none"
        if not _compiler("CC", ("cc", "gcc", "clang"), which):
            return "torch.compile needs a C compiler"
    elif not _compiler("CXX", ("c++", "g++", "clang++"), which):
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


def adamw(model: Any, rate: float, device: str) -> Any:
    """AdamW over all weights: in one kernel where the device has it, else as torch does it by default."""
    import torch

    fused = device in accelerator.ADAMW_FUSED or None
    return torch.optim.AdamW(model.parameters(), lr=rate, fused=fused)


def sgd(model: Any, device: str) -> Any:
    """SGD with momentum over all weights, likewise."""
    import torch

    fused = device in accelerator.SGD_FUSED or None
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=fused)


def training_step(losses: Sequence[Callable[[], Any]], optimizer: Any, request: Request) -> Step:
    """A step on the sum of some losses, one after the other, and the optimizer."""
    import torch

    autocast = request.precision.autocast
    scaler = torch.amp.GradScaler(request.device) if request.precision.needs_scaler() else None
    losses = [compiled(loss, request) for loss in losses]
    last: list[Any] = []

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        last.clear()
        for loss in losses:
            with autocast():
                value = loss()
            (value if scaler is None else scaler.scale(value)).backward()
            last.append(value.detach())
            del value
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    return Step(
        run,
        loss=lambda: float(sum(last)),
        loss_scale=None if scaler is None else lambda: float(scaler.get_scale()),
    )


def next_token_loss(model: Callable[[Any], Any], tokens: Any) -> Any:
    """Cross-entropy of each token (batch, context + 1), from the scores of those before it."""
    import torch

    scores = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))


CONFIDENCE = 0.99
"""A percentile is reported if, with this confidence, at least one request was slower than the true one."""
FRACTIONS = (0.25, 0.50, 0.75, 0.90)
"""Arrival rates of the open loop, as shares of the measured throughput."""
ENOUGH_REQUESTS = 1000
LEAST_OPEN_S = 0.5
"""A queue needs time to build up, however many requests a fast device answers in that time."""
SHORTEST_WAIT_S = 1e-6
QUEUE_GREW = "the queue grew"
"""Begins the reason of a missing wait if requests arrived faster than they were served; else too few arrived.
"""
OVERRUN = 2.0
"""If a load takes longer than this many times its length, it is more than can be served."""


def requests_for(share: float) -> int:
    """Requests needed to report a percentile: 1 − share^n ≥ 0.99; 7 for the median, 44, and 459 for p99."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


def percentile(latencies: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    return sorted(latencies)[max(math.ceil(share * len(latencies)) - 1, 0)]


def percentile_value(latencies_s: Sequence[float], share: float) -> Value:
    """A percentile, or the reason if there were too few requests."""
    count, needed = len(latencies_s), requests_for(share)
    if count < needed:
        return Value(None, count, f"{count} requests; p{share * 100:.0f} needs {needed}")
    return Value(percentile(latencies_s, share), count)


class Stopwatched:
    """`run`, recording how long each call took; for work that is complete when the call returns."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self.taken_s: list[float] = []

    def __call__(self) -> object:
        begun = time.perf_counter()
        answer = self._run()
        self.taken_s.append(time.perf_counter() - begun)
        return answer


def open_loop(
    per_s: float,
    serve: Callable[[int], object],
    at_once: int,
    *,
    length_s: float,
    seed: int,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[int, list[float]]:
    """Send requests at random (Poisson), `per_s` on average; serve all that wait, at most `at_once` together.

    `serve` answers this many requests and returns when their answers are there. Returns how many were sent,
    and the latencies of those answered, in sending order. A latency counts from the moment its request was to
    be sent, so that a server that falls behind cannot hide it. Requests stop after `length_s`, or once there
    were enough; waiting ends at OVERRUN times that.
    """
    chance, sent = random.Random(seed), list[float]()
    at = chance.expovariate(per_s)
    while at <= length_s and (len(sent) < ENOUGH_REQUESTS or at <= LEAST_OPEN_S):
        sent.append(at)
        at += chance.expovariate(per_s)
    latencies_s: list[float] = []
    start = clock()
    while len(latencies_s) < len(sent):
        now = clock() - start
        if now > OVERRUN * max(sent[-1], LEAST_OPEN_S):
            break
        unanswered = sent[len(latencies_s) : len(latencies_s) + at_once]
        count = bisect(unanswered, now)
        if count:
            serve(count)
            done = clock() - start
            latencies_s += [done - at for at in unanswered[:count]]
        else:
            wait(max(unanswered[0] - now, SHORTEST_WAIT_S))
    return len(sent), latencies_s


def open_loop_figures() -> tuple[Figure, ...]:
    """Median and p99 at each fraction of the throughput."""
    return tuple(
        Figure(_key(share, fraction), f"p{share * 100:.0f} at {fraction:.0%} load", "s", "less", "median")
        for fraction in FRACTIONS
        for share in (0.5, 0.99)
    )


def open_loop_values(
    requests_per_s: float, serve: Callable[[int], object], at_once: int, *, length_s: float, seed: int
) -> dict[str, Value]:
    """The figures, measured for `length_s` at each fraction of this throughput."""
    values = {}
    for number, fraction in enumerate(FRACTIONS):
        sent, latencies_s = open_loop(
            fraction * requests_per_s, serve, at_once, length_s=length_s, seed=seed * len(FRACTIONS) + number
        )
        behind = sent - len(latencies_s)
        grew = Value(None, len(latencies_s), f"{QUEUE_GREW}: {behind} of {sent} unanswered")
        for share in (0.5, 0.99):
            values[_key(share, fraction)] = grew if behind else percentile_value(latencies_s, share)
    return values


def _key(share: float, fraction: float) -> str:
    return f"p{share * 100:.0f}_at_{fraction * 100:.0f}_s"


def served(make: Callable[[], Any], request: Request) -> Any:
    """The model as it is deployed: on the device, without dropout and gradients.

    `make` builds it with random weights; torch's default device is set meanwhile.

    With `amp` the weights are converted once, here, to autocast's dtype: autocast itself would convert every
    weight again in every step, which no deployment does.
    """
    import torch

    torch.manual_seed(request.seed)
    with torch.device(request.device):
        model = make().eval().requires_grad_(False)
    return model.to(device=request.device, dtype=request.precision.product_dtype())


def on_host(tensor: Any, request: Request) -> Any:
    """The tensor in host memory, pinned if the device can read it directly."""
    if request.device == "meta":  # FLOPs are counted there, without data
        return tensor.to("meta")
    return tensor.pin_memory() if request.device in accelerator.PINNED else tensor


def request_step(
    model: Any,
    host_input: Any,
    answer: Any,
    request: Request,
    *,
    finish: Callable[[Any], Any] = lambda output: output,
) -> Step:
    """One request at a time: input from host to device, the model, and the answer back to the host.

    A request ends when its answer arrives, so every step waits. `answer` is overwritten; it has the shape and
    dtype of what `finish` returns, on the device, for the model's output.
    """
    import torch

    host_input, answer = on_host(host_input, request), on_host(answer, request)
    given = [host_input.to(request.device)]
    last: list[Any] = [None]

    def forward() -> None:
        last[0] = model(given[0])

    with torch.inference_mode():
        replay = recorded(forward, request)

    def run() -> object:
        with torch.inference_mode():
            if request.mode == GRAPH:
                given[0].copy_(host_input, non_blocking=True)
            else:
                given[0] = host_input.to(request.device, non_blocking=True)
            replay()
            return answer.copy_(finish(last[0]))

    return Step(run, result=lambda: float(last[0].float().abs().mean()))


def batch_step(model: Any, batch: Any, request: Request) -> Step:
    """The model on a batch in device memory; the output stays there."""
    import torch

    batch = batch.to(request.device)
    last: list[Any] = [None]

    def run() -> object:
        with torch.inference_mode():
            last[0] = model(batch)
        return last[0]

    return Step(run, result=lambda: float(last[0].float().abs().mean()))


def answering(model: Any, host_batch: Any, request: Request) -> Callable[[int], object]:
    """A server of up to a full batch of requests, with input from the host and scores back to it.

    Batches are padded to a power of two, as in servers that must not meet a new shape under load; each of
    these sizes is run once here.
    """
    import torch

    full = int(host_batch.shape[0])
    host_batch = on_host(host_batch, request)

    def serve(requests: int) -> object:
        size = min(1 << (requests - 1).bit_length(), full)
        with torch.inference_mode():
            return model(host_batch[:size].to(request.device, non_blocking=True)).cpu()

    for exponent in range((full - 1).bit_length()):
        serve(1 << exponent)
    serve(full)
    return serve
