"""One training step: forward, backward, optimizer, in the requested precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: torch's types

import torch

from ..contract import Request, Step
from .compiling import compiled


def training_step(loss: Callable[[], Any], optimizer: Any, request: Request) -> Step:
    """Build the step of a training workload from its loss and its optimizer."""
    precision = request.precision
    scaler = torch.amp.GradScaler(request.device) if precision.needs_scaler() else None
    loss = compiled(loss, request)
    last: list[Any] = [None]

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision.autocast():
            value = loss()
        if scaler is None:
            value.backward()
            optimizer.step()
        else:
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
        last[0] = value.detach()

    return Step(
        run,
        loss=lambda: float(last[0]),
        loss_scale=None if scaler is None else lambda: float(scaler.get_scale()),
    )
