"""One NVIDIA GPU as the live view reads it: often what moves, seldom what hardly does."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar  # pynvml has no types

from gputui.model import nvml_codes
from gputui.model.absent import Missing
from gputui.model.live import DeviceSample, GpuUse, Value
from gputui.sources import nvml_calls

SELDOM_NS = 8 * 10**9
"""How long limits, links, counts of errors and the layout of MIG are taken to be as they were."""
_METER_NS = 10 * 10**9
_ENERGY_NS = 900 * 10**6
"""The counter loses nothing while it is not read, and is the dearest of the quick calls: 2.6 ms were seen."""
_RATE_OVER_NS = 200 * 10**6
"""A rate over less would be noise: the driver takes its counters a few times a second."""
_GPM_OVER_NS = 100 * 10**6
"""The least that nvml.h asks for between two GPM samples."""
_FIRST_LOOK_US = 10**6
"""Of the use by processes: how far back the first question reaches."""

MIG_NUMBERS = 1000
"""MIG instance n of GPU g has the number 1000 + 16 g + n; no GPU has 16 of them."""
_MIG_PER_GPU = 16

LOST = Missing(nvml_codes.nvml_reason(nvml_codes.GPU_IS_LOST))
_SECOND = Missing("known after the second reading")
_BEGAN_AGAIN = Missing("the driver's counter began again")
_UNREPORTED = Missing(nvml_codes.nvml_reason(nvml_codes.NOT_SUPPORTED))
_NOT_OF_MIG = Missing("the driver does not tell it of a MIG instance")
_OLD_DRIVER = Missing("this NVIDIA driver counts it as used")
_NO_GPM = Missing("only Hopper GPUs and newer measure it")
_OLD_PYNVML = Missing("this pynvml is too old to ask: `pip install -U nvidia-ml-py`")
_GPM_DOES_NOT_TELL = (_NO_GPM, _OLD_PYNVML, _UNREPORTED)
_HOST_MEMORY = Missing("this GPU has no memory of its own, it uses the host's")
_MEASURING = Missing("being measured for the first time")
_TOO_MUCH_USED = Missing("the driver answered more than there is")

_DRIVER_GONE = frozenset({nvml_codes.UNINITIALIZED, nvml_codes.DRIVER_NOT_LOADED, nvml_codes.VERSIONS_DIFFER})

Values = dict[str, Value]
Way = Callable[[Any, Any], Mapping[str, "float | int | str"]]
Answer = TypeVar("Answer")


class DriverGone(Exception):
    """The driver was unloaded or exchanged: nothing can be asked until the library is opened anew."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GpuLost(Exception):
    """The GPU does not answer any more."""


def check_alive(code: int) -> None:
    """Raise DriverGone or GpuLost for a code that means one of them."""
    if code in _DRIVER_GONE:
        raise DriverGone(code)
    if code == nvml_codes.GPU_IS_LOST:
        raise GpuLost


# Values that cannot be


@dataclass(frozen=True, slots=True)
class _Range:
    """What a sane driver answers."""

    least: float
    most: float
    unit: str


_PERCENT = _Range(0, 100, " %")
_WATTS = _Range(0, 10_000, " W")
_CELSIUS = _Range(-60, 200, " °C")
_MEGAHERTZ = _Range(0, 20_000, " MHz")
_LINK = _Range(1, 64, "")
_BYTES = _Range(1, 2**53, " bytes")

_RANGES: dict[str, _Range] = {
    "sm_busy_pct": _PERCENT,
    "memory_busy_pct": _PERCENT,
    "encoder_pct": _PERCENT,
    "decoder_pct": _PERCENT,
    "fan_pct": _Range(0, 200, " %"),  # of the speed meant as the highest: nvml.h allows more
    "power_w": _WATTS,
    "power_limit_w": _Range(1, 10_000, " W"),
    "power_limit_default_w": _Range(1, 10_000, " W"),
    "temperature_c": _CELSIUS,
    "temperature_limit_c": _Range(1, 200, " °C"),
    "sm_clock_mhz": _MEGAHERTZ,
    "sm_clock_max_mhz": _Range(1, 20_000, " MHz"),
    "memory_clock_mhz": _MEGAHERTZ,
    "memory_clock_max_mhz": _Range(1, 20_000, " MHz"),
    "memory_total_bytes": _BYTES,
    "pstate": _Range(0, 15, ""),
    "pcie_generation": _LINK,
    "pcie_generation_max": _LINK,
    "pcie_width": _LINK,
    "pcie_width_max": _LINK,
}


def _sane(key: str, value: float | int | str) -> Value:
    limits = _RANGES.get(key)
    if limits is None or isinstance(value, str) or limits.least <= value <= limits.most:
        return value
    return Missing(f"the driver answered {value:g}{limits.unit}")


def _sane_memory(values: Values) -> None:
    """Of a total that cannot be, nothing is a share; nor is more in use than there is."""
    total, used = values["memory_total_bytes"], values["memory_used_bytes"]
    if isinstance(total, Missing):
        values["memory_used_bytes"] = values["memory_reserved_bytes"] = total
    elif not isinstance(used, (Missing, str)) and not isinstance(total, str) and used > total:
        values["memory_used_bytes"] = _TOO_MUCH_USED


# Questions


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked in one go, and the ways of asking in order of preference."""

    keys: tuple[str, ...]
    ways: tuple[Way, ...]
    otherwise: Missing = _UNREPORTED
    """Why a key is absent from an answer."""


@dataclass(slots=True, eq=False)
class _Asker:
    """Asks questions of one handle, and remembers what need not be asked again."""

    nvml: Any
    handle: Any
    _open: dict[tuple[str, ...], list[Way]] = field(default_factory=dict)
    """By the keys of a question: the ways that are not ruled out."""
    _refused: dict[tuple[str, ...], Missing] = field(default_factory=dict)
    """By the keys of a question without any way left: why."""

    def values(self, questions: Sequence[_Question]) -> Values:
        """The answers, checked; raises DriverGone or GpuLost."""
        values: Values = {}
        for question in questions:
            answer = self._answer(question)
            if isinstance(answer, Missing):
                values.update(dict.fromkeys(question.keys, answer))
            else:
                for key in question.keys:
                    values[key] = _sane(key, answer[key]) if key in answer else question.otherwise
        return values

    def _answer(self, question: _Question) -> Mapping[str, float | int | str] | Missing:
        refused = self._refused.get(question.keys)
        if refused is not None:
            return refused
        ways = self._open.setdefault(question.keys, list(question.ways))
        answer = nvml_calls.ask(self.nvml, self.handle, ways)
        if not isinstance(answer, int):
            return answer
        check_alive(answer)
        reason = Missing(nvml_codes.nvml_reason(answer))
        if not ways:
            self._refused[question.keys] = reason
        return reason

    def forget(self) -> None:
        """Ask everything again: the GPU works in another way now."""
        self._open.clear()
        self._refused.clear()


def _text(ask: Callable[[], str | bytes]) -> str:
    """What the driver answers, whatever its bytes are."""
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


def _number(function: str, key: str) -> Way:
    return lambda nvml, handle: {key: int(getattr(nvml, function)(handle))}


def _watts(function: str, key: str) -> Way:
    return lambda nvml, handle: {key: getattr(nvml, function)(handle) / 1000}


def _share(function: str, key: str) -> Way:
    return lambda nvml, handle: {key: float(getattr(nvml, function)(handle)[0])}


def _clock_max(which: str, key: str) -> Way:
    return lambda nvml, handle: {key: float(nvml.nvmlDeviceGetMaxClockInfo(handle, getattr(nvml, which)))}


def _fan(nvml: Any, handle: Any) -> dict[str, float]:
    return {"fan_pct": float(nvml.nvmlDeviceGetFanSpeed(handle))}


def _slowdown(nvml: Any, handle: Any) -> dict[str, float]:
    slowdown = nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    return {"temperature_limit_c": float(slowdown)}


def _slowdown_by_margin(nvml: Any, handle: Any) -> dict[str, float]:
    """As newer GPUs tell it: how far it is to go, and by how much slowing down begins behind that."""
    margin = nvml.nvmlDeviceGetMarginTemperature(handle)
    limit = nvml.nvmlDeviceGetFieldValues(handle, [(_SLOWDOWN_MARGIN, 0)])[0]
    beyond = nvml_calls.field_number(nvml, limit)
    now = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    return {"temperature_limit_c": float(now + margin - beyond)}


def _ecc(nvml: Any, handle: Any) -> dict[str, int]:
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "ecc_uncorrected_count": nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, nvml.NVML_VOLATILE_ECC)
    }


def _mig_mode(nvml: Any, handle: Any) -> dict[str, int]:
    return {"mig_mode": int(nvml.nvmlDeviceGetMigMode(handle)[0])}


def _violation(key: str, *policies: str) -> Way:
    """Accumulated time by the call that field values replace: it goes with CUDA 14."""

    def way(nvml: Any, handle: Any) -> dict[str, int]:
        return {
            key: sum(
                nvml.nvmlDeviceGetViolationStatus(handle, getattr(nvml, policy)).violationTime
                for policy in policies
            )
        }

    return way


_MEMORY = _Question(
    ("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"),
    (nvml_calls.memory_2, nvml_calls.memory_1),
    _OLD_DRIVER,
)
_POWER = _Question(("power_w",), (nvml_calls.power,))
_ENERGY = _Question(("energy_mj",), (nvml_calls.energy,))

_OFTEN: tuple[_Question, ...] = (
    _Question(("sm_busy_pct", "memory_busy_pct"), (nvml_calls.busy,)),
    _MEMORY,
    _Question(("temperature_c",), (nvml_calls.temperature_v, nvml_calls.temperature)),
    _Question(("sm_clock_mhz",), (nvml_calls.sm_clock,)),
    _Question(("memory_clock_mhz",), (nvml_calls.memory_clock,)),
    _Question(("throttle_bits",), (nvml_calls.event_reasons, nvml_calls.throttle_reasons)),
    _Question(("pstate",), (_number("nvmlDeviceGetPerformanceState", "pstate"),)),
    _Question(("encoder_pct",), (_share("nvmlDeviceGetEncoderUtilization", "encoder_pct"),)),
    _Question(("decoder_pct",), (_share("nvmlDeviceGetDecoderUtilization", "decoder_pct"),)),
)

_SELDOM: tuple[_Question, ...] = (
    _Question(
        ("power_limit_w",),
        (
            _watts("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
            _watts("nvmlDeviceGetPowerManagementLimit", "power_limit_w"),
        ),
    ),
    _Question(
        ("power_limit_default_w",),
        (_watts("nvmlDeviceGetPowerManagementDefaultLimit", "power_limit_default_w"),),
    ),
    _Question(("temperature_limit_c",), (_slowdown, _slowdown_by_margin)),
    _Question(("sm_clock_max_mhz",), (_clock_max("NVML_CLOCK_SM", "sm_clock_max_mhz"),)),
    _Question(("memory_clock_max_mhz",), (_clock_max("NVML_CLOCK_MEM", "memory_clock_max_mhz"),)),
    _Question(("fan_pct",), (_fan,)),
    _Question(("pcie_generation",), (_number("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation"),)),
    _Question(
        ("pcie_generation_max",), (_number("nvmlDeviceGetMaxPcieLinkGeneration", "pcie_generation_max"),)
    ),
    _Question(("pcie_width",), (_number("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width"),)),
    _Question(("pcie_width_max",), (_number("nvmlDeviceGetMaxPcieLinkWidth", "pcie_width_max"),)),
    _Question(("ecc_uncorrected_count",), (_ecc,)),
    _Question(("mig_mode",), (_mig_mode,)),
)

_ONCE: tuple[_Question, ...] = tuple(
    _Question((key,), (way,))
    for key, way in (("name", _name), ("uuid", _uuid), ("driver", _driver), ("pci_address", _pci_address))
)

_VIOLATIONS: dict[str, _Question] = {
    question.keys[0]: question
    for question in (
        _Question(("throttled_power_ns",), (_violation("throttled_power_ns", "NVML_PERF_POLICY_POWER"),)),
        _Question(
            ("throttled_thermal_ns",), (_violation("throttled_thermal_ns", "NVML_PERF_POLICY_THERMAL"),)
        ),
        _Question(
            ("throttled_other_ns",),
            (
                _violation(
                    "throttled_other_ns", "NVML_PERF_POLICY_BOARD_LIMIT", "NVML_PERF_POLICY_RELIABILITY"
                ),
            ),
        ),
    )
}

# Field values: many answers from one call

_ALL_LINKS = 0xFFFFFFFF
"""As the scope of an NVLink counter: the sum of all links."""
_NVLINK_TX_KIB, _NVLINK_RX_KIB = 138, 139
_PCIE_TX_BYTES, _PCIE_RX_BYTES = 197, 198
_POWER_CAP_NS, _THERMAL_NS, _SYNC_BOOST_NS, _BOARD_NS, _RELIABILITY_NS = 74, 75, 76, 77, 79
_SLOWDOWN_MARGIN = 194

_FIELDS: tuple[int, ...] = (
    nvml_calls.POWER_INSTANT,
    _NVLINK_TX_KIB,
    _NVLINK_RX_KIB,
    _PCIE_TX_BYTES,
    _PCIE_RX_BYTES,
    _POWER_CAP_NS,
    _THERMAL_NS,
    _SYNC_BOOST_NS,
    _BOARD_NS,
    _RELIABILITY_NS,
)
"""Those that mean the same in every driver. None that is slow: a batch takes as long as its slowest."""

_LINK_RATES: dict[str, tuple[int, int]] = {
    "pcie_rx_bytes_per_s": (_PCIE_RX_BYTES, 1),
    "pcie_tx_bytes_per_s": (_PCIE_TX_BYTES, 1),
    "nvlink_rx_bytes_per_s": (_NVLINK_RX_KIB, 1024),
    "nvlink_tx_bytes_per_s": (_NVLINK_TX_KIB, 1024),
}
"""Field that counts, and bytes for each count."""


_SURELY_WIDE = 2**32
"""A PCIe counter below may be one of 32 bits: those go round in a fraction of a second, and tell no rate."""


def _throttle_fields(driver: tuple[int, ...]) -> tuple[int, ...]:
    """Time slowed down by software for heat, by hardware for heat, and by the power brake.

    nvml.h numbered them anew in 580.82, and what has the old numbers since then is something else.
    """
    if driver >= (580, 82):
        return 269, 270, 271
    return (251, 252, 253) if driver >= (575,) else ()


def _throttled(newer: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """For each metric, the counters whose sum it is; the next ones where none of them is told."""
    return {
        "throttled_power_ns": ((_POWER_CAP_NS, *newer[2:]),),
        "throttled_thermal_ns": (newer[:2], (_THERMAL_NS,)),
        "throttled_other_ns": ((_SYNC_BOOST_NS, _BOARD_NS, _RELIABILITY_NS),),
    }


@dataclass(slots=True, eq=False)
class _Fields:
    """The field values of one GPU, those that it does not tell left out."""

    nvml: Any
    handle: Any
    wanted: list[tuple[int, int]]
    """Number and scope."""

    def read(self) -> dict[int, float | int | Missing]:
        """By field; one that is not told is not there."""
        if not self.wanted:
            return {}
        try:
            answers = self.nvml.nvmlDeviceGetFieldValues(self.handle, self.wanted)
        except self.nvml.NVMLError as error:
            check_alive(error.value)
            if error.value in nvml_calls.NEVER_AGAIN:
                self.wanted = []
            reason = Missing(nvml_codes.nvml_reason(error.value))
            return {number: reason for number, _ in self.wanted}
        values: dict[int, float | int | Missing] = {}
        untold: list[int] = []
        for (number, _), answer in zip(self.wanted, answers, strict=True):
            try:
                values[number] = nvml_calls.field_number(self.nvml, answer)
            except self.nvml.NVMLError as error:
                check_alive(error.value)
                # Of a field that it has never heard of, a driver says that it is no argument.
                if error.value in nvml_calls.NEVER_AGAIN or error.value == nvml_codes.INVALID_ARGUMENT:
                    untold.append(number)
                else:
                    values[number] = Missing(nvml_codes.nvml_reason(error.value))
        pcie = [values[number] for number in (_PCIE_TX_BYTES, _PCIE_RX_BYTES) if number in values]
        if pcie and all(not isinstance(count, Missing) and count < _SURELY_WIDE for count in pcie):
            untold += _PCIE_TX_BYTES, _PCIE_RX_BYTES
        if untold:
            values = {number: value for number, value in values.items() if number not in untold}
            self.wanted = [(number, scope) for number, scope in self.wanted if number not in untold]
        return values


def _sum(fields: Mapping[int, float | int | Missing], alternatives: Sequence[Sequence[int]]) -> Value | None:
    """Of the first counters of which any is told; None where none is."""
    for numbers in alternatives:
        total, is_told = 0, False
        for number in numbers:
            value = fields.get(number)
            if isinstance(value, Missing):
                return value
            if value is not None:
                total, is_told = total + int(value), True
        if is_told:
            return total
    return None


@dataclass(slots=True, eq=False)
class _Rate:
    """Turns a counter into a rate, over at least 0.2 s."""

    base: tuple[int, float] | None = None
    last: float | Missing = _SECOND

    def of(self, count: float, t_ns: int) -> float | Missing:
        """The rate per second since the reading before."""
        if self.base is None or count < self.base[1]:
            self.last = _SECOND if self.base is None else _BEGAN_AGAIN
            self.base = (t_ns, count)
        elif t_ns - self.base[0] >= _RATE_OVER_NS:
            self.last = (count - self.base[1]) / (t_ns - self.base[0]) * 1e9
            self.base = (t_ns, count)
        return self.last


# GPM: what the SMs did between two samples

_GPM_SHARES: dict[str, int] = {
    "gpm_sm_active_pct": 2,
    "gpm_occupancy_pct": 3,
    "gpm_tensor_pct": 5,
    "gpm_dram_pct": 10,
    "gpm_fp64_pct": 11,
    "gpm_fp32_pct": 12,
    "gpm_fp16_pct": 13,
}
_GPM_RATES: dict[str, int] = {
    "pcie_tx_bytes_per_s": 20,
    "pcie_rx_bytes_per_s": 21,
    "nvlink_rx_bytes_per_s": 60,
    "nvlink_tx_bytes_per_s": 61,
}
"""In MiB per second."""


class _Gpm:
    """GPM metrics of a GPU or MIG instance: each reading against the one before, without waiting."""

    def __init__(self, nvml: Any, handle: Any, instance: int | None) -> None:
        self._nvml = nvml
        self._handle = handle
        """Of the GPU."""
        self._instance = instance
        """Of MIG, or None for the whole GPU."""
        self._metrics = _GPM_SHARES if instance is not None else _GPM_SHARES | _GPM_RATES
        self._off: Missing | None = None
        self._samples: list[Any] = []
        """Two; the first is the older one."""
        self._base_ns: int | None = None
        self._last: Values = {}
        self._request: Any = None

    def read(self, now: Callable[[], int]) -> Values:
        """By key, shares and rates; raises DriverGone or GpuLost."""
        if self._off is None:
            try:
                return self._read(now)
            except self._nvml.NVMLError as error:
                check_alive(error.value)
                self._base_ns = None
                reason = Missing(nvml_codes.nvml_reason(error.value))
                if error.value in nvml_calls.NEVER_AGAIN:
                    self._off = _NO_GPM
                return self._all(reason if self._off is None else self._off)
            except (AttributeError, TypeError):  # an older pynvml lacks it
                self._off = _OLD_PYNVML
        return self._all(self._off)

    def restart(self) -> None:
        """Let the next sample be a first one."""
        self._base_ns = None

    def close(self) -> None:
        """Give the samples back; only while the driver is there."""
        samples, self._samples, self._off = self._samples, [], _NO_GPM
        for sample in samples:
            try:
                self._nvml.nvmlGpmSampleFree(sample)
            except self._nvml.NVMLError:
                return

    def _all(self, reason: Missing) -> Values:
        return dict.fromkeys(self._metrics, reason)

    def _read(self, now: Callable[[], int]) -> Values:
        if not self._samples:
            if not self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                self._off = _NO_GPM
                return self._all(_NO_GPM)
            self._samples = [self._nvml.nvmlGpmSampleAlloc()]
            self._samples.append(self._nvml.nvmlGpmSampleAlloc())
        older, newer = self._samples
        if self._base_ns is None:
            self._take(older)
            self._base_ns = now()
            self._last = self._all(_SECOND)
        elif now() - self._base_ns >= _GPM_OVER_NS:
            self._take(newer)
            self._base_ns = now()
            self._samples = [newer, older]
            self._last = self._between(older, newer)
        return self._last

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance, sample)

    def _between(self, older: Any, newer: Any) -> Values:
        if self._request is None:
            self._request = self._nvml.c_nvmlGpmMetricsGet_t()
        request = self._request
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = older, newer
        for place, number in enumerate(self._metrics.values()):
            request.metrics[place].metricId = number
        self._nvml.nvmlGpmMetricsGet(request)
        return {key: self._value(key, request.metrics[place]) for place, key in enumerate(self._metrics)}

    def _value(self, key: str, metric: Any) -> float | Missing:
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS:
            return Missing(nvml_codes.nvml_reason(metric.nvmlReturn))
        value = float(metric.value)
        if key in _GPM_SHARES:
            # Two counters are not read at exactly the same time: a little more than all is all.
            return min(value, 100.0) if 0 <= value <= 101 else Missing(f"the driver answered {value:g} %")
        sane = math.isfinite(value) and value >= 0
        return value * 2**20 if sane else Missing(f"the driver answered {value:g} MiB/s")


class _PcieMeter:
    """PCIe rates by the call that takes 20 ms for each direction: seldom, and in a thread of its own."""

    _KEYS: tuple[tuple[str, str], ...] = (
        ("pcie_rx_bytes_per_s", "NVML_PCIE_UTIL_RX_BYTES"),
        ("pcie_tx_bytes_per_s", "NVML_PCIE_UTIL_TX_BYTES"),
    )

    def __init__(self, nvml: Any, handle: Any, enter: Callable[[], AbstractContextManager[bool]]) -> None:
        self._nvml = nvml
        self._handle = handle
        self._enter = enter
        self._last: Values = {key: _MEASURING for key, _ in self._KEYS}
        self._measured_ns: int | None = None
        self._is_supported = True
        self._thread: threading.Thread | None = None

    def read(self, t_ns: int) -> Values:
        """What was measured last; a new measurement is begun when it is time."""
        is_due = self._measured_ns is None or t_ns - self._measured_ns >= _METER_NS
        if is_due and self._is_supported and (self._thread is None or not self._thread.is_alive()):
            self._measured_ns = t_ns
            self._thread = threading.Thread(target=self._measure, name="measure PCIe", daemon=True)
            self._thread.start()
        return self._last

    def _measure(self) -> None:
        with self._enter() as may_call:
            if not may_call:
                return
            values: Values = {}
            for key, counter in self._KEYS:
                try:
                    kilobytes = self._nvml.nvmlDeviceGetPcieThroughput(
                        self._handle, getattr(self._nvml, counter)
                    )
                    values[key] = float(kilobytes * 1000)
                except self._nvml.NVMLError as error:
                    values[key] = Missing(nvml_codes.nvml_reason(error.value))
                    self._is_supported &= error.value not in nvml_calls.NEVER_AGAIN
            self._last = values


# Processes


class _Processes:
    """Who uses a GPU or MIG instance, and how much of its SMs."""

    def __init__(
        self, nvml: Any, handle: Any, number: int, *, is_mig: bool, epoch_us: Callable[[], int]
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._number = number
        self._is_mig = is_mig
        self._seen_us = epoch_us() - _FIRST_LOOK_US
        """The newest sample of the driver so far, by its clock."""
        self._listing: dict[str, list[Callable[[Any, Any], list[Any]]]] = {
            "C": [lambda nvml, handle: list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))],
            "G": [lambda nvml, handle: list(nvml.nvmlDeviceGetGraphicsRunningProcesses(handle))],
        }
        # The older call answers nothing on some Blackwell GPUs, so it comes second.
        self._sharing: list[Callable[[Any, Any], list[Any]]] = [
            lambda nvml, handle: list(nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, self._seen_us)),
            lambda nvml, handle: list(nvml.nvmlDeviceGetProcessUtilization(handle, self._seen_us)),
        ]

    def read(self) -> tuple[GpuUse, ...] | Missing:
        """By PID; raises DriverGone or GpuLost."""
        compute = self._list("C")
        if isinstance(compute, Missing):
            return compute
        graphics = self._list("G")
        if isinstance(graphics, Missing):
            graphics = {}  # of a GPU without a picture
        shares = self._shares() if compute or graphics else {}
        return tuple(
            GpuUse(
                self._number,
                pid,
                "C" * (pid in compute) + "G" * (pid in graphics),
                _more(compute.get(pid), graphics.get(pid)),
                shares if isinstance(shares, Missing) else shares.get(pid, 0.0),
            )
            for pid in sorted(compute.keys() | graphics.keys())
        )

    def _list(self, kind: str) -> dict[int, int | None] | Missing:
        """Bytes by PID, None where the driver does not tell them."""
        answer = nvml_calls.ask(self._nvml, self._handle, self._listing[kind])
        if isinstance(answer, int):
            check_alive(answer)
            return Missing(nvml_codes.nvml_reason(answer))
        return {process.pid: process.usedGpuMemory for process in answer}

    def _shares(self) -> dict[int, float | Missing] | Missing:
        """By PID; those that used nothing lately are not there."""
        if self._is_mig:
            return _NOT_OF_MIG
        answer = nvml_calls.ask(self._nvml, self._handle, self._sharing)
        if isinstance(answer, int):
            if answer in (nvml_codes.SUCCESS, nvml_codes.NOT_FOUND):
                return {}  # nobody used it since it was last asked
            check_alive(answer)
            return Missing(nvml_codes.nvml_reason(answer))
        newest: dict[int, Any] = {}
        for sample in answer:
            # Entries of long ago come too: what they say is not of now.
            is_new = sample.timeStamp > self._seen_us
            if is_new and (sample.pid not in newest or sample.timeStamp > newest[sample.pid].timeStamp):
                newest[sample.pid] = sample
        self._seen_us = max((self._seen_us, *(sample.timeStamp for sample in newest.values())))
        return {
            pid: float(sample.smUtil)
            if sample.smUtil <= 100
            else Missing(f"the driver answered {sample.smUtil} %")
            for pid, sample in newest.items()
        }


def _more(one: int | None, other: int | None) -> int | Missing:
    """A process that computes and draws stands in both lists with all it has."""
    told = [value for value in (one, other) if value is not None]
    return max(told) if told else Missing("the driver does not tell it here")


# The whole


class _Instance:
    """One MIG instance: its memory and what its SMs do; all else is told of the GPU alone."""

    def __init__(
        self, nvml: Any, gpu_handle: Any, handle: Any, number: int, once: Values, epoch_us: Callable[[], int]
    ) -> None:
        self.number = number
        self.once = once
        self.processes = _Processes(nvml, handle, number, is_mig=True, epoch_us=epoch_us)
        self._asker = _Asker(nvml, handle)
        self.gpm: _Gpm | None = None
        try:
            self.gpm = _Gpm(nvml, gpu_handle, nvml.nvmlDeviceGetGpuInstanceId(handle))
        except nvml.NVMLError as error:
            check_alive(error.value)

    def read(self, clock: Callable[[], int]) -> Values:
        """Its values now."""
        values = {**self.once, "sm_busy_pct": _NOT_OF_MIG, **self._asker.values((_MEMORY,))}
        _sane_memory(values)
        if self.gpm is not None:
            values |= self.gpm.read(clock)
        return values


class NvmlGpu:
    """One GPU and its MIG instances. Used by one thread at a time, and never while the library is closed."""

    NAME = "nvml"

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        number: int,
        *,
        session: int,
        enter: Callable[[], AbstractContextManager[bool]],
        clock: Callable[[], int],
        epoch_us: Callable[[], int],
        driver: tuple[int, ...],
        host_memory_bytes: int,
    ) -> None:
        self.number = number
        self.session = session
        """Which opening of the library the handle is of."""
        self.handle = handle
        self._nvml = nvml
        self._clock = clock
        self._epoch_us = epoch_us
        self._host_memory_bytes = host_memory_bytes
        self._asker = _Asker(nvml, handle)
        newer = _throttle_fields(driver)
        self._throttled = _throttled(newer)
        links = (_NVLINK_TX_KIB, _NVLINK_RX_KIB)
        self._fields = _Fields(
            nvml, handle, [(number, _ALL_LINKS if number in links else 0) for number in (*_FIELDS, *newer)]
        )
        self._energy: Values = {}
        self._energy_ns: int | None = None
        self._gpm = _Gpm(nvml, handle, None)
        self._meter = _PcieMeter(nvml, handle, enter)
        self._processes = _Processes(nvml, handle, number, is_mig=False, epoch_us=epoch_us)
        self._rates = {key: _Rate() for key in _LINK_RATES}
        self._once: Values = {}
        self._seldom: Values = {}
        self._seldom_ns: int | None = None
        self._instances: dict[int, _Instance] = {}
        self._lost_ns: int | None = None

    def samples(self) -> tuple[DeviceSample, ...]:
        """The GPU now, and each MIG instance behind it; raises DriverGone."""
        t_ns = self._clock()
        if self._lost_ns is not None and t_ns - self._lost_ns < SELDOM_NS:
            return self.without_values(LOST)
        try:
            values = self._read(t_ns)
            of_instances = [(each, each.read(self._clock)) for each in self._instances.values()]
        except GpuLost:
            self._lost_ns = self._clock()
            self._gpm.restart()
            return self.without_values(LOST)
        self._lost_ns = None
        done_ns = self._clock()
        return (
            DeviceSample(self.number, self.NAME, done_ns, values, problem=self._problem(values)),
            *(
                DeviceSample(each.number, self.NAME, done_ns, own, parent=self.number)
                for each, own in of_instances
            ),
        )

    def without_values(self, problem: Missing) -> tuple[DeviceSample, ...]:
        """What is left to say where nothing can be read: which GPU it is, and why."""
        t_ns = self._clock()
        return (
            DeviceSample(self.number, self.NAME, t_ns, self._once, problem=problem),
            *(
                DeviceSample(each.number, self.NAME, t_ns, each.once, parent=self.number, problem=problem)
                for each in self._instances.values()
            ),
        )

    def processes(self) -> tuple[GpuUse, ...] | Missing:
        """Who uses the GPU or any of its instances; raises DriverGone."""
        if self._lost_ns is not None:
            return LOST
        try:
            if not self._instances:
                return self._processes.read()
            uses: list[GpuUse] = []
            for instance in self._instances.values():
                own = instance.processes.read()
                if isinstance(own, Missing):
                    return own
                uses += own
            return tuple(uses)
        except GpuLost:
            return LOST

    def close(self) -> None:
        """Give back what was taken of the library, which must be open still."""
        for gpm in (self._gpm, *(each.gpm for each in self._instances.values())):
            if gpm is not None:
                gpm.close()

    def _read(self, t_ns: int) -> Values:
        values = self._asker.values(_OFTEN)
        _sane_memory(values)
        fields = self._fields.read()
        fields_ns = self._clock()
        if self._seldom_ns is None or t_ns - self._seldom_ns >= SELDOM_NS:
            self._read_seldom(fields)
            self._seldom_ns = t_ns
        if self._energy_ns is None or t_ns - self._energy_ns >= _ENERGY_NS:
            self._energy, self._energy_ns = self._asker.values((_ENERGY,)), t_ns
        values |= self._energy
        values |= self._power(fields)
        values |= {
            key: total for key, ways in self._throttled.items() if (total := _sum(fields, ways)) is not None
        }
        gpm = self._gpm.read(self._clock)
        values |= {key: gpm[key] for key in _GPM_SHARES}
        values |= {key: self._rate(key, fields, fields_ns, gpm) for key in _LINK_RATES}
        self._own_memory(values)
        return {**self._once, **self._seldom, **values}

    def _read_seldom(self, fields: Mapping[int, float | int | Missing]) -> None:
        unknown = [question for question in _ONCE if not isinstance(self._once.get(question.keys[0]), str)]
        self._once = {**self._once, **self._asker.values(unknown)}
        seldom = self._asker.values(_SELDOM)
        uncounted = [key for key, ways in self._throttled.items() if _sum(fields, ways) is None]
        seldom |= self._asker.values([_VIOLATIONS[key] for key in uncounted])
        if "mig_mode" in self._seldom and seldom["mig_mode"] != self._seldom["mig_mode"]:
            self._asker.forget()
        self._seldom = seldom
        self._instances = dict(self._found_instances()) if seldom["mig_mode"] == 1 else {}

    def _found_instances(self) -> Iterator[tuple[int, _Instance]]:
        try:
            most = self._nvml.nvmlDeviceGetMaxMigDeviceCount(self.handle)
        except self._nvml.NVMLError as error:
            check_alive(error.value)
            return
        for place in range(min(most, _MIG_PER_GPU)):
            try:
                handle = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, place)
            except self._nvml.NVMLError as error:
                check_alive(error.value)
                continue
            once = _Asker(self._nvml, handle).values(_ONCE[:2])
            number = MIG_NUMBERS + _MIG_PER_GPU * self.number + place
            known = self._instances.get(number)
            if known is None or known.once != once:
                known = _Instance(self._nvml, self.handle, handle, number, once, self._epoch_us)
            yield number, known

    def _power(self, fields: Mapping[int, float | int | Missing]) -> Values:
        milliwatts = fields.get(nvml_calls.POWER_INSTANT)
        if milliwatts is None:
            return self._asker.values((_POWER,))
        if isinstance(milliwatts, Missing):
            return {"power_w": milliwatts}
        return {"power_w": _sane("power_w", milliwatts / 1000)}

    def _rate(self, key: str, fields: Mapping[int, float | int | Missing], t_ns: int, gpm: Values) -> Value:
        """By a counter, else by GPM, else by the slow call."""
        number, unit = _LINK_RATES[key]
        count = fields.get(number)
        if isinstance(count, Missing):
            return count
        if count is not None:
            return self._rates[key].of(count * unit, t_ns)
        by_gpm = gpm[key]
        if by_gpm not in _GPM_DOES_NOT_TELL:
            return by_gpm
        return self._meter.read(t_ns)[key] if key.startswith("pcie") else _UNREPORTED

    def _own_memory(self, values: Values) -> None:
        """A GPU without memory of its own reports the host's: that is not shown as its own."""
        total = values["memory_total_bytes"]
        if isinstance(total, (Missing, str)):
            values["is_memory_shared"] = total
            return
        is_shared = abs(total - self._host_memory_bytes) < 2**20
        values["is_memory_shared"] = int(is_shared)
        if is_shared:
            values |= dict.fromkeys(_MEMORY.keys, _HOST_MEMORY)

    def _problem(self, values: Values) -> Missing | None:
        """Why nothing is known of the GPU but its name, if so."""
        if any(not isinstance(value, Missing) for key, value in values.items() if key not in self._once):
            return None
        reason = values["memory_total_bytes"]
        return Missing(
            f"nothing of it can be read: {reason.reason if isinstance(reason, Missing) else reason}"
        )
