"""AMD GPUs through the files of the `amdgpu` kernel driver.

Written from the kernel's documentation (Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst and ras.rst,
Documentation/ABI/testing/sysfs-bus-pci) and tested against trees made
from it and from what users have published; never run on real hardware.
"""

from __future__ import annotations

import errno
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from gputui.model.absent import Missing
from gputui.model.telemetry import (
    AT_SECOND_READING,
    HW_SLOWDOWN,
    LOST,
    POWER_CAP,
    SW_THERMAL,
    DeviceSample,
    GpuUse,
    Value,
)
from gputui.sources.base import read_file, stored_values
from gputui.worker.probe import LEAST_VRAM_BYTES, kfd_gpus

_AMD = "0x1002"
_BRIDGE_CLASS = "0x0604"
_SELDOM_NS = 10 * 10**9
_GENERATION: dict[str, int | Missing] = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""PCI Express generation by gigatransfers per second."""

_UNREPORTED = Missing("this GPU, or its amdgpu driver, does not report it")
_NOT_ALLOWED = Missing("no permission to read it from the amdgpu driver")
ASLEEP = Missing("the GPU is powered down: asking would wake it")
_NO_ANSWER = Missing("the amdgpu driver gave no answer")
_NOT_A_NUMBER = Missing("the amdgpu driver's answer cannot be understood")
_GONE = Missing(f"{LOST}: the kernel lists it no more")
_UNLISTED = Missing("the kernel's compute driver lists no card at this address here")
QUEUES_UNTIMED = Missing("the amdgpu driver does not time the compute queues of a process")


class AmdGpus:
    """GPUs of the `amdgpu` driver, ordered by PCI address.

    They are numbered after NVIDIA's, if the machine has both; `has_units` adds the graphics units of
    processors behind the cards. Partitions of one GPU share its sensors, so that they are one here.
    """

    NAME: ClassVar[str] = "amd"

    def __init__(
        self,
        root: Path = Path("/"),
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        has_units: bool = False,
    ) -> None:
        self._root = root
        self._clock = clock
        self._has_units = has_units

    def open(self) -> tuple[AmdGpu, ...] | Missing:
        """Those that the driver has; keeps nothing open."""
        if not (self._root / "sys/module/amdgpu").exists():
            return Missing("the amdgpu driver is not loaded: no AMD GPU here, or `modprobe amdgpu` is needed")
        first = len(list(self._root.glob("proc/driver/nvidia/gpus/*")))
        partitions = kfd_gpus(self._root)
        return tuple(
            AmdGpu(first + place, path, self._root, self._clock, partitions.get(path.name))
            for place, path in enumerate(self._places())
        ) or Missing("the amdgpu driver has no GPU that is visible here")

    def _places(self) -> list[Path]:
        """The directories of the PCI devices in /sys/devices, cards first."""
        found: dict[tuple[bool, str], Path] = {}
        for card in self._root.glob("sys/class/drm/card[0-9]*"):
            device = card / "device"
            if re.fullmatch(r"card\d+", card.name) and _text(device / "vendor") == _AMD:
                place = device.resolve()
                memory = _number(place / "mem_info_vram_total")
                is_unit = isinstance(memory, Missing) or memory <= LEAST_VRAM_BYTES
                if (place / "driver").resolve().name == "amdgpu" and (self._has_units or not is_unit):
                    found[is_unit, place.name] = place
        return [place for _, place in sorted(found.items())]


class AmdGpu:
    """One GPU. Used by one thread at a time."""

    def __init__(
        self,
        number: int,
        place: Path,
        root: Path,
        clock: Callable[[], int],
        partitions: Sequence[str] | None,
    ) -> None:
        self.number = number
        self.address = place.name
        self._place = place
        self._root = root
        self._clock = clock
        self._partitions = partitions
        """The numbers of the kernel's compute driver for it; None if it lists none."""
        self._seldom: dict[str, Value] = {}
        self._seldom_ns = 0
        self._throttling = Throttling()

    def sample(self) -> tuple[DeviceSample, ...]:
        """The GPU now. One that has powered down is not woken."""
        now = self._now(full=True)
        if now == _GONE:
            return (DeviceSample(self.number, AmdGpus.NAME, self._clock(), {}, problem=_GONE),)
        values = self._about() | (dict.fromkeys(_OFTEN, now) if isinstance(now, Missing) else now)
        return (DeviceSample(self.number, AmdGpus.NAME, self._clock(), values),)

    def read(self, *, full: bool) -> dict[str, float | int] | Missing:
        """What runs store of it; with `full` also how many processes compute on it."""
        now = self._now(full=full)
        if isinstance(now, Missing):
            return now
        values = stored_values(now)
        if full and not isinstance(computing := self._computing(), Missing):
            values["compute_process_count"] = float(len(computing))
        return values

    def processes(self) -> tuple[GpuUse, ...] | Missing:
        """Those that compute on it, of all users."""
        computing = self._computing()
        if isinstance(computing, Missing):
            return computing
        return tuple(
            GpuUse(self.number, pid, "C", held_bytes, QUEUES_UNTIMED)
            for pid, held_bytes in sorted(computing.items())
        )

    def _now(self, *, full: bool) -> dict[str, Value] | Missing:
        """What changes all the time; without `full` clocks, power and what slows the GPU."""
        place = self._place
        if _text(place / "vendor") != _AMD:
            return _GONE
        if _text(place / "power" / "runtime_status") == "suspended":
            return ASLEEP
        values = _often(place) if full else _quick(place)
        raw = _content(place / "gpu_metrics")
        table = raw if isinstance(raw, Missing) else read_table(raw)
        if isinstance(table, Missing):
            return values | dict.fromkeys(("throttle_bits", "energy_mj"), table)
        lacking = {key for key, value in values.items() if isinstance(value, Missing)} | {"energy_mj"}
        values |= {key: value for key, value in live_values(table).items() if key in lacking}
        values.setdefault("energy_mj", _UNREPORTED)
        hot, limit = table.get("temperature_hotspot"), self._about()["temperature_junction_limit_c"]
        near_c = limit - hot[0] if hot and isinstance(limit, float) else None
        return values | {"throttle_bits": self._throttling.bits(table, near_c)}

    def _about(self) -> dict[str, Value]:
        """What seldom changes: name, limits, sizes; read every ten seconds."""
        if not self._seldom or self._clock() - self._seldom_ns >= _SELDOM_NS:
            count = len(self._partitions or ()) or _UNLISTED
            self._seldom = {**_seldom(self._place, self._root), "partition_count": count}
            self._seldom_ns = self._clock()
        return self._seldom

    def _computing(self) -> dict[int, int] | Missing:
        """Processes with a queue or memory on it, and their bytes there, from the kernel's compute driver.

        It lists all that have opened it, monitors too (ROCm#4411).
        """
        if self._partitions is None:
            return _UNLISTED
        found = {}
        for process in self._root.glob("sys/class/kfd/kfd/proc/[0-9]*"):
            sizes = [_number(process / f"vram_{number}") for number in self._partitions]
            held = sum(size for size in sizes if not isinstance(size, Missing))
            if held or any(_text(queue) in self._partitions for queue in process.glob("queues/*/gpuid")):
                found[int(process.name)] = held
        return found


_OFTEN = (
    *("power_w", "sm_clock_mhz", "memory_clock_mhz", "throttle_bits", "energy_mj", "sm_busy_pct", "fan_pct"),
    *("memory_busy_pct", "memory_used_bytes", "temperature_c", "temperature_junction_c", "pcie_generation"),
    "pcie_width",
)


def _quick(place: Path) -> dict[str, Value]:
    hwmon = _hwmon(place)
    return {
        # The newer of the two names; a driver with both reports the same value, or the slower one as average.
        "power_w": _first_of(hwmon / "power1_input", hwmon / "power1_average", per=1e6),
        "sm_clock_mhz": _clock_mhz(hwmon / "freq1_input", place / "pp_dpm_sclk"),
        "memory_clock_mhz": _clock_mhz(hwmon / "freq2_input", place / "pp_dpm_mclk"),
    }


def _often(place: Path) -> dict[str, Value]:
    hwmon = _hwmon(place)
    link = _link(place, "current")
    edge, junction = _thermometers(hwmon)
    return {
        **_quick(place),
        "sm_busy_pct": _number(place / "gpu_busy_percent"),
        "memory_busy_pct": _number(place / "mem_busy_percent"),
        "memory_used_bytes": _number(place / "mem_info_vram_used"),
        "temperature_c": _scaled(hwmon / f"{edge}_input", 1e3),
        "temperature_junction_c": _scaled(hwmon / f"{junction}_input", 1e3),
        "fan_pct": _fan(hwmon),
        "pcie_generation": link[0],
        "pcie_width": link[1],
    }


def _seldom(place: Path, root: Path) -> dict[str, Value]:
    hwmon = _hwmon(place)
    link = _link(place, "max")
    name, identity = _answer(place / "product_name"), _answer(place / "unique_id")
    errors = _answer(place / "ras" / "umc_err_count")
    counted = re.search(r"^ue:\s*(\d+)", errors, re.MULTILINE) if isinstance(errors, str) else None
    version = _text(root / "sys/module/amdgpu/version")
    edge, junction = _thermometers(hwmon)
    uncounted = errors if isinstance(errors, Missing) else _NOT_A_NUMBER
    return {
        "name": name if isinstance(name, str) and name else _listed_name(place, root),
        "uuid": identity,
        "driver": f"amdgpu {version}".strip(),
        "pci_address": place.name,
        "memory_total_bytes": _number(place / "mem_info_vram_total"),
        "power_limit_w": _scaled(hwmon / "power1_cap", 1e6),
        "power_limit_default_w": _scaled(hwmon / "power1_cap_default", 1e6),
        "temperature_limit_c": _scaled(hwmon / f"{edge}_crit", 1e3),
        "temperature_junction_limit_c": _scaled(hwmon / f"{junction}_crit", 1e3),
        "sm_clock_max_mhz": _highest_level(place / "pp_dpm_sclk"),
        "memory_clock_max_mhz": _highest_level(place / "pp_dpm_mclk"),
        "pcie_generation_max": link[0],
        "pcie_width_max": link[1],
        "ecc_uncorrected_count": int(counted[1]) if counted else uncounted,
    }


def _listed_name(place: Path, root: Path) -> str:
    """From libdrm's list of names by device and revision; else by the device's number."""
    device, revision = _text(place / "device"), _text(place / "revision")
    wanted = [part.removeprefix("0x").upper() for part in (device, revision)]
    for line in _text(root / "usr/share/libdrm/amdgpu.ids").splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and parts[:2] == wanted:
            return parts[2]
    return f"AMD GPU {device}"


def _link(place: Path, which: str) -> tuple[int | Missing, int | Missing]:
    """Generation and width of the link to the host.

    Larger GPUs have a switch on the card, and their own link only leads to it: the outermost of AMD's bridges
    above has the link that counts.
    """
    port = place
    for above in place.parents:
        is_ours = _text(above / "vendor") == _AMD and _text(above / "class").startswith(_BRIDGE_CLASS)
        if not is_ours:
            break
        port = above
    speed = _answer(port / f"{which}_link_speed")
    if isinstance(speed, str):  # "16.0 GT/s PCIe", "2.5 GT/s"
        generation: int | Missing = _GENERATION.get(speed.partition(" ")[0], _NOT_A_NUMBER)
    else:
        generation = speed
    return generation, _number(port / f"{which}_link_width")


def _hwmon(place: Path) -> Path:
    """The directory of the sensors; it does not exist if there are none."""
    return next(iter(sorted((place / "hwmon").glob("hwmon[0-9]*"))), place / "hwmon" / "none")


def _thermometers(hwmon: Path) -> tuple[str, str]:
    """The sensors at the edge and at the hottest spot of the chip; data-center GPUs have only the latter."""
    labels = {_text(file): file.name.partition("_")[0] for file in sorted(hwmon.glob("temp[0-9]_label"))}
    return labels.get("edge", labels.get("junction", "temp1")), labels.get("junction", "none")


def _clock_mhz(sensor: Path, levels: Path) -> float | Missing:
    hertz = _number(sensor)
    if not isinstance(hertz, Missing):
        return hertz / 1e6
    text = _answer(levels)
    if isinstance(text, Missing):
        return text
    current = re.search(r"(\d+)Mhz\s*\*", text, re.IGNORECASE)
    return float(current[1]) if current else hertz


def _highest_level(levels: Path) -> float | Missing:
    text = _answer(levels)
    if isinstance(text, Missing):
        return text
    found = [float(mhz) for mhz in re.findall(r"(\d+)Mhz", text, re.IGNORECASE)]
    return max(found) if found else _NOT_A_NUMBER


def _fan(hwmon: Path) -> float | Missing:
    now, most = _number(hwmon / "pwm1"), _number(hwmon / "pwm1_max")
    if isinstance(now, Missing):
        return now
    return 100.0 * now / (most if not isinstance(most, Missing) and most > 0 else 255)


def _first_of(*files: Path, per: float) -> float | Missing:
    answers = [_scaled(file, per) for file in files]
    return next((answer for answer in answers if not isinstance(answer, Missing)), answers[0])


def _scaled(file: Path, per: float) -> float | Missing:
    number = _number(file)
    return number if isinstance(number, Missing) else number / per


def _number(file: Path) -> int | Missing:
    text = _answer(file)
    if isinstance(text, Missing):
        return text
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else _NOT_A_NUMBER


def _answer(file: Path) -> str | Missing:
    """The text of a file, or why it cannot be read."""
    content = _content(file)
    return content if isinstance(content, Missing) else content.decode(errors="replace").strip("\0 \t\r\n")


def _content(file: Path) -> bytes | Missing:
    try:
        return read_file(str(file))
    except PermissionError:
        return _NOT_ALLOWED
    except (FileNotFoundError, NotADirectoryError):
        return _UNREPORTED
    except OSError as error:
        return _UNREPORTED if error.errno in (errno.EINVAL, errno.EOPNOTSUPP) else _NO_ANSWER


def _text(file: Path) -> str:
    answer = _answer(file)
    return "" if isinstance(answer, Missing) else answer


# The table gpu_metrics: energy, throttling, and what the sensors lack. By the kernel's
# drivers/gpu/drm/amd/include/kgd_pp_interface.h and pm/swsmu/inc/amdgpu_smu.h. Revisions of it do not extend
# each other, and two of them share a number, so that the size tells them apart too.

Table = Mapping[str, tuple[int, ...]]
"""By the kernel's name of a field: one value, or one for each instance. A field that the driver does not fill
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
