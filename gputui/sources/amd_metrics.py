"""The binary table `gpu_metrics` of the amdgpu driver: energy, throttling, and what the sensors lack.

By the kernel's drivers/gpu/drm/amd/include/kgd_pp_interface.h and pm/swsmu/inc/amdgpu_smu.h. Revisions of
the table do not extend each other, and two of them share a number, so that the size tells them apart too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from statistics import fmean

from gputui.model.absent import Missing
from gputui.model.telemetry import AT_SECOND_READING, HW_SLOWDOWN, POWER_CAP, SW_THERMAL

Table = Mapping[str, tuple[int, ...]]
"""By the kernel's name of a field; one value, or one for each instance. A field that the driver does not fill
is absent."""


_RADEON = {
    "temperature_hotspot": (6, "H"),
    "average_socket_power": (22, "H"),
    "energy_accumulator": (24, "Q"),
    "current_gfxclk": (54, "H"),
    "current_uclk": (58, "H"),
}
RESIDENCIES = (
    "accumulation_counter",
    "prochot_residency_acc",
    "ppt_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)
"""Counters of Instinct MI300 and newer: of time, and of the time for which each cause slowed the GPU."""


def _instinct(
    energy: int, clocks: int, memory_clock: int, residencies: int | None
) -> dict[str, tuple[int, str]]:
    fields = {
        "temperature_hotspot": (4, "H"),
        "average_socket_power": (10, "H"),
        "energy_accumulator": (energy, "Q"),
        "current_gfxclk": (clocks, "8H"),
        "current_uclk": (memory_clock, "H"),
    }
    if residencies is not None:
        fields |= {name: (residencies + 4 * at, "I") for at, name in enumerate(RESIDENCIES)}
    return fields


_WITH_PARTITIONS = _instinct(energy=16, clocks=264, memory_clock=304, residencies=32)
_WITH_BANDWIDTH = _instinct(energy=24, clocks=296, memory_clock=336, residencies=40)
_LAYOUTS: Mapping[tuple[int, int, int], Mapping[str, tuple[int, str]]] = {
    (1, 1, 96): _RADEON,
    (1, 2, 104): _RADEON,
    (1, 3, 120): {**_RADEON, "indep_throttle_status": (112, "Q")},
    (1, 4, 288): _instinct(energy=24, clocks=240, memory_clock=280, residencies=None),
    (1, 5, 360): _instinct(energy=88, clocks=312, memory_clock=352, residencies=None),
    (1, 6, 384): _instinct(energy=88, clocks=336, memory_clock=376, residencies=104),
    (1, 6, 312): _WITH_PARTITIONS,
    (1, 6, 1664): _WITH_PARTITIONS,
    (1, 7, 2208): _WITH_BANDWIDTH,
    (1, 8, 3360): _WITH_BANDWIDTH,
    (1, 8, 3872): _WITH_BANDWIDTH,
}
"""By the two parts of the version and the size: where each field is, and its type."""
_NAMES = {
    0: "temperature_hotspot",
    3: "average_socket_power",
    7: "energy_accumulator",
    **{9 + at: name for at, name in enumerate(RESIDENCIES)},
    33: "current_gfxclk",
    37: "current_uclk",
}
"""By their number in version 1.9, `amdgpu_metrics_attr_id`."""
_CODES = "BbHhIiQq"
"""By `amdgpu_metrics_attr_type`."""


def read_table(raw: bytes) -> Table | Missing:
    """The fields that are used; the reason if this version is not known or its table is cut off."""
    if len(raw) < 4:
        return Missing("the amdgpu driver's table gpu_metrics is empty")
    size, *version = struct.unpack_from("<HBB", raw)
    layout = _LAYOUTS.get((version[0], version[1], size))
    try:
        if version == [1, 9]:
            return dict(_attributes(raw))
        if layout is None:
            return Missing(f"gpu_metrics version {version[0]}.{version[1]} of {size} bytes is not known")
        found = {name: _filled(raw, offset, code) for name, (offset, code) in layout.items()}
    except (struct.error, IndexError):
        return Missing("the amdgpu driver's table gpu_metrics is cut off")
    return {name: values for name, values in found.items() if values}


def _filled(raw: bytes, offset: int, code: str) -> tuple[int, ...]:
    """Values that the driver has filled in: it sets all bits of the others."""
    empty = (1 << 8 * struct.calcsize(f"<{code[-1]}")) - 1
    return tuple(value for value in struct.unpack_from(f"<{code}", raw, offset) if value != empty)


def _attributes(raw: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of a table that describes itself: how many there are, then each one's description and its values."""
    (count,), offset = struct.unpack_from("<i", raw, 4), 8
    for _ in range(count):
        (encoding,) = struct.unpack_from("<Q", raw, offset)
        code = f"{encoding & 0x3FF}{_CODES[encoding >> 20 & 0xF]}"
        values = _filled(raw, offset + 8, code)
        offset += 8 + struct.calcsize(f"<{code}")
        if values:
            yield _NAMES.get(encoding >> 10 & 0x3FF, ""), values


_LIVE = {
    "temperature_junction_c": ("temperature_hotspot", 1.0),
    "power_w": ("average_socket_power", 1.0),
    "energy_mj": ("energy_accumulator", 1000 / 2**16),
    "sm_clock_mhz": ("current_gfxclk", 1.0),
    "memory_clock_mhz": ("current_uclk", 1.0),
}
"""Fields by the key of a live reading, and what they are multiplied with."""


def live_values(table: Table) -> dict[str, float | int]:
    """Those of a table, by key: energy since the driver was loaded, clocks as the mean of the dies."""
    means = {
        key: fmean(table[name]) * scale for key, (name, scale) in _LIVE.items() if any(table.get(name, ()))
    }
    return {key: round(value) if key == "energy_mj" else value for key, value in means.items()}


_HOTSPOT = 1 << 36
"""RDNA 3 and 4 report it whatever the temperature (MangoHud#1690, rocm-systems#11781)."""
_NEAR_C = 10.0
"""So close to its limit, a hot spot is believed to slow the GPU."""
_CAUSES = (
    (POWER_CAP, 0x0100_0000_00FF_00FF),  # limits of power and current
    (SW_THERMAL, 0x0000_0FFF_0000_0000),
    (HW_SLOWDOWN, 0x0000_F000_0000_0000),  # VRHOT and PROCHOT, which come from outside the chip
)
"""Of `indep_throttle_status`, as amdgpu_smu.h numbers its bits."""
_SILENT = Missing("the amdgpu driver does not report what slows this GPU")
_ALWAYS = Missing("this GPU's firmware counts it as slowed all the time, for every cause")


class Throttling:
    """What slows one GPU, from tables that are read one after the other. For one thread."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._owed = dict.fromkeys((HW_SLOWDOWN, POWER_CAP, SW_THERMAL), 0.0)
        """By cause, time that no reading has shown yet, in readings."""

    def bits(self, table: Table, near_limit_c: float | None) -> int | Missing:
        """In the bits that NVIDIA's driver has for these causes.

        Instinct MI300 and newer count the time for which each cause slowed them. As many readings as their
        share of the time show it, so that the share of readings is right. `near_limit_c` is how far the hot
        spot is below its limit; None if unknown.
        """
        if "indep_throttle_status" in table:
            status = table["indep_throttle_status"][0]
            if near_limit_c is None or near_limit_c > _NEAR_C:
                status &= ~_HOTSPOT
            return sum(bit for bit, mask in _CAUSES if status & mask)
        counts = [count for name in RESIDENCIES for count in table.get(name, ())]
        if len(counts) < len(RESIDENCIES):
            return _SILENT
        passed, prochot, power, *heat = (
            (now - then) % 2**32 for now, then in zip(counts, self._counts or counts, strict=True)
        )
        self._counts = counts
        if not passed:
            return AT_SECOND_READING
        if power == passed == max(heat):
            return _ALWAYS
        bits = 0
        for bit, slowed in zip(self._owed, (prochot, power, max(heat)), strict=True):
            self._owed[bit] += slowed / passed
            if self._owed[bit] >= 0.5:
                self._owed[bit] -= 1
                bits |= bit
        return bits
