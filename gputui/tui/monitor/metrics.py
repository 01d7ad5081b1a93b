"""The metrics of the panes: their values, texts and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gputui.model.live import Value
from gputui.model.units import with_prefix

Values = Mapping[str, Value]
ABSENT = "–"


@dataclass(frozen=True, slots=True)
class Units:
    """Units of memory and temperature."""

    memory: str = "GiB"
    """`GiB` (2^30 bytes) or `GB` (10^9)."""
    temperature: str = "C"
    """`C` or `F`."""
    degree: str = "°"
    """Empty if the terminal supports only ASCII."""


Formatter = Callable[[float | None, Units], str]


@dataclass(frozen=True, slots=True)
class PaneMetric:
    """One chart; to add one, add a line to METRICS or HOST_METRICS."""

    id: str
    """As in the settings."""
    label: str
    """One word, or two."""
    title: str
    key: str
    """The value whose reason is shown if it is absent."""
    amount: Callable[[Values], float | None]
    """The charted value."""
    high: Callable[[Values], float | None]
    """The upper end of chart and bar; None for the largest value of the chart."""
    text: Formatter
    """Of the charted value."""
    note: Callable[[Values, Units], str]
    """A reference value; where space is short, parts after a comma are omitted."""
    family: str
    """Its hue: one of `theme.FAMILIES`."""
    axis: Callable[[float, Units], str]
    """The upper end of the chart as text."""
    mark: Callable[[Values], float | None] = lambda values: None
    """A line across the chart, for a limit."""


def number(values: Values, key: str) -> float | None:
    """A value as a number, None if it is absent, text or not finite."""
    value = values.get(key)
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def word(values: Values, key: str) -> str:
    """A text value, empty if there is none."""
    value = values.get(key)
    return value if isinstance(value, str) else ""


def percent(value: float | None, units: Units | None = None) -> str:
    """`98 %`."""
    return ABSENT if value is None else f"{value:.0f} %"


def watts(value: float | None, units: Units | None = None) -> str:
    """`690 W`."""
    return ABSENT if value is None else f"{value:.0f} W"


def three_digits_of(value: float | None) -> str:
    """`120`, `45`, `4.3`: for columns whose unit is in the heading."""
    if value is None:
        return ABSENT
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def memory_scale(units: Units) -> float:
    """Bytes in the unit of columns of memory."""
    return 1e9 if units.memory == "GB" else 2.0**30


def gigahertz(megahertz: float | None, units: Units | None = None) -> str:
    """`1.62 GHz`, below one `345 MHz`."""
    if megahertz is None:
        return ABSENT
    return f"{megahertz / 1000:.2f} GHz" if megahertz >= 999.5 else f"{megahertz:.0f} MHz"


def degrees(celsius: float | None, units: Units) -> str:
    """`71 °C`, or in Fahrenheit."""
    if celsius is None:
        return ABSENT
    amount = celsius * 9 / 5 + 32 if units.temperature == "F" else celsius
    return f"{amount:.0f} {units.degree}{units.temperature}"


def rate(bytes_per_s: float | None, units: Units | None = None) -> str:
    """`210 MB/s`."""
    if bytes_per_s is None:
        return ABSENT
    digits, prefix = with_prefix(bytes_per_s) if bytes_per_s >= 1 else ("0", "")
    return f"{digits} {prefix}B/s"


_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_DECIMAL = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def memory(count: float | None, units: Units) -> str:
    """`112.4 GiB`, `512 MiB`, `1.21 TiB`."""
    if count is None:
        return ABSENT
    for scale, unit in _DECIMAL if units.memory == "GB" else _BINARY:
        if count >= scale * 0.9995:
            amount = count / scale
            if unit[0] == "T":
                return f"{amount:.2f} {unit}"
            return f"{amount:.1f} {unit}" if unit[0] == "G" else f"{amount:.0f} {unit}"
    return f"{count:.0f} B"


def memory_of(used: float | None, total: float | None, units: Units) -> str:
    """`61.0 of 276.0 GiB`, `0.9 of 140.4 GiB`; two units only if the total has another prefix than giga."""
    if used is None or total is None:
        return memory(used, units) if total is None else f"{ABSENT} of {memory(total, units)}"
    whole = memory(total, units)
    unit = whole.rpartition(" ")[2]
    amount, _, own_unit = memory(used, units).rpartition(" ")
    if unit == own_unit:
        return f"{amount} of {whole}"
    if unit[0] != "G":
        return f"{amount} {own_unit} of {whole}"
    part = used / next(scale for scale, name in (*_DECIMAL, *_BINARY) if name == unit)
    return f"{part:.1f} of {whole}" if part >= 0.05 or not used else f"<0.1 of {whole}"


def _sum(values: Values, *keys: str) -> float | None:
    found = [n for n in (number(values, key) for key in keys) if n is not None]
    return sum(found) if found else None


def _of(key: str) -> Callable[[Values], float | None]:
    return lambda values: number(values, key)


def _hundred(values: Values) -> float | None:
    return 100.0


def _largest(values: Values) -> float | None:
    return None


def _busy_note(values: Values, units: Units) -> str:
    sm, tensor = number(values, "gpm_sm_active_pct"), number(values, "gpm_tensor_pct")
    if sm is None and tensor is None:
        traffic = number(values, "memory_busy_pct")
        return "" if traffic is None else f"memory traffic {traffic:.0f} %"
    return ", ".join(
        f"{name} {share:.0f}" for name, share in (("sm", sm), ("tensor", tensor)) if share is not None
    )


def _memory_note(values: Values, units: Units) -> str:
    total, dram = number(values, "memory_total_bytes"), number(values, "gpm_dram_pct")
    used = memory(number(values, "memory_used_bytes"), units)
    parts = []
    if total is not None:
        whole = memory(total, units)
        amount, _, unit = whole.rpartition(" ")
        parts.append(f"of {amount if used.endswith(' ' + unit) else whole}")
    if number(values, "is_memory_shared"):
        parts.append("shared with host")
    elif dram is not None:
        parts.append(f"dram {dram:.0f} %")
    return ", ".join(parts)


def _power_note(values: Values, units: Units) -> str:
    limit, default = number(values, "power_limit_w"), number(values, "power_limit_default_w")
    note = f"cap {limit:.0f} W" if limit is not None else ""
    if limit is not None and default is not None and limit < default - 0.5:
        note += f", {default:.0f} W by default"
    return note


def _of_gigahertz(key: str) -> Callable[[Values, Units], str]:
    def note(values: Values, units: Units) -> str:
        top = number(values, key)
        return f"of {gigahertz(top)}" if top is not None else ""

    return note


def _temperature_note(values: Values, units: Units) -> str:
    limit = number(values, "temperature_limit_c")
    return f"slows at {degrees(limit, units)}" if limit is not None else ""


def _cores_note(values: Values, units: Units) -> str:
    return ", ".join(
        f"{name} {amount:.0f}"
        for name, amount in (
            ("fp32", number(values, "gpm_fp32_pct")),
            ("fp16", number(values, "gpm_fp16_pct")),
            ("fp64", number(values, "gpm_fp64_pct")),
        )
        if amount is not None
    )


def _received_note(received: str, sent: str) -> Callable[[Values, Units], str]:
    def note(values: Values, units: Units) -> str:
        both = _sum(values, received, sent)
        return "" if both is None else f"in {rate(number(values, received))}"

    return note


def _decoder_note(values: Values, units: Units) -> str:
    return f"decoder {percent(number(values, 'decoder_pct'))}"


def cores(busy_pct: float | None) -> str:
    """How many cores are at work: `17`, `4.4`."""
    if busy_pct is None:
        return ABSENT
    return f"{busy_pct / 100:.0f}" if busy_pct >= 995 else f"{busy_pct / 100:.1f}"


def _cores_text(busy_pct: float | None, units: Units) -> str:
    return f"{cores(busy_pct)} cores"


def _cpu_note(values: Values, units: Units) -> str:
    limit, load = number(values, "cpu_limit_cores"), number(values, "load_1min")
    parts = [f"of {limit:g}"] if limit is not None else []
    parts += [f"load {load:.1f}"] if load is not None else []
    return ", ".join(parts)


def _cpu_high(values: Values) -> float | None:
    limit = number(values, "cpu_limit_cores")
    return None if limit is None else 100 * limit


def _host_memory_note(values: Values, units: Units) -> str:
    total = number(values, "memory_total_bytes")
    swap = number(values, "swap_used_bytes")
    note = f"of {memory(total, units)}" if total is not None else ""
    if swap:
        note += f", swap {memory(swap, units)}"
    return note


def _sm_note(values: Values, units: Units) -> str:
    occupancy = number(values, "gpm_occupancy_pct")
    return f"occupancy {percent(occupancy)}" if occupancy is not None else ""


def _of_both(received: str, sent: str) -> Callable[[Values], float | None]:
    return lambda values: _sum(values, received, sent)


_PCIE = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")
_NVLINK = ("nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s")
_DISK = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
_NETWORK = ("network_rx_bytes_per_s", "network_tx_bytes_per_s")


def _simple(
    name: str,
    label: str,
    title: str,
    key: str,
    high: Callable[[Values], float | None],
    text: Formatter,
    note: Callable[[Values, Units], str],
    family: str,
    axis: Callable[[float, Units], str] | None = None,
    mark: Callable[[Values], float | None] = lambda values: None,
) -> PaneMetric:
    """A metric whose charted value is that of its key."""
    return PaneMetric(name, label, title, key, _of(key), high, text, note, family, axis or text, mark)


def _traffic(name: str, label: str, title: str, keys: tuple[str, str]) -> PaneMetric:
    note = _received_note(*keys)
    return PaneMetric(name, label, title, keys[0], _of_both(*keys), _largest, rate, note, "link", _rate_axis)


def _power_high(values: Values) -> float | None:
    """The limit that the GPU comes with, so that a lower one is seen as a line."""
    limits = [n for key in ("power_limit_w", "power_limit_default_w") if (n := number(values, key))]
    return max(limits) if limits else None


def _lowered_limit(values: Values) -> float | None:
    limit, high = number(values, "power_limit_w"), _power_high(values)
    return limit if limit is not None and high is not None and limit < high - 0.5 else None


def _rate_axis(high: float, units: Units) -> str:
    digits, prefix = with_prefix(high)
    return f"{float(digits):g} {prefix}B/s"


def _memory_axis(high: float, units: Units) -> str:
    return f"{three_digits_of(high / memory_scale(units))} {units.memory}"


METRICS: tuple[PaneMetric, ...] = (
    _simple(
        "busy",
        "busy",
        "share of time with a kernel running",
        "sm_busy_pct",
        _hundred,
        percent,
        _busy_note,
        "compute",
    ),
    _simple(
        "memory",
        "memory",
        "GPU memory in use",
        "memory_used_bytes",
        _of("memory_total_bytes"),
        memory,
        _memory_note,
        "memory",
        _memory_axis,
    ),
    _simple(
        "power",
        "power",
        "power drawn now",
        "power_w",
        _power_high,
        watts,
        _power_note,
        "power",
        mark=_lowered_limit,
    ),
    _simple(
        "clock",
        "clock",
        "clock of the processors",
        "sm_clock_mhz",
        _of("sm_clock_max_mhz"),
        gigahertz,
        _of_gigahertz("sm_clock_max_mhz"),
        "clock",
    ),
    _simple(
        "sm",
        "sm",
        "processors with work, on average",
        "gpm_sm_active_pct",
        _hundred,
        percent,
        _sm_note,
        "compute",
    ),
    _simple(
        "tensor",
        "tensor",
        "tensor cores at work",
        "gpm_tensor_pct",
        _hundred,
        percent,
        _cores_note,
        "compute",
    ),
    _simple(
        "dram",
        "dram",
        "share of the memory bandwidth in use",
        "gpm_dram_pct",
        _hundred,
        percent,
        lambda values, units: "of bandwidth",
        "memory",
    ),
    _simple(
        "temperature",
        "temperature",
        "temperature of the chip",
        "temperature_c",
        _of("temperature_limit_c"),
        degrees,
        _temperature_note,
        "clock",
    ),
    _traffic("pcie", "PCIe", "bytes over PCIe, both ways", _PCIE),
    _traffic("nvlink", "NVLink", "bytes over NVLink, both ways", _NVLINK),
    _simple(
        "memory-clock",
        "memory clock",
        "clock of the memory",
        "memory_clock_mhz",
        _of("memory_clock_max_mhz"),
        gigahertz,
        _of_gigahertz("memory_clock_max_mhz"),
        "clock",
    ),
    _simple(
        "video",
        "video",
        "encoder and decoder at work",
        "encoder_pct",
        _hundred,
        percent,
        _decoder_note,
        "compute",
    ),
)
"""Of a GPU."""

HOST_METRICS: tuple[PaneMetric, ...] = (
    _simple(
        "host-cpu",
        "cpu",
        "processor time in use",
        "cpu_busy_pct",
        _cpu_high,
        _cores_text,
        _cpu_note,
        "link",
        lambda high, units: f"{high / 100:g} cores",
    ),
    _simple(
        "host-memory",
        "memory",
        "host memory in use",
        "memory_used_bytes",
        _of("memory_total_bytes"),
        memory,
        _host_memory_note,
        "memory",
        _memory_axis,
    ),
    _traffic("host-disk", "disk", "bytes from and to disks", _DISK),
    _traffic("host-network", "net", "bytes from and to networks", _NETWORK),
)
"""Of the host."""

DEFAULT_METRICS: tuple[str, ...] = (
    "busy",
    "power",
    "memory",
    "clock",
    "pcie",
    "temperature",
    "tensor",
    "dram",
    "nvlink",
)
"""Charts from left to right, then downwards."""
ALWAYS = 4
"""This many of the chosen metrics keep their chart even if the device has no value for them."""


def metric_named(name: str) -> PaneMetric | None:
    return next((metric for metric in METRICS if metric.id == name), None)
