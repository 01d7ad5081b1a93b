"""The two classifiers used to measure inference: an encoder for text, a residual network for images."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any  # Any: torch's types, which may not be installed

from ..contract import Parameter, Request
from ..flops import (
    EncoderShape,
    ResNetShape,
    encoder_forward_flops,
    resnet_forward_flops,
    resnet_operators,
    resnet_traffic_bytes,
)
from ..layouts import NHWC, SEARCHED, memory_format

TEXT_MINI = EncoderShape(layers=4, heads=4, width=256, context=128, vocabulary=30522, classes=2)
"""BERT-mini."""
TEXT_BASE = EncoderShape(layers=12, heads=12, width=768, context=128, vocabulary=30522, classes=2)
"""BERT-base, 110M."""
TEXT_LARGE = EncoderShape(layers=24, heads=16, width=1024, context=128, vocabulary=30522, classes=2)
"""BERT-large, 335M."""
IMAGE_MINI = ResNetShape(block="basic", stages=(2, 2, 2, 2), image=64, classes=1000)
"""ResNet-18 on small images, as `conv_train` trains it."""
IMAGE_BASE = ResNetShape(block="bottleneck", stages=(3, 4, 6, 3), image=224, classes=1000)
"""ResNet-50."""


def described(shape: EncoderShape | ResNetShape, batch: int) -> dict[str, Parameter]:
    """The parameters of a size that classifies batches of texts or images."""
    common: dict[str, Parameter] = {"batch": batch, "amp": "weights converted once"}
    if isinstance(shape, EncoderShape):
        return {"task": "text", **asdict(shape), **common, "data": "uniform tokens"}
    image: dict[str, Parameter] = {"model": shape.model, "image": shape.image, "classes": shape.classes}
    layout = NHWC if shape == IMAGE_MINI else SEARCHED
    return {"task": "image", **image, **common, "layout": layout, "data": "normal"}


def forward_flops(shape: EncoderShape | ResNetShape) -> int:
    """FLOPs per text or image."""
    return encoder_forward_flops(shape) if isinstance(shape, EncoderShape) else resnet_forward_flops(shape)


def forward_operators(shape: EncoderShape | ResNetShape) -> int:
    """Operators of a batch's scores."""
    if isinstance(shape, EncoderShape):
        return 21 * shape.layers + 12
    return resnet_operators(shape, trains=False)


def traffic_bytes(shape: EncoderShape | ResNetShape, batch: int) -> int:
    """About what a batch of images moves with `amp`; 0 for texts, which compute more than they move."""
    return 0 if isinstance(shape, EncoderShape) else batch * resnet_traffic_bytes(shape, trains=False)


def classifier_and_input(request: Request, layout: str) -> tuple[Any, Any]:
    """A model with random weights, prepared by `serving.served`, and a random batch in host memory."""
    import torch

    from ..models import Encoder, ResNet
    from ..steps import compiled, served

    generator = torch.Generator().manual_seed(request.seed)
    batch = request.integer("batch")
    if request.parameters["task"] == "image":
        shape = ResNetShape.described(request.parameters)
        images = torch.randn(batch, 3, shape.image, shape.image, generator=generator)
        images = images.to(dtype=request.precision.product_dtype(), memory_format=memory_format(layout))
        model = served(lambda: ResNet(shape).to(memory_format=memory_format(layout)), request)
        return compiled(model, request), images
    text = EncoderShape(**{name: request.integer(name) for name in EncoderShape.__dataclass_fields__})
    tokens = torch.randint(text.vocabulary, (batch, text.context), generator=generator)
    return compiled(served(lambda: Encoder(text), request), request), tokens
