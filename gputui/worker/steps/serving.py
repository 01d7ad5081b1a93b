"""Inference steps: requests that come from the host and go back, and batches that lie on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # torch's own types

import torch

from ..contract import Request, Step


def served(make: Callable[[], Any], request: Request) -> Any:
    """The model as it is deployed: on the device, no dropout, no gradients.

    `make` gives it with random weights; it is called with the device as torch's default.

    With `amp` the weights are converted once, here, to the type autocast would multiply in: autocast
    itself would convert every weight again in every step, which nobody serves with.
    """
    torch.manual_seed(request.seed)
    with torch.device(request.device):
        model = make().eval().requires_grad_(False)
    return model.to(device=request.device, dtype=request.precision.product_dtype())


def on_host(tensor: Any, request: Request) -> Any:
    """The tensor in the host's memory, pinned where the device can fetch it itself."""
    if request.device == "meta":  # FLOPs are counted there, and nothing leaves it
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
    """One request at a time: input from the host to the device, the model, its answer back on the host.

    The answer's arrival ends a request, so every step waits for it. `answer` is overwritten; it has the shape
    and type of what `finish` makes, on the device, of the model's output.
    """
    host_input, answer = on_host(host_input, request), on_host(answer, request)
    last: list[Any] = [None]

    def run() -> object:
        with torch.inference_mode():
            last[0] = model(host_input.to(request.device, non_blocking=True))
            return answer.copy_(finish(last[0]))

    return Step(run, result=lambda: float(last[0].float().abs().mean()))


def batch_step(model: Any, batch: Any, request: Request) -> Step:
    """The model on a batch that lies on the device; what it answers stays there."""
    batch = batch.to(request.device)
    last: list[Any] = [None]

    def run() -> object:
        with torch.inference_mode():
            last[0] = model(batch)
        return last[0]

    return Step(run, result=lambda: float(last[0].float().abs().mean()))


def answering(model: Any, host_batch: Any, request: Request) -> Callable[[int], object]:
    """A server of up to a full batch of requests: their input leaves the host, their scores come back to it.

    Batches are filled up to a power of two, as servers do that must not meet a new shape under load; each of
    these sizes is done once here.
    """
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
