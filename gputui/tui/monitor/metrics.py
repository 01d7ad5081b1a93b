"""What the Monitor says of a metric besides its value, and which it charts."""

from __future__ import annotations

from collections.abc import Callable

from gputui.metrics import METRICS, Metric, Units, Values, number, with_unit

OF_GPUS: tuple[Metric, ...] = tuple(one for one in METRICS if one.id and one.scope == "gpu")
BY_ID = {metric.id: metric for metric in OF_GPUS}
OF_THE_HOST: tuple[Metric, ...] = tuple(one for one in METRICS if one.id and one.scope == "host")
DEFAULT_METRICS: tuple[str, ...] = (
    "busy",
    "power",
    "memory",
    "clock",
    "pcie",
    "temperature",
    "tensor",
    "dram",
    "nvlink",
)
"""Charts from left to right, then downwards."""
ALWAYS = 4
"""This many of the chosen metrics keep their chart even if the device has no value for them."""


def note_of(metric: Metric, values: Values, units: Units) -> str:
    """Its limit, and values that explain it; where space is short, parts after a comma are omitted."""
    parts = [metric.limit_text(values, units, metric.text(metric.amount(values), units))]
    if metric.mark_at(values) is not None:
        parts.append(f"factory {metric.text(metric.full_scale(values), units)}")
    if metric.also and metric.amount(values) is not None:
        parts.append(f"in {with_unit(number(values, metric.key), metric.unit)}")
    more = _MORE.get(metric.id)
    return ", ".join(filter(None, (*parts, *(more(values, units) if more else ()))))


def _shares(values: Values, *keys: str) -> list[str]:
    """Those that are known, `sm 82` or `fp32 9`."""
    shares = {key: number(values, f"gpm_{key}_pct") for key in keys}
    return [
        f"{key.removesuffix('_active')} {share:.0f}" for key, share in shares.items() if share is not None
    ]


def _with_busy(values: Values, units: Units) -> list[str]:
    traffic = number(values, "memory_busy_pct")
    shares = _shares(values, "sm_active", "tensor")
    return shares if shares or traffic is None else [f"memory traffic {with_unit(traffic, '%')}"]


def _with_memory(values: Values, units: Units) -> list[str]:
    if number(values, "is_memory_shared"):
        return ["shared with host"]
    return [f"{share} %" for share in _shares(values, "dram")]


def _with_sm(values: Values, units: Units) -> list[str]:
    return [f"{share} %" for share in _shares(values, "occupancy")]


def _with_cpu(values: Values, units: Units) -> list[str]:
    load = number(values, "load_1min")
    return [f"load {load:.1f}"] if load is not None else []


def _with_host_memory(values: Values, units: Units) -> list[str]:
    swap = number(values, "swap_used_bytes")
    return [f"swap {with_unit(swap, 'B', units)}"] if swap else []


_MORE: dict[str, Callable[[Values, Units], list[str]]] = {
    "busy": _with_busy,
    "memory": _with_memory,
    "sm": _with_sm,
    "tensor": lambda values, units: _shares(values, "fp32", "fp16", "fp64"),
    "dram": lambda values, units: ["of bandwidth"],
    "video": lambda values, units: [f"decoder {with_unit(number(values, 'decoder_pct'), '%')}"],
    "host-cpu": _with_cpu,
    "host-memory": _with_host_memory,
}
