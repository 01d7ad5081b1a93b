"""Floating-point operations of one call of an operator, from its name and the shapes of its inputs.

Only matrix products, whose operations depend on the shapes alone. A multiplication and an addition are two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from gputui.model.absent import Missing

_Shapes = Sequence[tuple[int, ...]]


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
    """Of `... x m x k` with `... x k x n`, batches broadcast; a vector is a row or a column."""
    if len(left) < 1 or len(right) < 1:
        return None
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        return None
    batches = itertools.zip_longest(reversed(rows[:-2]), reversed(columns[:-2]), fillvalue=1)
    batch = math.prod(max(sizes) if min(sizes) else 0 for sizes in batches)
    return 2 * batch * rows[-2] * rows[-1] * columns[-1]


def _linear(shapes: _Shapes) -> int | None:
    """Of `... x in` with a weight `out x in`."""
    (inputs, weight, *_) = shapes
    if len(weight) != 2 or not inputs or inputs[-1] != weight[1]:
        return None
    return 2 * math.prod(inputs) * weight[0]


_FORMULAS: dict[str, tuple[int, Callable[[_Shapes], int | None]]] = {
    "aten::mm": (2, lambda s: _product(s[0], s[1])),
    "aten::bmm": (2, lambda s: _product(s[0], s[1])),
    "aten::mv": (2, lambda s: _product(s[0], s[1])),
    "aten::matmul": (2, lambda s: _product(s[0], s[1])),
    "aten::linear": (2, _linear),
    "aten::addmm": (3, lambda s: _product(s[1], s[2])),
    "aten::baddbmm": (3, lambda s: _product(s[1], s[2])),
}
"""Number of inputs, and the formula."""


def flops_of_call(operator: str, shapes: str) -> int | Missing:
    """Operations of one call; `shapes` as in a trace, `8x64,64x64`."""
    least, formula = _FORMULAS.get(operator, (0, None))
    if formula is None:
        return Missing("its floating-point operations are not known")
    parsed = [_shape(text) for text in shapes.split(",")]
    known = [shape for shape in parsed if shape is not None]
    found = formula(known) if len(known) == len(parsed) >= least else None
    return Missing("its shapes were not recorded") if found is None else found


def _shape(text: str) -> tuple[int, ...] | None:
    sizes = text.split("x")
    return tuple(map(int, sizes)) if all(size.isdigit() for size in sizes) else None
