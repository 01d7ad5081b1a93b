"""NVIDIA GPUs through the driver's own library."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar  # pynvml has no types

from gputui.model import nvml_codes
from gputui.model.absent import Missing
from gputui.model.telemetry import Reading

_NEVER_AGAIN = frozenset(
    {nvml_codes.NOT_SUPPORTED, nvml_codes.FUNCTION_NOT_FOUND, nvml_codes.ARGUMENT_VERSION_MISMATCH}
)
"""Answers that will not change: the next way is tried, and after the last this is not asked again."""

Values = dict[str, "float | int"]
Way = Callable[[Any, Any], Values]
"""Asks (pynvml, handle) for the values of some metrics."""


def _clocks(nvml: Any, handle: Any, which: str) -> float:
    return float(nvml.nvmlDeviceGetClockInfo(handle, getattr(nvml, which)))


def _sm_clock(nvml: Any, handle: Any) -> Values:
    return {"sm_clock_mhz": _clocks(nvml, handle, "NVML_CLOCK_SM")}


def _memory_clock(nvml: Any, handle: Any) -> Values:
    return {"memory_clock_mhz": _clocks(nvml, handle, "NVML_CLOCK_MEM")}


def _event_reasons(nvml: Any, handle: Any) -> Values:
    return {"throttle_bits": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}


def _throttle_reasons(nvml: Any, handle: Any) -> Values:
    return {"throttle_bits": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}


def _instant_power(nvml: Any, handle: Any) -> Values:
    field = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    return {"power_w": field.value.uiVal / 1000}


def _power(nvml: Any, handle: Any) -> Values:
    return {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def _busy(nvml: Any, handle: Any) -> Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"sm_busy_pct": float(rates.gpu), "memory_busy_pct": float(rates.memory)}


def _memory_2(nvml: Any, handle: Any) -> Values:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {"memory_used_mib": memory.used / 2**20}


def _memory_1(nvml: Any, handle: Any) -> Values:
    return {"memory_used_mib": nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20}


def _temperature_v(nvml: Any, handle: Any) -> Values:
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))}


def _temperature(nvml: Any, handle: Any) -> Values:
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


def _energy(nvml: Any, handle: Any) -> Values:
    return {"energy_mj": nvml.nvmlDeviceGetTotalEnergyConsumption(handle)}


_QUICK: tuple[tuple[Way, ...], ...] = (
    (_sm_clock,),
    (_memory_clock,),
    (_event_reasons, _throttle_reasons),
    (_instant_power, _power),
)
"""Questions worth asking ten times a second; of each, the ways in order of preference."""

_FULL: tuple[tuple[Way, ...], ...] = (
    *_QUICK,
    (_busy,),
    (_memory_2, _memory_1),
    (_temperature_v, _temperature),
    (_energy,),
)


@dataclass(slots=True)
class _Device:
    """One GPU, and which ways of asking it are still open."""

    handle: Any
    ways: list[list[Way]]
    """For each question of `_FULL`, those not ruled out, the one in use first."""


class NvmlSource:
    """Clocks, power, memory, use and temperature of every NVIDIA GPU the driver counts."""

    NAME: ClassVar[str] = "nvml"

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: dict[int, _Device] = {}
        self._indices: tuple[int, ...] = ()
        self._problems: dict[int, Missing] = {}

    def probe(self) -> Missing | None:
        """Open the library and fetch a handle of each GPU; with persistence mode off this takes seconds."""
        self.close()
        try:
            import pynvml
        except ImportError:
            return Missing("this Python has no pynvml: `pip install nvidia-ml-py` shows NVIDIA GPUs")
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return Missing(nvml_codes.nvml_reason(error.value))
        self._nvml = pynvml
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            return Missing(nvml_codes.nvml_reason(error.value))
        self._indices = tuple(range(count))
        for index in self._indices:
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            except pynvml.NVMLError as error:
                self._problems[index] = Missing(nvml_codes.nvml_reason(error.value))
            else:
                self._devices[index] = _Device(handle, [list(ways) for ways in _FULL])
        return None if count else Missing("the NVIDIA driver sees no GPU")

    def devices(self) -> tuple[int, ...]:
        """Every GPU the driver counts, lost ones included."""
        return self._indices

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one GPU; none of a lost one, which is not asked again."""
        values: Values = {}
        if device in self._devices:
            failure = self._ask_all(self._devices[device], len(_FULL) if full else len(_QUICK), values)
            if failure == nvml_codes.GPU_IS_LOST:
                del self._devices[device]  # such a GPU comes back only with a restart
                values = {}
            if failure is not None and not values:
                self._problems[device] = Missing(nvml_codes.nvml_reason(failure))
            elif values:
                self._problems.pop(device, None)
        return Reading(device, time.monotonic_ns(), values)

    def problems(self) -> Mapping[int, Missing]:
        """GPUs that gave nothing when last asked, and why."""
        return dict(self._problems)

    def close(self) -> None:
        """Close the library."""
        self._devices, self._indices, self._problems = {}, (), {}
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                return  # nothing is left to close

    def _ask_all(self, device: _Device, questions: int, values: Values) -> int | None:
        """Fill `values`; the error code of the last question that failed, if any."""
        failure: int | None = None
        for ways in device.ways[:questions]:
            while ways:
                try:
                    values |= ways[0](self._nvml, device.handle)
                    break
                except self._nvml.NVMLError as error:
                    failure = int(error.value)
                    if failure not in _NEVER_AGAIN:
                        break
                except (AttributeError, TypeError):  # an older pynvml lacks the function
                    failure = nvml_codes.NOT_SUPPORTED
                ways.pop(0)
            if failure == nvml_codes.GPU_IS_LOST:
                break
        return failure
