"""What public dumps of `nvidia-smi` say, as a scenario of the stand-in library and as what is read of it.

A dump in `tests/nvml/dumps/` has the figures in nvidia-smi's words and units, and where they come from. Of
what it does not have, the stand-in says that it is not supported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # TOML

import tomllib

_PLACE = Path(__file__).parents[1] / "nvml" / "dumps"
NAMES = tuple(sorted(path.stem for path in _PLACE.glob("*.toml")))
_NOT_SUPPORTED, _NO_SUCH_FUNCTION = 3, 13


@dataclass(frozen=True)
class _Figure:
    """One figure: its word, the key of the stand-in, the metric, the calls that tell it, and its units."""

    word: str
    key: str
    metric: str
    calls: tuple[str, ...]
    in_standin: float = 1.0
    in_metric: float = 1.0


_MEMORY = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
_LIMIT = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_SLOWDOWN = ("nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetMarginTemperature")
_TEMPERATURE = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
_RATES = ("nvmlDeviceGetUtilizationRates",)
_OF_MEMORY = (
    _Figure("fb_total", "memory_total_mib", "memory_total_bytes", _MEMORY, 1, 2**20),
    _Figure("fb_used", "memory_used_mib", "memory_used_bytes", _MEMORY, 1, 2**20),
    _Figure("fb_reserved", "memory_reserved_mib", "memory_reserved_bytes", _MEMORY, 1, 2**20),
)
_FIGURES = (
    *_OF_MEMORY,
    _Figure("gpu_util", "sm_busy_pct", "sm_busy_pct", _RATES),
    _Figure("memory_util", "memory_busy_pct", "memory_busy_pct", _RATES),
    _Figure("encoder_util", "encoder_pct", "encoder_pct", ("nvmlDeviceGetEncoderUtilization",)),
    _Figure("decoder_util", "decoder_pct", "decoder_pct", ("nvmlDeviceGetDecoderUtilization",)),
    _Figure("gpu_temp", "temperature_c", "temperature_c", _TEMPERATURE),
    _Figure("slowdown_temp", "slowdown_c", "temperature_limit_c", _SLOWDOWN),
    _Figure("power_draw", "power_mw", "power_w", ("nvmlDeviceGetPowerUsage",), 1000),
    _Figure("power_limit", "power_limit_mw", "power_limit_w", _LIMIT, 1000),
    _Figure(
        "default_power_limit",
        "power_default_limit_mw",
        "power_limit_default_w",
        ("nvmlDeviceGetPowerManagementDefaultLimit",),
        1000,
    ),
    _Figure("sm_clock", "sm_clock_mhz", "sm_clock_mhz", ("nvmlDeviceGetClockInfo",)),
    _Figure("mem_clock", "memory_clock_mhz", "memory_clock_mhz", ("nvmlDeviceGetClockInfo",)),
    _Figure("max_sm_clock", "sm_clock_max_mhz", "sm_clock_max_mhz", ("nvmlDeviceGetMaxClockInfo",)),
    _Figure("max_mem_clock", "memory_clock_max_mhz", "memory_clock_max_mhz", ("nvmlDeviceGetMaxClockInfo",)),
    _Figure("fan_speed", "fan_pct", "fan_pct", ("nvmlDeviceGetFanSpeed",)),
    _Figure("performance_state", "pstate", "pstate", ("nvmlDeviceGetPerformanceState",)),
    _Figure("clocks_event_reasons", "event_reasons", "throttle_bits", _REASONS),
    _Figure("ecc_uncorrected", "ecc_uncorrected", "ecc_uncorrected_count", ("nvmlDeviceGetTotalEccErrors",)),
    _Figure("remapped_rows", "remapped_rows", "remapped_rows_count", ("nvmlDeviceGetRemappedRows",)),
    _Figure("pcie_gen", "pcie_generation", "pcie_generation", ("nvmlDeviceGetCurrPcieLinkGeneration",)),
    _Figure(
        "max_pcie_gen", "pcie_generation_max", "pcie_generation_max", ("nvmlDeviceGetMaxPcieLinkGeneration",)
    ),
    _Figure("pcie_width", "pcie_width", "pcie_width", ("nvmlDeviceGetCurrPcieLinkWidth",)),
    _Figure("max_pcie_width", "pcie_width_max", "pcie_width_max", ("nvmlDeviceGetMaxPcieLinkWidth",)),
    _Figure("mig_mode", "mig", "mig_mode", ("nvmlDeviceGetMigMode",)),
)
_WORDS = {"Enabled": "1", "Disabled": "0"}
_IN_NO_DUMP = (
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPcieThroughput",
    "nvmlGpmQueryDeviceSupport",
    "nvmlDeviceRegisterEvents",
)
_SINCE = {
    510: ("nvmlDeviceGetMemoryInfo_v2",),
    535: ("nvmlDeviceGetCurrentClocksEventReasons",),
    550: ("nvmlDeviceGetProcessesUtilizationInfo",),
    570: ("nvmlDeviceGetTemperatureV",),
}
"""Drivers that first had these functions."""


@dataclass(frozen=True)
class Dump:
    """The figures of one box with one GPU."""

    plain: Mapping[str, Any]

    @classmethod
    def named(cls, name: str) -> Dump:
        """The dump in `dumps/NAME.toml`."""
        return cls(tomllib.loads((_PLACE / f"{name}.toml").read_text()))

    @property
    def instances(self) -> list[dict[str, Any]]:
        """Its MIG devices."""
        return list(self.plain.get("mig_device", []))

    @property
    def processes(self) -> list[dict[str, Any]]:
        """By PID."""
        return sorted(self.plain.get("process", []), key=lambda process: int(process["pid"]))

    def scenario(self) -> str:
        """For the stand-in."""
        gpu = self.plain["gpu"]
        driver = int(self.plain["driver_version"].partition(".")[0])
        lines = [f"driver version {self.plain['driver_version']}", f"0 name {gpu['product_name']}"]
        lines += _told("0", gpu, _FIGURES)
        lines += [f"0 uuid {gpu['uuid']}" if "uuid" in gpu else _refused("0", "nvmlDeviceGetUUID")]
        if "bus_id" in gpu:
            domain, bus, device = gpu["bus_id"].partition(".")[0].split(":")
            lines += [f"0 pci_domain 0x{domain}", f"0 pci_bus 0x{bus}", f"0 pci_device 0x{device}"]
        else:
            lines.append(_refused("0", "nvmlDeviceGetPciInfo_v3"))
        lines += [_refused("0", call) for call in _IN_NO_DUMP]
        for since, calls in _SINCE.items():
            lines += [f"0 error {call} {_NO_SUCH_FUNCTION}" for call in calls if driver < since]
        lines.append(f"0 mig_slices {len(self.instances)}")
        for place, instance in enumerate(self.instances):
            scope = f"0:{place}"
            lines += _told(scope, instance, _OF_MEMORY)
            lines += [f"{scope} {key[:-3]} {instance[key]}" for key in instance if key.endswith("_id")]
            lines += [_refused(scope, call) for call in ("nvmlDeviceGetName", "nvmlDeviceGetUUID")]
        for process in self.processes:
            mib = process["used_memory"].partition(" ")[0]
            lines.append(
                f"0 process {process['pid']} {process['type']} {mib} - {process.get('mig_device', -1)}"
            )
        return "\n".join(lines) + "\n"

    def values(self) -> dict[str, float | None]:
        """Of the GPU, by metric: None where the dump says N/A, or nothing."""
        return _metrics(self.plain["gpu"], _FIGURES)

    def values_of_instances(self) -> list[dict[str, float | None]]:
        """Of each MIG device."""
        return [_metrics(instance, _OF_MEMORY) for instance in self.instances]


def _refused(scope: str, call: str) -> str:
    return f"{scope} error {call} {_NOT_SUPPORTED}"


def _number(text: str) -> float | None:
    """`26.78 W`, `16x`, `P8`, `0x1`, `Enabled`; None for N/A."""
    if text == "N/A":
        return None
    bare = _WORDS.get(text, text.partition(" ")[0].removeprefix("P").removesuffix("x"))
    return float(int(bare, 16)) if bare.startswith("0x") else float(bare)


def _told(scope: str, figures: Mapping[str, str], known: tuple[_Figure, ...]) -> Iterator[str]:
    """Lines for the figures that are known, and refusals of the calls that tell none of them."""
    tells: defaultdict[str, bool] = defaultdict(bool)
    for figure in known:
        number = _number(figures.get(figure.word, "N/A"))
        for call in figure.calls:
            tells[call] |= number is not None
        yield f"{scope} {figure.key} {round((number or 0) * figure.in_standin)}"
    yield from (_refused(scope, call) for call, is_told in tells.items() if not is_told)


def _metrics(figures: Mapping[str, str], known: tuple[_Figure, ...]) -> dict[str, float | None]:
    """What the calls that tell anything should be understood as."""
    found: dict[str, float | None] = {}
    for figure in known:
        number = _number(figures.get(figure.word, "N/A"))
        told_with_others = any(
            _number(figures.get(other.word, "N/A")) is not None
            for other in known
            if other.calls == figure.calls
        )
        if number is not None or not told_with_others:
            found[figure.metric] = None if number is None else number * figure.in_metric
    return found
