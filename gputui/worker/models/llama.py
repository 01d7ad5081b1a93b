"""A Llama-2 style decoder with a static key-value cache; see `shapes.LlamaShape`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ..steps.flops import LlamaShape
from ..steps.number_pool import POOL_NUMBERS, NumberPool

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
