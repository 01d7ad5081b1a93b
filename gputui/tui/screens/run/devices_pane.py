"""The device under test and the host, live, on the Run screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.machine import Gpu, Machine
from gputui.model.telemetry import HOST
from gputui.model.units import counted, format_bytes, format_percent, three_digits
from gputui.services.runs.device_history import MOST_BINS, DeviceHistory
from gputui.services.runs.progress import ProgressSnapshot
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, line_width, right, side_by_side
from gputui.tui.widgets.charts import round_ceiling
from gputui.tui.widgets.sections import area_lines, gauge_spans, joined, section

BUSY_FROM_PCT = 5.0
STEAL_FROM_PCT = 1.0
THROTTLED_FROM = 0.005
"""A smaller share of the run is not reported once it is over."""
_AXIS = 7
"""Cells of the ends of an axis, as `1.98`, and blanks around them."""
_MIB = 2**20
_HOTTER_C = 5.0
"""Between the temperature at which a GPU is slowed and the end of the axis, at least."""
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, MOST_BINS)
"""Bins in a cell."""


@dataclass(frozen=True, slots=True)
class _Metric:
    """One chart of a device."""

    key: str
    title: str
    family: str
    show: Callable[[float], str]
    end: Callable[[float], str]
    """The end of the axis, in few cells."""
    of: str
    """What the end of the axis is, before it in a row: `of` a limit, `max` of the run."""
    limit: Callable[[Machine | None, int], float | None]
    """The top of the chart; None for the highest value of the run."""
    lowered: Callable[[Machine | None, int], float | None] = lambda machine, device: None
    """A limit below the top, which the chart shows as a line."""
    before_lowered: str = "of"


def _gpu_of(machine: Machine | None, device: int) -> Gpu | None:
    return None if machine is None else next((gpu for gpu in machine.gpus if gpu.index == device), None)


def _watts_top(machine: Machine | None, device: int) -> float | None:
    """The power limit in force, or the default one if that is higher."""
    gpu = _gpu_of(machine, device)
    if gpu is None or isinstance(gpu.power_limit_w, Missing):
        return None
    default = gpu.power_default_limit_w
    return gpu.power_limit_w if isinstance(default, Missing) else max(gpu.power_limit_w, default)


def _lowered_watts(machine: Machine | None, device: int) -> float | None:
    gpu, top = _gpu_of(machine, device), _watts_top(machine, device)
    if gpu is None or top is None or isinstance(gpu.power_limit_w, Missing):
        return None
    return gpu.power_limit_w if gpu.power_limit_w < top - 0.5 else None


def _slows_at(machine: Machine | None, device: int) -> float | None:
    gpu = _gpu_of(machine, device)
    return None if gpu is None or isinstance(gpu.temperature_limit_c, Missing) else gpu.temperature_limit_c


def _celsius_top(machine: Machine | None, device: int) -> float:
    """The temperature at which the driver slows the GPU, with room above it."""
    return max(100.0, (_slows_at(machine, device) or 0.0) + _HOTTER_C)


def _gpu_memory(machine: Machine | None, device: int) -> float | None:
    gpu = _gpu_of(machine, device)
    return None if gpu is None or isinstance(gpu.memory_bytes, Missing) else gpu.memory_bytes / _MIB


def _host_memory(machine: Machine | None, device: int) -> float | None:
    return None if machine is None else float(machine.memory.host_bytes)


def _host_cpu(machine: Machine | None, device: int) -> float | None:
    return None if machine is None else 100.0 * machine.cpu.host_threads


def _none(machine: Machine | None, device: int) -> float | None:
    return None


def _gigahertz(mhz: float) -> str:
    return f"{three_digits(mhz / 1000)} GHz"


def _hundred(machine: Machine | None, device: int) -> float | None:
    return 100.0


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _as_gigahertz(mhz: float) -> str:
    return three_digits(mhz / 1000)


def _as_threads(percent: float) -> str:
    return three_digits(percent / 100)


_OF_GPU: tuple[_Metric, ...] = (
    _Metric("sm_clock_mhz", "clock", "clock", _gigahertz, _as_gigahertz, "max", _none),
    _Metric("power_w", "power", "power", lambda w: f"{w:.0f} W", _whole, "of", _watts_top, _lowered_watts),
    _Metric(
        "temperature_c",
        "temperature",
        "clock",
        lambda c: f"{c:.0f} °C",
        _whole,
        "to",
        _celsius_top,
        _slows_at,
        "slows at",
    ),
    _Metric(
        "memory_used_mib",
        "memory",
        "memory",
        lambda mib: format_bytes(mib * _MIB),
        lambda mib: three_digits(mib / 1024),
        "of",
        _gpu_memory,
    ),
    _Metric("sm_busy_pct", "busy", "compute", lambda pct: f"{pct:.0f} %", _whole, "of", _hundred),
)
_OF_HOST: tuple[_Metric, ...] = (
    _Metric("cpu_busy_pct", "CPU", "compute", _as_threads, lambda pct: _whole(pct / 100), "of", _host_cpu),
    _Metric("cpu_clock_mhz", "clock", "clock", _gigahertz, _as_gigahertz, "max", _none),
    _Metric(
        "memory_used_bytes",
        "memory",
        "memory",
        format_bytes,
        lambda count: format_bytes(count).split()[0],
        "of",
        _host_memory,
    ),
    _Metric("load_1min", "load", "link", three_digits, three_digits, "to", _none),
)


def device_under_test(progress: ProgressSnapshot) -> DeviceHistory | None:
    """The device of the worker at work; before the first one, a GPU if there is one.

    Of a server under load on this box, the GPU that was busiest so far: the process that listens at its port
    is often a proxy, and one in a container has another PID than the driver reports.
    """
    if isinstance(progress.devices, Missing) or not progress.devices:
        return None
    if progress.server_is_here:
        return max(progress.devices, key=_busy)
    by_index = {one.device: one for one in progress.devices}
    if progress.under_test in by_index:
        return by_index[progress.under_test]
    return next((one for one in progress.devices if not one.is_host), progress.devices[0])


def _busy(device: DeviceHistory) -> tuple[bool, float]:
    """In order of how busy it was; the host after every GPU."""
    return not device.is_host, sum(value or 0.0 for value in device.bins.get("sm_busy_pct", ()))


def device_rows(progress: ProgressSnapshot, width: int) -> list[Line]:
    """Three lines: a heading, and four metrics with a history of one row each."""
    device = device_under_test(progress)
    if device is None:
        return _without(progress, width)
    metrics = _of(device)[:4]
    half = (width - 4) // 2
    cells = [_row(device, metric, progress.machine, half) for metric in metrics]
    pairs = [cells[place : place + 2] for place in range(0, len(cells), 2)]
    lines = [fitted((Span("  "), *joined(pair)), width) for pair in pairs]
    return [_heading(progress, device, width), *lines]


def device_charts(progress: ProgressSnapshot, width: int, rows: int, *, abreast: int = 4) -> list[Line]:
    """A heading, charts with `rows` rows each, so many side by side, and the axis of time below them."""
    device = device_under_test(progress)
    if device is None:
        return _without(progress, width)
    metrics = _of(device)
    if abreast > 1:
        metrics = metrics[:abreast]
    each = (width - 3 * (abreast - 1)) // abreast
    lines = [_heading(progress, device, width)]
    for place in range(0, len(metrics), abreast):
        blocks = [
            _chart(device, one, progress.machine, each, rows) for one in metrics[place : place + abreast]
        ]
        lines += _abreast(blocks, width)
    lines.append(_time_axis(device, each, width))
    return lines


def host_lines(progress: ProgressSnapshot, width: int, rows: int = 1) -> list[Line]:
    """The host beside a GPU under test, and what the other GPUs do: at most so many lines."""
    device = device_under_test(progress)
    if device is None or device.is_host or isinstance(progress.devices, Missing):
        return []
    host = next((one for one in progress.devices if one.is_host), None)
    parts: list[tuple[Span, ...]] = []
    machine = progress.machine
    if host is not None:
        cpu, used = host.now.get("cpu_busy_pct"), host.now.get("memory_used_bytes")
        whole = _host_cpu(machine, HOST)
        if cpu is not None:
            of = "" if machine is None else f" of {counted(machine.cpu.host_threads, 'thread')}"
            spans = (Span("CPU ", "dim"), Span(f"{three_digits(cpu / 100)}"), Span(of, "dim"))
            parts.append((*spans, Span(" "), *gauge_spans(cpu, whole or 0.0, 8, "link")))
        if used is not None:
            of = f" of {format_bytes(machine.memory.host_bytes)}" if machine is not None else ""
            parts.append((Span("memory ", "dim"), Span(format_bytes(used)), Span(of, "dim")))
        parts += _host_notes(host)
    others = _others(progress, device)
    parts += [(Span(others),)] if others else []
    lines: list[Line] = []
    while parts and len(lines) < rows:
        fits = 1
        while fits < len(parts) and line_width(joined(parts[: fits + 1], "   ")) <= width - 9:
            fits += 1
        head = Span("   host  " if not lines else " " * 9, "dim")
        lines.append(fitted((head, *joined(parts[:fits], "   ")), width))
        parts = parts[fits:]
    return lines


def _of(device: DeviceHistory) -> Sequence[_Metric]:
    """The metrics that were ever read, in order of priority."""
    return [one for one in (_OF_HOST if device.is_host else _OF_GPU) if one.key in device.bins]


def _without(progress: ProgressSnapshot, width: int) -> list[Line]:
    why = progress.devices.reason if isinstance(progress.devices, Missing) else "nothing has been read yet"
    return [section((Span("device", "title"),), width), fitted((Span(f"  {clean(why)}", "dim"),), width)]


def _heading(progress: ProgressSnapshot, device: DeviceHistory, width: int) -> Line:
    machine = progress.machine
    if device.is_host:
        model = "" if machine is None or isinstance(machine.cpu.model, Missing) else machine.cpu.model
        name = [Span("host" if progress.server_is_here is not False else "this box, the client", "title")]
        state: list[Sequence[Span]] = [*_host_notes(device)]
    else:
        gpu = _gpu_of(machine, device.device)
        model = "" if gpu is None else gpu.name.removeprefix("NVIDIA ")
        name = [Span(f"GPU {device.device}", "title")]
        state = [_throttling(device)]
        if "sm_busy_pct" in device.now:
            state.insert(0, (Span(f"{device.now['sm_busy_pct']:.0f} % busy"),))
    title = joined((name, (Span(clean(model)),) if model else (), *state))
    return section(title, width)


def _throttling(device: DeviceHistory) -> tuple[Span, ...]:
    """What slows it now, and for which share of the run something did."""
    if not device.throttled:
        known = "throttle_bits" in device.now
        return (Span("not throttled", "good") if known else Span("throttling is not read", "dim"),)
    spans: list[Span] = []
    for word, share in sorted(device.throttled.items(), key=lambda pair: -pair[1]):
        is_now = word in device.throttled_now
        if is_now or share >= THROTTLED_FROM:
            when = "" if is_now else "was "
            text = f"{when}{word} {format_percent(share)} of the run"
            spans.append(Span(text if not spans else f", {text}", "warn"))
    return tuple(spans) or (Span("not throttled", "good"),)


def _host_notes(host: DeviceHistory) -> list[tuple[Span, ...]]:
    steal = host.now.get("cpu_steal_pct", 0.0)
    if steal < STEAL_FROM_PCT:
        return []
    return [(Span(f"{steal:.0f} % taken by the hypervisor", "warn"),)]


def _others(progress: ProgressSnapshot, device: DeviceHistory) -> str:
    """`7 other GPUs idle`, `2 of 7 other GPUs busy`."""
    if isinstance(progress.devices, Missing):
        return ""
    busy = [
        one.now["sm_busy_pct"] >= BUSY_FROM_PCT
        for one in progress.devices
        if not one.is_host and one.device != device.device and "sm_busy_pct" in one.now
    ]
    if not busy:
        return ""
    return (
        f"{sum(busy)} of {counted(len(busy), 'other GPU')} busy"
        if any(busy)
        else (f"{counted(len(busy), 'other GPU')} idle")
    )


def _top(device: DeviceHistory, metric: _Metric, machine: Machine | None) -> float:
    """The upper end of a chart."""
    limit = metric.limit(machine, device.device)
    if limit:
        return limit
    seen = max((value for value in device.bins[metric.key] if value is not None), default=0.0)
    # a clock's own highest value: a dip then shows, and rounding up would look like a loss
    return seen or 1.0 if metric.family == "clock" else round_ceiling(seen)


def _row(device: DeviceHistory, metric: _Metric, machine: Machine | None, width: int) -> tuple[Span, ...]:
    """`clock 1.96 GHz ▂▅▇▇▇▇ of 1.98`."""
    value = device.now.get(metric.key)
    top = _top(device, metric, machine)
    head = (
        Span(left("temp" if metric.title == "temperature" else metric.title, 7), "dim"),
        Span(right("–" if value is None else metric.show(value), 8)),
    )
    limit = metric.lowered(machine, device.device)
    end = (
        f"{metric.of} {metric.end(top)}" if limit is None else f"{metric.before_lowered} {metric.end(limit)}"
    )
    room = max(width - 16 - len(end) - 1, 4)
    (chart,) = area_lines(_columns(device, metric, room)[0], top, 1, room, metric.family)
    return fitted((*head, Span(" "), *chart, Span(" "), Span(end, "dim")), width)


def _chart(
    device: DeviceHistory, metric: _Metric, machine: Machine | None, width: int, rows: int
) -> list[Line]:
    """A title with the figure, and an area with the ends of its axis on the left."""
    value = device.now.get(metric.key)
    figure = Span("–" if value is None else metric.show(value), "title")
    top = _top(device, metric, machine)
    room = width - _AXIS
    columns, _ = _columns(device, metric, room)
    limit = metric.lowered(machine, device.device)
    title: Line = (Span(" " * _AXIS), Span(f"{metric.title}  ", "dim"), figure)
    note = Span("" if limit is None else f" {metric.before_lowered} {metric.end(limit)}", "dim")
    if line_width((*title, note)) <= width:
        title = (*title, note)
    lines: list[Line] = [fitted(title, width)]
    for number, row in enumerate(area_lines(columns, top, rows, room, metric.family, limit)):
        end = metric.end(top) if number == 0 else "0" if number == rows - 1 else ""
        lines.append((Span(f"{right(end, _AXIS - 1)} ", "dim"), *row))
    return lines


def _abreast(blocks: Sequence[Sequence[Line]], width: int) -> list[Line]:
    """Blocks with three columns between them."""
    padded = [[(*line, Span("  ")) for line in block] for block in blocks[:-1]]
    return side_by_side([*padded, blocks[-1]], width)


def _columns(device: DeviceHistory, metric: _Metric, cells: int) -> tuple[list[float | None], float]:
    """The run so far in at most so many cells, and the seconds of a cell.

    A cell is a bin, or one of a few numbers of them, so that older cells seldom change while the run goes on.
    """
    bins = device.bins[metric.key]
    longest = max((len(one) for one in device.bins.values()), default=0)
    step = next(step for step in _STEPS if step * cells >= longest or step == _STEPS[-1])
    columns: list[float | None] = []
    for place in range(0, len(bins), step):
        values = [value for value in bins[place : place + step] if value is not None]
        columns.append(sum(values) / len(values) if values else None)
    return columns, step * device.bin_s


def _time_axis(device: DeviceHistory, each: int, width: int) -> Line:
    """When the charts begin and end, below the first."""
    metrics = _of(device)
    if not metrics:
        return fitted((), width)
    _, cell_s = _columns(device, metrics[0], each - _AXIS)
    end = clock(cell_s * (each - _AXIS))
    room = each - _AXIS - 4
    words = "since the run began"
    middle = words.center(room - len(end)) if len(words) + 2 <= room - len(end) else " " * (room - len(end))
    return fitted((Span(" " * _AXIS), Span(f"0:00{middle}{end}", "dim")), width)


def clock(seconds: float) -> str:
    """Time that has passed: `3:40`, `1:03:40`."""
    whole = int(max(seconds, 0))
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
