"""Floating-point operations and bytes of one call of an operator, from its name and the shapes of its inputs.

A multiplication and an addition are two operations. Bytes are a lower bound: each input is read once, and
each result written once. Shapes are those of a trace, `8x64,64x64`. Where more is known, it follows: sizes of
results, `8x3x32x32,16x3x3x3->8x16x30x30`, and which positions an attention sees, `2x8x64x64,... causal`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence

from gputui.model.absent import Missing

RESULTS, CAUSAL, FULL = "->", " causal", " full"
TYPE_BYTES = {
    **dict.fromkeys(("bool", "unsigned char", "signed char", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("Half", "BFloat16"), 2),
    **dict.fromkeys(("int", "float"), 4),
    **dict.fromkeys(("int64", "double"), 8),
}
"""By the names that traces have for types."""
_Shape = tuple[int, ...]
_Shapes = Sequence[_Shape]
_Formula = Callable[[_Shapes, _Shapes, bool], tuple[int, int] | None]
"""From inputs, results and whether it is causal to operations and elements written."""


def _product(left: _Shape, right: _Shape) -> tuple[int, int] | None:
    """Of `... x m x k` with `... x k x n`, batches broadcast; a vector is a row or a column."""
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        return None
    written = math.prod(_broadcast((rows[:-2], columns[:-2]))) * rows[-2] * columns[-1]
    return 2 * written * rows[-1], written


def _broadcast(shapes: _Shapes) -> list[int]:
    sizes = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return [max(each) if min(each) else 0 for each in sizes]


def _convolution_backward(shapes: _Shapes, results: _Shapes, _: bool) -> tuple[int, int] | None:
    """Each gradient takes as many operations as going forward; `results` are those wanted."""
    forward = 2 * math.prod(shapes[0]) * math.prod(shapes[2][1:])
    return (len(results) * forward, sum(map(math.prod, results))) if results else None


def _attention(shapes: _Shapes, _: _Shapes, is_causal: bool) -> tuple[int, int]:
    """Two products for each pair of positions; of `batch x heads x positions x width`."""
    query, _key, value = shapes[:3]
    return 2 * _pairs(shapes, is_causal) * (query[-1] + value[-1]), math.prod(query[:-1]) * value[-1]


def _attention_backward(shapes: _Shapes, _: _Shapes, is_causal: bool) -> tuple[int, int]:
    """Five products for each pair of positions: one does again what going forward did."""
    query, key, value = inputs = shapes[1:4]
    widths = 3 * query[-1] + 2 * value[-1]
    return 2 * _pairs((query, key), is_causal) * widths, sum(map(math.prod, inputs))


def _pairs(shapes: _Shapes, is_causal: bool) -> int:
    """Positions of a query times those of the key that each of them sees, in all heads."""
    (*heads, positions, _), others = shapes[0], shapes[1][-2]
    square = min(positions, others)
    seen = square * (square + 1) // 2 + (positions - square) * others if is_causal else positions * others
    return math.prod(heads) * seen


_CONVOLUTIONS = tuple(f"aten::{name}" for name in ("conv1d", "conv2d", "conv3d", "convolution"))
_IS_CAUSAL_AT = {
    "aten::scaled_dot_product_attention": 5,
    "aten::_scaled_dot_product_flash_attention_backward": 11,
    "aten::_scaled_dot_product_efficient_attention_backward": 11,
    "aten::_scaled_dot_product_cudnn_attention_backward": 14,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 7,
}
"""Operators of attention, and which of their arguments tells whether it is causal."""
_PRODUCTS: dict[str, _Formula] = {
    **{f"aten::{name}": lambda s, _, __: _product(s[0], s[1]) for name in ("mm", "bmm", "mv", "matmul")},
    **{f"aten::{name}": lambda s, _, __: _product(s[1], s[2]) for name in ("addmm", "baddbmm")},
    "aten::linear": lambda s, _, __: _product(s[0], s[1][::-1]),
    **dict.fromkeys(_CONVOLUTIONS, lambda s, r, _: (2 * math.prod((*r[0], *s[1][1:])), math.prod(r[0]))),
    "aten::convolution_backward": _convolution_backward,
    **{name: _attention_backward if "backward" in name else _attention for name in _IS_CAUSAL_AT},
}
_TELL_MORE = frozenset((*_IS_CAUSAL_AT, *_CONVOLUTIONS, "aten::convolution_backward"))
_LONGEST_WORD = 100
_ELEMENTWISE = (
    "add sub mul div neg exp log log1p sqrt rsqrt pow sin cos tanh sigmoid relu gelu silu clamp lerp addcmul"
    " addcdiv reciprocal abs sign erf leaky_relu clamp_min clamp_max clone contiguous square"
    " threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward"
)
"""Operators of aten whose result has the shape of all inputs, broadcast."""
_MOVES: dict[str, _Formula] = {
    **{
        f"aten::{name}{end}": lambda s, _, __: (0, math.prod(_broadcast(s)))
        for name in _ELEMENTWISE.split()
        for end in ("", "_")
    },
    "aten::copy_": lambda _, __, ___: (0, 0),  # the first of its inputs is its result
}


def flops_of_call(operator: str, shapes: str) -> int | Missing:
    """Operations of one call of a product, a convolution or an attention, which is taken for one that sees
    every position if nothing tells."""
    found = _work(_PRODUCTS.get(operator), shapes)
    return found if isinstance(found, Missing) else found[0]


def bytes_of_call(operator: str, shapes: str, dtypes: str, narrowed_to: int | None = None) -> int | Missing:
    """Bytes that one call reads and writes; its results are of the widest type of its inputs.

    `narrowed_to`: bytes of each element, where the call converts its inputs first.
    """
    found = _work(_PRODUCTS.get(operator, _MOVES.get(operator)), shapes)
    sizes = [narrowed_to or TYPE_BYTES.get(name, 0) for name in dtypes.split(",")]
    inputs = _parsed(shapes)[0]
    if isinstance(found, Missing) or len(inputs) != len(sizes) or not all(sizes):
        return Missing("its bytes are not known")
    read = sum(size * math.prod(shape) for size, shape in zip(sizes, inputs, strict=True))
    return read + max(sizes) * found[1]


def _work(formula: _Formula | None, shapes: str) -> tuple[int, int] | Missing:
    if formula is None:
        return Missing("its floating-point operations are not known")
    try:
        found = formula(*_parsed(shapes), shapes.endswith(CAUSAL))
    except (IndexError, ValueError):  # fewer inputs or dimensions than it needs
        found = None
    return found or Missing("its shapes were not recorded")


def _parsed(text: str) -> tuple[list[_Shape], list[_Shape]]:
    """Shapes of inputs, and of results if they are known; none at all if one of them is not known."""
    sides = text.removesuffix(CAUSAL).removesuffix(FULL).partition(RESULTS)[::2]
    if not re.fullmatch(r"[\dx,]*", "".join(sides)) or re.search(r"\d{13}", text):
        return [], []
    inputs, results = ([tuple(map(int, s.split("x"))) for s in side.split(",") if s] for side in sides)
    return inputs, results


def told_of_results(operator: str, inputs: Sequence[object], arguments: Sequence[object]) -> str:
    """What a trace tells beyond the shapes of inputs, to follow these; empty for most operators.

    `inputs` are the sizes of each argument, empty if it is no tensor; `arguments` are the others as text.
    """
    if operator not in _TELL_MORE:
        return ""
    words = [str(one)[:_LONGEST_WORD] for one in arguments]
    causal_at = _IS_CAUSAL_AT.get(operator, len(words))
    if causal_at < len(words):
        return CAUSAL if words[causal_at] == "True" else FULL
    if operator == "aten::convolution_backward" and words[7:8] == ["False"]:  # not transposed
        wanted = zip(inputs[1:3], re.findall("True|False", words[-1]), strict=False)
        return _result(*(shape for shape, word in wanted if word == "True"))
    is_told = operator in _CONVOLUTIONS and len(words) > 6 and words[6] != "True"
    return _convolved(inputs[:2], words[3:6]) if is_told else ""


def _result(*shapes: object) -> str:
    return RESULTS + ",".join("x".join(map(str, shape)) for shape in shapes if isinstance(shape, list))


def _convolved(inputs: Sequence[object], lists: Sequence[str]) -> str:
    """The result of a convolution by its stride, padding and dilation; empty if they do not fit."""
    shapes = [shape for shape in inputs if isinstance(shape, list) and len(shape) > 2]
    sizes = [*(shape[2:] for shape in shapes), *([int(n) for n in re.findall(r"\d+", one)] for one in lists)]
    is_whole = all(isinstance(n, int) for each in sizes for n in each)
    if len(sizes) != 5 or len({len(each) for each in sizes}) > 1 or not is_whole or 0 in sizes[2]:
        return ""
    spread = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(*sizes, strict=True)]
    return _result([shapes[0][0], shapes[1][0], *spread])
