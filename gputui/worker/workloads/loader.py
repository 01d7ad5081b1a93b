"""Training fed by a data pipeline: images unpacked and augmented in worker processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from statistics import mean, median
from typing import Any  # Any: torch's types

from ..accelerator import PINNED
from ..contract import Figure, Request, Size, Step, Value, Workload
from ..flops import ResNetShape
from ..layouts import NHWC, SEARCHED, in_a_layout, memory_format
from ..timing import steps_for, stopwatch_for
from .conv_train import BASE, MINI

CACHED_BLOCKS = 5
CACHED_BLOCK_S = 0.2
WORKERS = (0, 1, 2, 4, 8, 16)


def _sizes() -> dict[str, Size]:
    """`mini-w2` is the small model with two workers."""
    small = {f"mini-w{w}": _size(MINI, w, 16, 64, 128, 128, 500) for w in WORKERS[:4]}
    return small | {f"base-w{w}": _size(BASE, w, 64, 256, 384, 512, 8000) for w in WORKERS}


def _size(
    shape: ResNetShape, workers: int, batch: int, pictures: int, height: int, width: int, memory_mib: int
) -> Size:
    return Size(
        parameters={
            "model": shape.model,
            "image": shape.image,
            "classes": shape.classes,
            "batch": batch,
            "workers": workers,
            "pictures": pictures,
            "height": height,
            "width": width,
            "layout": NHWC if shape == MINI else SEARCHED,
            "optimizer": "sgd-momentum",
            "data": "packed pictures",
        },
        units_per_step=float(batch),
        flops_per_step=None,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
    )


def build(request: Request) -> Step:
    """The step of `conv_train` on batches from a `DataLoader`, pinned where there is a GPU.

    Images are copied to the device as bytes and converted there.
    """
    import torch

    from .image_data import Pictures, loader_of

    shape = ResNetShape.described(request.parameters)
    batch, device = request.integer("batch"), request.device
    some = torch.randint(256, (batch, 3, shape.image, shape.image), dtype=torch.uint8)
    current: list[Any] = [some]  # for the trial of a layout; each step replaces it
    train = in_a_layout(request, partial(_trained, shape, current))
    pictures = Pictures(
        request.integer("pictures"),
        request.integer("height"),
        request.integer("width"),
        shape.image,
        request.seed,
    )
    loader = loader_of(pictures, batch, request.integer("workers"), pin_memory=device in PINNED)
    batches: list[Any] = [iter(loader)]
    blocked_s: list[float] = []

    def run() -> None:
        begun_s = time.perf_counter()
        current[0] = next(batches[0])
        blocked_s.append(time.perf_counter() - begun_s)
        train.run()

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        loaded_s, steps = mean(step_ns) / 1e9, len(blocked_s)
        waited_s = mean(blocked_s)
        batches.clear()  # ends the workers, which would otherwise keep filling their queue
        stopwatch = stopwatch_for(device)
        stopwatch(train.run, 1)
        count = steps_for(CACHED_BLOCK_S, stopwatch(train.run, 1).block_ns)
        blocks = [stopwatch(train.run, count).block_ns / count / 1e9 for _ in range(CACHED_BLOCKS)]
        cached_s = median(blocks)
        return {
            "waiting_share": Value(waiting_share(cached_s, median(step_ns) / 1e9), len(step_ns)),
            "cached_step_s": Value(cached_s, CACHED_BLOCKS * count),
            "blocked_share": Value(min(waited_s / loaded_s, 1.0), steps),
        }

    return Step(
        run,
        loss=train.loss,
        loss_scale=train.loss_scale,
        settled=blocked_s.clear,
        figures=figures,
        close=batches.clear,
        layout=train.layout,
    )


def _trained(shape: ResNetShape, current: Sequence[Any], request: Request, layout: str) -> Step:
    """A training step on the one batch of bytes in `current`."""
    import torch

    from ..models import ResNet
    from ..steps import sgd, training_step

    batch, device, lies = request.integer("batch"), request.device, memory_format(layout)
    torch.manual_seed(request.seed)
    model = ResNet(shape).to(device=device, memory_format=lies)
    generator = torch.Generator().manual_seed(request.seed)
    labels = torch.randint(shape.classes, (batch,), generator=generator).to(device)

    def loss() -> torch.Tensor:
        images = current[0].to(device, non_blocking=True)
        images = images.to(dtype=torch.float32, memory_format=lies).sub(127.5).div(63.75)
        return torch.nn.functional.cross_entropy(model(images), labels)

    return training_step(loss, sgd(model, device), request)


def waiting_share(cached_s: float, loaded_s: float) -> float:
    """Share of a step spent waiting for data: 1 - cached / loaded, at least 0."""
    return max(1 - cached_s / loaded_s, 0.0)


WORKLOAD = Workload(
    name="loader",
    version=1,
    title="data pipeline",
    question="How many worker processes does training need so that it does not wait for its data?",
    workload_class="host",
    unit="img",
    sizes=_sizes(),
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
    figures=(
        Figure("waiting_share", "step that waits for its data", "share", "less", "median"),
        Figure("cached_step_s", "the same step on cached data", "s", "neither", "median"),
        Figure("blocked_share", "blocked in the loader's next()", "share", "less", "median"),
    ),
    figures_s=2.0,
    is_alone=True,
)
