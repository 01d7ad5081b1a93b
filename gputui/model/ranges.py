"""Which values of a metric of the live view are plausible, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.live import Value


@dataclass(frozen=True, slots=True)
class _Range:
    """The plausible values of a metric."""

    least: float
    most: float
    unit: str


_PERCENT = _Range(0, 100, " %")
_WATTS = _Range(0, 10_000, " W")
_CELSIUS = _Range(-60, 200, " °C")
_MEGAHERTZ = _Range(0, 20_000, " MHz")
_LINK = _Range(1, 64, "")
_BYTES = _Range(1, 2**53, " bytes")

_RANGES: dict[str, _Range] = {
    "sm_busy_pct": _PERCENT,
    "memory_busy_pct": _PERCENT,
    "encoder_pct": _PERCENT,
    "decoder_pct": _PERCENT,
    "fan_pct": _Range(0, 200, " %"),  # relative to the intended maximum speed: nvml.h allows more
    "power_limit_w": _Range(1, 10_000, " W"),
    "power_limit_default_w": _Range(1, 10_000, " W"),
    "temperature_limit_c": _Range(1, 200, " °C"),
    "sm_clock_max_mhz": _Range(1, 20_000, " MHz"),
    "memory_clock_max_mhz": _Range(1, 20_000, " MHz"),
    "memory_total_bytes": _BYTES,
    "pstate": _Range(0, 15, ""),
    "pcie_generation": _LINK,
    "pcie_generation_max": _LINK,
    "pcie_width": _LINK,
    "pcie_width_max": _LINK,
}
"""Of the metrics that a driver answers."""
_OF_UNIT: dict[str, _Range] = {
    "pct": _Range(0, 10**6, " %"),  # the CPU's: 100 for each of its threads
    "w": _WATTS,
    "c": _CELSIUS,
    "mhz": _MEGAHERTZ,
    "bytes": _Range(0, 2**53, " bytes"),
    "s": _Range(0, 2**53, ""),  # seconds, and bytes per second
}
"""Of the others, by the last word of their key."""
_ANY = _Range(-(2.0**63), 2.0**63, "")


def sane(key: str, value: float | int | str, who: str) -> Value:
    """The value, or a Missing that says what `who` answered instead of a plausible one."""
    limits = _RANGES.get(key) or _OF_UNIT.get(key.rpartition("_")[2], _ANY)
    if isinstance(value, str) or limits.least <= value <= limits.most:
        return value
    return Missing(f"{who} answered {value:g}{limits.unit}")
