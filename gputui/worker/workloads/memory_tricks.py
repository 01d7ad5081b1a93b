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
from ..profiling.allocations import PARTS, AllocationsUnavailable, peak_of_a_step
from ..steps import next_token_loss, step_in_phases
from .gpt_train import BASE, MINI, described, made

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

    def scores(part: Any) -> Any:
        if trick != "checkpoint":
            return model(part)
        x = model.tokens(part) + model.positions[: part.shape[1]]
        for layer in model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return torch.nn.functional.linear(model.norm(x), model.tokens.weight)

    def loss(piece: Any) -> Any:
        with saved():
            return next_token_loss(scores, piece) / len(pieces)

    in_phases, step = step_in_phases([partial(loss, piece) for piece in pieces], optimizer, request)

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        optimizer.zero_grad(set_to_none=True)
        state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
        on_device = [v for v in state if v.device.type == request.device]
        try:
            split = peak_of_a_step(
                request.device,
                in_phases,
                weights=[*model.parameters(), *model.buffers()],
                optimizer_state=on_device,
                inputs=[tokens],
            )
        except AllocationsUnavailable as error:
            return {f.key: Value(None, 0, str(error)) for f in FIGURES}
        found = {"peak_bytes": Value(float(sum(split.values())), 1)}
        for name in PARTS:
            found[f"{name}_at_peak_bytes"] = Value(float(split[name]), 1)
        counted = allocator(request.device)
        if counted:
            found["reserved_bytes"] = Value(float(counted.max_memory_reserved()), 1)
        else:
            found["reserved_bytes"] = Value(None, 0, "only a GPU's allocator keeps one")
        return found

    return replace(step, figures=figures)


FIGURES = (
    Figure("peak_bytes", "peak memory of a step", "B", "less", "max"),
    Figure("weights_at_peak_bytes", "at the peak: weights", "B", "neither", "max"),
    Figure("gradients_at_peak_bytes", "at the peak: gradients", "B", "neither", "max"),
    Figure("optimizer_at_peak_bytes", "at the peak: optimizer state", "B", "neither", "max"),
    Figure("activations_at_peak_bytes", "at the peak: activations", "B", "neither", "max"),
    Figure("inputs_at_peak_bytes", "at the peak: inputs", "B", "neither", "max"),
    Figure("other_at_peak_bytes", "at the peak: other", "B", "neither", "max"),
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
