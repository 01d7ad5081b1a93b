"""GPUs as rows, in columns and scrolled if necessary, below a strip with a cell for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputui.analysis.health import GpuFinding
from gputui.model.live import DeviceSample
from gputui.tui.monitor.layout import STRIP_LABEL, Layout, Rect
from gputui.tui.monitor.metrics import ABSENT, degrees, memory, memory_of, number, percent, watts, word
from gputui.tui.monitor.pane_context import (
    PaneContext,
    findings_spans,
    instance_state,
    instances_text,
    is_full,
    profile_text,
)
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, filled, fitted, left, line_width, side_by_side
from gputui.tui.widgets.charts import heat


class RowColumns:
    """The columns of rows of GPUs at a width, for the heading and all rows."""

    def __init__(self, width: int, index_width: int) -> None:
        self.width = width
        self.index = index_width
        self.name = 0 if width < 62 else (9 if width < 90 else (14 if width < 120 else 18))
        self.memory = 9 if width < 62 else 18
        self.power = 6 if width >= 38 else 0
        self.temperature = 6 if width >= 48 else 0
        self.clock = 8 if width >= 96 else 0
        fixed = (
            1
            + self.index
            + sum(
                1 + one
                for one in (self.name, 5, self.memory, self.power, self.temperature, self.clock)
                if one
            )
        )
        spare = width - fixed - 1
        self.chart = 0 if spare < 26 else (8 if spare < 40 else min(spare - 30, 40))
        self.health = max(spare - (self.chart + 1 if self.chart else 0), 0)

    def heading(self) -> Line:
        """Titles of the columns."""
        parts = (
            [" " * (1 + self.index), left("GPU", self.name)] if self.name else [left("GPU", 1 + self.index)]
        )
        parts.append(" BUSY")
        if self.chart:
            parts.append(" " * self.chart)
        parts.append(f"{'MEM':>{self.memory}}")
        parts += [f"{'POWER':>6}"] if self.power else []
        parts += [f"{'TEMP':>6}"] if self.temperature else []
        parts += [f"{'CLOCK':>8}"] if self.clock else []
        return fitted((Span(" ".join(parts), "dim"),), self.width)


def gpu_row(
    context: PaneContext,
    columns: RowColumns,
    device: DeviceSample,
    findings: Sequence[GpuFinding],
    divided: str = "",
    *,
    is_selected: bool,
    has_branches: bool = False,
) -> Line:
    """A GPU in one row; `divided` describes its instances and replaces its name.

    With `has_branches` its instances have rows, which show their load.
    """
    values = device.values
    mark = "▸" if is_selected else " "
    index = f"{mark}{device.label:>{columns.index}}"
    spans = [Span(index, "accent" if is_selected else "title"), Span(" ")]
    if columns.name:
        spans.append(Span(left(divided or _short_name(word(values, "name")), columns.name) + " "))
    style = "dim" if device.problem is not None else ""
    shared = _busy_and_memory(context, columns, device, "sm_busy_pct", "busy", style)
    if has_branches and columns.chart:
        shared[:-1] = [Span(left("see the slices", 7 + columns.chart), "dim")]
    spans += shared
    tail = ""
    if columns.power:
        tail += f" {watts(number(values, 'power_w')):>6.6}"
    if columns.temperature:
        tail += f" {degrees(number(values, 'temperature_c'), context.units):>6.6}"
    if columns.clock:
        from_clock = number(values, "sm_clock_mhz")
        tail += f" {ABSENT if from_clock is None else f'{from_clock / 1000:.2f} GHz':>8.8}"
    spans.append(Span(tail + " ", style))
    if device.problem is not None and findings:
        why = clean(device.problem.reason)
        spans += [*findings_spans(findings[:1], brief=True), Span(" " + why, "dim")]
    else:
        health = findings_spans(findings, brief=True)
        if line_width(tuple(health)) > columns.health and len(findings) > 1:
            more = f" +{len(findings) - 1}"
            health = [*findings_spans(findings[:1], brief=True), Span(more, findings[1].severity)]
        spans += health
    return fitted(spans, columns.width)


def _busy_and_memory(
    context: PaneContext, columns: RowColumns, device: DeviceSample, key: str, metric: str, style: str
) -> list[Span]:
    """The columns that GPUs and instances share; `metric` is that of the chart."""
    used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
    spans = [Span(f"{percent(number(device.values, key)):>5.5} ", style)]
    if columns.chart:
        place = (device.device, metric)
        chart = context.charts.chart(place, columns.chart, 1, context.span_ns)
        drawn = chart.draw(context.history.series(*place), context.now_ns, 100.0)[0]
        spans += [Span(drawn, "chart"), Span(" ")]
    if columns.memory < 18:
        amount = f"{memory(used, context.units):>{columns.memory}.{columns.memory}}"
    else:
        amount = f"{memory_of(used, total, context.units):>18.18}"
    return [*spans, Span(amount, "warn" if is_full(device) else style)]


def instance_row(
    context: PaneContext,
    columns: RowColumns,
    instance: DeviceSample,
    findings: Sequence[GpuFinding],
    *,
    is_last: bool,
) -> Line:
    """A MIG instance below the row of its GPU, in those of its columns that have values."""
    room = 2 + columns.index + (columns.name + 1 if columns.name else 0)
    branch = "└" if is_last else "├"
    label = left(f" {instance.label} {profile_text(instance)}", room - 2) + " "
    style = "dim" if instance.problem is not None else ""
    spans = [Span(branch, "dim"), Span(label if columns.name else left(instance.label, room - 1))]
    spans += _busy_and_memory(context, columns, instance, "gpm_sm_active_pct", "sm", style)
    blank = sum(1 + one for one in (columns.power, columns.temperature, columns.clock) if one)
    spans.append(Span(" " * blank + " "))
    return fitted((*spans, *instance_state(instance, findings)), columns.width)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """The rows of one frame."""

    lines: list[Line]
    hits: list[tuple[Rect, int]]
    """The position of each GPU, relative to the strip's first row."""
    hidden: int
    """GPUs scrolled out of view."""


class GpuRows:
    """Rows that scroll with the selected GPU."""

    def __init__(self) -> None:
        self._first = 0

    def drawn(
        self,
        context: PaneContext,
        layout: Layout,
        gpus: Sequence[DeviceSample],
        instances: Mapping[int, Sequence[DeviceSample]],
        findings: Mapping[int, Sequence[GpuFinding]],
        selected: int | None,
        width: int,
    ) -> DrawnRows:
        """As many lines as the strip and the list of the layout have."""
        entries: list[tuple[DeviceSample, bool]] = []
        ends: set[int] = set()
        for gpu in gpus:
            entries.append((gpu, False))
            if layout.instances_shown:
                entries += [(instance, True) for instance in instances[gpu.device]]
            ends.add(entries[-1][0].device)
        rows = layout.list.height - layout.has_heading
        capacity = rows * layout.columns
        self._scroll_to(entries, capacity, selected)
        seen = entries[self._first : self._first + capacity]
        used_rows = rows if len(entries) > capacity else -(-len(entries) // layout.columns)
        each = (width - (layout.columns - 1)) // layout.columns
        index_width = max(2, *(len(gpu.label) - is_instance for gpu, is_instance in entries))
        lines, hits = _strip(context, layout.strip, gpus, selected)
        columns: list[list[Line]] = []
        for column in range(layout.columns):
            x = column * (each + 1)
            wide = width - x if column == layout.columns - 1 else each
            places = RowColumns(wide, index_width)
            block = [places.heading()] if layout.has_heading else []
            for device, is_instance in seen[column * used_rows : (column + 1) * used_rows]:
                if is_instance:
                    block.append(
                        instance_row(
                            context, places, device, findings[device.device], is_last=device.device in ends
                        )
                    )
                    continue
                hits.append((Rect(x, layout.list.y + len(block), wide, 1), device.device))
                is_selected = device.device == selected
                divided = instances_text(device, len(instances[device.device]))
                block.append(
                    gpu_row(
                        context,
                        places,
                        device,
                        findings[device.device],
                        divided,
                        is_selected=is_selected,
                        has_branches=layout.instances_shown and bool(instances[device.device]),
                    )
                )
            columns.append(filled(block, wide, layout.list.height))
        shown = sum(not is_instance for _, is_instance in seen)
        return DrawnRows(lines + side_by_side(columns, width), hits, len(gpus) - shown)

    def _scroll_to(
        self, entries: Sequence[tuple[DeviceSample, bool]], capacity: int, selected: int | None
    ) -> None:
        at = next((n for n, (gpu, _) in enumerate(entries) if gpu.device == selected), None)
        if at is not None and at < self._first:
            self._first = at
        elif at is not None and at >= self._first + capacity:
            self._first = at - capacity + 1
        self._first = min(max(self._first, 0), max(len(entries) - capacity, 0))


def _strip(
    context: PaneContext, box: Rect, gpus: Sequence[DeviceSample], selected: int | None
) -> tuple[list[Line], list[tuple[Rect, int]]]:
    """The load of all GPUs, a cell for each."""
    room = max(box.width - STRIP_LABEL, 1)
    lines: list[Line] = []
    hits: list[tuple[Rect, int]] = []
    for row in range(box.height):
        spans = [Span(left("busy" if row == 0 else "", STRIP_LABEL), "dim")]
        for place, gpu in enumerate(gpus[row * room : (row + 1) * room]):
            share = number(gpu.values, "sm_busy_pct") if gpu.problem is None else None
            style = "alarm" if share is None else "chart"
            cell = heat((share,), 100.0, ascii_only=context.ascii_only)
            if share is None and gpu.problem is None and gpu.values.get("mig_mode") == 1:
                cell, style = "m", "dim"  # the driver reports no load for a GPU that MIG divides
            spans.append(Span(cell, "selected" if gpu.device == selected else style))
            hits.append((Rect(STRIP_LABEL + place, row, 1, 1), gpu.device))
        lines.append(fitted(spans, box.width))
    return lines, hits


def _short_name(name: str) -> str:
    """Without the vendor: a row has room for the part that distinguishes GPUs."""
    return clean(name[:256]).strip().removeprefix("NVIDIA ").removeprefix("AMD ")
