"""Whether two steps do the same work, and what else to say before their times are compared."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from gputui.analysis.findings import PRODUCTS, bare_name, product_types
from gputui.analysis.operator_flops import flops_of_call
from gputui.model.absent import Missing
from gputui.model.journal import Operator, ProfiledPass
from gputui.model.units import format_ratio

_EQUAL = 0.02
_ALIKE = 0.5
"""Share of the time of products, from which equal shapes make the work of two steps the same."""
_KNOWN = 0.8
"""Share of the time, from which what holds of some operators holds of a step."""
_LEAST_FACTOR = 1.15
_MOST_UNEVEN = 1.3
"""Ratio of the operators that slow down most and least, a tenth of the time each left out."""
_Key = tuple[str, str, str, str]


def different_work(a: ProfiledPass, b: ProfiledPass) -> str:
    """How the products of two steps differ in size or number; empty if they do not, or if it is not known.

    Only operators that both sides call are compared: another operator may be another way to do the same.
    """
    common = {o.operator for o in _products(a)} & {o.operator for o in _products(b)}
    sides = [[o for o in _products(found) if o.operator in common] for found in (a, b)]
    if not common or any(_share(rows, [o for o in rows if o.shapes]) < _KNOWN for rows in sides):
        return ""
    calls = [_calls(rows, found) for rows, found in zip(sides, (a, b), strict=True)]
    alike = {key for key in calls[0] if math.isclose(calls[0][key], calls[1].get(key, 0.0), rel_tol=_EQUAL)}
    shares = [_share(rows, [o for o in rows if _work(o) in alike]) for rows in sides]
    if min(shares) >= _ALIKE or _is_divided(sides, (a, b)):
        return ""
    least = shares.index(min(shares))
    row = max((o for o in sides[least] if _work(o) not in alike), key=lambda o: o.time_ns)
    others = (o for o in sides[1 - least] if o.operator == row.operator)
    other = max(others, key=lambda o: (_equal_lengths(o.shapes, row.shapes), o.time_ns))
    name = bare_name(row.operator)
    if row.shapes != other.shapes:
        in_a, in_b = (row.shapes, other.shapes)[:: -1 if least else 1]
        if batches := _batches(in_a, in_b):
            return f"a and b do different work: a batch of {batches[0]} in a, of {batches[1]} in b"
        return f"a and b do different work: {name} gets {in_a} in a, {in_b} in b"
    often = [f"{side[_work(row)]:.3g}" for side in calls]
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
    common = [
        key
        for key, of_a in times[0].items()
        if key[2] and key in times[1] and _is_equal(of_a, times[1][key], a, b)
    ]
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


def _equal_lengths(shapes: str, others: str) -> int:
    """In how many dimensions they agree."""
    pairs = zip(re.split("[x,]", shapes), re.split("[x,]", others), strict=False)
    return sum(mine == other for mine, other in pairs)


def _products(found: ProfiledPass) -> list[Operator]:
    return [o for o in found.operators if o.category in PRODUCTS and o.calls]


def _share(whole: Sequence[Operator], part: Sequence[Operator]) -> float:
    whole_ns = sum(o.time_ns for o in whole)
    return sum(o.time_ns for o in part) / whole_ns if whole_ns else 0.0


def _work(row: Operator) -> tuple[str, str]:
    return row.operator, row.shapes


def _calls(rows: Sequence[Operator], found: ProfiledPass) -> dict[tuple[str, str], float]:
    """Calls a step."""
    calls: Counter[tuple[str, str]] = Counter()
    for row in rows:
        calls[_work(row)] += row.calls
    return {key: count / found.steps for key, count in calls.items()}


def _times(found: ProfiledPass) -> dict[_Key, tuple[int, int]]:
    """Time and calls of each operator."""
    times: dict[_Key, tuple[int, int]] = {}
    for row in found.operators:
        key = (row.phase, row.operator, row.shapes, row.dtypes)
        time_ns, calls = times.get(key, (0, 0))
        times[key] = (time_ns + row.time_ns, calls + row.calls)
    return times


def _is_equal(mine: tuple[int, int], other: tuple[int, int], a: ProfiledPass, b: ProfiledPass) -> bool:
    is_known = mine[0] > 0 and other[0] > 0 and mine[1] > 0
    return is_known and math.isclose(mine[1] / a.steps, other[1] / b.steps, rel_tol=0.02)


def _quantile(ratios: Sequence[tuple[float, int]], share: float) -> float:
    """Of ascending ratios, weighted."""
    left = share * sum(weight for _, weight in ratios)
    for ratio, weight in ratios:
        left -= weight
        if left <= 0:
            return ratio
    return ratios[-1][0]
