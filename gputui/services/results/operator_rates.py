"""How fast the operators of a profiled pass compute and move data, against the data sheet of their device.

FLOPs and bytes follow from the shapes and types of inputs, and times are those of an operator's own kernels.
"""

from __future__ import annotations

from gputui.analysis.findings import PRODUCTS
from gputui.analysis.operator_flops import CAUSAL, FULL, bytes_of_call, flops_of_call
from gputui.facts.tables import find_gpu, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.journal import Operator, ProfiledPass
from gputui.model.units import format_percent, format_rate, format_seconds
from gputui.services.results.expected import Use
from gputui.worker.profiling.op_categories import category_of_kernel, type_of_kernel

BOUND_OF_SHEET = 0.4
"""Share of a data sheet's peak from which an operator is bound by it: large products and copies reach some
70 % of a sheet, and a step that is bound by something reaches 60 % of what they do."""
_NO_MEASURE = Missing("peaks are those of the data sheet")
_OVER_A_BUS = ("copy_h2d", "copy_d2h")
_PRECISIONS = {
    "BFloat16": "bf16",
    "Half": "fp16",
    "Float8_e4m3fn": "fp8",
    "Float8_e5m2": "fp8",
}


def uses_of_operator(row: Operator, found: ProfiledPass, device: str) -> tuple[Use, ...]:
    """FLOPs first, then bytes; none where the trace does not tell them, or where kernels are missing.

    `device`: its name, empty for a CPU, of which no peaks are kept.
    """
    time_ns = row.kernel_ns if device else row.time_ns
    if not row.calls or not time_ns or _is_unsure(row, found, device):
        return ()
    per_s = row.calls / time_ns * 1e9
    gpu = find_gpu(device, None) if device else Missing("gputui has no peak figures for CPUs")
    precision = _precision(row, found)
    flops = flops_of_call(row.operator, row.shapes)
    narrowed_to = 2 if precision in ("bf16", "fp16") and row.category in PRODUCTS else None
    moved = bytes_of_call(row.operator, row.shapes, row.dtypes, narrowed_to)
    peaks = (gpu, gpu) if isinstance(gpu, Missing) else (peak_for(gpu, precision), peak_bandwidth(gpu))
    return tuple(
        Use(unit, per_s * each, peak if isinstance(peak, Missing) else per_s * each / peak, _NO_MEASURE)
        for unit, each, peak in zip(("flop", "B"), (flops, moved), peaks, strict=True)
        if not isinstance(each, Missing) and each
    )


def _is_unsure(row: Operator, found: ProfiledPass, device: str) -> bool:
    """Whether some calls may have had nothing to do, have no kernel in the window, or cross a bus; or whether
    the work of a GPU, which NCCL needs, was not recorded."""
    if not device:
        is_elsewhere = any(one.operator.startswith("nccl:") for one in found.operators)
        return is_elsewhere or row.operator == "aten::contiguous"
    crosses = (k.operator == row.operator and k.time_class in _OVER_A_BUS for k in found.kernels)
    return row.kernels % row.calls > 0 or any(crosses)


def _precision(row: Operator, found: ProfiledPass) -> str:
    """What it computes in: its inputs may be converted first, which the names of kernels tell.

    Empty if it is not certain: products in fp32 run in tf32 where that is allowed.
    """
    types = set(row.dtypes.split(","))
    if len(types) == 1 and types <= set(_PRECISIONS):
        return _PRECISIONS[types.pop()]
    names = {k.name for k in found.kernels if category_of_kernel(k.name) in ("gemm", "conv")}
    marks = {type_of_kernel(name) for name in names}
    return marks.pop() if len(marks) == 1 else ""


def efficiency_text(row: Operator, found: ProfiledPass, device: str) -> str:
    """`611 TFLOP/s, 62 %: compute-bound`; of memory where that is the nearer limit, empty if unknown.

    What exceeds the memory's peak comes from a cache. An attention of which the trace does not tell whether
    it is causal is taken for one that is not.
    """
    uses = uses_of_operator(row, found, device)
    if not uses:
        return ""
    known = [(use.of_sheet, use) for use in uses if not isinstance(use.of_sheet, Missing)]
    at_most = "up to " if row.category == "attention" and not row.shapes.endswith((CAUSAL, FULL)) else ""
    if len(known) < len(uses):
        return at_most + format_rate(uses[0].per_s, uses[0].unit)
    share, use = max(known, key=lambda one: one[0])
    word = "compute-bound" if use.unit == "flop" else "memory-bound" if share <= 1 else "in cache"
    if share < BOUND_OF_SHEET:
        (share, use), word = known[0], "neither"
    return f"{at_most}{format_rate(use.per_s, use.unit)}, {format_percent(share)}: {word}"


def product_sentence(found: ProfiledPass, device: str) -> str:
    """`matrix products run at 613 TFLOP/s for 9.00 ms a step: 62 % of the data sheet's peak`.

    Of all whose rate is known, together, but for those that memory holds up; empty if there is none.
    """
    rated: list[tuple[Operator, float]] = []
    least_ns = 0.0
    for row in found.operators:
        uses = uses_of_operator(row, found, device) if row.category in ("gemm", "conv") else ()
        shares = [use.of_sheet for use in uses if not isinstance(use.of_sheet, Missing)]
        if len(shares) > 1 and shares[0] >= shares[1]:
            rated.append((row, uses[0].per_s))
            least_ns += shares[0] * row.kernel_ns
    time_ns = sum(row.kernel_ns for row, _ in rated)
    if not time_ns:
        return ""
    rate = format_rate(sum(per_s * row.kernel_ns for row, per_s in rated) / time_ns, "flop")
    took, share = format_seconds(time_ns / found.steps * 1e-9), format_percent(least_ns / time_ns)
    each = "a step" if found.steps > 1 else "in all"
    return f"matrix products run at {rate} for {took} {each}: {share} of the data sheet's peak"
