"""A made-up machine, for exploring the panes; its load and programs are in `demo_gpus.toml`."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any  # Any: our own tables

from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, LOST, DeviceSample, GpuUse, LiveSample, ProcessSample, Value
from gputui.sources.nvml_calls import LIBRARY_NOT_FOUND, nvml_reason

CAUTION = "DEMO DATA"
"""Shown in the heading of every screen of it."""
USD_PER_HOUR_AND_GPU = 3.5
USER = "ana"
"""The current user: processes of others make a GPU SHARED."""
EARLIER_S = 60
"""How long the machine appears to have been watched when the panes open."""

_SOURCE = "demo"
_SECOND_NS = 10**9
_GIB = 2**30
_MADE_UP = Missing("it is made up")
_NONE_HERE = Missing("this GPU does not report it")
_IS_LOST = Missing(f"{LOST}: it has fallen off the bus; restart the box or take another")
_NO_GPU = Missing(nvml_reason(LIBRARY_NOT_FOUND))
_LOST_AFTER_S = 35.0
_CHECKPOINT_EVERY_S, _CHECKPOINT_S = 47.0, 5.0
"""All ranks of a training wait while one of them writes."""


_NARROW = 6
"""Which GPU has too few PCIe lanes."""
_FIRST_PID = 21840


class DemoBox:
    """What such a machine shows, as a function of the time since it was first read."""

    capped: int | None = 0
    """Which GPU is held back by its power limit."""
    lost = 7

    def __init__(self, gpus: int = 8) -> None:
        """`gpus` may be 0: a machine without a driver."""
        self._gpus = gpus
        self._users = tuple(_numbered(gpus))

    def at(self, second: float, t_ns: int) -> LiveSample:
        """The state at that second; `t_ns` is the clock at that time."""
        return LiveSample(
            number=int(second * 1000),
            t_ns=t_ns,
            host=DeviceSample(HOST, "host", t_ns, self._host(second)),
            gpus=tuple(self.gpu(device, second, t_ns) for device in range(self._gpus)),
            processes=self._processes(second) if self._gpus else Missing("no GPU is read here"),
            absent={} if self._gpus else {"nvml": _NO_GPU},
        )

    def gpu(self, device: int, second: float, t_ns: int) -> DeviceSample:
        if device == self.lost and second >= _LOST_AFTER_S:
            return DeviceSample(device, _SOURCE, t_ns, self._values(device, _LOST_AFTER_S), problem=_IS_LOST)
        return DeviceSample(device, _SOURCE, t_ns, self._values(device, second))

    def _values(self, device: int, second: float) -> dict[str, Value]:
        work = _work_of(device)
        noise = _noise(device, second)
        dips = work["swing_pct"] * (0.5 + 0.5 * math.sin(second / (6.5 + device)) * math.sin(second / 3.1))
        busy = max(work["busy_pct"] - dips * (0.6 + 0.4 * noise), 0.0)
        writes = work is _data()["work"]["trains"] and second % _CHECKPOINT_EVERY_S >= (
            _CHECKPOINT_EVERY_S - _CHECKPOINT_S
        )
        if writes:
            busy *= 0.08
        share = busy / 100
        wanted_w = 78 + 9 * noise + 640 * share * (0.62 + 0.55 * work["tensor"])
        is_capped = device == self.capped
        limit_w = 600.0 if is_capped else 700.0
        is_held = is_capped and wanted_w > limit_w - 15
        power_w = min(wanted_w, limit_w - 2 * noise)
        clock = round(1605 + 75 * noise) if is_held else 1980 if share > 0.01 else 345
        memory = work["memory_gib"] + (1.5 * noise * share if work["swing_pct"] else 0.0)
        return {
            "name": "NVIDIA H200 (demo)",
            "uuid": f"GPU-demo{device:04d}-0000-4000-8000-{device:012x}",
            "driver": "none: made up",
            "pci_address": f"00000000:{0x18 + 0x11 * device % 0xE0:02X}:00.0",
            "pstate": 0 if share > 0.01 else 8,
            "mig_mode": "off",
            "is_memory_shared": 0,
            "sm_busy_pct": round(busy),
            "memory_busy_pct": round(busy * work["dram"]),
            "encoder_pct": 0,
            "decoder_pct": 0,
            "power_w": power_w,
            "power_limit_w": limit_w,
            "power_limit_default_w": 700.0,
            "temperature_c": round(33 + power_w / 18.5 + noise),
            "temperature_limit_c": 87,
            "sm_clock_mhz": clock,
            "sm_clock_max_mhz": 1980,
            "memory_clock_mhz": 3201,
            "memory_clock_max_mhz": 3201,
            "memory_used_bytes": round(memory * _GIB),
            "memory_reserved_bytes": 620 * 2**20,
            "memory_total_bytes": round(140.4 * _GIB),
            "energy_mj": round((80 + 5.9 * work["busy_pct"]) * 1000 * (second + 9e5)),
            "throttle_bits": (0x4 if is_held else 0) | (0 if share > 0.01 else 1),
            "throttled_power_ns": round(0.71 * second * _SECOND_NS) if is_capped else 0,
            "throttled_thermal_ns": 0,
            "throttled_other_ns": 0,
            "fan_pct": _NONE_HERE,
            "pcie_generation": 5,
            "pcie_generation_max": 5,
            "pcie_width": 4 if device == _NARROW else 16,
            "pcie_width_max": 16,
            "pcie_rx_bytes_per_s": work["pcie_gb_per_s"] * 1e9 * share * (0.7 + 0.3 * noise),
            "pcie_tx_bytes_per_s": work["pcie_gb_per_s"] * (5e9 if writes else 2e8) * (0.2 + share) * noise,
            "nvlink_rx_bytes_per_s": work["nvlink_gb_per_s"] * 1e9 * share * (0.8 + 0.2 * noise),
            "nvlink_tx_bytes_per_s": work["nvlink_gb_per_s"] * 1e9 * share * (0.9 + 0.1 * noise),
            "ecc_uncorrected_count": 0,
            "gpm_sm_active_pct": busy * (0.87 + 0.05 * noise),
            "gpm_occupancy_pct": busy * 0.41,
            "gpm_tensor_pct": busy * work["tensor"] * (0.93 + 0.1 * noise),
            "gpm_fp64_pct": 0.0,
            "gpm_fp32_pct": busy * 0.09,
            "gpm_fp16_pct": busy * 0.14,
            "gpm_dram_pct": busy * work["dram"] * (0.95 + 0.1 * noise),
        }

    def _host(self, second: float) -> dict[str, Value]:
        noise = _noise(99, second)
        wave = 0.5 + 0.5 * math.sin(second / 19)
        writes = second % _CHECKPOINT_EVERY_S >= _CHECKPOINT_EVERY_S - _CHECKPOINT_S
        busy = 0.2 if not self._gpus else 1.0
        cores = (
            round(min(100 * busy * _noise(core, second // 2 + 400) ** (1 + core % 3), 100))
            for core in range(96)
        )
        return {
            "name": "CPU with 96 cores (demo)",
            "cpu_busy_pct": busy * (1500 + 420 * wave + 260 * noise),
            "cpu_limit_cores": 96.0,
            "cpu_core_pct": ",".join(map(str, cores)),
            "memory_used_bytes": round((40 + busy * 190 + 6 * wave) * _GIB),
            "memory_total_bytes": 1008 * _GIB,
            "swap_used_bytes": 0,
            "swap_total_bytes": 0,
            "load_1min": busy * (17.4 + 0.1 * math.floor(20 * wave)),
            "network_rx_bytes_per_s": busy * (3.1e8 * (0.6 + 0.4 * noise)),
            "network_tx_bytes_per_s": busy * 2.2e7 * (0.5 + noise),
            "disk_read_bytes_per_s": busy * 6.4e8 * (0.5 + 0.5 * noise) * wave,
            "disk_write_bytes_per_s": 2.9e9 * noise if writes and self._gpus else 1.2e6,
        }

    def _processes(self, second: float) -> tuple[ProcessSample, ...]:
        second -= second % 2  # as often as on a real machine
        return tuple(
            self._process(pid, parent, program, n, gpus, second)
            for pid, parent, program, n, gpus in self._users
        )

    def _process(
        self,
        pid: int,
        parent: int,
        program: dict[str, Any],
        number: int,
        gpus: tuple[int, ...],
        second: float,
    ) -> ProcessSample:
        noise = _noise(pid, second)
        uses = tuple(
            GpuUse(
                gpu,
                pid,
                "C",
                round(program["memory_gib"] * _GIB) + number * 2**23,
                round(program["sm_pct"] * (0.9 + 0.1 * noise)),
            )
            for gpu in gpus
        )
        return ProcessSample(
            pid,
            uses,
            parent,
            program.get("user", USER),
            program["command"].format(n=number),
            program["cpu_pct"] * (0.8 + 0.4 * noise),
            round(program["host_gib"] * _GIB * (1 + 0.02 * number)),
            program["hours"] * 3600 + second,
            _MADE_UP,
        )


class DemoFeed:
    """A demo machine in the panes."""

    def __init__(
        self,
        box: DemoBox,
        interval_s: float = 1.0,
        on_sample: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._box = box
        self._interval_s = interval_s
        self.on_sample = on_sample
        self._clock = clock
        self._begin_ns = clock() - EARLIER_S * _SECOND_NS
        self._wakes = threading.Event()
        """Set by each change that was asked for."""
        self._is_closed = False
        self._sample = self._at_now()

    def earlier(self) -> Iterator[LiveSample]:
        """The samples before the panes opened, one per second."""
        for second in range(EARLIER_S):
            yield self._box.at(second, self._begin_ns + second * _SECOND_NS)

    def start(self) -> None:
        threading.Thread(target=self._play, name="feed", daemon=True).start()

    def latest(self) -> LiveSample:
        return self._sample

    def want_processes(self, wanted: bool) -> None:
        """Does nothing: process lists cost nothing here."""

    def set_interval(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._wakes.set()

    def close(self) -> None:
        self._is_closed = True
        self._wakes.set()

    def _play(self) -> None:
        while not self._is_closed:
            self._wakes.wait(self._interval_s)
            self._wakes.clear()
            self._sample = self._at_now()
            self.on_sample()

    def _at_now(self) -> LiveSample:
        now_ns = self._clock()
        return self._box.at((now_ns - self._begin_ns) / _SECOND_NS, now_ns)


@functools.cache
def _data() -> dict[str, Any]:
    import tomllib  # the heading of every screen needs this module, and nothing but the demo its data

    return tomllib.loads(Path(__file__).with_name("demo_gpus.toml").read_text("utf-8"))


def _work_of(device: int) -> dict[str, Any]:
    known: list[str] = _data()["gpus"]
    beyond = "idles" if device % 13 == 0 else "embeds" if device % 9 == 0 else "trains"
    work: dict[str, Any] = _data()["work"][known[device] if device < len(known) else beyond]
    return work


def _numbered(gpus: int) -> Iterator[tuple[int, int, dict[str, Any], int, tuple[int, ...]]]:
    """PID, PID of the parent, program, its number and GPUs, of all that have a GPU on this machine."""
    pid = _FIRST_PID
    for program in _data()["program"]:
        first, here = pid, tuple(gpu for gpu in program["gpus"] if gpu < gpus)
        if program.get("is_on_all"):
            if here:
                yield pid, 1, program, 0, here
                pid += 37
            continue
        is_below_first = program.get("is_below_first", False)
        for number, gpu in enumerate(here):
            yield pid, first if is_below_first and number else 1, program, number, (gpu,)
            pid += 1 if is_below_first else 23
        pid += 211
    for number, gpu in enumerate(range(len(_data()["gpus"]), gpus)):
        if _work_of(gpu) is _data()["work"]["trains"]:
            yield pid + number, pid, _data()["ranks_beyond"], number, (gpu,)


def _noise(salt: int, second: float) -> float:
    """0 to 1, constant within a whole second; mixed like MurmurHash3's finalizer."""
    mixed = (int(second) * 0x9E3779B1 + salt * 0x85EBCA77 + 0x165667B1) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 16)) & 0xFFFF) / 0xFFFF
