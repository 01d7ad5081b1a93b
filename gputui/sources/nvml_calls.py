"""Calls to the NVML library, each returning the values of some metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar  # Any: pynvml has no types

from gputui.model import nvml_codes

NEVER_AGAIN = frozenset(
    {nvml_codes.NOT_SUPPORTED, nvml_codes.FUNCTION_NOT_FOUND, nvml_codes.ARGUMENT_VERSION_MISMATCH}
)
"""Permanent errors: the next alternative is tried, and after the last the query is dropped."""

Numbers = dict[str, "float | int"]
Way = Callable[[Any, Any], Numbers]
"""Queries (pynvml, handle) for the values of some metrics."""
Answer = TypeVar("Answer")

POWER_INSTANT = 186
"""Field: milliwatts at this instant; since Ampere `nvmlDeviceGetPowerUsage` is an average over a second."""


def ask(nvml: Any, handle: Any, ways: list[Callable[[Any, Any], Answer]]) -> Answer | int:
    """The result of the first alternative that works, or the error code of the last one tried.

    Removes alternatives that will never work from `ways`; if none is left, the code is NOT_SUPPORTED.
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
    """The number in an entry of `nvmlDeviceGetFieldValues`. Raises NVMLError if there is none."""
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    number: float | int = getattr(field.value, UNION_MEMBERS[field.valueType])
    return number


UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""By nvmlValueType_t."""


def sm_clock(nvml: Any, handle: Any) -> Numbers:
    return {"sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))}


def memory_clock(nvml: Any, handle: Any) -> Numbers:
    return {"memory_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))}


def event_reasons(nvml: Any, handle: Any) -> Numbers:
    """Why the clocks are what they are, as a bit set."""
    return {"throttle_bits": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)}


def throttle_reasons(nvml: Any, handle: Any) -> Numbers:
    """As `event_reasons`, with drivers before 535."""
    return {"throttle_bits": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)}


def instant_power(nvml: Any, handle: Any) -> Numbers:
    field = nvml.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT])[0]
    return {"power_w": field_number(nvml, field) / 1000}


def power(nvml: Any, handle: Any) -> Numbers:
    """Power; since Ampere (except GA100) the mean of the last second."""
    return {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}


def busy(nvml: Any, handle: Any) -> Numbers:
    """Busy shares over the driver's last window of 1/6 to 1 s."""
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"sm_busy_pct": float(rates.gpu), "memory_busy_pct": float(rates.memory)}


def memory_2(nvml: Any, handle: Any) -> Numbers:
    """Memory, with the driver's own part counted separately."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {
        "memory_used_bytes": memory.used,
        "memory_reserved_bytes": memory.reserved,
        "memory_total_bytes": memory.total,
    }


def memory_1(nvml: Any, handle: Any) -> Numbers:
    """Memory, with drivers before 510: the driver's own part counts as used."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}


def compute_processes(nvml: Any, handle: Any) -> Numbers:
    """How many processes compute on it; in a container the driver counts those of the host."""
    return {"compute_process_count": float(len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)))}


def temperature_v(nvml: Any, handle: Any) -> Numbers:
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))}


def temperature(nvml: Any, handle: Any) -> Numbers:
    """As `temperature_v`, with drivers before 570."""
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


def energy(nvml: Any, handle: Any) -> Numbers:
    """Energy used since the driver was loaded."""
    return {"energy_mj": nvml.nvmlDeviceGetTotalEnergyConsumption(handle)}
