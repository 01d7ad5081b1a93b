"""Calls of the NVML library, each giving the values of some metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar  # pynvml has no types

from gputui.model import nvml_codes

NEVER_AGAIN = frozenset(
    {nvml_codes.NOT_SUPPORTED, nvml_codes.FUNCTION_NOT_FOUND, nvml_codes.ARGUMENT_VERSION_MISMATCH}
)
"""Answers that will not change: the next way is tried, and after the last this is not asked again."""

Numbers = dict[str, "float | int"]
Way = Callable[[Any, Any], Numbers]
"""Asks (pynvml, handle) for the values of some metrics."""
Answer = TypeVar("Answer")

POWER_INSTANT = 186
"""Field: milliwatts at this instant; `nvmlDeviceGetPowerUsage` is an average of a second since Ampere."""


def ask(nvml: Any, handle: Any, ways: list[Callable[[Any, Any], Answer]]) -> Answer | int:
    """The answer to the first way that works, or the error code of the last one tried.

    Ways that will never work are taken out of `ways`; without any left the code is NOT_SUPPORTED.
    """
    code = nvml_codes.NOT_SUPPORTED
    while ways:
        try:
            return ways[0](nvml, handle)
        except nvml.NVMLError as error:
            code = int(error.value)
            if code not in NEVER_AGAIN:
                break
        except (AttributeError, TypeError):  # an older pynvml lacks the function
            code = nvml_codes.NOT_SUPPORTED
        ways.pop(0)
    return code


def field_number(nvml: Any, field: Any) -> float | int:
    """The number in an entry of `nvmlDeviceGetFieldValues`; raises NVMLError if there is none."""
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    number: float | int = getattr(field.value, UNION_MEMBERS[field.valueType])
    return number


UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""By nvmlValueType_t."""


def sm_clock(nvml: Any, handle: Any) -> Numbers:
    """Clock of the streaming multiprocessors."""
    return {"sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))}


def memory_clock(nvml: Any, handle: Any) -> Numbers:
    """Clock of the memory."""
    return {"memory_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))}


def event_reasons(nvml: Any, handle: Any) -> Numbers:
    """Why the clocks are as they are, a bit set."""
    return {"throttle_bits": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}


def throttle_reasons(nvml: Any, handle: Any) -> Numbers:
    """The same from drivers before 535."""
    return {"throttle_bits": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}


def instant_power(nvml: Any, handle: Any) -> Numbers:
    """Power at this instant."""
    field = nvml.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT])[0]
    return {"power_w": field_number(nvml, field) / 1000}


def power(nvml: Any, handle: Any) -> Numbers:
    """Power, on GPUs since Ampere (but for GA100) as the mean of the last second."""
    return {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def busy(nvml: Any, handle: Any) -> Numbers:
    """Shares of the driver's last window, of 1/6 to 1 s."""
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"sm_busy_pct": float(rates.gpu), "memory_busy_pct": float(rates.memory)}


def memory_2(nvml: Any, handle: Any) -> Numbers:
    """Memory, that of the driver counted apart."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {
        "memory_used_bytes": memory.used,
        "memory_reserved_bytes": memory.reserved,
        "memory_total_bytes": memory.total,
    }


def memory_1(nvml: Any, handle: Any) -> Numbers:
    """Memory from drivers before 510: that of the driver counts as used."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}


def compute_processes(nvml: Any, handle: Any) -> Numbers:
    """How many processes compute on it; in a container their numbers are those of the host."""
    return {"compute_process_count": float(len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)))}


def temperature_v(nvml: Any, handle: Any) -> Numbers:
    """Temperature of the chip."""
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))}


def temperature(nvml: Any, handle: Any) -> Numbers:
    """The same from drivers before 570."""
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


def energy(nvml: Any, handle: Any) -> Numbers:
    """Energy drawn since the driver was loaded."""
    return {"energy_mj": nvml.nvmlDeviceGetTotalEnergyConsumption(handle)}
