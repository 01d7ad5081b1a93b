"""Fine-tuning steps of a BERT-style text classifier on random tokens."""

from __future__ import annotations

from dataclasses import replace

from ..contract import Request, Size, Step, Workload
from ..flops import TextShape, encoder_forward_flops
from ..steps import adamw, training_step
from .classifiers import TEXT_BASE, TEXT_MINI

LONG = replace(TEXT_BASE, context=384)
"""BERT-base at the length that question answering is tuned with."""


def _size(shape: TextShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={
            **shape.parameters(),
            "batch": batch,
            "dropout": 0.1,
            "optimizer": "adamw",
            "learning_rate": 5e-5,
            "data": "uniform tokens",
        },
        units_per_step=float(batch),
        flops_per_step=3 * batch * encoder_forward_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=185 * shape.layers + 79,
    )


def build(request: Request) -> Step:
    """All weights trained from random ones, dropout on, one batch on the device, AdamW."""
    import torch

    from ..models import Encoder

    shape = TextShape.described(request.parameters)
    torch.manual_seed(request.seed)
    with torch.device(request.device):
        model = Encoder(shape, dropout=float(request.parameters["dropout"]))
    generator = torch.Generator().manual_seed(request.seed)
    batch = request.integer("batch")
    tokens = torch.randint(shape.vocabulary, (batch, shape.context), generator=generator).to(request.device)
    labels = torch.randint(shape.classes, (batch,), generator=generator).to(request.device)
    optimizer = adamw(model, float(request.parameters["learning_rate"]), request.device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens), labels)

    return training_step([loss], optimizer, request)


WORKLOAD = Workload(
    name="bert_ft",
    version=1,
    title="BERT fine-tuning",
    question="How many texts per second is a classifier tuned on here?",
    workload_class="training",
    unit="seq",
    sizes={
        "mini": _size(TEXT_MINI, 8, 300),
        "base": _size(TEXT_BASE, 32, 4500),
        "large": _size(LONG, 32, 11000),
        "xl": _size(LONG, 128, 38000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile"),
    needs_torch=True,
    build=build,
)
