"""Every metric once: its key, unit, name and hue, how it is drawn and stored.

A second table of metrics would put one question, how full a box is, in two places. Their answers would drift
apart, and two screens would draw one container with two scales.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from gputui.model.absent import Missing
from gputui.model.machine import Machine
from gputui.model.telemetry import HOST, Column, TelemetryFormat, Value, sane
from gputui.model.units import format_bytes, three_digits, with_prefix

Values = Mapping[str, Value]
ABSENT = "–"
_FAR_BEYOND = 1.5


def number(values: Values, key: str) -> float | None:
    """A value as a number, None if it is absent, text or not finite."""
    value = values.get(key)
    return value if isinstance(value, (float, int)) and isfinite(value) else None


def word(values: Values, key: str) -> str:
    """A text value, empty if there is none."""
    value = values.get(key)
    return value if isinstance(value, str) else ""


# Values as text


def with_unit(value: float | None, unit: str) -> str:
    """A value with its unit: `98 %`, `690 W`, `1.62 GHz`, `71 °C`, `210 MB/s`, `112.4 GiB`, `4.4 cores`."""
    if value is None:
        return ABSENT
    if unit == "B":
        return _memory(value)
    if unit == "B/s":
        digits, prefix = with_prefix(value) if value >= 1 else ("0", "")
        return f"{digits} {prefix}B/s"
    if unit == "MHz" and value >= 999.5:
        return f"{value / 1000:.2f} GHz"
    if unit == "°C":
        return f"{value:.0f} °C"
    if unit == "cores":
        return f"{three_digits_of(value / 100)} cores"
    return f"{value:.0f} {unit}" if unit else three_digits(value)


def three_digits_of(value: float | None) -> str:
    """`120`, `45`, `4.3`: for columns whose unit is in the heading."""
    if value is None:
        return ABSENT
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


GIB = 2.0**30
"""Bytes in the unit of columns of memory."""
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def _memory(count: float) -> str:
    for scale, unit in _BINARY:
        if count >= scale * 0.9995:
            decimals = {"T": 2, "G": 1}.get(unit[0], 0)
            return f"{count / scale:.{decimals}f} {unit}"
    return f"{count:.0f} B"


def memory_of(used: float | None, total: float | None) -> str:
    """`61.0 of 276.0 GiB`, `0.9 of 140.4 GiB`; two units only if the total has another prefix than giga."""
    whole = with_unit(total, "B")
    if used is None or total is None:
        return with_unit(used, "B") if total is None else f"{ABSENT} of {whole}"
    unit = whole.rpartition(" ")[2]
    amount, _, own_unit = _memory(used).rpartition(" ")
    if unit == own_unit:
        return f"{amount} of {whole}"
    if unit[0] != "G":
        return f"{amount} {own_unit} of {whole}"
    part = used / next(scale for scale, name in _BINARY if name == unit)
    return f"{part:.1f} of {whole}" if part >= 0.05 or not used else f"<0.1 of {whole}"


# The metrics


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is read of a device again and again."""

    key: str
    """Of its value, with the unit it is read in."""
    name: str
    """One word, or two: what every screen and report calls it."""
    unit: str
    """Of the numbers that are shown, as `with_unit` knows them: `MHz`, `B`; `cores` of a hundredth."""
    hue: str
    """Of its charts, one of `theme.FAMILIES`; empty for what has no chart."""
    title: str
    code: str = ""
    """How a run stores it: `f` for a float, `Q` for a counter or bit set; empty if it does not."""
    sharing: str = ""
    """What `gputui share` copies of that: `kept`, `counter` for what it grew by, or empty for nothing."""
    id: str = ""
    """As in the settings of the Monitor; empty for what it has no chart of."""
    rank: int = 0
    """Place among the charts of a run, 1 first; 0 for none."""
    full: tuple[str, ...] = ()
    """Keys of limits, the highest of which fills a chart. Without any it is 100 %, or what was seen."""
    mark: str = ""
    """Key of a limit that is a line in the chart where it is below what fills it."""
    limit: str = "of"
    """The word before its limit."""
    also: str = ""
    """Key of a second value, which is added."""
    scale: float = 1.0
    """Of a value, in the unit of its limits and of what is shown."""
    column: str = ""
    """Of the result file, where it is not the key; its values are in units of `column_unit`."""
    column_unit: float = 1.0
    combine: str = "mean"
    """What stands for a span of time: `mean`, `last` or `any`, of bits."""
    scope: str = "gpu"
    """Or `host`."""

    @property
    def stored(self) -> Column:
        """Its column in telemetry and result files."""
        return Column(self.column or self.key, self.code, self.scope)

    def amount(self, values: Values) -> float | None:
        """What is charted."""
        value = number(values, self.key)
        if not self.also:
            return value
        other = number(values, self.also)
        return other if value is None else value if other is None else value + other

    def full_scale(self, limits: Values) -> float | None:
        """The upper end of chart and bar; None if nothing limits it."""
        if self.unit == "%":
            return 100.0
        known = [limit for key in self.full if (limit := number(limits, key))]
        return max(known) / self.scale if known else None

    def top(self, limits: Values, highest: float) -> float:
        """The upper end of a chart in which this is the highest value.

        Values far beyond their limit are not of what it limits: in a container, older versions recorded the
        whole host.
        """
        full = self.full_scale(limits)
        if full and highest <= _FAR_BEYOND * full:
            return full
        # A clock is drawn to its own highest value: a dip then shows, and rounding up would look like a loss.
        return highest or 1.0 if self.unit == "MHz" else round_ceiling(highest)

    def mark_at(self, limits: Values) -> float | None:
        """Where a chart has a line: at a limit that was lowered."""
        limit, full = number(limits, self.mark), self.full_scale(limits)
        return limit if limit is not None and full is not None and limit < full - 0.5 else None

    def text(self, value: float | None) -> str:
        """A value with its unit: `636 W`, `117.8 GiB`."""
        return with_unit(value, self.unit)

    def axis(self, top: float) -> str:
        """The upper end of a chart, in few cells: `140 GiB`, `500 MB/s`."""
        if self.unit == "B":
            return f"{three_digits_of(top / GIB)} GiB"
        if self.unit == "B/s":
            digits, prefix = with_prefix(top)
            return f"{float(digits):g} {prefix}B/s"
        return f"{top / 100:g} cores" if self.unit == "cores" else self.text(top)

    @property
    def heading(self) -> str:
        """Its name and the unit of `plain`."""
        return self.name if self.unit in ("", "B") else f"{self.name}, {self.unit}"

    def plain(self, value: float) -> str:
        """A value for a table whose heading has the unit; memory has its own. ABSENT for NaN."""
        if not isfinite(value):
            return ABSENT
        if self.unit == "B":
            return format_bytes(value)
        value *= self.scale
        return f"{value:.0f}" if abs(value) >= 1000 else three_digits(value)

    def between(self, low: float, high: float) -> str:
        """The lowest and the highest value with their unit: `1870 to 1900 MHz`."""
        ends = list(dict.fromkeys(map(self.plain, (low, high))))
        return " to ".join(ends) + ("" if self.unit == "B" else f" {self.unit}".rstrip())

    def limit_text(self, limits: Values, after: str = "", *, is_brief: bool = False) -> str:
        """Its limit in words: `cap 500 W`, `slows at 87 °C`, `of 140.4`; empty if there is none.

        `is_brief` says `of` of every limit.
        Behind `of` a unit is left out that the value has, `after` which it stands.
        """
        limit = number(limits, self.mark) or self.full_scale(limits)
        if limit is None or not self.full:
            return ""
        what = "of" if is_brief else self.limit
        text = self.axis(limit) if self.unit == "cores" else self.text(limit)
        return f"{what} {without_unit(text, after) if what == 'of' else text}"

    def in_words(self, values: Values) -> str:
        """Its name, value and limit for a line of text: `power 636 of 700 W`; empty without a value."""
        amount, limit = self.amount(values), number(values, self.mark) or self.full_scale(values)
        if amount is None:
            return ""
        if self.unit == "B":
            return f"{self.name} {memory_of(amount, limit)}"
        text, _, unit = self.text(amount).rpartition(" ")
        if limit is None or self.limit == "slows at" or not self.full:
            return f"{self.name} {self.text(amount)}"
        whole, _, unit_of_limit = self.axis(limit).rpartition(" ")
        return f"{self.name} {text if unit == unit_of_limit else f'{text} {unit}'} of {whole} {unit_of_limit}"


def without_unit(text: str, after: str) -> str:
    """A value behind another one, without the unit that both have."""
    amount, _, unit = text.rpartition(" ")
    return amount if amount and after.endswith(f" {unit}") else text


def round_ceiling(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 ... at or above a value: the top of a chart without a limit."""
    if value <= 1:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1.0, 2.0, 5.0, 10.0) if step * decade >= value * 0.999999)


METRICS: tuple[Metric, ...] = (
    Metric(
        "sm_busy_pct", "busy", "%", "compute", "share of time with a kernel running",
        code="f", sharing="kept", id="busy", rank=5,
    ),
    Metric(
        "memory_busy_pct", "memory traffic", "%", "memory", "share of time with memory traffic",
        code="f", sharing="kept",
    ),
    Metric(
        "memory_used_bytes", "memory", "B", "memory", "GPU memory in use",
        code="f", sharing="kept", id="memory", rank=4, full=("memory_total_bytes",),
        column="memory_used_mib", column_unit=2.0**20,
    ),
    Metric(
        "power_w", "power", "W", "power", "power drawn now",
        code="f", sharing="kept", id="power", rank=1, full=("power_limit_w", "power_limit_default_w"),
        mark="power_limit_w", limit="cap",
    ),
    Metric(
        "temperature_c", "temperature", "°C", "clock", "temperature of the chip",
        code="f", sharing="kept", id="temperature", rank=3, full=("temperature_limit_c",), limit="slows at",
    ),
    Metric(
        "sm_clock_mhz", "clock", "MHz", "clock", "clock of the processors",
        code="f", sharing="kept", id="clock", rank=2, full=("sm_clock_max_mhz",),
    ),
    Metric(
        "memory_clock_mhz", "memory clock", "MHz", "clock", "clock of the memory",
        code="f", sharing="kept", id="memory-clock", full=("memory_clock_max_mhz",),
    ),
    Metric(
        "throttle_bits", "slowed by", "", "", "clocks-event reasons, NVML bit set",
        code="Q", sharing="kept", combine="any",
    ),
    Metric(
        "energy_mj", "energy", "", "", "energy counter since the driver was loaded",
        code="Q", sharing="counter", combine="last",
    ),
    Metric(
        "compute_process_count", "processes", "", "compute", "processes that compute on it",
        code="f", sharing="kept",
    ),
    Metric("gpm_sm_active_pct", "sm", "%", "compute", "processors with work, on average", id="sm"),
    Metric("gpm_tensor_pct", "tensor", "%", "compute", "tensor cores at work", id="tensor"),
    Metric("gpm_dram_pct", "dram", "%", "memory", "share of the memory bandwidth in use", id="dram"),
    Metric(
        "pcie_rx_bytes_per_s", "PCIe", "B/s", "link", "bytes over PCIe, both ways",
        id="pcie", also="pcie_tx_bytes_per_s",
    ),
    Metric(
        "nvlink_rx_bytes_per_s", "NVLink", "B/s", "link", "bytes over NVLink, both ways",
        id="nvlink", also="nvlink_tx_bytes_per_s",
    ),
    Metric("encoder_pct", "video", "%", "compute", "encoder and decoder at work", id="video"),
    Metric(
        "cpu_busy_pct", "CPU", "cores", "link", 
        "CPU time used of what this box may use, 100 per logical CPU",
        code="f", sharing="kept", id="host-cpu", rank=1, full=("cpu_limit_cores",), scale=0.01, scope="host",
    ),
    Metric(
        "cpu_steal_pct", "CPU stolen", "%", "link", "CPU time taken by the hypervisor, 100 per logical CPU",
        code="f", sharing="kept", scope="host",
    ),
    Metric(
        "memory_used_bytes", "memory", "B", "memory", "host memory in use, caches not counted",
        code="Q", sharing="kept", id="host-memory", rank=3, full=("memory_total_bytes",), combine="last",
        scope="host",
    ),
    Metric(
        "load_1min", "load", "", "link", "load average over one minute",
        code="f", sharing="kept", rank=4, scope="host",
    ),
    Metric(
        "cpu_clock_mhz", "clock", "MHz", "clock", "mean clock of the logical CPUs",
        code="f", sharing="kept", rank=2, scope="host",
    ),
    Metric(
        "disk_read_bytes_per_s", "disk", "B/s", "link", "bytes from and to disks",
        id="host-disk", also="disk_write_bytes_per_s", scope="host",
    ),
    Metric(
        "network_rx_bytes_per_s", "net", "B/s", "link", "bytes from and to networks",
        id="host-network", also="network_tx_bytes_per_s", scope="host",
    ),
)  # fmt: skip
STORED: tuple[Metric, ...] = tuple(metric for metric in METRICS if metric.code)
"""Those of runs, in the order of their columns."""
CURRENT = TelemetryFormat([metric.stored for metric in STORED])
"""The telemetry file that this version writes."""
_RANKED = sorted((metric for metric in METRICS if metric.rank), key=lambda metric: metric.rank)


def charted(device: int) -> tuple[Metric, ...]:
    """The metrics of a run's device that have a chart, the most important first."""
    scope = "host" if device == HOST else "gpu"
    return tuple(metric for metric in _RANKED if metric.scope == scope)


def metric_named(key: str, device: int) -> Metric:
    """Raises KeyError for an unknown one."""
    return _BY_KEY["host" if device == HOST else "gpu", key]


_BY_KEY = {(metric.scope, metric.key): metric for metric in METRICS}


def live_values(stored: Mapping[str, float | int]) -> dict[str, float | int]:
    """Values of a telemetry file under the keys and in the units of a live reading."""
    renamed = {metric.column: metric for metric in STORED if metric.column}
    return {
        (renamed[column].key if column in renamed else column): value * renamed[column].column_unit
        if column in renamed
        else value
        for column, value in stored.items()
    }


def limits_of(machine: Machine | None, device: int) -> dict[str, Value]:
    """What a machine says of the limits of a device, under the keys that a live reading has for them."""
    if machine is None:
        return {}
    if device == HOST:
        return _plausible(
            name=machine.cpu.model,
            cpu_limit_cores=machine.cpu.usable_threads,
            memory_total_bytes=machine.memory.usable_bytes,
        )
    gpu = machine.gpu(device)
    if gpu is None:
        return {}
    return _plausible(
        name=gpu.name,
        memory_total_bytes=gpu.memory_bytes,
        power_limit_w=gpu.power_limit_w,
        power_limit_default_w=gpu.power_default_limit_w,
        temperature_limit_c=gpu.temperature_limit_c,
        pcie_generation_max=gpu.pcie_generation_max,
        pcie_width=gpu.pcie_width,
        pcie_width_max=gpu.pcie_width_max,
    )


def _plausible(**values: Value) -> dict[str, Value]:
    return {
        key: value if isinstance(value, Missing) else sane(key, value, "the file")
        for key, value in values.items()
    }
