"""Inference steps: requests that come from the host and return to it, and batches that stay on the device."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any  # Any: torch's types

from ..contract import Figure, Request, Step, Value

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
    needed = requests_for(share)
    if len(latencies_s) < needed:
        return Value(
            None, len(latencies_s), f"{len(latencies_s)} requests; p{share * 100:.0f} needs {needed}"
        )
    return Value(percentile(latencies_s, share), len(latencies_s))


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


def arrivals(per_s: float, seed: int) -> Iterator[float]:
    """Send times of requests: a Poisson process of this rate, in seconds from 0; reproducible by seed."""
    chance = random.Random(seed)
    at = 0.0
    while True:
        at += chance.expovariate(per_s)
        yield at


@dataclass(frozen=True)
class OpenLoop:
    """Requests that were sent at random times, not one after the other's answer."""

    sent: int
    latencies_s: tuple[float, ...]
    """Of those answered, in sending order, counted from the moment each was to be sent."""


def open_loop(
    per_s: float,
    serve: Callable[[int], object],
    at_once: int,
    *,
    length_s: float,
    seed: int,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[float], None] = time.sleep,
) -> OpenLoop:
    """Send requests at random, `per_s` on average; serve all that wait, at most `at_once` together.

    `serve` answers this many requests and returns when their answers are there. A latency counts from the
    moment its request was to be sent, so that a server that falls behind cannot hide it. Requests stop after
    `length_s`, or once there were enough; waiting ends at OVERRUN times that.
    """
    sent: list[float] = []
    for at in arrivals(per_s, seed):
        if at > length_s or (len(sent) >= ENOUGH_REQUESTS and at > LEAST_OPEN_S):
            break
        sent.append(at)
    answered: list[float] = []
    start = clock()
    while len(answered) < len(sent):
        now = clock() - start
        if now > OVERRUN * max(sent[-1], LEAST_OPEN_S):
            break
        first = len(answered)
        here = first
        while here < len(sent) and here - first < at_once and sent[here] <= now:
            here += 1
        if here == first:
            wait(max(sent[first] - now, SHORTEST_WAIT_S))
            continue
        serve(here - first)
        done = clock() - start
        answered.extend(done - at for at in sent[first:here])
    return OpenLoop(len(sent), tuple(answered))


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
        found = open_loop(
            fraction * requests_per_s, serve, at_once, length_s=length_s, seed=seed * len(FRACTIONS) + number
        )
        behind = found.sent - len(found.latencies_s)
        for share in (0.5, 0.99):
            values[_key(share, fraction)] = (
                Value(None, len(found.latencies_s), f"{QUEUE_GREW}: {behind} of {found.sent} unanswered")
                if behind
                else percentile_value(found.latencies_s, share)
            )
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
    return tensor.pin_memory() if request.device in ("cuda", "xpu") else tensor


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
    last: list[Any] = [None]

    def run() -> object:
        with torch.inference_mode():
            last[0] = model(host_input.to(request.device, non_blocking=True))
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

    size = 1
    while size < full:
        serve(size)
        size *= 2
    serve(full)
    return serve
