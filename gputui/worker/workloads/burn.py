"""Repeats one matrix product and compares every number of every product with the first."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from statistics import median
from typing import Any  # Any: torch's types

from ..contract import Figure, Request, Size, Step, Value, Workload

CHECKED_ROWS = 8
"""Rows of the first product that are checked against float64 on the host: the reference may be wrong too."""
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "amp-bf16": 2e-2, "amp-fp16": 5e-3}
"""Largest error of a row's norm: several times what the type's rounding gives, far below one flipped
exponent bit. `fp32` sums k products with 24 bits, `tf32` and fp16 round operands to 11 bits, bf16 to 8."""
REPEATED = 8
"""Products of a second opinion: a library whose order of sums is free seldom repeats itself so often."""
ANY_ORDER = "the library adds in another order each time, so that bits cannot be compared"


def _size(n: int) -> Size:
    return Size(
        parameters={"n": n, "data": "normal", "checked": "every number"},
        units_per_step=2.0 * n**3,
        flops_per_step=2 * n**3,
        bytes_per_step=None,
        memory_bytes=6 * 4 * n * n,
        operators=4,
    )


def build(request: Request) -> Step:
    """Random normal operands. Products that differ from the first in any bit are counted on the device.

    The comparison reads two products a step, less than 2 % of the time of a product at 4096. A difference is
    the device's fault only if a second opinion does not find it to be the library's: rocBLAS may add with
    atomics (rocBLAS#1459), and its products in one type may have NaN (rocm-libraries#9055).
    """
    import torch

    n = request.integer("n")
    generator = torch.Generator().manual_seed(request.seed)
    kind = {"device": request.device, "dtype": request.precision.product_dtype()}
    a, b = (torch.randn(n, n, generator=generator).to(**kind) for _ in range(2))
    bits = torch.int16 if kind["dtype"].itemsize == 2 else torch.int32
    product = torch.empty(n, n, **kind)
    torch.mm(a, b, out=product)
    first = product.clone()
    reference = first.view(bits)
    seen = product.view(bits)
    differs = torch.empty(n, n, device=request.device, dtype=torch.bool)
    wrong = torch.zeros((), device=request.device, dtype=torch.int64)
    products = [0]

    def run() -> None:
        torch.mm(a, b, out=product)
        torch.ne(seen, reference, out=differs)
        wrong.add_(differs.sum())
        products[0] += 1

    def error_of(rows: Any) -> float:
        """Of the first rows of a product against float64 on the host, by their norm."""
        exact = a[:CHECKED_ROWS].cpu().double() @ b.cpu().double()
        return float((rows[:CHECKED_ROWS].cpu().double() - exact).norm() / exact.norm())

    def repeats(expected: Any) -> bool:
        """Whether more products are this one, bit by bit."""
        for _ in range(REPEATED):
            torch.mm(a, b, out=product)
            if not torch.equal(seen, expected):
                return False
        return True

    @functools.cache
    def adds_in_any_order() -> bool:
        """Whether only the usual algorithms vary, by no more than orders of their sums can, and deterministic
        ones do not."""
        if not int(wrong) or repeats(reference):
            return False
        sums = a.float().abs() @ b.float().abs()
        bound = n * 2.0**-23 * sums + 2 * torch.finfo(kind["dtype"]).eps * first.float().abs()
        if not bool(((product.float() - first.float()).abs() <= bound).all()):
            return False
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            torch.mm(a, b, out=product)
            return repeats(seen.clone())
        finally:
            torch.use_deterministic_algorithms(before)

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        differing = Value(float(wrong), products[0])
        return {
            "wrong_count": Value(None, products[0], ANY_ORDER) if adds_in_any_order() else differing,
            "kept_ratio": _kept(step_ns),
        }

    def fault() -> str:
        count, is_by_order = int(wrong), adds_in_any_order()
        if not bool(first.isfinite().all() and product.isfinite().all()):
            whole = a.float() @ b.float()
            is_right = bool(whole.isfinite().all()) and error_of(whole) <= TOLERANCE["tf32"]
            whose = ", and right in float32: a fault of the library" if is_right else ""
            return f"products in {kind['dtype']} are not finite{whose}"
        if count and not is_by_order:
            differing = f"{count} numbers in {products[0]} products differ from the first"
            return f"{differing}, and not by the order of sums: a fault of the device"
        error, tolerance = error_of(first), TOLERANCE[request.precision.used]
        if not error <= tolerance:
            return f"the first product is off by {error:.2g} of its size, more than {tolerance:g}"
        return ""

    return Step(run, figures=figures, fault=fault)


def _kept(step_ns: Sequence[float]) -> Value:
    """Speed of the last quarter of the blocks relative to the first quarter."""
    quarter = len(step_ns) // 4
    if quarter < 2:
        return Value(None, len(step_ns), f"{len(step_ns)} blocks are too few for quarters")
    return Value(median(step_ns[:quarter]) / median(step_ns[-quarter:]), 2 * quarter)


WORKLOAD = Workload(
    name="burn",
    version=1,
    title="burn-in",
    question="Is this device healthy: does it keep its speed, and compute the same result every time?",
    workload_class="ceiling",
    unit="flop",
    sizes={"mini": _size(1024), "base": _size(4096), "large": _size(8192)},
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
    figures=(
        Figure("wrong_count", "numbers that came out otherwise", "count", "less", "sum"),
        Figure("kept_ratio", "speed of last quarter against first", "ratio", "more", "median"),
    ),
    is_alone=True,
    is_sustained=True,
)
