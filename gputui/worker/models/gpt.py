"""A GPT-2 style decoder; see `shapes.GptShape`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ..steps.flops import GptShape


class _GptLayer(nn.Module):
    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context, width = x.shape
        q, k, v = (
            part.view(batch, context, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_attention(x)).split(width, dim=2)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, context, width))
        return x + self.mlp(self.norm_mlp(x))


class Gpt(nn.Module):
    """Tokens (batch, context) to scores (batch, context, vocabulary)."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.layers = nn.Sequential(*(_GptLayer(shape) for _ in range(shape.layers)))
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
