"""Image packing like JPEG's, with cosine transform and entropy coding, and the way back with augmentation.

In-tree, and standard library besides torch, so that every machine does the same work; the entropy coder is
zlib. A decoder in C is several times faster: rates compare machines, not libraries.
"""

from __future__ import annotations

import math
import sys
import zlib
from typing import Any  # Any: torch's types

import torch
from torch.nn import functional

BLOCK = 8
LEAST_AREA = 0.35
"""Smallest share of an image that a random crop keeps."""


def _cosines() -> torch.Tensor:
    """The orthonormal cosine transform of 8 numbers (ITU-T T.81, A.3.3), as a matrix."""
    k, n = torch.arange(BLOCK)[:, None], torch.arange(BLOCK)[None, :]
    matrix = torch.cos(math.pi * (2 * n + 1) * k / (2 * BLOCK)) * math.sqrt(2 / BLOCK)
    matrix[0] /= math.sqrt(2)
    return matrix


def _steps() -> torch.Tensor:
    """Quantization step of each frequency: the higher, the coarser."""
    frequency = torch.arange(BLOCK)
    return 8.0 + 3.0 * (frequency[:, None] + frequency[None, :])


def make_picture(height: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """Bytes (3, height, width): smooth shapes with some noise, which compress like a photograph."""
    coarse = torch.rand(1, 3, height // 16, width // 16, generator=generator)
    smooth = functional.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=False)[0]
    noise = torch.randn(3, height, width, generator=generator) * 0.03
    return ((smooth + noise).clamp(0, 1) * 255).round().to(torch.uint8)


def pack(picture: torch.Tensor) -> bytes:
    """Compress an image (3, height, width), both multiples of 8."""
    _, height, width = picture.shape
    blocks = (picture.float() - 128).view(3, height // BLOCK, BLOCK, width // BLOCK, BLOCK).transpose(2, 3)
    cosines = _cosines()
    stored = (cosines @ blocks @ cosines.T / _steps()).round().to(torch.int16)
    return zlib.compress(stored.numpy().tobytes(), 6)


def unpack(data: bytes, height: int, width: int) -> torch.Tensor:
    """The image, up to the rounding of `pack`."""
    stored = torch.frombuffer(bytearray(zlib.decompress(data)), dtype=torch.int16)
    blocks = stored.view(3, height // BLOCK, width // BLOCK, BLOCK, BLOCK) * _steps()
    cosines = _cosines()
    values = (cosines.T @ blocks @ cosines).transpose(2, 3).reshape(3, height, width)
    return (values + 128).round().clamp(0, 255).to(torch.uint8)


class Pictures(torch.utils.data.Dataset):  # type: ignore[misc]  # mypy does not read torch
    """Packed images in memory; item i is image i, unpacked, cropped, resized and perhaps mirrored.

    An item has the same bytes in whichever process it is made.
    """

    def __init__(self, count: int, height: int, width: int, image: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._packed = [pack(make_picture(height, width, generator)) for _ in range(count)]
        self._shape = height, width
        self._image = image
        self._seed = seed

    def __getitem__(self, index: int) -> torch.Tensor:
        height, width = self._shape
        picture = unpack(self._packed[index % len(self._packed)], height, width)
        chance = torch.Generator().manual_seed((self._seed << 32) + index)
        area, across, down, mirrored = torch.rand(4, generator=chance).tolist()
        side = math.sqrt(LEAST_AREA + (1 - LEAST_AREA) * area)
        rows, columns = round(height * side), round(width * side)
        top, left = int(down * (height - rows + 1)), int(across * (width - columns + 1))
        crop = picture[None, :, top : top + rows, left : left + columns].float()
        resized = functional.interpolate(
            crop, size=(self._image, self._image), mode="bilinear", align_corners=False
        )[0]
        resized = resized.flip(2) if mirrored < 0.5 else resized
        return resized.round().clamp(0, 255).to(torch.uint8)


def loader_of(dataset: Pictures, batch: int, workers: int, **more: Any) -> Any:
    """torch's DataLoader over endless items, in the same batches whatever the number of workers.

    With `workers` 0 it makes items in this process.
    """
    items = range(sys.maxsize)
    return torch.utils.data.DataLoader(dataset, batch, sampler=items, num_workers=workers, **more)
