"""What operators compute: operations and bytes of one call, and whether two steps do the same work.

A multiplication and an addition are two operations. Bytes are a lower bound: each input is read once, and
each result written once. Shapes are those of a trace, `8x64,64x64`. Where more is known, it follows: sizes of
results, `8x3x32x32,16x3x3x3->8x16x30x30`, and which positions an attention sees, `2x8x64x64,... causal`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from gputui.model.absent import Missing
from gputui.model.journal import Operator, ProfiledPass
from gputui.model.units import format_ratio

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


PRODUCTS = ("gemm", "conv", "attention")
_BYTES_OF = {"c10::Half": 2, "Half": 2, "BFloat16": 2, "float": 4, "double": 8}
PRODUCTS = ("gemm", "conv", "attention")
BYTES_OF = {"c10::Half": 2, "Half": 2, "BFloat16": 2, "float": 4, "double": 8}
_EQUAL = 0.02
_ALIKE = 0.5
"""Share of the time of products, from which equal shapes make the work of two steps the same."""
_KNOWN = 0.8
"""Share of the time, from which what holds of some operators holds of a step."""
_LEAST_FACTOR = 1.15
_MOST_UNEVEN = 1.3
"""Ratio of the operators that slow down most and least, a tenth of the time each left out."""
_Key = tuple[str, str, str, str]


def bare_name(operator: str) -> str:
    """`linear` for `aten::linear`."""
    return operator.removeprefix("aten::")


def product_types(found: ProfiledPass) -> Counter[str]:
    """Time of the backward pass's products by their type; empty if none are listed."""
    times_ns: Counter[str] = Counter()
    for name, row in products_backward(found):
        times_ns[name] += row.time_ns
    return times_ns


def products_backward(found: ProfiledPass) -> Iterable[tuple[str, Operator]]:
    """Products of the backward pass of one known type, with that."""
    for row in found.operators:
        types = set(row.dtypes.split(","))
        is_product = row.phase == "backward" and row.category in PRODUCTS
        if is_product and len(types) == 1 and types <= set(BYTES_OF):
            yield types.pop(), row


def different_work(a: ProfiledPass, b: ProfiledPass) -> str:
    """How the products of two steps differ in size or number; empty if they do not, or if it is not known.

    Only operators that both sides call are compared: another operator may be another way to do the same.
    """
    common = {o.operator for o in _products(a)} & {o.operator for o in _products(b)}
    sides = [[o for o in _products(found) if o.operator in common] for found in (a, b)]
    if not common or any(_share(rows, [o for o in rows if o.shapes]) < _KNOWN for rows in sides):
        return ""
    calls: list[dict[tuple[str, str], float]] = []
    for rows, found in zip(sides, (a, b), strict=True):
        calls.append(defaultdict(float))
        for row in rows:
            calls[-1][_call_of(row)] += row.calls / found.steps
    alike = {key for key in calls[0] if math.isclose(calls[0][key], calls[1].get(key, 0.0), rel_tol=_EQUAL)}
    shares = [_share(rows, [o for o in rows if _call_of(o) in alike]) for rows in sides]
    if min(shares) >= _ALIKE or _is_divided(sides, (a, b)):
        return ""
    least = shares.index(min(shares))
    row = max((o for o in sides[least] if _call_of(o) not in alike), key=lambda o: o.time_ns)
    others = (o for o in sides[1 - least] if o.operator == row.operator)

    def likeness(one: Operator) -> tuple[int, int]:
        """In how many dimensions its inputs have the length of those of `row`; then its time."""
        pairs = zip(re.split("[x,]", one.shapes), re.split("[x,]", row.shapes), strict=False)
        return sum(mine == its for mine, its in pairs), one.time_ns

    other = max(others, key=likeness)
    name = bare_name(row.operator)
    if row.shapes != other.shapes:
        in_a, in_b = (row.shapes, other.shapes)[:: -1 if least else 1]
        if batches := _batches(in_a, in_b):
            return f"a and b do different work: a batch of {batches[0]} in a, of {batches[1]} in b"
        return f"a and b do different work: {name} gets {in_a} in a, {in_b} in b"
    often = [f"{side[_call_of(row)]:.3g}" for side in calls]
    return (
        f"a and b do different work: {name} of {row.shapes} is called {often[0]} times a step in a,"
        f" {often[1]} in b"
    )


def _is_divided(sides: Sequence[Sequence[Operator]], passes: Sequence[ProfiledPass]) -> bool:
    """Whether both do as many operations in larger or smaller pieces, as far as that is known."""
    flops = []
    for rows, found in zip(sides, passes, strict=True):
        each = ((row.calls, flops_of_call(row.operator, row.shapes)) for row in rows)
        flops.append(sum(calls * one for calls, one in each if not isinstance(one, Missing)) / found.steps)
    return flops[0] > 0 and math.isclose(*flops, rel_tol=_EQUAL)


def _batches(a: str, b: str) -> tuple[str, str] | None:
    """The first dimension of all inputs on each side, if nothing but that differs."""
    parts = [[one.partition("x") for one in shapes.split(",")] for shapes in (a, b)]
    firsts = [{first for first, _, _ in inputs} for inputs in parts]
    rests = [[rest for _, _, rest in inputs] for inputs in parts]
    if rests[0] != rests[1] or not all(rests[0]) or any(len(of_side) > 1 for of_side in firsts):
        return None
    return firsts[0].pop(), firsts[1].pop()


def wider_type(a: ProfiledPass, b: ProfiledPass) -> str:
    """In which type each side does the products of its backward pass, if that differs; else empty."""
    names = []
    for found in (a, b):
        times_ns = product_types(found)
        if not times_ns or times_ns.most_common(1)[0][1] < _KNOWN * times_ns.total():
            return ""
        names.append(times_ns.most_common(1)[0][0])
    return (
        "" if names[0] == names[1] else f"the backward pass multiplies in {names[0]} in a, in {names[1]} in b"
    )


def even_factor(a: ProfiledPass, b: ProfiledPass) -> str:
    """Whether all work of one side takes about as many times as long, in equal calls of equal types.

    Then it is the machine, or what else runs on it, and not the program. Empty if it does not, or if that is
    not known.
    """
    times = [_times(found) for found in (a, b)]
    common = []
    for key, (ns_a, calls_a) in times[0].items():
        ns_b, calls_b = times[1].get(key, (0, 0))
        is_known = key[2] and ns_a > 0 and ns_b > 0 and calls_a > 0
        if is_known and math.isclose(calls_a / a.steps, calls_b / b.steps, rel_tol=_EQUAL):
            common.append(key)
    for of_side in times:
        whole_ns = sum(ns for ns, _ in of_side.values())
        if sum(of_side[key][0] for key in common) < _KNOWN * whole_ns or not whole_ns:
            return ""
    ratios = sorted(
        (times[1][key][0] / b.steps / (times[0][key][0] / a.steps), times[0][key][0]) for key in common
    )
    low, middle, high = (_quantile(ratios, share) for share in (0.1, 0.5, 0.9))
    if high > _MOST_UNEVEN * low or abs(math.log(middle)) < math.log(_LEAST_FACTOR):
        return ""
    slower, factor = ("b", middle) if middle > 1 else ("a", 1 / middle)
    return (
        f"all kinds of work take about {format_ratio(factor)} as long in {slower}, in as many calls: look at"
        " its machine (clock, threads, other programs) before the program"
    )


def _products(found: ProfiledPass) -> list[Operator]:
    return [o for o in found.operators if o.category in PRODUCTS and o.calls]


def _share(whole: Sequence[Operator], part: Sequence[Operator]) -> float:
    whole_ns = sum(o.time_ns for o in whole)
    return sum(o.time_ns for o in part) / whole_ns if whole_ns else 0.0


def _call_of(row: Operator) -> tuple[str, str]:
    return row.operator, row.shapes


def _times(found: ProfiledPass) -> dict[_Key, tuple[int, int]]:
    times: dict[_Key, tuple[int, int]] = {}
    for row in found.operators:
        key = (row.phase, row.operator, row.shapes, row.dtypes)
        time_ns, calls = times.get(key, (0, 0))
        times[key] = (time_ns + row.time_ns, calls + row.calls)
    return times


def _quantile(ratios: Sequence[tuple[float, int]], share: float) -> float:
    """Of ascending ratios, weighted."""
    left = share * sum(weight for _, weight in ratios)
    for ratio, weight in ratios:
        left -= weight
        if left <= 0:
            return ratio
    return ratios[-1][0]
