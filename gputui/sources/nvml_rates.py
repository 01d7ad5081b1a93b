"""Values that cover the time between two readings: counters in field values, and GPM metrics."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import Value
from gputui.sources import nvml_calls
from gputui.sources.nvml_calls import (
    UNREPORTED,
    Asker,
    DriverGone,
    GpuLost,
    Values,
    check_alive,
    nvml_reason,
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


def _throttle_fields(driver: tuple[int, ...]) -> tuple[int, ...]:
    """Time throttled by software for heat, by hardware for heat, and by the power brake.

    nvml.h renumbered them in 580.82, and reused the old numbers.
    """
    if driver >= (580, 82):
        return 269, 270, 271
    return (251, 252, 253) if driver >= (575,) else ()


class Fields:
    """The field values of one GPU, without unsupported ones."""

    def __init__(self, asker: Asker, driver: tuple[int, ...]) -> None:
        self._asker = asker
        links = (_NVLINK_TX_KIB, _NVLINK_RX_KIB)
        newer = _throttle_fields(driver)
        self._wanted = [(number, _ALL_LINKS * (number in links)) for number in (*_FIELDS, *newer)]
        """Number and scope."""
        self._throttled: dict[str, tuple[tuple[int, ...], ...]] = {
            "throttled_power_ns": ((_POWER_CAP_NS, *newer[2:]),),
            "throttled_thermal_ns": (newer[:2], (_THERMAL_NS,)),
            "throttled_other_ns": ((_SYNC_BOOST_NS, _BOARD_NS, _RELIABILITY_NS),),
        }
        """For each metric, the fields whose sum it is; the next ones if none of them is supported."""

    def read(self) -> FieldValues:
        """All of them now; raises DriverGone or GpuLost."""
        values: dict[int, float | int | Missing] = {}
        if not self._wanted:
            return values
        nvml = self._asker.nvml
        try:
            answers = nvml.nvmlDeviceGetFieldValues(self._asker.handle, self._wanted)
        except nvml.NVMLError as error:
            check_alive(error.value)
            values |= {number: Missing(nvml_reason(error.value)) for number, _ in self._wanted}
            if error.value in nvml_calls.NEVER_AGAIN:
                self._wanted = []
            return values
        for (number, _), answer in zip(self._wanted, answers, strict=True):
            code = answer.nvmlReturn
            if code == nvml_calls.SUCCESS:
                values[number] = getattr(answer.value, nvml_calls.UNION_MEMBERS[answer.valueType])
                continue
            check_alive(code)
            # A driver answers "invalid argument" for a field that it does not know.
            if code not in nvml_calls.NEVER_AGAIN and code != nvml_calls.INVALID_ARGUMENT:
                values[number] = Missing(nvml_reason(code))
        pcie = [values[number] for number in (_PCIE_TX_BYTES, _PCIE_RX_BYTES) if number in values]
        if pcie and all(not isinstance(count, Missing) and count < _SURELY_WIDE for count in pcie):
            values = {n: value for n, value in values.items() if n not in (_PCIE_TX_BYTES, _PCIE_RX_BYTES)}
        if len(values) < len(self._wanted):
            self._wanted = [(number, scope) for number, scope in self._wanted if number in values]
        return values

    def throttled(self, fields: FieldValues) -> Values:
        """For how long each kind of cause has throttled the GPU since the driver was loaded."""
        return {key: _first_sum(fields, counters) for key, counters in self._throttled.items()}


def _first_sum(fields: FieldValues, alternatives: Sequence[Sequence[int]]) -> Value:
    """Of the first counters of which any is supported."""
    for numbers in alternatives:
        found = [fields[number] for number in numbers if number in fields]
        if found:
            reasons = [value for value in found if isinstance(value, Missing)]
            return (
                reasons[0]
                if reasons
                else sum(int(value) for value in found if not isinstance(value, Missing))
            )
    return UNREPORTED


class CounterRate:
    """Converts a counter to a rate, over at least 0.2 s."""

    def __init__(self) -> None:
        self._base: tuple[int, float] | None = None
        self._last: float | Missing = SECOND

    def of(self, count: float, t_ns: int) -> float | Missing:
        """The rate per second since the previous reading."""
        if self._base is None or count < self._base[1]:
            self._last = SECOND if self._base is None else _BEGAN_AGAIN
            self._base = (t_ns, count)
        elif t_ns - self._base[0] >= _RATE_OVER_NS:
            self._last = (count - self._base[1]) / (t_ns - self._base[0]) * 1e9
            self._base = (t_ns, count)
        return self._last


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

    def __init__(self, asker: Asker, instance: Value | None = None) -> None:
        self._asker = asker
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
            except self._asker.nvml.NVMLError as error:
                check_alive(error.value)
                self._base_ns = None
                if error.value not in nvml_calls.NEVER_AGAIN:
                    return self._all(Missing(nvml_reason(error.value)))
                self._off = self._why_not()
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
            if not self._asker.nvml.nvmlGpmQueryDeviceSupport(self._asker.handle).isSupportedDevice:
                self._off = self._why_not()
                return self._all(self._off)
            self._samples = [self._asker.nvml.nvmlGpmSampleAlloc(), self._asker.nvml.nvmlGpmSampleAlloc()]
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
            major, _ = self._asker.nvml.nvmlDeviceGetCudaComputeCapability(self._asker.handle)
        except self._asker.nvml.NVMLError as error:
            check_alive(error.value)
            return UNREPORTED
        return _REFUSED if major >= _FIRST_WITH_GPM else _NO_GPM

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._asker.nvml.nvmlGpmSampleGet(self._asker.handle, sample)
        else:
            self._asker.nvml.nvmlGpmMigSampleGet(self._asker.handle, self._instance, sample)

    def _between(self, older: Any, newer: Any) -> Values:
        if self._request is None:
            self._request = request = self._asker.nvml.c_nvmlGpmMetricsGet_t()
            request.version = self._asker.nvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(self._metrics)
            metrics = request.metrics
            self._answers = {key: metrics[place] for place, key in enumerate(self._metrics)}
            for key, number in self._metrics.items():
                self._answers[key].metricId = number
        self._request.sample1, self._request.sample2 = older, newer
        self._asker.nvml.nvmlGpmMetricsGet(self._request)
        return {key: self._value(key, answer) for key, answer in self._answers.items()}

    def _value(self, key: str, metric: Any) -> float | Missing:
        if metric.nvmlReturn != self._asker.nvml.NVML_SUCCESS:
            return Missing(nvml_reason(metric.nvmlReturn))
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

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
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
