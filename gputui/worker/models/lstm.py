"""A language model of LSTM layers; see `shapes.LstmShape`."""

from __future__ import annotations

import torch
from torch import nn

from ..steps.flops import LstmShape


class Lstm(nn.Module):
    """Tokens (batch, context) to scores (batch, context, vocabulary), using torch's LSTM."""

    def __init__(self, shape: LstmShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.LSTM(shape.width, shape.width, shape.layers, batch_first=True)
        self.head = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, not normalized."""
        states, _ = self.layers(self.tokens(tokens))
        return self.head(states)
