"""What is queried from a GPU with one call each, and how the answers are checked.

What is not supported is remembered, and impossible values are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import MIG_PER_GPU, Value, sane
from gputui.sources import nvml_calls

Values = dict[str, Value]
Way = Callable[[Any, Any], Mapping[str, "float | int | str"]]
"""Queries (pynvml, handle) for the values of some metrics."""

LOST = Missing(nvml_calls.nvml_reason(nvml_calls.GPU_IS_LOST))
UNREPORTED = Missing(nvml_calls.nvml_reason(nvml_calls.NOT_SUPPORTED))
DRIVER = "the driver"
_TOO_MUCH_USED = Missing(f"{DRIVER} answered more than there is")

_DRIVER_GONE = frozenset({nvml_calls.UNINITIALIZED, nvml_calls.DRIVER_NOT_LOADED, nvml_calls.VERSIONS_DIFFER})


class DriverGone(Exception):
    """The driver was unloaded or replaced: the library must be opened again."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GpuLost(Exception):
    """The GPU no longer responds."""

    code = nvml_calls.GPU_IS_LOST


def check_alive(code: int) -> None:
    """Raise DriverGone or GpuLost for a code that means one of them."""
    if code in _DRIVER_GONE:
        raise DriverGone(code)
    if code == nvml_calls.GPU_IS_LOST:
        raise GpuLost


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


@dataclass(frozen=True, slots=True)
class Question:
    """A query and its alternatives in order of preference."""

    keys: tuple[str, ...]
    ways: tuple[Way, ...]
    otherwise: Missing = UNREPORTED
    """Why a key is absent from an answer."""


@dataclass(slots=True, eq=False)
class Asker:
    """Queries one handle, and remembers what need not be queried again."""

    nvml: Any
    handle: Any
    _open: dict[tuple[str, ...], list[Way]] = field(default_factory=dict)
    """By the keys of a query: the alternatives that are not ruled out."""
    _refused: dict[tuple[str, ...], Missing] = field(default_factory=dict)
    """By the keys of a query without any alternative left: the reason."""

    def values(self, questions: Sequence[Question]) -> Values:
        """The checked results; raises DriverGone or GpuLost."""
        values: Values = {}
        for question in questions:
            answer = self._answer(question)
            if isinstance(answer, Missing):
                values.update(dict.fromkeys(question.keys, answer))
            else:
                for key in question.keys:
                    values[key] = sane(key, answer[key], DRIVER) if key in answer else question.otherwise
        return values

    def _answer(self, question: Question) -> Mapping[str, float | int | str] | Missing:
        refused = self._refused.get(question.keys)
        if refused is not None:
            return refused
        ways = self._open.setdefault(question.keys, list(question.ways))
        answer = nvml_calls.ask(self.nvml, self.handle, ways)
        if not isinstance(answer, int):
            return answer
        check_alive(answer)
        reason = Missing(nvml_calls.nvml_reason(answer))
        if not ways:
            self._refused[question.keys] = reason
        return reason

    def forget(self) -> None:
        """Query everything again: the GPU now works in another mode."""
        self._open.clear()
        self._refused.clear()


SLOWDOWN_MARGIN = 194
"""Field: where throttling begins, in degrees relative to the limit that the margin refers to; negative
beyond."""
_OLD_DRIVER = Missing("this NVIDIA driver counts it as used")


def _text(ask: Callable[[], str | bytes]) -> str:
    """The driver's answer, whatever its bytes are."""
    try:
        text = ask()
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


def watts(milliwatts: Any) -> float:
    return float(milliwatts / 1000)


def first_share(answer: Any) -> float:
    return float(answer[0])


def current_mode(modes: Any) -> int:
    """Of the mode now and the one after a reset."""
    return int(modes[0])


def _slowdown_by_margin(nvml: Any, handle: Any) -> dict[str, float]:
    """On newer GPUs: the margin to the limit, and how far beyond the limit throttling begins."""
    margin = nvml.nvmlDeviceGetMarginTemperature(handle)
    limit = nvml.nvmlDeviceGetFieldValues(handle, [(SLOWDOWN_MARGIN, 0)])[0]
    is_told = limit.nvmlReturn == nvml_calls.SUCCESS
    beyond = nvml_calls.field_number(nvml, limit) if is_told else 0
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
    (nvml_calls.memory_2, nvml_calls.memory_1),
    _OLD_DRIVER,
)
POWER = question("power_w", "nvmlDeviceGetPowerUsage", convert=watts)
"""Since Ampere (except GA100) the mean of the last second."""
ENERGY = question("energy_mj", "nvmlDeviceGetTotalEnergyConsumption")
"""Since the driver was loaded."""
BUSY = Question(("sm_busy_pct", "memory_busy_pct"), (nvml_calls.busy,))
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
    question("encoder_pct", "nvmlDeviceGetEncoderUtilization", convert=first_share),
    question("decoder_pct", "nvmlDeviceGetDecoderUtilization", convert=first_share),
)

MIG_MODE = question("mig_mode", "nvmlDeviceGetMigMode", convert=current_mode)
SELDOM: tuple[Question, ...] = (
    question(
        "power_limit_w",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementLimit",
        convert=watts,
    ),
    question("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", convert=watts),
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
    question("gpu_instance_id", "nvmlDeviceGetGpuInstanceId"),
    question("compute_instance_id", "nvmlDeviceGetComputeInstanceId"),
)
"""Of MIG instances, once."""
