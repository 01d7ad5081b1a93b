"""Floating-point operations of one call of an operator, from its name and the shapes of its inputs.

A multiplication and an addition are two operations. Shapes are those of a trace, `8x64,64x64`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence

from gputui.model.absent import Missing

_Shape = tuple[int, ...]
_Shapes = Sequence[_Shape]


def _product(left: _Shape, right: _Shape) -> int | None:
    """Of `... x m x k` with `... x k x n`, batches broadcast; a vector is a row or a column."""
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        return None
    return 2 * math.prod(_broadcast((rows[:-2], columns[:-2]))) * rows[-2] * columns[-1] * rows[-1]


def _broadcast(shapes: _Shapes) -> list[int]:
    sizes = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return [max(each) if min(each) else 0 for each in sizes]


def _attention(shapes: _Shapes) -> int:
    """Two products for each pair of positions; of `batch x heads x positions x width`."""
    query, key, value = shapes[:3]
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


_FORMULAS: dict[str, Callable[[_Shapes], int | None]] = {
    **{f"aten::{name}": lambda s: _product(s[0], s[1]) for name in ("mm", "bmm", "mv", "matmul")},
    **{f"aten::{name}": lambda s: _product(s[1], s[2]) for name in ("addmm", "baddbmm")},
    "aten::linear": lambda s: _product(s[0], s[1][::-1]),
    "aten::scaled_dot_product_attention": _attention,
}


def flops_of_call(operator: str, shapes: str) -> int | Missing:
    """Operations of one call of a product, or of an attention, which is taken for one that sees every
    position."""
    formula = _FORMULAS.get(operator)
    if formula is None:
        return Missing("its floating-point operations are not known")
    try:
        found = formula(_parsed(shapes))
    except (IndexError, ValueError):  # fewer inputs or dimensions than it needs
        found = None
    return Missing("its shapes were not recorded") if found is None else found


def _parsed(text: str) -> list[_Shape]:
    """The shapes of the inputs; none at all if one of them is not known."""
    if not re.fullmatch(r"[\dx,]*", text) or re.search(r"\d{13}", text):
        return []
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",") if shape]
