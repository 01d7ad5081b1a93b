"""Requests per second in full batches: text classification and image recognition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from ..contract import Request, Size, Step, Value, Workload
from ..flops import EncoderShape, ResNetShape
from ..layouts import in_a_layout
from ..steps import COMPILE, open_loop_figures, open_loop_values
from .classifiers import (
    IMAGE_BASE,
    IMAGE_MINI,
    TEXT_BASE,
    TEXT_MINI,
    classifier_and_input,
    described,
    forward_flops,
    forward_operators,
    traffic_bytes,
)

OPEN_S = 2.0
"""Upper limit for each fraction of the throughput."""


def _size(shape: EncoderShape | ResNetShape, batch: int, memory_mib: int) -> Size:
    return Size(
        parameters={**described(shape, batch), "path": "on the device"},
        units_per_step=float(batch),
        flops_per_step=batch * forward_flops(shape),
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        operators=forward_operators(shape),
        amp_traffic_bytes=traffic_bytes(shape, batch),
    )


def build(request: Request) -> Step:
    """A step is one full batch in device memory; its scores stay there, and nothing waits for them.

    After the last block, requests arrive at random (Poisson) at fractions of the measured throughput; all
    that wait are answered together, in batches padded to a power of two.
    """
    return in_a_layout(request, _built)


def _built(request: Request, layout: str) -> Step:
    from ..steps import answering, batch_step

    model, host_batch = classifier_and_input(request, layout)
    step = batch_step(model, host_batch, request)
    full = request.integer("batch")

    def figures(step_ns: Sequence[float]) -> Mapping[str, Value]:
        if request.mode == COMPILE:
            unasked = Value(None, 0, "each size of batch would be compiled by itself")
            return {figure.key: unasked for figure in open_loop_figures()}
        serve = answering(model, host_batch, request)
        per_s = full / median(step_ns) * 1e9
        return open_loop_values(per_s, serve, full, length_s=OPEN_S, seed=request.seed)

    return replace(step, figures=figures)


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
    modes=("eager", "compile"),
    needs_torch=True,
    build=build,
    figures=open_loop_figures(),
    figures_s=8.0,
)
