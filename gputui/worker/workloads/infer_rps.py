"""Requests per second in full batches: text classification and image recognition."""

from __future__ import annotations

from ..classification import (
    IMAGE_BASE,
    IMAGE_MINI,
    TEXT_BASE,
    TEXT_MINI,
    classifier_and_input,
    described,
    forward_flops,
)
from ..contract import Request, Size, Step, Workload
from ..shapes import EncoderShape, ResNetShape


def _size(shape: EncoderShape | ResNetShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={**described(shape, batch), "path": "on the device"},
        units_per_step=float(batch),
        flops_per_step=batch * forward_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
    )


def build(request: Request) -> Step:
    """A step is one full batch that lies on the device; its scores stay there, and nothing waits for them."""
    from ..serving import batch_step

    model, batch = classifier_and_input(request)
    return batch_step(model, batch, request)


WORKLOAD = Workload(
    name="infer_rps",
    version=1,
    title="inference throughput",
    question="How many requests per second can it answer when they come in full batches?",
    workload_class="inference",
    unit="req",
    sizes={
        "mini-text": _size(TEXT_MINI, 8, 100),
        "mini-image": _size(IMAGE_MINI, 8, 100),
        "base-text": _size(TEXT_BASE, 32, 700),
        "base-image": _size(IMAGE_BASE, 32, 800),
        "large-text": _size(TEXT_BASE, 256, 2000),
        "large-image": _size(IMAGE_BASE, 256, 5000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
)
