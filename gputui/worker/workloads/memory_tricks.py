"""Training a GPT with one memory-saving technique at a time: what it saves, and what it costs in time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any  # Any: torch's types

from ..accelerator import PINNED, allocator
from ..contract import Figure, Request, Size, Step, Unsupported, Value, Workload
from ..flops import TextShape
from ..profiling.allocations import PARTS, AllocationsUnavailable, points_of_a_step
from ..steps import next_token_loss, training_step
from .text_training import BASE, MINI, described, made

PARTS_OF_A_BATCH = 4
"""Into which `accumulate` cuts the batch."""
TRICKS = ("checkpoint", "offload", "accumulate")


def _sizes() -> dict[str, Size]:
    """Each shape without and with each technique; offloading needs a GPU, so there is no `mini-offload`."""
    sizes = {}
    for name, shape, batch, memory_mib in (
        ("mini", MINI, 4, 600),
        ("base", BASE, 4, 8000),
        ("large", BASE, 12, 21000),
    ):
        for trick in ("none", *TRICKS):
            if (name, trick) != ("mini", "offload"):
                full = name if trick == "none" else f"{name}-{trick}"
                sizes[full] = _size(shape, batch, trick, memory_mib)
    return sizes


def _size(shape: TextShape, batch: int, trick: str, memory_mib: int) -> Size:
    return Size(
        parameters={
            **described(shape),
            "batch": batch,
            "trick": trick,
            "parts": PARTS_OF_A_BATCH if trick == "accumulate" else 1,
        },
        units_per_step=float(batch * shape.context),
        flops_per_step=None,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
    )


def build(request: Request) -> Step:
    """`gpt_train` with a technique applied to its layers; all train the same model on the same tokens."""
    import torch
    from torch.utils.checkpoint import checkpoint

    trick = str(request.parameters["trick"])
    if trick == "offload" and request.device == "cpu":
        raise Unsupported("activations of a CPU are in the host's memory already")
    model, tokens, optimizer = made(request, request.seed)
    pieces = tokens.chunk(request.integer("parts"))
    offloaded = partial(torch.autograd.graph.save_on_cpu, pin_memory=request.device in PINNED)
    saved = offloaded if trick == "offload" else contextlib.nullcontext

    if trick == "checkpoint":
        for layer in model.layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)

    def loss(piece: Any) -> Any:
        with saved():
            return next_token_loss(model, piece) / len(pieces)

    step = training_step([partial(loss, piece) for piece in pieces], optimizer, request)

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        counted = allocator(request.device)
        optimizer.zero_grad(set_to_none=True)
        if counted:
            counted.reset_peak_memory_stats()
        try:
            parts = points_of_a_step(request.device, step.run)["peak"]
        except AllocationsUnavailable as error:
            return {f.key: Value(None, 0, str(error)) for f in FIGURES}
        reserved = Value(None, 0, "only a GPU's allocator keeps one")
        if counted:  # it rounds, and this process may have other allocations
            parts["other"] += max(int(counted.max_memory_allocated()) - sum(parts.values()), 0)
            reserved = Value(float(counted.max_memory_reserved()), 1)
        return {
            "peak_bytes": Value(float(sum(parts.values())), 1),
            **{f"{name}_at_peak_bytes": Value(float(parts[name]), 1) for name in PARTS},
            "reserved_bytes": reserved,
        }

    return replace(step, figures=figures)


FIGURES = (
    Figure("peak_bytes", "peak memory of a step", "B", "less", "max"),
    *(
        Figure(f"{part}_at_peak_bytes", f"at the peak: {title}", "B", "neither", "max")
        for part, title in zip(PARTS, (*PARTS[:2], "optimizer state", *PARTS[3:]), strict=True)
    ),
    Figure("reserved_bytes", "reserved by the allocator", "B", "less", "max"),
)

WORKLOAD = Workload(
    name="memory_tricks",
    version=1,
    title="memory tricks",
    question="How much memory does each trick save in training, and how much time does it cost?",
    workload_class="training",
    unit="tok",
    sizes=_sizes(),
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
    figures=FIGURES,
    figures_s=1.0,
    is_alone=True,
)
