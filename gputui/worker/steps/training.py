"""One training step: forward, backward, optimizer, in the requested precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # Any: torch's types

import torch

from ..contract import Request, Step
from ..profiling.allocations import PhaseOf, no_phases
from .compiling import compiled


def training_step(loss: Callable[[], Any], optimizer: Any, request: Request) -> Step:
    """Build the step of a training workload from its loss and its optimizer."""
    return step_in_phases([compiled(loss, request)], optimizer, request)[1]


def step_in_phases(
    losses: Sequence[Callable[[], Any]], optimizer: Any, request: Request
) -> tuple[Callable[[PhaseOf], None], Step]:
    """A step on the sum of some losses, one after the other; also as a function that marks its phases."""
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
    scores = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))
