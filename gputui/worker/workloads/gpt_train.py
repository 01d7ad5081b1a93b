"""Training steps of a GPT on random tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: torch's types

from ..contract import Parameter, Request, Size, Step, Workload
from ..flops import TextShape, gpt_training_flops
from ..steps import adamw, next_token_loss, training_step

MINI = TextShape(layers=6, heads=6, width=384, context=256, vocabulary=256)
"""The character-level shape of nanoGPT, over bytes."""
BASE = TextShape(layers=12, heads=12, width=768, context=1024, vocabulary=50304)
"""GPT-2 124M, its vocabulary padded to a multiple of 64 as nanoGPT does."""
MEDIUM = TextShape(layers=24, heads=16, width=1024, context=1024, vocabulary=50304)
"""GPT-2 355M."""
COMMON = TextShape(layers=4, heads=16, width=2048, context=1024, vocabulary=8192)
"""Four layers as wide as those of GPT-3 1.3B: so many FLOPs per operator that the host keeps up."""


def described(shape: TextShape) -> dict[str, Parameter]:
    """What every size has in which a GPT is trained, without the batch."""
    return {**shape.parameters(), "optimizer": "adamw", "data": "uniform tokens"}


def _size(shape: TextShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={**described(shape), "batch": batch},
        units_per_step=float(batch * shape.context),
        flops_per_step=batch * gpt_training_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=122 * shape.layers + 52,
    )


def made(
    request: Request, data_seed: int, shard: Callable[[Any, str], None] | None = None
) -> tuple[Any, Any, Any]:
    """A GPT with the weights of `request.seed`, a batch of tokens of `data_seed`, and AdamW.

    `shard` gets a model without weights and the device on which it is to draw this process's part of them.
    """
    import torch

    from ..models import Gpt

    shape = TextShape.described(request.parameters)
    torch.manual_seed(request.seed)
    with torch.device("meta" if shard else request.device):
        model = Gpt(shape)
    if shard:
        shard(model, request.device)
    generator = torch.Generator().manual_seed(data_seed)
    tokens = torch.randint(
        shape.vocabulary, (request.integer("batch"), shape.context + 1), generator=generator
    ).to(request.device)
    return model, tokens, adamw(model, 3e-4, request.device)


def build(request: Request) -> Step:
    """Forward, backward and optimizer on the same tokens in every step."""
    model, tokens, optimizer = made(request, request.seed)
    return training_step([lambda: next_token_loss(model, tokens)], optimizer, request)


WORKLOAD = Workload(
    name="gpt_train",
    version=1,
    title="GPT training",
    question="How many tokens per second does a GPT train at here?",
    workload_class="training",
    unit="tok",
    sizes={
        "mini": _size(MINI, 2, 300),
        "common": _size(COMMON, 8, 9500),
        "base": _size(BASE, 2, 5000),
        "large": _size(BASE, 8, 14000),
        "xl": _size(MEDIUM, 16, 46000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile"),
    needs_torch=True,
    build=build,
)
