"""Latency of one request at a time: text classification and image recognition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..contract import Figure, Request, Size, Step, Value, Workload
from ..flops import EncoderShape, ResNetShape
from ..layouts import in_a_layout
from ..steps import Stopwatched, percentile_value
from .classifiers import (
    IMAGE_BASE,
    IMAGE_MINI,
    TEXT_BASE,
    TEXT_LARGE,
    TEXT_MINI,
    classifier_and_input,
    described,
    forward_flops,
    forward_operators,
    traffic_bytes,
)

SHARES = (0.5, 0.9, 0.99)


def _size(shape: EncoderShape | ResNetShape, memory_mib: int) -> Size:
    return Size(
        parameters={**described(shape, batch=1), "path": "host to device to host"},
        units_per_step=1.0,
        flops_per_step=forward_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=forward_operators(shape),
        amp_traffic_bytes=traffic_bytes(shape, batch=1),
    )


def build(request: Request) -> Step:
    """A step is one request: input from the host, scores back on the host."""
    return in_a_layout(request, _built)


def _built(request: Request, layout: str) -> Step:
    import torch

    from ..steps import request_step

    model, host_input = classifier_and_input(request, layout)
    answer = torch.zeros(1, request.integer("classes"), dtype=request.precision.product_dtype())
    step = request_step(model, host_input, answer, request)
    requests = Stopwatched(step.run)

    def figures(step_ns: Sequence[float]) -> Mapping[str, Value]:
        return {f"p{share * 100:.0f}_s": percentile_value(requests.taken_s, share) for share in SHARES}

    return replace(step, run=requests, settled=requests.taken_s.clear, figures=figures)


WORKLOAD = Workload(
    name="infer_lat",
    version=1,
    title="inference latency",
    question="How long does one request wait for its answer?",
    workload_class="inference",
    unit="req",
    sizes={
        "mini-text": _size(TEXT_MINI, 100),
        "mini-image": _size(IMAGE_MINI, 100),
        "base-text": _size(TEXT_BASE, 600),
        "base-image": _size(IMAGE_BASE, 300),
        "large-text": _size(TEXT_LARGE, 1600),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    modes=("eager", "compile", "graph"),
    needs_torch=True,
    build=build,
    figures=tuple(
        Figure(f"p{share * 100:.0f}_s", f"p{share * 100:.0f} latency", "s", "less", "median")
        for share in SHARES
    ),
)
