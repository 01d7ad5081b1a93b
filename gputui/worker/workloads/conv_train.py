"""Training steps of a residual convolutional network on random images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: torch's types

from ..contract import Request, Size, Step, Workload
from ..flops import ResNetShape, resnet_operators, resnet_traffic_bytes, resnet_training_flops
from ..layouts import NHWC, SEARCHED, in_a_layout, memory_format
from ..steps import sgd, training_step

MINI = ResNetShape(block="basic", stages=(2, 2, 2, 2), image=64, classes=1000)
"""ResNet-18 on small images."""
BASE = ResNetShape(block="bottleneck", stages=(3, 4, 6, 3), image=224, classes=1000)
"""ResNet-50."""


def _size(shape: ResNetShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={
            **shape.parameters(),
            "batch": batch,
            "layout": NHWC if shape == MINI else SEARCHED,
            "optimizer": "sgd-momentum",
            "data": "normal",
        },
        units_per_step=float(batch),
        flops_per_step=batch * resnet_training_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=resnet_operators(shape, trains=True),
        amp_traffic_bytes=batch * resnet_traffic_bytes(shape, trains=True),
    )


def build(request: Request) -> Step:
    """Random weights, random images on the device, SGD with momentum."""
    return in_a_layout(request, _built)


def _built(request: Request, layout: str) -> Step:
    import torch

    shape = ResNetShape.described(request.parameters)
    generator = torch.Generator().manual_seed(request.seed)
    images = torch.randn(request.integer("batch"), 3, shape.image, shape.image, generator=generator)
    images = images.to(device=request.device, memory_format=memory_format(layout))
    return trained(request, layout, generator, lambda: images)


def trained(request: Request, layout: str, generator: Any, images: Callable[[], Any]) -> Step:
    """A step of the model on `images()`, which are on the device, and labels that the generator draws."""
    import torch

    from ..models import ResNet

    shape = ResNetShape.described(request.parameters)
    torch.manual_seed(request.seed)
    model = ResNet(shape).to(device=request.device, memory_format=memory_format(layout))
    labels = torch.randint(shape.classes, (request.integer("batch"),), generator=generator)
    labels = labels.to(request.device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(images()), labels)

    return training_step([loss], sgd(model, request.device), request)


WORKLOAD = Workload(
    name="conv_train",
    version=1,
    title="CNN training",
    question="How fast does a convolution network train here?",
    workload_class="training",
    unit="img",
    sizes={
        "mini": _size(MINI, 16, 500),
        "common": _size(BASE, 128, 12700),
        "base": _size(BASE, 32, 4000),
        "large": _size(BASE, 192, 19000),
        "xl": _size(BASE, 640, 62000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile"),
    needs_torch=True,
    build=build,
)
