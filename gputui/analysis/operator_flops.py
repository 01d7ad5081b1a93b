"""Floating-point operations and bytes of one call of an operator, from its name and the shapes of its inputs.

A multiplication and an addition are two operations. Bytes are a lower bound: each input is read once, and
each result written once. Shapes are those of a trace, `8x64,64x64`; where sizes of results depend on more
than those of inputs, they follow after an arrow: `8x3x32x32,16x3x3x3->8x16x30x30`.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gputui.model.absent import Missing

RESULTS = "->"
CAUSAL = " causal"
"""Ends the shapes of an attention in which a position sees only those before it."""
TYPE_BYTES = {
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
    "Half": 2,
    "BFloat16": 2,
    "int": 4,
    "float": 4,
    "int64": 8,
    "double": 8,
}
"""By the names that traces have for types."""
_ELEMENTWISE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "exp",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "pow",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "relu",
        "gelu",
        "silu",
        "clamp",
        "lerp",
        "addcmul",
        "addcdiv",
        "reciprocal",
        "abs",
        "sign",
        "erf",
        "leaky_relu",
        "clamp_min",
        "clamp_max",
        "clone",
        "contiguous",
        "square",
        "threshold_backward",
        "gelu_backward",
        "silu_backward",
        "tanh_backward",
        "sigmoid_backward",
    ]
)
"""Operators of aten whose result has the shape of all inputs, broadcast."""
_Shape = tuple[int, ...]
_Shapes = Sequence[_Shape]


@dataclass(frozen=True, slots=True)
class CallWork:
    """What one call does at least."""

    flops: int | None
    """None for what does other arithmetic than products."""
    written: int
    """Elements of its results."""


def _product(left: _Shape, right: _Shape) -> CallWork | None:
    """Of `... x m x k` with `... x k x n`, batches broadcast; a vector is a row or a column."""
    if len(left) < 1 or len(right) < 1:
        return None
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        return None
    batch = math.prod(_broadcast((rows[:-2], columns[:-2])))
    written = batch * rows[-2] * columns[-1]
    return CallWork(2 * written * rows[-1], written)


def _broadcast(shapes: _Shapes) -> list[int]:
    sizes = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return [max(each) if min(each) else 0 for each in sizes]


def _linear(shapes: _Shapes, _: _Shapes) -> CallWork | None:
    """Of `... x in` with a weight `out x in`."""
    (inputs, weight, *_) = shapes
    if len(weight) != 2 or not inputs or inputs[-1] != weight[1]:
        return None
    written = math.prod(inputs[:-1]) * weight[0]
    return CallWork(2 * written * weight[1], written)


def _convolution(shapes: _Shapes, results: _Shapes) -> CallWork | None:
    """Of a weight `out x in of a group x size ...`; without its result the stride is not known."""
    written = sum(map(math.prod, results))
    return CallWork(2 * written * math.prod(shapes[1][1:]), written) if results else None


def _convolution_backward(shapes: _Shapes, results: _Shapes) -> CallWork | None:
    """Each of its two gradients takes as many operations as going forward; `results` are those wanted."""
    forward = 2 * math.prod(shapes[0]) * math.prod(shapes[2][1:])
    return CallWork(len(results) * forward, sum(map(math.prod, results))) if results else None


def _attention(shapes: _Shapes, results: _Shapes, *, is_causal: bool) -> CallWork | None:
    """Two products for each pair of positions; of `batch x heads x positions x width`."""
    pairs = _pairs(shapes[0], shapes[1], is_causal)
    written = math.prod(shapes[0][:-1]) * shapes[2][-1]
    return CallWork(2 * pairs * (shapes[0][-1] + shapes[2][-1]), written) if pairs else None


def _attention_backward(shapes: _Shapes, results: _Shapes, *, is_causal: bool) -> CallWork | None:
    """Five products for each pair of positions, one of which does again what going forward did."""
    _, query, key, value, *_ = shapes
    pairs = _pairs(query, key, is_causal)
    written = sum(map(math.prod, (query, key, value)))
    return CallWork(2 * pairs * (3 * query[-1] + 2 * value[-1]), written) if pairs else None


def _pairs(query: _Shape, key: _Shape, is_causal: bool) -> int:
    """Positions of the query times those of the key that each of them sees, in all heads; 0 if unknown."""
    if min(len(query), len(key)) < 3:
        return 0
    positions, others = query[-2], key[-2]
    seen = positions * others
    if is_causal:
        square = min(positions, others)
        seen = square * (square + 1) // 2 + (positions - square) * others
    return math.prod(query[:-2]) * seen


def _elementwise(shapes: _Shapes, _: _Shapes) -> CallWork:
    return CallWork(None, math.prod(_broadcast(shapes)))


_Formula = Callable[[_Shapes, _Shapes], CallWork | None]
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution")
_FORMULAS: dict[str, tuple[int, _Formula]] = {
    **{f"aten::{name}": (2, lambda s, _: _product(s[0], s[1])) for name in ("mm", "bmm", "mv", "matmul")},
    **{f"aten::{name}": (3, lambda s, _: _product(s[1], s[2])) for name in ("addmm", "baddbmm")},
    "aten::linear": (2, _linear),
    **{f"aten::{name}": (2, _convolution) for name in _CONVOLUTIONS},
    "aten::convolution_backward": (3, _convolution_backward),
    **{f"aten::{name}{end}": (1, _elementwise) for name in _ELEMENTWISE for end in ("", "_")},
    "aten::copy_": (2, lambda _, __: CallWork(None, 0)),  # the first of its inputs is its result
}
"""Number of inputs, and the formula."""
IS_CAUSAL_AT = {
    "aten::scaled_dot_product_attention": 5,
    "aten::_scaled_dot_product_flash_attention_backward": 11,
    "aten::_scaled_dot_product_efficient_attention_backward": 11,
    "aten::_scaled_dot_product_cudnn_attention_backward": 14,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 7,
}
"""Operators of attention, and which of their arguments tells whether it is causal."""


def told_of_results(operator: str, inputs: Sequence[object], arguments: Sequence[object]) -> str:
    """What a trace tells of results beyond the shapes of inputs, to follow these; empty for most operators.

    `inputs` are the sizes of each argument, empty if it is no tensor; `arguments` are the others as text.
    """
    causal_at = IS_CAUSAL_AT.get(operator)
    if causal_at is not None and causal_at < len(arguments):
        query, value = (inputs[at] for at in ((1, 1) if operator.endswith("_backward") else (0, 2)))
        if isinstance(query, list) and isinstance(value, list) and query and value:
            return _result([*query[:-1], value[-1]]) + CAUSAL * (arguments[causal_at] == "True")
    if operator == "aten::convolution_backward" and len(arguments) > _WANTED_AT:
        wanted = re.findall("True|False", str(arguments[_WANTED_AT]))[:2]
        gradients = [shape for shape, word in zip(inputs[1:3], wanted, strict=False) if word == "True"]
        return "" if arguments[_TRANSPOSED_AT] == "True" else _result(*gradients)
    if operator.removeprefix("aten::") in _CONVOLUTIONS and len(arguments) > _STRIDE_AT + 3:
        return _convolved(inputs[0], inputs[1], arguments[_STRIDE_AT:])
    return ""


_STRIDE_AT, _TRANSPOSED_AT, _WANTED_AT = 3, 7, 10
"""Arguments of convolutions and, of the last two, of their gradients."""


def _result(*shapes: object) -> str:
    return RESULTS + ",".join("x".join(map(str, shape)) for shape in shapes if isinstance(shape, list))


def _convolved(inputs: object, weight: object, arguments: Sequence[object]) -> str:
    """The result of a convolution by its stride, padding, dilation and, of some, whether it is transposed."""
    stride, padding, dilation = (list(map(int, re.findall(r"\d+", str(one)))) for one in arguments[:3])
    if not isinstance(inputs, list) or not isinstance(weight, list) or "True" in arguments[3:4]:
        return ""
    kernel = weight[2:]
    if not len(inputs) - 2 == len(kernel) == len(stride) == len(padding) == len(dilation) or 0 in stride:
        return ""
    sizes = zip(inputs[2:], kernel, stride, padding, dilation, strict=True)
    return _result(
        [inputs[0], weight[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)]
    )


def work_of_call(operator: str, shapes: str) -> CallWork | Missing:
    """The work of one call. An attention of which the trace does not tell more is counted as one that sees
    every position."""
    least, formula = _FORMULAS.get(operator, (0, None))
    if operator in IS_CAUSAL_AT:
        least, attention = (4, _attention_backward) if operator.endswith("_backward") else (3, _attention)
        formula = functools.partial(attention, is_causal=shapes.endswith(CAUSAL))
    if formula is None:
        return Missing("its floating-point operations are not known")
    inputs, results = (_parsed(part) for part in shapes.removesuffix(CAUSAL).partition(RESULTS)[::2])
    found = None if inputs is None or results is None or len(inputs) < least else formula(inputs, results)
    return Missing("its shapes were not recorded") if found is None else found


def flops_of_call(operator: str, shapes: str) -> int | Missing:
    """Operations of one call of a product, a convolution or an attention."""
    found = work_of_call(operator, shapes)
    if isinstance(found, Missing):
        return found
    return Missing("its floating-point operations are not known") if found.flops is None else found.flops


def bytes_of_call(operator: str, shapes: str, dtypes: str, narrowed_to: int | None = None) -> int | Missing:
    """Bytes that one call reads and writes; its results are of the widest type of its inputs.

    `narrowed_to`: bytes of each element, where the call converts its inputs first.
    """
    found = work_of_call(operator, shapes)
    inputs = _parsed(shapes.partition(RESULTS)[0])
    sizes = [narrowed_to or TYPE_BYTES.get(name) for name in dtypes.split(",")]
    known = [size for size in sizes if size is not None]
    if isinstance(found, Missing) or inputs is None or not len(inputs) == len(sizes) == len(known):
        return Missing("its bytes are not known")
    read = sum(size * math.prod(shape) for size, shape in zip(known, inputs, strict=True))
    return read + max(known) * found.written


def _parsed(text: str) -> list[_Shape] | None:
    """The shapes of a list; None if one of them is not known."""
    shapes = [part.split("x") for part in text.split(",") if text]
    is_known = all(size.isdigit() for shape in shapes for size in shape)
    return [tuple(map(int, shape)) for shape in shapes] if is_known else None
