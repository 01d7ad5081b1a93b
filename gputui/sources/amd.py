"""AMD GPUs through the files of the `amdgpu` kernel driver.

Written from the kernel's documentation (Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst and ras.rst,
Documentation/ABI/testing/sysfs-bus-pci) and tested against trees made
from it and from what users have published; never run on real hardware.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from gputui.model.absent import Missing
from gputui.model.telemetry import LOST, DeviceSample, GpuUse, Reading, Value
from gputui.sources.amd_metrics import Throttling, live_values, read_table
from gputui.sources.base import read_file, stored_values
from gputui.worker.probe import LEAST_VRAM_BYTES, kfd_gpus

_AMD = "0x1002"
_BRIDGE_CLASS = "0x0604"
_SLOW_KEPT_NS = 10 * 10**9
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
    """GPUs of the `amdgpu` driver, ordered by PCI address: a source for the live view and for runs.

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
        self._has_units = has_units
        self._clock = clock
        self._numbers: dict[str, int] = {}
        """By PCI address: a GPU keeps its number while others come and go."""
        self._places: dict[int, Path] = {}
        """The PCI device's directory in /sys/devices."""
        self._slow: dict[int, tuple[int, dict[str, Value]]] = {}
        self._throttling: dict[int, Throttling] = {}
        self._kfd: Mapping[str, Sequence[str]] = {}
        """Numbers of the kernel's compute driver by PCI address: one for each partition."""
        self._first = 0

    def open(self) -> Missing | None:
        """Check whether the driver has any GPU; keeps nothing open."""
        self._first = len(list(self._root.glob("proc/driver/nvidia/gpus/*")))
        if not (self._root / "sys/module/amdgpu").exists():
            return Missing("the amdgpu driver is not loaded: no AMD GPU here, or `modprobe amdgpu` is needed")
        self._kfd = kfd_gpus(self._root)
        return None if self.devices() else Missing("the amdgpu driver has no GPU that is visible here")

    def devices(self) -> tuple[int, ...]:
        found: dict[tuple[bool, str], Path] = {}
        for card in self._root.glob("sys/class/drm/card[0-9]*"):
            device = card / "device"
            if re.fullmatch(r"card\d+", card.name) and _text(device / "vendor") == _AMD:
                place = device.resolve()
                memory = _number(place / "mem_info_vram_total")
                is_unit = isinstance(memory, Missing) or memory <= LEAST_VRAM_BYTES
                if (place / "driver").resolve().name == "amdgpu" and (self._has_units or not is_unit):
                    found[is_unit, place.name] = place
        for (_, address), place in sorted(found.items()):
            number = self._numbers.setdefault(address, self._first + len(self._numbers))
            self._places[number] = place
        return tuple(sorted(self._numbers[address] for _, address in found))

    def about(self, device: int) -> dict[str, Value]:
        """What seldom changes: name, limits, sizes; read every ten seconds."""
        read_ns, values = self._slow.get(device, (0, {}))
        if not values or self._clock() - read_ns >= _SLOW_KEPT_NS:
            place = self._places[device]
            partitions = len(self._kfd.get(place.name, ()))
            values = {**_seldom(place, self._root), "partition_count": partitions or _UNLISTED}
            self._slow[device] = self._clock(), values
        return values

    def sample(self, device: int) -> tuple[DeviceSample, ...]:
        """Sample one GPU. A GPU that has powered down is not woken."""
        now = self._now(device, full=True)
        if now == _GONE:
            return (DeviceSample(device, self.NAME, self._clock(), {}, problem=_GONE),)
        values = self.about(device) | (dict.fromkeys(_OFTEN, now) if isinstance(now, Missing) else now)
        return (DeviceSample(device, self.NAME, self._clock(), values),)

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one GPU; with `full` also how many processes compute on it."""
        now = self._now(device, full=full)
        values = {} if isinstance(now, Missing) else stored_values(now)
        if full and values and not isinstance(computing := self._computing(device), Missing):
            values["compute_process_count"] = float(len(computing))
        return Reading(device, time.monotonic_ns(), values)

    def problem(self, device: int) -> Missing | None:
        """Why a GPU cannot be read now, if so."""
        place = self._places[device]
        if _text(place / "vendor") != _AMD:
            return _GONE
        return ASLEEP if _text(place / "power" / "runtime_status") == "suspended" else None

    def processes(self, device: int) -> tuple[GpuUse, ...] | Missing:
        """Those that compute on it, of all users."""
        computing = self._computing(device)
        if isinstance(computing, Missing):
            return computing
        return tuple(
            GpuUse(device, pid, "C", held_bytes, QUEUES_UNTIMED)
            for pid, held_bytes in sorted(computing.items())
        )

    def _now(self, device: int, *, full: bool) -> dict[str, Value] | Missing:
        """What changes all the time; without `full` clocks, power and what slows the GPU."""
        if (problem := self.problem(device)) is not None:
            return problem
        place = self._places[device]
        values = _often(place) if full else _quick(place)
        raw = _content(place / "gpu_metrics")
        table = raw if isinstance(raw, Missing) else read_table(raw)
        if isinstance(table, Missing):
            return values | dict.fromkeys(("throttle_bits", "energy_mj"), table)
        lacking = {key for key, value in values.items() if isinstance(value, Missing)} | {"energy_mj"}
        values |= {key: value for key, value in live_values(table).items() if key in lacking}
        values.setdefault("energy_mj", _UNREPORTED)
        hot, limit = table.get("temperature_hotspot"), self.about(device)["temperature_junction_limit_c"]
        near_c = limit - hot[0] if hot and isinstance(limit, float) else None
        throttling = self._throttling.setdefault(device, Throttling())
        return values | {"throttle_bits": throttling.bits(table, near_c)}

    def _computing(self, device: int) -> dict[int, int] | Missing:
        """Processes with a queue or memory on a GPU, and their bytes there, from the kernel's compute driver.

        It lists all that have opened it, monitors too (ROCm#4411).
        """
        numbers = self._kfd.get(self._places[device].name)
        if numbers is None:
            return _UNLISTED
        found = {}
        for process in self._root.glob("sys/class/kfd/kfd/proc/[0-9]*"):
            sizes = [_number(process / f"vram_{number}") for number in numbers]
            held = sum(size for size in sizes if not isinstance(size, Missing))
            if held or any(_text(queue) in numbers for queue in process.glob("queues/*/gpuid")):
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
