"""Training fed by a data pipeline: images unpacked and augmented in worker processes.

Images are packed as in JPEG, with cosine transform and entropy coding: in-tree, and standard library besides
torch, so that every machine does the same work; the entropy coder is zlib. A decoder in C is several times
faster: rates compare machines, not libraries.
"""

from __future__ import annotations

import math
import sys
import time
import zlib
from collections.abc import Sequence
from functools import partial
from statistics import mean, median
from typing import Any  # Any: torch's types

from ..accelerator import PINNED
from ..contract import Figure, Request, Size, Step, Value, Workload
from ..flops import ResNetShape
from ..layouts import NHWC, SEARCHED, in_a_layout, memory_format
from ..timing import steps_for, stopwatch_for
from .conv_train import BASE, MINI, trained

CACHED_BLOCKS = 5
CACHED_BLOCK_S = 0.2
BLOCK = 8
"""Height and width of what is transformed at once."""
LEAST_AREA = 0.35
"""Smallest share of an image that a random crop keeps."""


def _size(
    shape: ResNetShape, workers: int, batch: int, pictures: int, height: int, width: int, memory_mib: int
) -> Size:
    """`mini-w2` is the small model with two workers."""
    return Size(
        parameters={
            **shape.parameters(),
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

    shape = ResNetShape.described(request.parameters)
    batch, device = request.integer("batch"), request.device
    some = torch.randint(256, (batch, 3, shape.image, shape.image), dtype=torch.uint8)
    current: list[Any] = [some]  # for the trial of a layout; each step replaces it
    train = in_a_layout(request, partial(_trained, current))
    count, height, width = (request.integer(name) for name in ("pictures", "height", "width"))
    pictures = Pictures(count, height, width, shape.image, request.seed)
    loader = loader_of(pictures, batch, request.integer("workers"), pin_memory=device in PINNED)
    batches: list[Any] = [iter(loader)]
    blocked_s: list[float] = []

    def run() -> None:
        begun_s = time.perf_counter()
        current[0] = next(batches[0])
        blocked_s.append(time.perf_counter() - begun_s)
        train.run()

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        blocked = Value(min(mean(blocked_s) / (mean(step_ns) / 1e9), 1.0), len(blocked_s))
        batches.clear()  # ends the workers, which would otherwise keep filling their queue
        stopwatch = stopwatch_for(device)
        stopwatch(train.run, 1)
        count = steps_for(CACHED_BLOCK_S, stopwatch(train.run, 1).block_ns)
        blocks = [stopwatch(train.run, count).block_ns / count / 1e9 for _ in range(CACHED_BLOCKS)]
        cached_s = median(blocks)
        return {
            "waiting_share": Value(waiting_share(cached_s, median(step_ns) / 1e9), len(step_ns)),
            "cached_step_s": Value(cached_s, CACHED_BLOCKS * count),
            "blocked_share": blocked,
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


def _trained(current: Sequence[Any], request: Request, layout: str) -> Step:
    """A training step on the one batch of bytes in `current`."""
    import torch

    device, lies = request.device, memory_format(layout)

    def images() -> torch.Tensor:
        there = current[0].to(device, non_blocking=True)
        return there.to(dtype=torch.float32, memory_format=lies).sub(127.5).div(63.75)

    return trained(request, layout, torch.Generator().manual_seed(request.seed), images)


def waiting_share(cached_s: float, loaded_s: float) -> float:
    """Share of a step spent waiting for data: 1 - cached / loaded, at least 0."""
    return max(1 - cached_s / loaded_s, 0.0)


class Pictures:
    """Packed images in memory; item i is image i, unpacked, cropped, resized and perhaps mirrored.

    An item has the same bytes in whichever process it is made.
    """

    def __init__(self, count: int, height: int, width: int, image: int, seed: int) -> None:
        import torch

        generator = torch.Generator().manual_seed(seed)
        self._packed = [pack(make_picture(height, width, generator)) for _ in range(count)]
        self._height, self._width, self._image, self._seed = height, width, image, seed

    def __getitem__(self, index: int) -> Any:
        import torch

        picture = unpack(self._packed[index % len(self._packed)], self._height, self._width)
        chance = torch.Generator().manual_seed((self._seed << 32) + index)
        area, across, down, mirrored = torch.rand(4, generator=chance).tolist()
        side = math.sqrt(LEAST_AREA + (1 - LEAST_AREA) * area)
        rows, columns = round(self._height * side), round(self._width * side)
        top, left = int(down * (self._height - rows + 1)), int(across * (self._width - columns + 1))
        crop = picture[None, :, top : top + rows, left : left + columns].float()
        resized = torch.nn.functional.interpolate(
            crop, size=(self._image, self._image), mode="bilinear", align_corners=False
        )[0]
        resized = resized.flip(2) if mirrored < 0.5 else resized
        return resized.round().clamp(0, 255).to(torch.uint8)


def make_picture(height: int, width: int, generator: Any) -> Any:
    """Bytes (3, height, width): smooth shapes with some noise, which compress like a photograph."""
    import torch

    coarse = torch.rand(1, 3, height // 16, width // 16, generator=generator)
    smooth = torch.nn.functional.interpolate(
        coarse, size=(height, width), mode="bicubic", align_corners=False
    )[0]
    noise = torch.randn(3, height, width, generator=generator) * 0.03
    return ((smooth + noise).clamp(0, 1) * 255).round().to(torch.uint8)


def pack(picture: Any) -> bytes:
    """Compress an image (3, height, width), both multiples of 8."""
    import torch

    _, height, width = picture.shape
    blocks = (picture.float() - 128).view(3, height // BLOCK, BLOCK, width // BLOCK, BLOCK).transpose(2, 3)
    cosines, steps = _transform()
    stored = (cosines @ blocks @ cosines.T / steps).round().to(torch.int16)
    return zlib.compress(stored.numpy().tobytes(), 6)


def unpack(data: bytes, height: int, width: int) -> Any:
    """The image, up to the rounding of `pack`."""
    import torch

    stored = torch.frombuffer(bytearray(zlib.decompress(data)), dtype=torch.int16)
    cosines, steps = _transform()
    blocks = stored.view(3, height // BLOCK, width // BLOCK, BLOCK, BLOCK) * steps
    values = (cosines.T @ blocks @ cosines).transpose(2, 3).reshape(3, height, width)
    return (values + 128).round().clamp(0, 255).to(torch.uint8)


def _transform() -> tuple[Any, Any]:
    """The orthonormal cosine transform of 8 numbers (ITU-T T.81, A.3.3) as a matrix, and the quantization
    step of each frequency: the higher, the coarser."""
    import torch

    k, n = torch.arange(BLOCK)[:, None], torch.arange(BLOCK)[None, :]
    cosines = torch.cos(math.pi * (2 * n + 1) * k / (2 * BLOCK)) * math.sqrt(2 / BLOCK)
    cosines[0] /= math.sqrt(2)
    return cosines, 8.0 + 3.0 * (k + n)


def loader_of(pictures: Pictures, batch: int, workers: int, **more: Any) -> Any:
    """torch's DataLoader over endless items, in the same batches whatever the number of workers.

    With `workers` 0 it makes items in this process.
    """
    from torch.utils.data import DataLoader

    return DataLoader(pictures, batch, sampler=range(sys.maxsize), num_workers=workers, **more)


WORKLOAD = Workload(
    name="loader",
    version=1,
    title="data pipeline",
    question="How many worker processes does training need so that it does not wait for its data?",
    workload_class="host",
    unit="img",
    sizes={
        **{f"mini-w{w}": _size(MINI, w, 16, 64, 128, 128, 500) for w in (0, 1, 2, 4)},
        **{f"base-w{w}": _size(BASE, w, 64, 256, 384, 512, 8000) for w in (0, 1, 2, 4, 8, 16)},
    },
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
