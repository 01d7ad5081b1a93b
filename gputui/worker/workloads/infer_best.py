"""Requests per second at the best batch for this machine: text classification, image recognition."""

from __future__ import annotations

from ..contract import Parameter, Request, Size, Step, Workload
from ..flops import EncoderShape, ResNetShape
from .bs_sweep import FIGURES, SMALLEST, at_best_batch
from .classifiers import IMAGE_BASE, IMAGE_MINI, TEXT_BASE, TEXT_MINI, described

SMALLEST_IMAGE: dict[str, Parameter] = {"model": "resnet-basic-1-1-1-1", "image": 32, "classes": 2}


def _size(shape: EncoderShape | ResNetShape, memory_mib: int) -> Size:
    parameters = described(shape, batch=0)
    del parameters["batch"]
    return Size(
        parameters={**parameters, "path": "on the device"},
        units_per_step=1.0,
        flops_per_step=None,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
    )


def build(request: Request) -> Step:
    """A full batch as in `infer_rps`, of the size at which this machine answers most requests."""
    is_image = request.parameters["task"] == "image"
    return at_best_batch(request, "infer_rps", SMALLEST_IMAGE if is_image else SMALLEST)


WORKLOAD = Workload(
    name="infer_best",
    version=1,
    title="best batch",
    question="How many requests per second are answered in the batch that suits this machine best?",
    workload_class="inference",
    unit="req",
    sizes={
        "mini-text": _size(TEXT_MINI, 6000),
        "mini-image": _size(IMAGE_MINI, 6000),
        "base-text": _size(TEXT_BASE, 80000),
        "base-image": _size(IMAGE_BASE, 80000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
    figures=FIGURES,
    is_alone=True,
    is_traceable=False,
    form="best",
)
