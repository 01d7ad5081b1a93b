"""Training steps on random tokens: of a GPT, of a BERT-style classifier, and of an LSTM, whose steps are many
small products in sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any  # Any: torch's types

from ..contract import Parameter, Request, Size, Step, Workload
from ..flops import TextShape, encoder_forward_flops, gpt_training_flops, lstm_training_flops
from ..steps import adamw, next_token_loss, training_step

MINI = TextShape(layers=6, heads=6, width=384, context=256, vocabulary=256)
"""The character-level shape of nanoGPT, over bytes."""
BASE = TextShape(layers=12, heads=12, width=768, context=1024, vocabulary=50304)
"""GPT-2 124M, its vocabulary padded to a multiple of 64 as nanoGPT does."""
MEDIUM = TextShape(layers=24, heads=16, width=1024, context=1024, vocabulary=50304)
"""GPT-2 355M."""
COMMON = TextShape(layers=4, heads=16, width=2048, context=1024, vocabulary=8192)
"""Four layers as wide as those of GPT-3 1.3B: so many FLOPs per operator that the host keeps up."""
BERT_MINI = TextShape(layers=4, heads=4, width=256, context=128, vocabulary=30522, classes=2)
BERT_BASE = TextShape(layers=12, heads=12, width=768, context=128, vocabulary=30522, classes=2)
"""110M."""
BERT_LONG = replace(BERT_BASE, context=384)
"""At the length that question answering is tuned with."""
LSTM_MINI = TextShape(layers=2, heads=0, width=256, context=64, vocabulary=256)
LSTM = TextShape(layers=2, heads=0, width=1024, context=256, vocabulary=256)


def described(shape: TextShape) -> dict[str, Parameter]:
    """What every size has in which a GPT is trained, without the batch."""
    return {**shape.parameters(), "optimizer": "adamw", "data": "uniform tokens"}


def _size(
    shape: TextShape,
    batch: int,
    memory_mib: int,
    *,
    units: int,
    flops: int,
    operators: int,
    **more: Parameter,
) -> Size:
    """`units` and `flops` are those of a text."""
    return Size(
        parameters={**described(shape), "batch": batch, **more},
        units_per_step=float(batch * units),
        flops_per_step=batch * flops,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=operators,
    )


def _gpt(shape: TextShape, batch: int, memory_mib: int) -> Size:
    flops, operators = gpt_training_flops(shape), 122 * shape.layers + 52
    return _size(shape, batch, memory_mib, units=shape.context, flops=flops, operators=operators)


def _bert(shape: TextShape, batch: int, memory_mib: int) -> Size:
    flops, operators = 3 * encoder_forward_flops(shape), 185 * shape.layers + 79
    more: dict[str, Parameter] = {"dropout": 0.1, "learning_rate": 5e-5}
    return _size(shape, batch, memory_mib, units=1, flops=flops, operators=operators, **more)


def _lstm(shape: TextShape, batch: int, memory_mib: int) -> Size:
    flops, rate = lstm_training_flops(shape), 1e-3
    return _size(
        shape, batch, memory_mib, units=shape.context, flops=flops, operators=116, learning_rate=rate
    )


def made(
    request: Request, data_seed: int, shard: Callable[[Any, str], None] | None = None
) -> tuple[Any, Any, Any]:
    """A GPT with the weights of `request.seed`, or an LSTM where the shape has no heads; a batch of uniform
    random tokens of `data_seed`, on the device; and AdamW.

    `shard` gets a model without weights and the device on which it is to draw this process's part of them.
    """
    import torch

    from ..models import Gpt, Lstm

    shape = TextShape.described(request.parameters)
    torch.manual_seed(request.seed)
    with torch.device("meta" if shard else request.device):
        model = Gpt(shape) if shape.heads else Lstm(shape)
    if shard:
        shard(model, request.device)
    generator = torch.Generator().manual_seed(data_seed)
    tokens = torch.randint(
        shape.vocabulary, (request.integer("batch"), shape.context + 1), generator=generator
    ).to(request.device)
    rate = float(request.parameters.get("learning_rate", 3e-4))
    return model, tokens, adamw(model, rate, request.device)


def build_decoder(request: Request) -> Step:
    """Forward, backward and optimizer on the same tokens in every step; the first states of an LSTM are 0."""
    model, tokens, optimizer = made(request, request.seed)
    return training_step([lambda: next_token_loss(model, tokens)], optimizer, request)


def build_classifier(request: Request) -> Step:
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


GPT_TRAINING = Workload(
    name="gpt_train",
    version=1,
    title="GPT training",
    question="How many tokens per second does a GPT train at here?",
    workload_class="training",
    unit="tok",
    sizes={
        "mini": _gpt(MINI, 2, 300),
        "common": _gpt(COMMON, 8, 9500),
        "base": _gpt(BASE, 2, 5000),
        "large": _gpt(BASE, 8, 14000),
        "xl": _gpt(MEDIUM, 16, 46000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile"),
    needs_torch=True,
    build=build_decoder,
)

BERT_TUNING = Workload(
    name="bert_ft",
    version=1,
    title="BERT fine-tuning",
    question="How many texts per second is a classifier tuned on here?",
    workload_class="training",
    unit="seq",
    sizes={
        "mini": _bert(BERT_MINI, 8, 300),
        "base": _bert(BERT_BASE, 32, 4500),
        "large": _bert(BERT_LONG, 32, 11000),
        "xl": _bert(BERT_LONG, 128, 38000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile"),
    needs_torch=True,
    build=build_classifier,
)

LSTM_TRAINING = Workload(
    name="lstm_train",
    version=1,
    title="LSTM training",
    question="How fast does a recurrent network train, whose steps wait for each other?",
    workload_class="training",
    unit="tok",
    sizes={
        "mini": _lstm(LSTM_MINI, 16, 100),
        "base": _lstm(LSTM, 64, 1500),
        "large": _lstm(LSTM, 256, 5000),
        "xl": _lstm(LSTM, 512, 10000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build_decoder,
)
