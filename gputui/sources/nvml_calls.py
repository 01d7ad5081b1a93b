"""Calls to the NVML library, each returning the values of some metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar  # Any: pynvml has no types

from gputui.model.absent import Missing

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
NO_POWER = 8
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
BLOCKED = 17
VERSIONS_DIFFER = 18
ARGUMENT_VERSION_MISMATCH = 25
NO_GPU = 28

_MEANINGS: dict[int, str] = {
    UNINITIALIZED: "the NVIDIA driver was unloaded",
    NOT_SUPPORTED: "this GPU does not report it",
    NO_PERMISSION: "no permission to ask the NVIDIA driver",
    NOT_FOUND: "the NVIDIA driver did not find it",
    NO_POWER: "the GPU's external power cables are not all connected",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: no NVIDIA GPU here, or `modprobe nvidia` is needed",
    10: "the NVIDIA driver did not answer in time",
    LIBRARY_NOT_FOUND: (
        "no NVIDIA driver here: libnvidia-ml.so.1 was not found (in a container: start it with its GPUs,"
        " docker run --gpus all)"
    ),
    FUNCTION_NOT_FOUND: "this NVIDIA driver is too old to tell",
    GPU_IS_LOST: "the GPU is lost: it fell off the bus; restart the box or take another",
    16: "the GPU needs a reset",
    BLOCKED: "the operating system blocks the NVIDIA driver",
    VERSIONS_DIFFER: "NVIDIA driver and library have different versions: reboot, or reload the kernel module",
    19: "the GPU is in use by another program",
    24: "this GPU does not report the clock",
    ARGUMENT_VERSION_MISMATCH: "this NVIDIA driver is too old to tell",
    NO_GPU: "the NVIDIA driver sees no GPU",
}


def nvml_reason(code: int) -> str:
    """Why a call that returned `code` gave no value, in the user's words."""
    return _MEANINGS.get(code, f"the NVIDIA driver answered with error {code}")


NEVER_AGAIN = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH})
"""Permanent errors: the next alternative is tried, and after the last the query is dropped."""

Numbers = dict[str, "float | int"]
Way = Callable[[Any, Any], Numbers]
"""Queries (pynvml, handle) for the values of some metrics."""
Answer = TypeVar("Answer")

POWER_INSTANT = 186
"""Field: milliwatts at this instant; since Ampere `nvmlDeviceGetPowerUsage` is an average over a second."""

_WIDE_FROM, _WIDE_UNTIL = (535, 43), (535, 98)
"""Drivers whose third version of the process lists has entries of 32 bytes instead of 24 (nvitop, PR 79 and
89); 535.98 has no third version at all."""


def opened(why: Callable[[int], str] = nvml_reason) -> Any | Missing:
    """pynvml, initialized, or why there is none; with persistence mode off this takes seconds."""
    try:
        import pynvml
    except ImportError:
        return Missing("this Python has no pynvml: `pip install nvidia-ml-py` shows NVIDIA GPUs")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Missing(why(error.value))
    return pynvml


def gpu_count(nvml: Any) -> int | Missing:
    """How many GPUs the driver counts, lost ones included; Missing for none."""
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        return Missing(nvml_reason(error.value))
    return count or Missing(nvml_reason(NO_GPU))


def ask(nvml: Any, handle: Any, ways: list[Callable[[Any, Any], Answer]]) -> Answer | int:
    """The result of the first alternative that works, or the error code of the last one tried.

    Removes alternatives that will never work from `ways`; if none is left, the code is NOT_SUPPORTED.
    """
    code = NOT_SUPPORTED
    while ways:
        try:
            return ways[0](nvml, handle)
        except nvml.NVMLError as error:
            code = int(error.value)
            if code not in NEVER_AGAIN:
                break
        except (AttributeError, TypeError):  # an older pynvml lacks the function
            code = NOT_SUPPORTED
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


def instant_power(nvml: Any, handle: Any) -> Numbers:
    field = nvml.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT])[0]
    return {"power_w": field_number(nvml, field) / 1000}


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


def driver_version(nvml: Any) -> tuple[int, ...]:
    """Its numbers; empty if unknown."""
    try:
        text = str(nvml.nvmlSystemGetDriverVersion())
    except (nvml.NVMLError, UnicodeDecodeError):
        return ()
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def process_lists(kind: str, driver: tuple[int, ...]) -> list[Callable[[Any, Any], list[Any]]]:
    """The alternatives to list the processes of a kind, `Compute` or `Graphics`, on a driver of a version."""
    is_wide = _WIDE_FROM <= driver < _WIDE_UNTIL
    return [partial(_wide_list if is_wide else _list, kind, 3), partial(_list, kind, 2)]


def _list(kind: str, version: int, nvml: Any, handle: Any) -> list[Any]:
    return list(getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v{version}")(handle))


def _wide_list(kind: str, version: int, nvml: Any, handle: Any) -> list[Any]:
    """As `_list`, which would read these entries at wrong places, and let the driver write beyond them."""
    import ctypes  # pynvml has loaded it already

    function = nvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses_v{version}")
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    if code == SUCCESS:
        return []
    if code == INSUFFICIENT_SIZE:
        count.value = 2 * count.value + 5  # more may have started before the second call
        entries = (nvml.c_nvmlProcessDetail_v1_t * count.value)()
        code = function(handle, ctypes.byref(count), entries)
    if code != SUCCESS:
        raise nvml.NVMLError(code)
    untold = nvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    found = [nvml.nvmlStructToFriendlyObject(entries[at]) for at in range(count.value)]
    for process in found:
        process.usedGpuMemory = None if process.usedGpuMemory == untold else process.usedGpuMemory
    return found


def process_counts(driver: tuple[int, ...]) -> list[Way]:
    """The alternatives to count the processes that compute; in a container the driver counts the host's."""
    return [partial(_count, way) for way in process_lists("Compute", driver)]


def _count(way: Callable[[Any, Any], list[Any]], nvml: Any, handle: Any) -> Numbers:
    return {"compute_process_count": float(len(way(nvml, handle)))}
