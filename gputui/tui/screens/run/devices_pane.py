"""The device under test and the host, live, on the Run screen."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.health import health
from gputui.document.drawings import gauge_spans
from gputui.metrics import Metric, charted, limits_of, without_unit, word
from gputui.model.absent import Missing
from gputui.model.machine import Machine
from gputui.model.telemetry import HOST, DeviceSample
from gputui.model.units import counted, format_clock, format_percent
from gputui.services.results.waiting import CROWDED_SHARE
from gputui.services.runs.device_history import MOST_BINS, DeviceHistory
from gputui.services.runs.progress import ProgressSnapshot
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, right
from gputui.tui.widgets.charts import (
    above_axis,
    abreast_cells,
    axis_cells,
    strip,
    time_axis,
    time_chart,
)
from gputui.tui.widgets.sections import fitting, joined, section

BUSY_FROM_PCT = 5.0
STEAL_FROM_PCT = 1.0
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, MOST_BINS)
"""Bins in a cell."""


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
    names = [max((len(one.name) for one in metrics[column::2]), default=0) for column in range(2)]
    cells = [
        _row(device, metric, progress.machine, half, names[place % 2]) for place, metric in enumerate(metrics)
    ]
    pairs = [cells[place : place + 2] for place in range(0, len(cells), 2)]
    lines = [fitted((Span("  "), *joined(pair)), width) for pair in pairs]
    return [_heading(progress, device, width), *lines]


def device_charts(progress: ProgressSnapshot, width: int, rows: int, *, abreast: int = 4) -> list[Line]:
    """A heading, charts with `rows` rows each, so many side by side, and the axis of time below each column.

    Four metrics, or all of them below each other.
    """
    device = device_under_test(progress)
    if device is None:
        return _without(progress, width)
    metrics = _of(device)[: None if abreast == 1 else 4]
    each = abreast_cells(width, abreast)
    limits, cells = limits_of(progress.machine, device.device), each - axis_cells(each)
    span_s = _cell_s(device, cells) * cells
    blocks = []
    for metric in metrics:
        now = device.now.get(metric.key)
        note = metric.limit_text(limits, after=metric.text(now))
        blocks.append(time_chart(metric, device.series(metric.key), limits, now, note, span_s, each, rows))
    axis = time_axis("0:00", "since the run began", format_clock(span_s), each)
    lines = above_axis(blocks, axis, width, abreast) if blocks else []
    return [_heading(progress, device, width), *lines]


def host_lines(progress: ProgressSnapshot, width: int, rows: int = 1) -> list[Line]:
    """The host beside a GPU under test, and what the other GPUs do: at most so many lines."""
    device, devices = device_under_test(progress), progress.devices
    if device is None or device.is_host or isinstance(devices, Missing):
        return []
    host = next((one for one in devices if one.is_host), None)
    parts: list[tuple[Span, ...]] = []
    if host is not None:
        values = {**limits_of(progress.machine, HOST), **host.now}
        for metric in charted(HOST):
            full = metric.full_scale(values)
            if full and metric.key in host.now:
                gauge = gauge_spans(metric.amount(values), full, 8, metric.hue)
                parts.append((Span(metric.in_words(values)), Span(" "), *gauge))
        parts += _host_notes(host)
    parts += [(Span(others),)] if (others := _others(devices, device)) else []
    lines: list[Line] = []
    while parts and len(lines) < rows:
        here = fitting(parts, width - 9, "   ", least=1)
        head = Span("   host  " if not lines else " " * 9, "dim")
        lines.append(fitted((head, *joined(here, "   ")), width))
        parts = parts[len(here) :]
    return lines


def _of(device: DeviceHistory) -> list[Metric]:
    """The metrics that were ever read, in order of priority."""
    return [metric for metric in charted(device.device) if metric.key in device.bins]


def _without(progress: ProgressSnapshot, width: int) -> list[Line]:
    why = progress.devices.reason if isinstance(progress.devices, Missing) else "nothing has been read yet"
    return [section((Span("device", "title"),), width), fitted((Span(f"  {clean(why)}", "dim"),), width)]


def _heading(progress: ProgressSnapshot, device: DeviceHistory, width: int) -> Line:
    model = word(limits_of(progress.machine, device.device), "name").removeprefix("NVIDIA ")
    if device.is_host:
        name = [Span("host" if progress.server_is_here is not False else "this box, the client", "title")]
        state: list[Sequence[Span]] = [*_host_notes(device), *_others_share(progress)]
    else:
        name = [Span(f"GPU {device.device}", "title")]
        state = [_health(device, progress.machine)]
        if "sm_busy_pct" in device.now:
            state.insert(0, (Span(f"{device.now['sm_busy_pct']:.0f} % busy"),))
    title = joined((name, (Span(clean(model)),) if model else (), *state))
    return section(title, width)


def _health(device: DeviceHistory, machine: Machine | None) -> tuple[Span, ...]:
    """What the Monitor says of it."""
    values = {**limits_of(machine, device.device), **device.now}
    findings = health(0, DeviceSample(device.device, "run", 0, values), device.slowed)
    if not findings:
        is_read = bool(device.slowed.shares)
        return (Span("not throttled", "good") if is_read else Span("throttling is not read", "dim"),)
    return joined([(Span(finding.word, finding.style),) for finding in findings], ", ")


def _host_notes(host: DeviceHistory) -> list[tuple[Span, ...]]:
    steal = host.now.get("cpu_steal_pct", 0.0)
    if steal < STEAL_FROM_PCT:
        return []
    return [(Span(f"{steal:.0f} % taken by the hypervisor", "warn"),)]


def _others_share(progress: ProgressSnapshot) -> list[tuple[Span, ...]]:
    """`other programs 0 %`: what they have of the time in which the case wants a CPU."""
    share = progress.waited_share
    if isinstance(share, Missing):
        return []
    return [(Span(f"other programs {format_percent(share)}", "warn" if share > CROWDED_SHARE else "dim"),)]


def _others(devices: Sequence[DeviceHistory], device: DeviceHistory) -> str:
    """`7 other GPUs idle`, `2 of 7 other GPUs busy`; empty if there is no other."""
    busy = [
        one.now["sm_busy_pct"] >= BUSY_FROM_PCT
        for one in devices
        if not one.is_host and one.device != device.device and "sm_busy_pct" in one.now
    ]
    all_of_them = counted(len(busy), "other GPU")
    if any(busy):
        return f"{sum(busy)} of {all_of_them} busy"
    return f"{all_of_them} idle" if busy else ""


def _row(
    device: DeviceHistory, metric: Metric, machine: Machine | None, width: int, name_cells: int
) -> tuple[Span, ...]:
    """`power         680 W ▄▇▇▇▇▇▇ of 700`."""
    limits, series = limits_of(machine, device.device), device.series(metric.key)
    top = metric.top(limits, max(series.known, default=0.0))
    figure = metric.text(device.now.get(metric.key))
    end = (
        metric.limit_text(limits, after=figure, is_brief=True)
        or f"to {without_unit(metric.axis(top), figure)}"
    )
    room = max(width - name_cells - 10 - len(end) - 2, 4)
    chart = strip(series.cells(_cell_s(device, room), room), top)
    head = (Span(left(metric.name, name_cells), "dim"), Span(right(figure, 10)))
    return fitted(
        (*head, Span(" "), Span(f"{chart:{room}}", f"{metric.hue} 1"), Span(f" {end}", "dim")), width
    )


def _cell_s(device: DeviceHistory, cells: int) -> float:
    """Seconds of a cell, so that the run so far fits.

    It is a bin, or one of a few numbers of them, so that older cells seldom change while the run goes on.
    """
    longest = max((len(one) for one in device.bins.values()), default=0)
    step = next(step for step in _STEPS if step * cells >= longest or step == _STEPS[-1])
    return step * device.bin_s
