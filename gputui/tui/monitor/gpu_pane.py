"""A GPU as a pane: a heading with its health, then a row for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputui.analysis.health import GpuFinding
from gputui.model.live import DeviceSample
from gputui.model.units import format_usd
from gputui.tui.monitor.metrics import (
    ALWAYS,
    PaneMetric,
    degrees,
    memory_of,
    number,
    percent,
)
from gputui.tui.monitor.pane_context import (
    PaneContext,
    account_text,
    device_title,
    instance_state,
    instances_text,
    is_full,
    metric_lines,
    profile_text,
)
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, ruled
from gputui.tui.widgets.charts import gauge
from gputui.tui.widgets.wrapping import wrapped

TWO_METRICS = 104
"""From this width on, metrics are shown in two columns if there are more than rows."""
MOST_CHART_ROWS = 3
_PROFILE_WIDTH = 10
"""Of `1c.2g.20gb`."""
_SM_WIDTH = 10
"""Of `sm 100 %` and two blanks."""
_OUTSIDE_CHART = 71
"""Cells of an instance's row outside its chart."""


def gpu_pane(
    context: PaneContext,
    device: DeviceSample,
    instances: Sequence[DeviceSample],
    findings: Sequence[GpuFinding],
    of_instances: Mapping[int, Sequence[GpuFinding]],
    width: int,
    height: int,
    gpus_of_box: int,
    *,
    is_selected: bool,
) -> list[Line]:
    """Exactly `height` lines. `of_instances` holds the findings of the instances, by device."""
    divided = instances_text(device, len(instances))
    lines = [heading(context, device, findings, width, gpus_of_box, divided, is_selected=is_selected)]
    room = height - 1 - len(instances)
    tail: list[Line] = []
    if has_account(height, len(instances)):
        used = account_text(context, (context.ledger.account(device.device),), gpus_of_box)
        tail = [fitted((Span(used, "dim"),), width)]
        room -= 1
    if device.problem is not None:
        why = wrapped(clean(device.problem.reason), width, 3 if room >= 6 else 1)
        why = why[: max(room, 0)]
        lines += [fitted((Span(row, findings[0].severity if findings else "alarm"),), width) for row in why]
        room -= len(why)
    lines += _metrics(context, device, width, room)
    lines += [
        instance_line(context, one, of_instances[one.device], width, is_last=one is instances[-1])
        for one in instances
    ]
    lines += tail
    blank = fitted((), width)
    return [*lines, *[blank] * (height - len(lines))][:height]


def has_account(height: int, instances: int) -> bool:
    """Whether a pane has room for the account of its GPU."""
    return height - 1 - instances >= 4


def heading(
    context: PaneContext,
    device: DeviceSample,
    findings: Sequence[GpuFinding],
    width: int,
    gpus_of_box: int,
    divided: str = "",
    *,
    is_selected: bool,
) -> Line:
    """`─ 0 H200 SXM ── POWER-CAPPED 12 % of 5 min ── 71 °C ── gen5 x16 ── $4.59/h ─`."""
    values = device.values
    title = ("▸" if is_selected else "") + device_title(device)
    words = [Span(clean(finding.word), finding.severity) for finding in findings]
    if sum(len(span.text) + 4 for span in words) > width // 2:
        words = [Span(clean(finding.brief), finding.severity) for finding in findings]
    parts = [Span(title, "accent" if is_selected else "title"), Span(divided), *words]
    temperature = number(values, "temperature_c")
    if temperature is not None and device.problem is None:
        parts.append(Span(degrees(temperature, context.units)))
    generation, lanes = number(values, "pcie_generation"), number(values, "pcie_width")
    if generation and lanes and device.problem is None:
        parts.append(Span(f"gen{generation:.0f} x{lanes:.0f}", "dim"))
    state = number(values, "pstate")
    if state is not None and device.problem is None:
        parts.append(Span(f"P{state:.0f}", "dim"))
    if gpus_of_box == 1 and context.ledger.usd_per_hour is not None:
        parts.append(Span(f"{format_usd(context.ledger.usd_per_hour)}/h", "dim"))
    return ruled(parts, width)


def chosen_metrics(context: PaneContext, device: DeviceSample) -> list[PaneMetric]:
    """The metrics that get a row; of those that the device never had, only the first few do."""
    return [
        metric
        for place, metric in enumerate(context.metrics)
        if place < ALWAYS
        or metric.amount(device.values) is not None
        or context.history.series(device.device, metric.id) is not None
    ]


def _metrics(context: PaneContext, device: DeviceSample, width: int, room: int) -> list[Line]:
    metrics = chosen_metrics(context, device)
    if room <= 0 or not metrics:
        return []
    lines: list[Line] = []
    if width >= TWO_METRICS and len(metrics) > room:
        half = (width - 2) // 2
        for place in range(0, min(len(metrics), 2 * room), 2):
            here = metric_lines(context, device, metrics[place], half)[0]
            if place + 1 == len(metrics):
                lines.append(fitted(here, width))
                break
            there = metric_lines(context, device, metrics[place + 1], width - half - 2)[0]
            lines.append(fitted((*here, Span("  "), *there), width))
        return lines
    spare = max(room - len(metrics), 0)
    for place, metric in enumerate(metrics[:room]):
        extra = min(-(-spare // (len(metrics) - place)), MOST_CHART_ROWS - 1)
        extra = extra if metric.amount(device.values) is not None else 0
        spare -= extra
        lines += metric_lines(context, device, metric, width, 1 + extra)
    return lines


def instance_line(
    context: PaneContext, instance: DeviceSample, findings: Sequence[GpuFinding], width: int, *, is_last: bool
) -> Line:
    """A MIG instance in one row: `├ 0:1 1g.10gb   sm 61 %  ━━━━━━╸───  6.3 of 9.8 GiB`."""
    values = instance.values
    used, total = number(values, "memory_used_bytes"), number(values, "memory_total_bytes")
    spans = [
        Span("└ " if is_last else "├ ", "dim"),
        Span(left(instance.label, 5), "title"),
        Span(left(profile_text(instance), _PROFILE_WIDTH) + " "),
        Span(left(f"sm {percent(number(values, 'gpm_sm_active_pct'))}", _SM_WIDTH)),
    ]
    if width >= 60:
        chart_width = min(max(width - _OUTSIDE_CHART, 0), 40)
        if chart_width >= 8:
            key = (instance.device, "sm")
            chart = context.charts.chart(key, chart_width, 1, context.span_ns)
            drawn = chart.draw(context.history.series(*key), context.now_ns, 100.0)[0]
            spans += [Span(drawn, "chart"), Span("  ")]
        filled, rest = gauge(used, total or 0.0, 10)
        spans += [Span(filled, "warn" if is_full(instance) else "accent"), Span(rest, "dim"), Span("  ")]
    spans.append(Span(memory_of(used, total, context.units) + "  "))
    return fitted((*spans, *instance_state(instance, findings)), width)
