"""A BERT-style text classifier; see `shapes.EncoderShape`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ..steps.flops import EncoderShape
from .gpt import initialise


class _EncoderLayer(nn.Module):
    def __init__(self, shape: EncoderShape, dropout: float) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_attention = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm_mlp = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context, width = x.shape
        dropout = self.dropout if self.training else 0.0
        q, k, v = (
            part.view(batch, context, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        attended = self.projection(attended.transpose(1, 2).reshape(batch, context, width))
        x = self.norm_attention(x + functional.dropout(attended, dropout, self.training))
        return self.norm_mlp(x + functional.dropout(self.mlp(x), dropout, self.training))


class Encoder(nn.Module):
    """Tokens (batch, context) to class scores (batch, classes)."""

    def __init__(self, shape: EncoderShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.layers = nn.Sequential(*(_EncoderLayer(shape, dropout) for _ in range(shape.layers)))
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
