"""Training steps of an LSTM language model on random tokens: many small products in sequence."""

from __future__ import annotations

from ..contract import Request, Size, Step, Workload
from ..flops import TextShape, lstm_training_flops
from ..steps import adamw, next_token_loss, training_step

MINI = TextShape(layers=2, heads=0, width=256, context=64, vocabulary=256)
FULL = TextShape(layers=2, heads=0, width=1024, context=256, vocabulary=256)


def _size(shape: TextShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={
            **shape.parameters(),
            "batch": batch,
            "optimizer": "adamw",
            "learning_rate": 1e-3,
            "data": "uniform tokens",
        },
        units_per_step=float(batch * shape.context),
        flops_per_step=batch * lstm_training_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=116,
    )


def build(request: Request) -> Step:
    """Random weights, one batch of uniform random tokens on the device, initial states of 0, AdamW."""
    import torch

    from ..models import Lstm

    shape = TextShape.described(request.parameters)
    torch.manual_seed(request.seed)
    with torch.device(request.device):
        model = Lstm(shape)
    generator = torch.Generator().manual_seed(request.seed)
    tokens = torch.randint(
        shape.vocabulary, (request.integer("batch"), shape.context + 1), generator=generator
    ).to(request.device)
    optimizer = adamw(model, float(request.parameters["learning_rate"]), request.device)
    return training_step([lambda: next_token_loss(model, tokens)], optimizer, request)


WORKLOAD = Workload(
    name="lstm_train",
    version=1,
    title="LSTM training",
    question="How fast does a recurrent network train, whose steps wait for each other?",
    workload_class="training",
    unit="tok",
    sizes={
        "mini": _size(MINI, 16, 100),
        "base": _size(FULL, 64, 1500),
        "large": _size(FULL, 256, 5000),
        "xl": _size(FULL, 512, 10000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
)
