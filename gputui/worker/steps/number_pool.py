"""Random numbers that are drawn once and used again: drawing a model's weights took most of its build."""

from __future__ import annotations

import math
from typing import Any  # Any: torch's types, which may not be installed

POOL_NUMBERS = 2**22 - 3
"""A prime, so that no row of a matrix is a copy of another, and no tensor of the one before."""


class NumberPool:
    """Fills tensors with the numbers of one tensor in turn, from its start again after its end.

    They have its device and dtype, and memory of their own.
    """

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers
        self._at = 0

    def tensor(self, *shape: int) -> Any:
        """The next numbers, in this shape."""
        import torch

        made = torch.empty(math.prod(shape), dtype=self._numbers.dtype, device=self._numbers.device)
        filled = 0
        while filled < made.numel():
            count = min(self._numbers.numel() - self._at, made.numel() - filled)
            made[filled : filled + count] = self._numbers[self._at : self._at + count]
            filled, self._at = filled + count, (self._at + count) % self._numbers.numel()
        return made.view(shape)
