"""Values that cover the time between two readings: counters in field values, and GPM metrics."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import Value
from gputui.sources import nvml_calls
from gputui.sources.nvml_live.questions import (
    UNREPORTED,
    Asker,
    DriverGone,
    GpuLost,
    Values,
    check_alive,
    question,
)

_RATE_OVER_NS = 200 * 10**6
"""A rate over less would be noise: the driver updates its counters a few times a second."""
_GPM_OVER_NS = 100 * 10**6
"""The minimum that nvml.h requires between two GPM samples."""
_METER_NS = 10 * 10**9

SECOND = Missing("known after the second reading")
_BEGAN_AGAIN = Missing("the driver's counter began again")
_NO_GPM = Missing("only Hopper GPUs and newer measure it")
_REFUSED = Missing(
    "this GPU can measure it, but its driver refuses here: a virtual GPU, or the cloud forbids it"
)
_FIRST_WITH_GPM = 9
"""Compute capability of Hopper."""
_OLD_PYNVML = Missing("this pynvml is too old to ask: `pip install -U nvidia-ml-py`")
GPM_UNAVAILABLE = (_NO_GPM, _REFUSED, _OLD_PYNVML, UNREPORTED)
_MEASURING = Missing("being measured for the first time")

# Field values: many answers from one call

FieldValues = Mapping[int, "float | int | Missing"]
"""By field; unsupported ones are absent."""

_ALL_LINKS = 0xFFFFFFFF
"""As the scope of an NVLink counter: the sum of all links."""
_NVLINK_TX_KIB, _NVLINK_RX_KIB = 138, 139
_PCIE_TX_BYTES, _PCIE_RX_BYTES = 197, 198
_POWER_CAP_NS, _THERMAL_NS, _SYNC_BOOST_NS, _BOARD_NS, _RELIABILITY_NS = 74, 75, 76, 77, 79

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
"""Those that mean the same in every driver, and no slow ones: a batch takes as long as its slowest."""

LINK_RATES: dict[str, tuple[int, int]] = {
    "pcie_rx_bytes_per_s": (_PCIE_RX_BYTES, 1),
    "pcie_tx_bytes_per_s": (_PCIE_TX_BYTES, 1),
    "nvlink_rx_bytes_per_s": (_NVLINK_RX_KIB, 1024),
    "nvlink_tx_bytes_per_s": (_NVLINK_TX_KIB, 1024),
}
"""Field of the counter, and bytes per count."""


_SURELY_WIDE = 2**32
"""A smaller PCIe counter may be one of 32 bits: those wrap in a fraction of a second, so they give no
rate."""


def fields_of(driver: tuple[int, ...]) -> list[tuple[int, int]]:
    """Number and scope of the fields to query from a driver of this version."""
    links = (_NVLINK_TX_KIB, _NVLINK_RX_KIB)
    numbers = (*_FIELDS, *_throttle_fields(driver))
    return [(number, _ALL_LINKS if number in links else 0) for number in numbers]


def throttle_counters(driver: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """For each metric, the fields whose sum it is; the next ones if none of them is supported."""
    newer = _throttle_fields(driver)
    return {
        "throttled_power_ns": ((_POWER_CAP_NS, *newer[2:]),),
        "throttled_thermal_ns": (newer[:2], (_THERMAL_NS,)),
        "throttled_other_ns": ((_SYNC_BOOST_NS, _BOARD_NS, _RELIABILITY_NS),),
    }


def _throttle_fields(driver: tuple[int, ...]) -> tuple[int, ...]:
    """Time throttled by software for heat, by hardware for heat, and by the power brake.

    nvml.h renumbered them in 580.82, and reused the old numbers.
    """
    if driver >= (580, 82):
        return 269, 270, 271
    return (251, 252, 253) if driver >= (575,) else ()


@dataclass(slots=True, eq=False)
class Fields:
    """The field values of one GPU, without unsupported ones."""

    nvml: Any
    handle: Any
    wanted: list[tuple[int, int]]
    """Number and scope."""

    def read(self) -> dict[int, float | int | Missing]:
        """By field; unsupported ones are absent."""
        if not self.wanted:
            return {}
        try:
            answers = self.nvml.nvmlDeviceGetFieldValues(self.handle, self.wanted)
        except self.nvml.NVMLError as error:
            check_alive(error.value)
            if error.value in nvml_calls.NEVER_AGAIN:
                self.wanted = []
            reason = Missing(nvml_calls.nvml_reason(error.value))
            return {number: reason for number, _ in self.wanted}
        values: dict[int, float | int | Missing] = {}
        unsupported: list[int] = []
        for (number, _), answer in zip(self.wanted, answers, strict=True):
            code = answer.nvmlReturn
            if code == nvml_calls.SUCCESS:
                values[number] = getattr(answer.value, nvml_calls.UNION_MEMBERS[answer.valueType])
                continue
            check_alive(code)
            # A driver answers "invalid argument" for a field that it does not know.
            if code in nvml_calls.NEVER_AGAIN or code == nvml_calls.INVALID_ARGUMENT:
                unsupported.append(number)
            else:
                values[number] = Missing(nvml_calls.nvml_reason(code))
        pcie = [values[number] for number in (_PCIE_TX_BYTES, _PCIE_RX_BYTES) if number in values]
        if pcie and all(not isinstance(count, Missing) and count < _SURELY_WIDE for count in pcie):
            unsupported += _PCIE_TX_BYTES, _PCIE_RX_BYTES
        if unsupported:
            values = {number: value for number, value in values.items() if number not in unsupported}
            self.wanted = [(number, scope) for number, scope in self.wanted if number not in unsupported]
        return values


def first_sum(
    fields: Mapping[int, float | int | Missing], alternatives: Sequence[Sequence[int]]
) -> Value | None:
    """Of the first counters of which any is supported; None if none is."""
    for numbers in alternatives:
        total, is_supported = 0, False
        for number in numbers:
            value = fields.get(number)
            if isinstance(value, Missing):
                return value
            if value is not None:
                total, is_supported = total + int(value), True
        if is_supported:
            return total
    return None


@dataclass(slots=True, eq=False)
class CounterRate:
    """Converts a counter to a rate, over at least 0.2 s."""

    base: tuple[int, float] | None = None
    last: float | Missing = SECOND

    def of(self, count: float, t_ns: int) -> float | Missing:
        """The rate per second since the previous reading."""
        if self.base is None or count < self.base[1]:
            self.last = SECOND if self.base is None else _BEGAN_AGAIN
            self.base = (t_ns, count)
        elif t_ns - self.base[0] >= _RATE_OVER_NS:
            self.last = (count - self.base[1]) / (t_ns - self.base[0]) * 1e9
            self.base = (t_ns, count)
        return self.last


# GPM: what the SMs did between two samples

GPM_SHARES: dict[str, int] = {
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


class Gpm:
    """GPM metrics of a GPU or MIG instance: each reading relative to the previous one, without waiting."""

    def __init__(self, nvml: Any, handle: Any, instance: Value | None) -> None:
        self._nvml = nvml
        self._handle = handle
        """Of the GPU."""
        self._instance = instance
        """Number of the GPU instance of MIG, or None for the whole GPU."""
        self._metrics = GPM_SHARES if instance is not None else GPM_SHARES | _GPM_RATES
        self._off = instance if isinstance(instance, Missing) else None
        self._samples: list[Any] = []
        """Two; the first is the older one."""
        self._base_ns: int | None = None
        self._last: Values = {}
        self._request: Any = None
        self._answers: dict[str, Any] = {}
        """Parts of the request, by key."""

    def read(self, now: Callable[[], int]) -> Values:
        """Shares and rates by key; raises DriverGone or GpuLost."""
        if self._off is None:
            try:
                return self._read(now)
            except self._nvml.NVMLError as error:
                check_alive(error.value)
                self._base_ns = None
                reason = Missing(nvml_calls.nvml_reason(error.value))
                if error.value in nvml_calls.NEVER_AGAIN:
                    self._off = self._why_not()
                return self._all(reason if self._off is None else self._off)
            except (AttributeError, TypeError):  # an older pynvml lacks it
                self._off = _OLD_PYNVML
        return self._all(self._off)

    def restart(self) -> None:
        """Discard the previous sample."""
        self._base_ns = None

    def _all(self, reason: Missing) -> Values:
        return dict.fromkeys(self._metrics, reason)

    def _read(self, now: Callable[[], int]) -> Values:
        if not self._samples:
            if not self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                self._off = self._why_not()
                return self._all(self._off)
            self._samples = [self._nvml.nvmlGpmSampleAlloc(), self._nvml.nvmlGpmSampleAlloc()]
        older, newer = self._samples
        if self._base_ns is None:
            self._take(older)
            self._base_ns = now()
            self._last = self._all(SECOND)
        elif now() - self._base_ns >= _GPM_OVER_NS:
            self._take(newer)
            self._base_ns = now()
            self._samples = [newer, older]
            self._last = self._between(older, newer)
        return self._last

    def _why_not(self) -> Missing:
        """Whether the GPU lacks it, or only its driver refuses."""
        try:
            major, _ = self._nvml.nvmlDeviceGetCudaComputeCapability(self._handle)
        except self._nvml.NVMLError as error:
            check_alive(error.value)
            return UNREPORTED
        return _REFUSED if major >= _FIRST_WITH_GPM else _NO_GPM

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance, sample)

    def _between(self, older: Any, newer: Any) -> Values:
        if self._request is None:
            self._request = request = self._nvml.c_nvmlGpmMetricsGet_t()
            request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(self._metrics)
            metrics = request.metrics
            self._answers = {key: metrics[place] for place, key in enumerate(self._metrics)}
            for key, number in self._metrics.items():
                self._answers[key].metricId = number
        self._request.sample1, self._request.sample2 = older, newer
        self._nvml.nvmlGpmMetricsGet(self._request)
        return {key: self._value(key, answer) for key, answer in self._answers.items()}

    def _value(self, key: str, metric: Any) -> float | Missing:
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS:
            return Missing(nvml_calls.nvml_reason(metric.nvmlReturn))
        value = float(metric.value)
        if key in GPM_SHARES:
            # Two counters are not read at exactly the same time, so a sum may slightly exceed the total.
            return min(value, 100.0) if 0 <= value <= 101 else Missing(f"the driver answered {value:g} %")
        sane = math.isfinite(value) and value >= 0
        return value * 2**20 if sane else Missing(f"the driver answered {value:g} MiB/s")


# The slow call


_PCIE = tuple(
    question(key, "nvmlDeviceGetPcieThroughput", constant=constant, convert=lambda kilobytes: kilobytes * 1e3)
    for key, constant in (
        ("pcie_rx_bytes_per_s", "NVML_PCIE_UTIL_RX_BYTES"),
        ("pcie_tx_bytes_per_s", "NVML_PCIE_UTIL_TX_BYTES"),
    )
)


class PcieMeter:
    """PCIe rates by the call that takes 20 ms per direction: made rarely, and in a separate thread."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._asker = Asker(nvml, handle)
        self._last: Values = {one.keys[0]: _MEASURING for one in _PCIE}
        self._measured_ns: int | None = None
        self._thread: threading.Thread | None = None

    def read(self, t_ns: int) -> Values:
        """The last measurement; starts a new one when it is due."""
        is_due = self._measured_ns is None or t_ns - self._measured_ns >= _METER_NS
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._measured_ns = t_ns
            self._thread = threading.Thread(target=self._measure, name="measure PCIe", daemon=True)
            self._thread.start()
        return self._last

    def _measure(self) -> None:
        with suppress(DriverGone, GpuLost):  # other calls will tell
            self._last = self._asker.values(_PCIE)
