"""What is asked of NVIDIA's driver, with one call of its library each, and how the answers are checked.

What is not supported is remembered, and impossible values are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import MIG_PER_GPU, Value, sane

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
NO_POWER = 8
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
"""Permanent errors: the next alternative is tried, and after the last the question is dropped."""
_DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSIONS_DIFFER})

DRIVER = "the driver"
LOST = Missing(nvml_reason(GPU_IS_LOST))
UNREPORTED = Missing(nvml_reason(NOT_SUPPORTED))
_TOO_MUCH_USED = Missing(f"{DRIVER} answered more than there is")

Values = dict[str, Value]
Way = Callable[[Any, Any], Mapping[str, "float | int | str"]]
"""Asks (pynvml, handle) for the values of some metrics."""
_Answer = TypeVar("_Answer")


class DriverGone(Exception):
    """The driver was unloaded or replaced: what the library has is of no use any more."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GpuLost(Exception):
    """The GPU no longer responds."""

    code = GPU_IS_LOST


def check_alive(code: int) -> None:
    """Raise DriverGone or GpuLost for a code that means one of them."""
    if code in _DRIVER_GONE:
        raise DriverGone(code)
    if code == GPU_IS_LOST:
        raise GpuLost


def opened() -> tuple[Any, int] | Missing:
    """pynvml, initialized, and how many GPUs the driver counts, lost ones included; or why there is none.

    With persistence mode off this takes seconds.
    """
    try:
        import pynvml
    except ImportError:
        return Missing("this Python has no pynvml: `pip install nvidia-ml-py` shows NVIDIA GPUs")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        may_not = ": this user must be able to read and write /dev/nvidiactl"
        return Missing(nvml_reason(error.value) + may_not * (error.value == NO_PERMISSION))
    code = NO_GPU
    try:
        if count := int(pynvml.nvmlDeviceGetCount()):
            return pynvml, count
    except pynvml.NVMLError as error:
        code = error.value
    pynvml.nvmlShutdown()  # otherwise the library would not look for the driver again
    return Missing(nvml_reason(code))


def driver_version(nvml: Any) -> tuple[int, ...]:
    """Its numbers; empty if unknown."""
    try:
        text = str(nvml.nvmlSystemGetDriverVersion())
    except (nvml.NVMLError, UnicodeDecodeError):
        return ()
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def ask(nvml: Any, handle: Any, ways: list[Callable[[Any, Any], _Answer]]) -> _Answer | int:
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


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked with one call, and its alternatives in order of preference."""

    keys: tuple[str, ...]
    ways: tuple[Way, ...]
    otherwise: Missing = UNREPORTED
    """Why a key is absent from an answer."""


class Asker:
    """Asks about one handle, and remembers what need not be asked again."""

    def __init__(self, nvml: Any, handle: Any = None) -> None:
        self.nvml = nvml
        self.handle = handle
        self._ways: dict[tuple[str, ...], list[Way]] = {}
        """By the keys of a question: the alternatives that are not ruled out."""
        self._refused: dict[tuple[str, ...], Missing] = {}
        """By the keys of a question without any alternative left: the reason."""

    def values(self, questions: Sequence[Question]) -> Values:
        """The checked answers; raises DriverGone or GpuLost."""
        values: Values = {}
        for question in questions:
            answer = self._refused.get(question.keys) or self._answer(question)
            for key in question.keys:
                if isinstance(answer, Missing):
                    values[key] = answer
                else:
                    values[key] = sane(key, answer[key], DRIVER) if key in answer else question.otherwise
        return values

    def _answer(self, question: Question) -> Mapping[str, float | int | str] | Missing:
        ways = self._ways.setdefault(question.keys, list(question.ways))
        answer = ask(self.nvml, self.handle, ways)
        if not isinstance(answer, int):
            return answer
        check_alive(answer)
        reason = Missing(nvml_reason(answer))
        if not ways:
            self._refused[question.keys] = reason
        return reason

    def forget(self) -> None:
        """Ask everything again: the GPU now works in another mode."""
        self._ways.clear()
        self._refused.clear()


def answers(nvml: Any, questions: Sequence[Question], gpu: int | None = None) -> Values:
    """The answers of a GPU, or of the library; of a GPU that is lost, why in each."""
    try:
        handle = None if gpu is None else nvml.nvmlDeviceGetHandleByIndex(gpu)
        return Asker(nvml, handle).values(questions)
    except nvml.NVMLError as error:
        code = error.value
    except (DriverGone, GpuLost) as gone:
        code = gone.code
    return {key: Missing(nvml_reason(code)) for asked in questions for key in asked.keys}


def mig_handles(nvml: Any, handle: Any) -> Iterator[tuple[int, Any]]:
    """Place and handle of each MIG instance of a GPU; raises DriverGone or GpuLost."""
    try:
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError as error:
        check_alive(error.value)
        return
    for place in range(min(most, MIG_PER_GPU)):
        try:
            found = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError as error:
            check_alive(error.value)
            continue
        yield place, found


def sane_memory(values: Values) -> None:
    """Drop shares of an impossible total, and use that exceeds the total."""
    total, used = values["memory_total_bytes"], values["memory_used_bytes"]
    if isinstance(total, Missing):
        values["memory_used_bytes"] = values["memory_reserved_bytes"] = total
    elif not isinstance(used, (Missing, str)) and not isinstance(total, str) and used > total:
        values["memory_used_bytes"] = _TOO_MUCH_USED


# Fields, and lists of processes

POWER_INSTANT = 186
"""Field: milliwatts at this instant; since Ampere `nvmlDeviceGetPowerUsage` is an average over a second."""
_SLOWDOWN_MARGIN = 194
"""Field: where throttling begins, in degrees relative to the limit that the margin refers to; negative
beyond."""
UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""By nvmlValueType_t."""


def field_number(field: Any) -> float | int:
    """The number in an entry of `nvmlDeviceGetFieldValues` that has one."""
    number: float | int = getattr(field.value, UNION_MEMBERS[field.valueType])
    return number


_WIDE_FROM, _WIDE_UNTIL = (535, 43), (535, 98)
"""Drivers whose third version of the process lists has entries of 32 bytes instead of 24 (nvitop, PR 79 and
89); 535.98 has no third version at all."""


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


def process_count(driver: tuple[int, ...]) -> Question:
    """How many processes compute; in a container the driver counts the host's."""
    ways = tuple(partial(_count, way) for way in process_lists("Compute", driver))
    return Question(("compute_process_count",), ways)


def _count(way: Callable[[Any, Any], list[Any]], nvml: Any, handle: Any) -> dict[str, float]:
    return {"compute_process_count": float(len(way(nvml, handle)))}


# The questions


def question(
    key: str,
    *functions: str,
    constant: str = "",
    convert: Callable[[Any], float | int | str] = int,
) -> Question:
    """One value, by the first of these functions of a handle, and of a constant, that answers."""

    def way(function: str, nvml: Any, handle: Any) -> dict[str, float | int | str]:
        more = [getattr(nvml, constant)] if constant else []
        return {key: convert(getattr(nvml, function)(handle, *more))}

    return Question((key,), tuple(partial(way, function) for function in functions))


def _watts(milliwatts: Any) -> float:
    return float(milliwatts / 1000)


def current_mode(modes: Any) -> int:
    """Of the mode now and the one after a reset."""
    return int(modes[0])


def _share(answer: Any) -> float:
    """Of a share and how often it is measured."""
    return float(answer[0])


def _text(tell: Callable[[], str | bytes]) -> str:
    """The driver's answer, whatever its bytes are."""
    try:
        text = tell()
    except UnicodeDecodeError as error:  # pynvml decodes strictly
        text = error.object
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _name(nvml: Any, handle: Any) -> dict[str, str]:
    return {"name": _text(lambda: nvml.nvmlDeviceGetName(handle))}


def _uuid(nvml: Any, handle: Any) -> dict[str, str]:
    return {"uuid": _text(lambda: nvml.nvmlDeviceGetUUID(handle))}


def _driver(nvml: Any, handle: Any) -> dict[str, str]:
    return {"driver": _text(nvml.nvmlSystemGetDriverVersion)}


def _pci_address(nvml: Any, handle: Any) -> dict[str, str]:
    place = nvml.nvmlDeviceGetPciInfo(handle)
    return {"pci_address": f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0"}


def _instant_power(nvml: Any, handle: Any) -> dict[str, float]:
    field = nvml.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT])[0]
    if field.nvmlReturn != SUCCESS:
        is_unknown = field.nvmlReturn == INVALID_ARGUMENT  # so a driver answers that is older than the field
        raise nvml.NVMLError(NOT_SUPPORTED if is_unknown else field.nvmlReturn)
    return {"power_w": field_number(field) / 1000}


def _busy(nvml: Any, handle: Any) -> dict[str, float]:
    """Busy shares over the driver's last window of 1/6 to 1 s."""
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"sm_busy_pct": float(rates.gpu), "memory_busy_pct": float(rates.memory)}


def _memory(nvml: Any, handle: Any) -> dict[str, int]:
    """Memory, with the driver's own part counted separately."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {
        "memory_used_bytes": memory.used,
        "memory_reserved_bytes": memory.reserved,
        "memory_total_bytes": memory.total,
    }


def _older_memory(nvml: Any, handle: Any) -> dict[str, int]:
    """Memory, with drivers before 510: the driver's own part counts as used."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}


def _slowdown_by_margin(nvml: Any, handle: Any) -> dict[str, float]:
    """On newer GPUs: the margin to the limit, and how far beyond the limit throttling begins."""
    margin = nvml.nvmlDeviceGetMarginTemperature(handle)
    limit = nvml.nvmlDeviceGetFieldValues(handle, [(_SLOWDOWN_MARGIN, 0)])[0]
    beyond = field_number(limit) if limit.nvmlReturn == SUCCESS else 0
    now = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    return {"temperature_limit_c": float(now + margin - beyond)}


def _ecc(nvml: Any, handle: Any) -> dict[str, int]:
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "ecc_uncorrected_count": nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, nvml.NVML_VOLATILE_ECC)
    }


def _remapped(nvml: Any, handle: Any) -> dict[str, int]:
    """Rows of memory that spare ones replace, and whether that has failed or waits for a reset."""
    corrected, uncorrected, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return {
        "remapped_rows_count": corrected + uncorrected,
        "remapped_rows_pending": int(bool(is_pending)),
        "remapped_rows_failed": int(bool(has_failed)),
    }


MEMORY = Question(
    ("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"),
    (_memory, _older_memory),
    Missing("this NVIDIA driver counts it as used"),
)
POWER = Question(
    ("power_w",), (_instant_power, *question("power_w", "nvmlDeviceGetPowerUsage", convert=_watts).ways)
)
"""Since Ampere (except GA100) the latter is the mean of the last second."""
ENERGY = question("energy_mj", "nvmlDeviceGetTotalEnergyConsumption")
"""Since the driver was loaded."""
BUSY = Question(("sm_busy_pct", "memory_busy_pct"), (_busy,))
TEMPERATURE = question(
    "temperature_c",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperature",  # with drivers before 570
    constant="NVML_TEMPERATURE_GPU",
    convert=float,
)
SM_CLOCK = question("sm_clock_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_SM", convert=float)
MEMORY_CLOCK = question(
    "memory_clock_mhz", "nvmlDeviceGetClockInfo", constant="NVML_CLOCK_MEM", convert=float
)
REASONS = question(
    "throttle_bits",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",  # with drivers before 535
)
"""Why the clocks are what they are, as a bit set."""

OFTEN = (BUSY, MEMORY, TEMPERATURE, SM_CLOCK, REASONS)
LESS_OFTEN: tuple[Question, ...] = (
    MEMORY_CLOCK,
    question("pstate", "nvmlDeviceGetPerformanceState"),
    question("encoder_pct", "nvmlDeviceGetEncoderUtilization", convert=_share),
    question("decoder_pct", "nvmlDeviceGetDecoderUtilization", convert=_share),
)
QUICK_OF_RUNS: tuple[Question, ...] = (SM_CLOCK, MEMORY_CLOCK, REASONS, POWER)
"""Worth asking ten times a second."""
OF_RUNS = (*QUICK_OF_RUNS, BUSY, Question(("memory_used_bytes",), MEMORY.ways), TEMPERATURE, ENERGY)

MIG_MODE = question("mig_mode", "nvmlDeviceGetMigMode", convert=current_mode)
SELDOM: tuple[Question, ...] = (
    question(
        "power_limit_w",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementLimit",
        convert=_watts,
    ),
    question("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", convert=_watts),
    Question(
        ("temperature_limit_c",),
        (
            *question(
                "temperature_limit_c",
                "nvmlDeviceGetTemperatureThreshold",
                constant="NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",
                convert=float,
            ).ways,
            _slowdown_by_margin,
        ),
    ),
    question("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", constant="NVML_CLOCK_SM", convert=float),
    question("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", constant="NVML_CLOCK_MEM", convert=float),
    question("fan_pct", "nvmlDeviceGetFanSpeed", convert=float),
    question("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    question("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    question("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    question("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    Question(("ecc_uncorrected_count",), (_ecc,)),
    Question(("remapped_rows_count", "remapped_rows_pending", "remapped_rows_failed"), (_remapped,)),
    MIG_MODE,
)

UUID = Question(("uuid",), (_uuid,))
OF_DRIVER = Question(("driver",), (_driver,))
PCI_ADDRESS = Question(("pci_address",), (_pci_address,))
ONCE: tuple[Question, ...] = (Question(("name",), (_name,)), UUID, OF_DRIVER, PCI_ADDRESS)
OF_INSTANCES: tuple[Question, ...] = (
    *ONCE[:2],
    question("gpu_instance_id", "nvmlDeviceGetGpuInstanceId"),
    question("compute_instance_id", "nvmlDeviceGetComputeInstanceId"),
)
"""What identifies a MIG instance."""
