"""The models, with random weights. Imported only when a workload is built: torch is needed here."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from .flops import (
    STAGE_WIDTHS,
    STEM_CHANNELS,
    STYLE_CONVOLUTIONS,
    LlamaShape,
    ResNetShape,
    TextShape,
)
from .steps import POOL_NUMBERS, NumberPool


class _Layer(nn.Module):
    """Attention and an MLP four times as wide; a subclass says where the norms stand."""

    def __init__(self, shape: TextShape, eps: float, activation: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.dropout = dropout
        self.norm_attention = nn.LayerNorm(width, eps=eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width, eps=eps)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), activation, nn.Linear(4 * width, width))

    def attended(self, x: torch.Tensor, dropout: float, *, is_causal: bool) -> torch.Tensor:
        batch, context, width = x.shape
        q, k, v = (
            part.view(batch, context, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=is_causal)
        return self.projection(attended.transpose(1, 2).reshape(batch, context, width))


class _GptLayer(_Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attended(self.norm_attention(x), 0.0, is_causal=True)
        return x + self.mlp(self.norm_mlp(x))


class _EncoderLayer(_Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = self.attended(x, self.dropout if self.training else 0.0, is_causal=False)
        x = self.norm_attention(x + functional.dropout(attended, self.dropout, self.training))
        return self.norm_mlp(x + functional.dropout(self.mlp(x), self.dropout, self.training))


class Gpt(nn.Module):
    """Tokens (batch, context) to scores (batch, context, vocabulary)."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.layers = nn.Sequential(
            *(_GptLayer(shape, 1e-5, nn.GELU(approximate="tanh")) for _ in range(shape.layers))
        )
        self.norm = nn.LayerNorm(shape.width)
        self.draw_weights()

    def draw_weights(self) -> None:
        """Initialize every parameter randomly, as GPT-2 does."""
        self.apply(initialise)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, not normalized."""
        x = self.layers(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        return functional.linear(self.norm(x), self.tokens.weight)


def initialise(module: nn.Module) -> None:
    """Draw the weights of one layer as GPT-2 and BERT do."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.LayerNorm):
        module.reset_parameters()


class Encoder(nn.Module):
    """Tokens (batch, context) to class scores (batch, classes)."""

    def __init__(self, shape: TextShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.layers = nn.Sequential(
            *(_EncoderLayer(shape, 1e-12, nn.GELU(), dropout) for _ in range(shape.layers))
        )
        self.pooler = nn.Linear(shape.width, shape.width)
        self.head = nn.Linear(shape.width, shape.classes)
        self.apply(initialise)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Class scores of each text, not normalized."""
        x = self.norm(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        x = self.layers(functional.dropout(x, self.dropout, self.training))
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.head(functional.dropout(pooled, self.dropout, self.training))


ROTARY_BASE = 10000.0


class _Norm(nn.Module):
    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x.float() * scale).to(x.dtype) * self.weight


class _Linear(nn.Module):
    def __init__(self, width_in: int, width_out: int, numbers: NumberPool) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbers.tensor(width_out, width_in))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight)


class _LlamaLayer(nn.Module):
    def __init__(self, shape: LlamaShape, batch: int, dtype: torch.dtype, numbers: NumberPool) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = _Norm(shape.width, dtype)
        self.qkv = _Linear(shape.width, 3 * shape.width, numbers)
        self.projection = _Linear(shape.width, shape.width, numbers)
        self.norm_mlp = _Norm(shape.width, dtype)
        self.gate_and_up = _Linear(shape.width, 2 * shape.hidden, numbers)
        self.down = _Linear(shape.hidden, shape.width, numbers)
        room = (batch, shape.heads, shape.cache, shape.width // shape.heads)
        self.register_buffer("keys", torch.zeros(room, dtype=dtype))
        self.register_buffer("values", torch.zeros(room, dtype=dtype))

    def forward(
        self, x: torch.Tensor, places: torch.Tensor, rotation: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        batch, count, width = x.shape
        q, k, v = (
            part.view(batch, count, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_attention(x)).split(width, dim=2)
        )
        self.keys.index_copy_(2, places, _rotated(k, rotation))
        self.values.index_copy_(2, places, v)
        attended = functional.scaled_dot_product_attention(
            _rotated(q, rotation), self.keys, self.values, attn_mask=mask
        )
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, count, width))
        gate, up = self.gate_and_up(self.norm_mlp(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Llama(nn.Module):
    """Tokens (batch, count) at `places` in the text to scores of the token after the last of them.

    The keys and values of these tokens stay in caches of a fixed size. Attention reads a whole cache and
    masks what is not yet written, so that every token is the same work.
    """

    def __init__(self, shape: LlamaShape, batch: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        # Drawn as float32, so that a seed gives the same model in every dtype.
        numbers = NumberPool(torch.empty(POOL_NUMBERS).normal_(std=0.02).to(dtype))
        self.tokens = nn.Parameter(numbers.tensor(shape.vocabulary, shape.width))
        self.layers = nn.ModuleList(_LlamaLayer(shape, batch, dtype, numbers) for _ in range(shape.layers))
        self.norm = _Norm(shape.width, dtype)
        self.head = _Linear(shape.width, shape.vocabulary, numbers)
        half = shape.width // shape.heads // 2
        frequencies = ROTARY_BASE ** (-torch.arange(half) / half)
        angles = torch.outer(torch.arange(shape.cache), frequencies)
        self.register_buffer("rotations", torch.stack((angles.cos(), angles.sin())).to(dtype))
        # Added to attention scores: 0 for visible positions, -inf for later ones.
        self.register_buffer("masks", torch.full((shape.cache, shape.cache), -torch.inf, dtype=dtype).triu(1))

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Scores (batch, vocabulary), not normalized; `places` (count) are on the device."""
        rotation = self.rotations.index_select(1, places)
        mask = self.masks.index_select(0, places)
        x = functional.embedding(tokens, self.tokens)
        for layer in self.layers:
            x = layer(x, places, rotation, mask)
        return self.head(self.norm(x[:, -1]))


def _rotated(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotary positions, the two halves of a head as real and imaginary parts; arXiv 2104.09864."""
    cos, sin = rotation[0], rotation[1]
    real, imaginary = x.chunk(2, dim=-1)
    return torch.cat((real * cos - imaginary * sin, real * sin + imaginary * cos), dim=-1)


class Lstm(nn.Module):
    """Tokens (batch, context) to scores (batch, context, vocabulary), using torch's LSTM."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.LSTM(shape.width, shape.width, shape.layers, batch_first=True)
        self.head = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, not normalized."""
        states, _ = self.layers(self.tokens(tokens))
        return self.head(states)


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


def _conv(kernel: int, channels_in: int, channels_out: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, padding_mode="reflect")


def _conv_and_norm(kernel: int, channels_in: int, channels_out: int, stride: int = 1) -> list[nn.Module]:
    return [_conv(kernel, channels_in, channels_out, stride), nn.InstanceNorm2d(channels_out, affine=True)]


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        first, second = (_conv_and_norm(3, channels, channels) for _ in range(2))
        self.body = nn.Sequential(*first, nn.ReLU(inplace=True), *second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Style(nn.Module):
    """Frames (batch, height, width, 3) of bytes to (batch, 3, height, width) of numbers from -1 to 1."""

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        self.memory_format = memory_format
        first, halve, halve_again, *residual, widen, widen_again, last = (
            (kernel, channels_in, channels_out) for kernel, channels_in, channels_out, _ in STYLE_CONVOLUTIONS
        )
        self.layers = nn.Sequential(
            *_activated(_conv_and_norm(*first)),
            *_activated(_conv_and_norm(*halve, stride=2)),
            *_activated(_conv_and_norm(*halve_again, stride=2)),
            *(_Residual(channels) for _, channels, _ in residual[::2]),
            nn.Upsample(scale_factor=2),
            *_activated(_conv_and_norm(*widen)),
            nn.Upsample(scale_factor=2),
            *_activated(_conv_and_norm(*widen_again)),
            _conv(*last),
            nn.Tanh(),
        ).to(memory_format=memory_format)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames of bytes to frames of numbers; `shown` makes bytes of them."""
        kind = self.layers[0].weight.dtype
        x = frames.permute(0, 3, 1, 2).to(kind, memory_format=self.memory_format)
        return self.layers(x / 127.5 - 1)


def _activated(layers: Sequence[nn.Module]) -> list[nn.Module]:
    return [*layers, nn.ReLU(inplace=True)]


def shown(frames: torch.Tensor) -> torch.Tensor:
    """Numbers (batch, 3, height, width) from -1 to 1 to bytes (batch, height, width, 3) from 0 to 255."""
    return (frames + 1).mul_(127.5).round_().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
