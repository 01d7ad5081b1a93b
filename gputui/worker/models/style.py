"""The network of real-time style transfer; see `shapes.StyleShape`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..steps.flops import STYLE_CONVOLUTIONS


def _conv(kernel: int, channels_in: int, channels_out: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, padding_mode="reflect")


def _conv_norm(kernel: int, channels_in: int, channels_out: int, stride: int = 1) -> list[nn.Module]:
    return [_conv(kernel, channels_in, channels_out, stride), nn.InstanceNorm2d(channels_out, affine=True)]


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        first, second = (_conv_norm(3, channels, channels) for _ in range(2))
        self.body = nn.Sequential(*first, nn.ReLU(inplace=True), *second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Style(nn.Module):
    """Frames (batch, height, width, 3) of bytes to (batch, 3, height, width) of numbers from -1 to 1."""

    def __init__(self) -> None:
        super().__init__()
        first, halve, halve_again, *residual, widen, widen_again, last = (
            (kernel, channels_in, channels_out) for kernel, channels_in, channels_out, _ in STYLE_CONVOLUTIONS
        )
        self.layers = nn.Sequential(
            *_activated(_conv_norm(*first)),
            *_activated(_conv_norm(*halve, stride=2)),
            *_activated(_conv_norm(*halve_again, stride=2)),
            *(_Residual(channels) for _, channels, _ in residual[::2]),
            nn.Upsample(scale_factor=2),
            *_activated(_conv_norm(*widen)),
            nn.Upsample(scale_factor=2),
            *_activated(_conv_norm(*widen_again)),
            _conv(*last),
            nn.Tanh(),
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames of bytes to frames of numbers; `shown` makes bytes of them."""
        kind = self.layers[0].weight.dtype
        x = frames.permute(0, 3, 1, 2).to(kind, memory_format=torch.contiguous_format)
        return self.layers(x / 127.5 - 1)


def _activated(layers: Sequence[nn.Module]) -> list[nn.Module]:
    return [*layers, nn.ReLU(inplace=True)]


def shown(frames: torch.Tensor) -> torch.Tensor:
    """Numbers (batch, 3, height, width) from -1 to 1 to bytes (batch, height, width, 3) from 0 to 255."""
    return (frames + 1).mul_(127.5).round_().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
