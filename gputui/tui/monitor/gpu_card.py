"""A GPU as a card: its health, charts, its memory, its links."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.health import is_lost
from gputui.metrics import Metric, memory_scale, number, three_digits_of, with_unit
from gputui.model.telemetry import DeviceSample
from gputui.model.units import format_usd
from gputui.tui.monitor.frame import FIGURE_STYLES, Frame, findings_spans, idle_text, is_idle
from gputui.tui.monitor.layout import CARD_GAP, Rect
from gputui.tui.monitor.metric_chart import chosen_metrics, figure_style, with_gauge
from gputui.tui.monitor.metrics import BY_ID, OF_GPUS, note_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, filled, fitted, line_width, side_by_side, width_of, wrapped
from gputui.tui.widgets.charts import body_styles, fitting_note

_CLOCK, _NVLINK = BY_ID["clock"], BY_ID["nvlink"]
_LABEL = 7
_THREE_CHARTS_FROM, _FOUR_CHARTS_FROM = 16, 28
"""From so many rows on, a card has more than two charts, one of them in place of the memory's gauge."""
_GAUGE_AT, _GAUGE = 14, 10
"""First cell and width of the gauge of `busy`."""


def gpu_cards(frame: Frame, boxes: Sequence[Rect], width: int) -> list[Line]:
    """A card in each box, in bands with a blank row between them where the layout has one."""
    lines: list[Line] = []
    for y in sorted({box.y for box in boxes}):
        lines = filled(lines, width, y)
        band = [
            gpu_card(frame, gpu, box.width, box.height)
            for gpu, box in zip(frame.gpus, boxes, strict=True)
            if box.y == y
        ]
        lines += side_by_side(band, width, CARD_GAP)
    return lines


def gpu_card(frame: Frame, device: DeviceSample, width: int, height: int) -> list[Line]:
    """Exactly `height` lines, at least eight."""
    lines = [_heading(frame, device, width)]
    charted = _charted(frame, device, height)
    if device.problem is not None:
        return filled([*lines, *_unread(frame, device, charted[0], width, height - 1)], width, height)
    has_gauge = all(metric.id != "memory" for metric in charted)
    room = height - 2 - has_gauge - len(charted)
    for place, metric in enumerate(charted):
        share = room // len(charted) + (place < room % len(charted))
        lines.append(_title(frame, device, metric, width))
        ceiling = frame.ceiling(device, metric)
        drawn = frame.chart(device.device, metric, ceiling, width, share)
        rows = [Span(*row) for row in zip(drawn, body_styles(metric.hue, share), strict=True)]
        shown = [] if metric.id == "busy" else with_gauge(frame, device, metric, rows[0], drawn[-1], ceiling)
        lines += [tuple(shown or rows[:1]), *((row,) for row in rows[1:])]
    if has_gauge:
        lines.append(_memory(frame, device, width))
    return filled([*lines, _links(device, width)], width, height)


def _charted(frame: Frame, device: DeviceSample, height: int) -> list[Metric]:
    """What has a chart, in the order of the settings; at least one metric."""
    count = 4 if height >= _FOUR_CHARTS_FROM else 3 if height >= _THREE_CHARTS_FROM else 2
    has_memory = count > 2 and any(metric.id == "memory" for metric in frame.metrics)
    charted: list[Metric] = []
    room = count - has_memory
    for metric in chosen_metrics(frame, device):
        if metric.id != "memory" and room:
            charted.append(metric)
            room -= 1
        elif metric.id == "memory" and has_memory:
            charted.append(metric)
    return charted or [OF_GPUS[0]]


def _heading(frame: Frame, device: DeviceSample, width: int) -> Line:
    """`─ 0 ─ POWER-CAPPED at 600 W ───────── 66 °C ─`."""
    is_selected = device.device == frame.selected
    findings = frame.findings[device.device]
    name = Span(("▸" if is_selected else "") + device.label, "accent" if is_selected else "title")
    end: list[Span] = []
    if device.problem is None:
        text = with_unit(number(device.values, "temperature_c"), "°C", frame.units)
        load = frame.load_of_temperature(device)
        end = [Span(f" {text} ", FIGURE_STYLES[load] if load else "dim"), Span("─", "track")]
    state: list[Span] = []
    room = width - line_width((name, *end)) - 7
    if findings:
        state = [*findings_spans(findings, room, brief=True)]
    elif is_idle(frame, device):
        state = [Span(idle_text(frame, device), "dim")]
    begin = [Span("─ ", "track"), name, Span(" ─ " if state else " ", "track"), *state]
    rule = max(width - line_width((*begin, *end)) - (2 if state else 0), 0)
    return fitted(
        (*begin, Span((" " if state else "") + "─" * rule + ("─" if state else ""), "track"), *end), width
    )


def _title(frame: Frame, device: DeviceSample, metric: Metric, width: int) -> Line:
    text, clock_mhz = metric.text(metric.amount(device.values), frame.units), _CLOCK.amount(device.values)
    limit = number(device.values, "power_limit_w")
    if metric.id == "power" and limit is not None:
        text += f" of {limit:.0f}"
    if metric.id == "power" and clock_mhz is not None:
        clock = _CLOCK.text(clock_mhz)
        note = f"{clock} {_CLOCK.limit_text(device.values, after=clock)}".rstrip()
    else:
        note = clean(note_of(metric, device.values, frame.units))
    spans = [Span(f"{metric.name:<{_LABEL}}", "dim"), Span(text, figure_style(frame, device, metric))]
    taken = line_width(spans)
    note = fitting_note(note, width - taken - 2)
    end = width - width_of(note)
    blank = end - taken
    if metric.id == "busy" and end >= _GAUGE_AT + _GAUGE + 2:
        blank = _GAUGE_AT - taken
        busy_pct = number(device.values, "sm_busy_pct")
        style = frame.load_of_busy(device, busy_pct).style("compute")
        gauge = frame.gauge((device.device, "busy"), busy_pct, 100.0, _GAUGE, style)
        spans += [Span(" " * blank), *gauge]
        blank = end - _GAUGE_AT - _GAUGE
    return fitted((*spans, Span(" " * blank), Span(note, "dim")), width)


def _memory(frame: Frame, device: DeviceSample, width: int) -> Line:
    used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
    scale, load = memory_scale(frame.units), frame.load_of_memory(device)
    figure = f"{three_digits_of(None if used is None else used / scale):>4}"
    end = f" of {three_digits_of(total / scale)} {frame.units.memory}" if total else f" {frame.units.memory}"
    room = max(width - _LABEL - 5 - len(end), 0)
    gauge = frame.gauge((device.device, "memory"), used, total or 0.0, room, load.style("memory"))
    head = Span(f"{'memory':<{_LABEL}}", "dim"), Span(figure + " ", FIGURE_STYLES[load])
    return fitted((*head, *gauge, Span(end, "dim")), width)


def _links(device: DeviceSample, width: int) -> Line:
    values = device.values
    generation, lanes = number(values, "pcie_generation"), number(values, "pcie_width")
    widest, received = number(values, "pcie_width_max"), number(values, "pcie_rx_bytes_per_s")
    is_narrow = bool(lanes and widest and lanes < widest)
    text = "PCIe" + (f" gen{generation:.0f}" if generation else "") + (f" x{lanes:.0f}" if lanes else "")
    text += f"  in {with_unit(received, 'B/s')}" if received is not None else ""
    both = _NVLINK.amount(values)
    end = f"NVLink {with_unit(both, 'B/s')}" if both else ""
    blank = width - width_of(text) - width_of(end)
    if blank < 2:
        end, blank = "", max(width - width_of(text), 0)
    return fitted((Span(text, "warn" if is_narrow else "dim"), Span(" " * blank), Span(end, "dim")), width)


def _unread(frame: Frame, device: DeviceSample, metric: Metric, width: int, height: int) -> list[Line]:
    """Why there is nothing, what it costs, and what the GPU did before."""
    assert device.problem is not None
    lines = [fitted((Span(row),), width) for row in wrapped(clean(device.problem.reason), width, 3)]
    price = frame.ledger.usd_per_hour
    if price is not None and is_lost(device.problem):
        amount = format_usd(price / len(frame.gpus))
        lines.append(fitted((Span(f"{amount}/h while it is lost", "warn"),), width))
    rows = min(height - len(lines) - 1, 3)
    if rows > 0 and frame.history.series(device.device, metric.id) is not None:
        drawn = frame.chart(device.device, metric, frame.ceiling(device, metric), width, rows)
        lines += [(Span(row, "stale"),) for row in drawn]
        lines.append(fitted((Span(f"{metric.name} until then", "dim"),), width))
    return lines
