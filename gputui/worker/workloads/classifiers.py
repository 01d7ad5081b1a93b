"""Inference of an encoder for texts and a residual network for images: one request at a time, in full
batches, and in the batch that suits this machine best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any  # Any: torch's types, which may not be installed

from ..contract import Figure, Parameter, Request, Size, Step, Value, Workload
from ..flops import (
    ResNetShape,
    TextShape,
    encoder_forward_flops,
    resnet_forward_flops,
    resnet_operators,
    resnet_traffic_bytes,
)
from ..layouts import NHWC, SEARCHED, in_a_layout, memory_format
from ..steps import (
    COMPILE,
    Stopwatched,
    answering,
    batch_step,
    compiled,
    open_loop_figures,
    open_loop_values,
    percentile_value,
    request_step,
    served,
)
from .bs_sweep import FIGURES, SMALLEST, at_best_batch
from .conv_train import BASE as IMAGE_BASE
from .conv_train import MINI as IMAGE_MINI
from .text_training import BERT_BASE as TEXT_BASE
from .text_training import BERT_MINI as TEXT_MINI

TEXT_LARGE = TextShape(layers=24, heads=16, width=1024, context=128, vocabulary=30522, classes=2)
"""BERT-large, 335M."""
SMALLEST_IMAGE: dict[str, Parameter] = {"model": "resnet-basic-1-1-1-1", "image": 32, "classes": 2}
OPEN_S = 2.0
"""Upper limit of an open loop, for each fraction of the throughput."""
SHARES = (0.5, 0.9, 0.99)


def _described(shape: TextShape | ResNetShape, batch: int | None, path: str) -> dict[str, Parameter]:
    """The parameters of a size that classifies batches of texts or images."""
    common: dict[str, Parameter] = {} if batch is None else {"batch": batch}
    common["amp"] = "weights converted once"
    if isinstance(shape, TextShape):
        return {"task": "text", **shape.parameters(), **common, "data": "uniform tokens", "path": path}
    layout = NHWC if shape == IMAGE_MINI else SEARCHED
    return {"task": "image", **shape.parameters(), **common, "layout": layout, "data": "normal", "path": path}


def _size(shape: TextShape | ResNetShape, batch: int, memory_mib: int, path: str = "on the device") -> Size:
    if isinstance(shape, TextShape):
        flops, operators, traffic_bytes = encoder_forward_flops(shape), 21 * shape.layers + 12, 0
    else:
        flops, operators = resnet_forward_flops(shape), resnet_operators(shape, trains=False)
        traffic_bytes = resnet_traffic_bytes(shape, trains=False)
    return Size(
        parameters=_described(shape, batch, path),
        units_per_step=float(batch),
        flops_per_step=batch * flops,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=operators,
        amp_traffic_bytes=batch * traffic_bytes,  # of texts 0: they compute more than they move
    )


def _open_size(shape: TextShape | ResNetShape, memory_mib: int) -> Size:
    """One whose batch is found on the machine."""
    return Size(
        parameters=_described(shape, None, "on the device"),
        units_per_step=1.0,
        flops_per_step=None,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
    )


def classifier_and_input(request: Request, layout: str) -> tuple[Any, Any]:
    """A model with random weights as it is deployed, and a random batch in host memory."""
    import torch

    from ..models import Encoder, ResNet

    generator = torch.Generator().manual_seed(request.seed)
    batch = request.integer("batch")
    if request.parameters["task"] == "image":
        shape = ResNetShape.described(request.parameters)
        images = torch.randn(batch, 3, shape.image, shape.image, generator=generator)
        images = images.to(dtype=request.precision.product_dtype(), memory_format=memory_format(layout))
        model = served(lambda: ResNet(shape).to(memory_format=memory_format(layout)), request)
        return compiled(model, request), images
    text = TextShape.described(request.parameters)
    tokens = torch.randint(text.vocabulary, (batch, text.context), generator=generator)
    return compiled(served(lambda: Encoder(text), request), request), tokens


def build_latency(request: Request) -> Step:
    """A step is one request: input from the host, scores back on the host."""
    return in_a_layout(request, _one_request)


def _one_request(request: Request, layout: str) -> Step:
    import torch

    model, host_input = classifier_and_input(request, layout)
    answer = torch.zeros(1, request.integer("classes"), dtype=request.precision.product_dtype())
    step = request_step(model, host_input, answer, request)
    requests = Stopwatched(step.run)

    def figures(step_ns: Sequence[float]) -> Mapping[str, Value]:
        return {f"p{share * 100:.0f}_s": percentile_value(requests.taken_s, share) for share in SHARES}

    return replace(step, run=requests, settled=requests.taken_s.clear, figures=figures)


def build_throughput(request: Request) -> Step:
    """A step is one full batch in device memory; its scores stay there, and nothing waits for them.

    After the last block, requests arrive at random (Poisson) at fractions of the measured throughput; all
    that wait are answered together, in batches padded to a power of two.
    """
    return in_a_layout(request, _full_batch)


def _full_batch(request: Request, layout: str) -> Step:
    model, host_batch = classifier_and_input(request, layout)
    full = request.integer("batch")

    def figures(step_ns: Sequence[float]) -> Mapping[str, Value]:
        if request.mode == COMPILE:
            unasked = Value(None, 0, "each size of batch would be compiled by itself")
            return {figure.key: unasked for figure in open_loop_figures()}
        serve = answering(model, host_batch, request)
        per_s = full / median(step_ns) * 1e9
        return open_loop_values(per_s, serve, full, length_s=OPEN_S, seed=request.seed)

    return replace(batch_step(model, host_batch, request), figures=figures)


def build_best(request: Request) -> Step:
    """A full batch as in `infer_rps`, of the size at which this machine answers most requests."""
    is_image = request.parameters["task"] == "image"
    return at_best_batch(request, "infer_rps", SMALLEST_IMAGE if is_image else SMALLEST)


LATENCY = Workload(
    name="infer_lat",
    version=1,
    title="inference latency",
    question="How long does one request wait for its answer?",
    workload_class="inference",
    unit="req",
    sizes={
        name: _size(shape, 1, memory_mib, "host to device to host")
        for name, shape, memory_mib in (
            ("mini-text", TEXT_MINI, 100),
            ("mini-image", IMAGE_MINI, 100),
            ("base-text", TEXT_BASE, 600),
            ("base-image", IMAGE_BASE, 300),
            ("large-text", TEXT_LARGE, 1600),
        )
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile", "graph"),
    needs_torch=True,
    build=build_latency,
    figures=tuple(
        Figure(f"p{share * 100:.0f}_s", f"p{share * 100:.0f} latency", "s", "less", "median")
        for share in SHARES
    ),
)

THROUGHPUT = Workload(
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
    modes=("eager", "compile"),
    needs_torch=True,
    build=build_throughput,
    figures=open_loop_figures(),
    figures_s=8.0,
)

BEST_BATCH = Workload(
    name="infer_best",
    version=1,
    title="best batch",
    question="How many requests per second are answered in the batch that suits this machine best?",
    workload_class="inference",
    unit="req",
    sizes={
        "mini-text": _open_size(TEXT_MINI, 6000),
        "mini-image": _open_size(IMAGE_MINI, 6000),
        "base-text": _open_size(TEXT_BASE, 80000),
        "base-image": _open_size(IMAGE_BASE, 80000),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build_best,
    figures=FIGURES,
    is_alone=True,
    is_traceable=False,
    form="best",
)
