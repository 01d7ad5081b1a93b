"""Inference steps: requests that come from the host and return to it, and batches that stay on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: torch's types

import torch

from ..contract import Request, Step


def served(make: Callable[[], Any], request: Request) -> Any:
    """The model as it is deployed: on the device, without dropout and gradients.

    `make` builds it with random weights; torch's default device is set meanwhile.

    With `amp` the weights are converted once, here, to autocast's dtype: autocast itself would convert every
    weight again in every step, which no deployment does.
    """
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
    host_input, answer = on_host(host_input, request), on_host(answer, request)
    last: list[Any] = [None]

    def run() -> object:
        with torch.inference_mode():
            last[0] = model(host_input.to(request.device, non_blocking=True))
            return answer.copy_(finish(last[0]))

    return Step(run, result=lambda: float(last[0].float().abs().mean()))


def batch_step(model: Any, batch: Any, request: Request) -> Step:
    """The model on a batch in device memory; the output stays there."""
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
