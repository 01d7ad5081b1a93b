"""GPUs as rows of a table, in columns and scrolled if necessary, below a strip with a cell for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputui.metrics import ABSENT, Metric, memory_scale, number, three_digits_of
from gputui.model.live import LOST, DeviceSample
from gputui.tui.monitor.frame import (
    FIGURE_STYLES,
    Frame,
    findings_spans,
    idle_text,
    is_idle,
    profile_text,
    short_name,
    slices_of,
    span_text,
)
from gputui.tui.monitor.layout import STRIP_LABEL, Layout, Rect
from gputui.tui.monitor.metric_chart import with_gauge
from gputui.tui.monitor.metrics import BY_ID
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, filled, fitted, left, right, side_by_side
from gputui.tui.widgets.charts import heat
from gputui.tui.widgets.load import LoadLevel

_BUSY, _POWER, _SM = (BY_ID[name] for name in ("busy", "power", "sm"))


@dataclass(frozen=True, slots=True)
class _Widths:
    """Cells of the columns of a table; 0 for those without room."""

    index: int
    kind: int
    """Of the name of a MIG instance, or of a GPU where there are several kinds."""
    busy: int
    """Of the history beside the figure."""
    memory: int
    """Of the gauge beside the figure."""
    total: int
    """Of the total behind the gauge, where GPUs differ."""
    power: int
    clock: int
    health: int


def _widths(width: int, labels: int, *, has_kinds: bool, totals_differ: bool) -> _Widths:
    kind = 11 if has_kinds and width >= 56 else 0
    total = 7 if totals_differ and width >= 64 else 0
    clock = 6 if width >= 104 else 0
    # The figures: index, busy, memory, watts, degrees, and the gaps before them.
    room = width - (1 + labels) - kind - 5 - 7 - total - 7 - 5 - clock - 2
    health = min(max(room * 2 // 5, 12), 30)
    room -= health
    busy = min(room * 2 // 5 - 1, 40) if room >= 16 else 0
    power = min(room // 3 - 1, 20) if width >= 110 else 0
    memory = min(room - busy - bool(busy) - power - bool(power) - 1, 16) if room >= 8 else 0
    used = busy + bool(busy) + power + bool(power) + memory + bool(memory)
    return _Widths(labels, kind, busy, memory, total, power, clock, health + room - used)


def _heading(frame: Frame, widths: _Widths, totals: Sequence[float], width: int) -> Line:
    span = f", {span_text(frame.span_ns)}"
    busy = "BUSY %" + (span if widths.busy >= 9 else "")
    memory = "MEMORY"
    if len(totals) == 1 and widths.memory >= 8:
        memory += f" of {three_digits_of(totals[0] / memory_scale(frame.units))} {frame.units.memory}"
    elif widths.memory:
        memory += f", {frame.units.memory}"
    watts = "WATTS" + (span if widths.power >= 9 else "")
    parts = [
        left("GPU", 1 + widths.index),
        *([left(" SLICE" if any(frame.instances.values()) else " KIND", widths.kind)] if widths.kind else []),
        left("  " + busy if widths.busy else " BUSY", 5 + widths.busy + bool(widths.busy)),
        left(
            "  " + memory if widths.memory else right(frame.units.memory, 7),
            7 + widths.memory + bool(widths.memory) + widths.total,
        ),
        left("  " + watts if widths.power else right("WATTS", 7), 7 + widths.power + bool(widths.power)),
        right(f"{frame.units.degree}{frame.units.temperature}", 5),
        right("GHz", widths.clock) if widths.clock else "",
        "  HEALTH",
    ]
    return fitted((Span("".join(parts), "dim"),), width)


def _row(
    frame: Frame, widths: _Widths, device: DeviceSample, branch: str, totals: Sequence[float], width: int
) -> Line:
    """A GPU, or with a `branch` a MIG instance below its GPU."""
    values, unknown = device.values, device.problem is not None
    is_selected = device.device == frame.selected
    mark = branch or ("▸" if is_selected else " ")
    spans = [
        Span(mark, "track" if branch else "accent"),
        Span(right(device.label, widths.index), "accent" if is_selected else "title"),
    ]
    if widths.kind:
        kind = profile_text(device) if branch else slices_of(frame, device)
        if not any(frame.instances.values()):
            kind = short_name(device)
        spans.append(Span(left(" " + kind, widths.kind), "" if branch else "dim"))
    spans += _busy(frame, widths, device)
    spans += _memory(frame, widths, device, totals)
    power = None if unknown else number(values, "power_w")
    load = frame.load_of_power(device)
    is_instance = device.parent is not None
    text = "" if is_instance else ABSENT if power is None else f"{power:.0f}"
    spans.append(Span(f"{text:>7}", FIGURE_STYLES[load]))
    if widths.power:
        spans += [Span(" "), _history(frame, device, _POWER, widths.power)]
    celsius = None if unknown else number(values, "temperature_c")
    if celsius is not None and frame.units.temperature == "F":
        celsius = celsius * 9 / 5 + 32
    text = "" if is_instance else ABSENT if celsius is None else f"{celsius:.0f}"
    warm = frame.load_of_temperature(device)
    spans.append(Span(f"{text:>5}", "dim" if unknown else FIGURE_STYLES[warm]))
    if widths.clock:
        clock = None if unknown else number(values, "sm_clock_mhz")
        text = "" if is_instance else ABSENT if clock is None else f"{clock / 1000:.2f}"
        spans.append(Span(f"{text:>{widths.clock}}", FIGURE_STYLES[load]))
    spans += [Span("  "), *_health(frame, device, widths.health)]
    return fitted(spans, width)


def _history(frame: Frame, device: DeviceSample, metric: Metric, width: int) -> Span:
    ceiling = frame.ceiling(device, metric)
    drawn = frame.chart(device.device, metric, ceiling, width, 1)[0]
    return Span(drawn, "stale" if device.problem is not None else f"{metric.hue} 1")


def _busy(frame: Frame, widths: _Widths, device: DeviceSample) -> list[Span]:
    """The driver reports no load for a GPU that MIG divides; an instance has that of its SMs."""
    metric = _SM if device.parent is not None else _BUSY
    share = None if device.problem is not None else metric.amount(device.values)
    text = ABSENT if share is None else f"{share:.0f}"
    figure = Span(f"{text:>5}", FIGURE_STYLES[frame.load_of_busy(device, share)])
    if not widths.busy:
        return [figure]
    if frame.instances.get(device.device):
        return [Span(left("  see below", 6 + widths.busy), "dim")]
    history = _history(frame, device, metric, widths.busy)
    gauge = with_gauge(frame, device, metric, history, history.text, 100.0)
    return [figure, Span(" "), *(gauge or [history])]


def _memory(frame: Frame, widths: _Widths, device: DeviceSample, totals: Sequence[float]) -> list[Span]:
    used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
    used = None if device.problem is not None else used
    scale, load = memory_scale(frame.units), frame.load_of_memory(device)
    figure = Span(f"{three_digits_of(None if used is None else used / scale):>7}", FIGURE_STYLES[load])
    spans = [figure]
    if widths.memory:
        key = (device.device, "memory")
        gauge = frame.gauge(key, used, total or 0.0, widths.memory, load.style("memory"))
        spans += [Span(" "), *gauge]
    if widths.total:
        of = f" of {three_digits_of(total / scale)}" if total else ""
        spans.append(Span(left(of, widths.total), "dim"))
    return spans


def _health(frame: Frame, device: DeviceSample, room: int) -> list[Span]:
    findings = frame.findings[device.device]
    if device.problem is not None:
        why = clean(device.problem.reason).removeprefix(f"{LOST}: ")
        return [*findings_spans(findings[:1], room, brief=True), Span("  " + why, "dim")]
    spans: list[Span] = []
    if device.parent is not None and frame.load_of_memory(device) is LoadLevel.NEAR_LIMIT:
        spans = [Span("FULL", "warn"), Span("  ")]
    is_past = all(finding.severity == "note" for finding in findings)
    if is_past and not spans and is_idle(frame, device):
        return [Span(idle_text(frame, device) if device.parent is None else "idle", "dim")]
    return [*spans, *findings_spans(findings, room - 6 * bool(spans), brief=True)]


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """The rows of one frame."""

    lines: list[Line]
    hits: list[tuple[Rect, int]]
    """The position of each GPU, relative to the strip's first row."""
    first: int
    """The first row in sight; the next frame starts there."""
    hidden: int
    """GPUs scrolled out of view."""


def gpu_table(frame: Frame, layout: Layout, width: int, first: int) -> DrawnTable:
    """As many lines as the strip and the list of the layout have; scrolls with the selected GPU."""
    entries: list[tuple[DeviceSample, str]] = []
    for gpu in frame.gpus:
        entries.append((gpu, ""))
        if layout.instances_shown:
            below = frame.instances[gpu.device]
            entries += [(one, "└" if one is below[-1] else "├") for one in below]
    rows = layout.list.height - layout.has_heading
    capacity = rows * layout.columns
    at = next((n for n, (gpu, _) in enumerate(entries) if gpu.device == frame.selected), None)
    if at is not None:
        first = min(max(first, at - capacity + 1), at)
    first = min(max(first, 0), max(len(entries) - capacity, 0))
    seen = entries[first : first + capacity]
    used_rows = rows if len(entries) > capacity else -(-len(entries) // layout.columns)
    gap = 3 if layout.columns > 1 else 0
    each = (width - gap * (layout.columns - 1)) // layout.columns
    totals = sorted({total for one in frame.gpus if (total := number(one.values, "memory_total_bytes"))})
    has_kinds = layout.instances_shown and any(frame.instances.values())
    has_kinds |= len({short_name(gpu) for gpu in frame.gpus if gpu.problem is None}) > 1
    differ = len(totals) > 1 or (layout.instances_shown and any(frame.instances.values()))
    labels = max(2, *(len(device.label) for device, _ in entries))
    widths = _widths(each, labels, has_kinds=has_kinds, totals_differ=differ)
    lines, hits = _strip(frame, layout.strip)
    blocks: list[list[Line]] = []
    for column in range(layout.columns):
        shown_totals = [] if differ else totals
        block = [_heading(frame, widths, shown_totals, each)] if layout.has_heading else []
        for device, branch in seen[column * used_rows : (column + 1) * used_rows]:
            if not branch:
                place = Rect(column * (each + gap), layout.list.y + len(block), each, 1)
                hits.append((place, device.device))
            block.append(_row(frame, widths, device, branch, totals, each))
        blocks.append(filled(block, each, layout.list.height))
    shown = sum(not branch for _, branch in seen)
    return DrawnTable(lines + side_by_side(blocks, width, gap), hits, first, len(frame.gpus) - shown)


def _strip(frame: Frame, box: Rect) -> tuple[list[Line], list[tuple[Rect, int]]]:
    """The load of all GPUs, a cell for each."""
    room = max(box.width - STRIP_LABEL, 1)
    lines: list[Line] = []
    hits: list[tuple[Rect, int]] = []
    for row in range(box.height):
        spans = [Span(left("busy" if row == 0 else "", STRIP_LABEL), "dim")]
        for place, gpu in enumerate(frame.gpus[row * room : (row + 1) * room]):
            share = number(gpu.values, "sm_busy_pct") if gpu.problem is None else None
            cell, style = heat((share,)), "alarm" if share is None else "compute 1"
            if share is None and gpu.problem is None and gpu.values.get("mig_mode") == 1:
                cell, style = "m", "dim"  # the driver reports no load for a GPU that MIG divides
            spans.append(Span(cell, "selected" if gpu.device == frame.selected else style))
            hits.append((Rect(STRIP_LABEL + place, row, 1, 1), gpu.device))
        lines.append(fitted(spans, box.width))
    return lines, hits
