"""A residual network; see `shapes.ResNetShape`."""

from __future__ import annotations

import torch
from torch import nn

from ..steps.flops import STAGE_WIDTHS, STEM_CHANNELS, ResNetShape


def _conv_norm(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
    )


class _Block(nn.Module):
    def __init__(self, shape: ResNetShape, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * shape.expansion
        relu = nn.ReLU(inplace=True)
        if shape.block == "bottleneck":
            self.body = nn.Sequential(
                _conv_norm(channels, width, 1),
                relu,
                _conv_norm(width, width, 3, stride),
                relu,
                _conv_norm(width, out_channels, 1),
            )
        else:
            self.body = nn.Sequential(
                _conv_norm(channels, width, 3, stride), relu, _conv_norm(width, width, 3)
            )
        same = stride == 1 and channels == out_channels
        self.shortcut = nn.Identity() if same else _conv_norm(channels, out_channels, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Images (batch, 3, image, image) to class scores (batch, classes)."""

    def __init__(self, shape: ResNetShape) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            _conv_norm(3, STEM_CHANNELS, 7, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = STEM_CHANNELS
        for stage, (width, blocks) in enumerate(zip(STAGE_WIDTHS, shape.stages, strict=True)):
            for block in range(blocks):
                layers.append(_Block(shape, channels, width, 2 if block == 0 and stage > 0 else 1))
                channels = width * shape.expansion
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, shape.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores, not normalized."""
        return self.head(self.features(x).mean(dim=(2, 3)))
