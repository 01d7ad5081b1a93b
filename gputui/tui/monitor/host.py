"""The host: in one row, or in charts where there is no GPU."""

from __future__ import annotations

import re

from gputui.analysis.health import age
from gputui.metrics import memory_of, memory_scale, number, three_digits_of, with_unit, word
from gputui.model.telemetry import DeviceSample
from gputui.tui.monitor.frame import FIGURE_STYLES, Frame
from gputui.tui.monitor.metric_chart import charts
from gputui.tui.monitor.metrics import OF_THE_HOST
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut, filled, fitted, left, line_width, wrapped
from gputui.tui.widgets.charts import heat
from gputui.tui.widgets.load import LoadLevel

_GAUGE = 12


def host_line(frame: Frame, width: int) -> Line:
    """`host  cpu 17 of 96 cores ━──  mem 230 of 1008 GiB ━──  load 17.4  disk 2 MB/s  net 313 MB/s`."""
    host = frame.sample.host
    spans = [Span("host", "title")]
    if host.problem is not None:
        return fitted((*spans, Span("  " + clean(host.problem.reason), "alarm")), width)
    values = host.values
    age_s = (frame.now_ns - host.t_ns) / 1e9
    if age_s >= frame.stale_after_s:
        spans.append(Span(f"  STALE {age(age_s)}", "warn"))
    room = _GAUGE if width >= 100 else 8 if width >= 76 else 0
    busy, limit = number(values, "cpu_busy_pct"), number(values, "cpu_limit_cores")
    of = f" of {limit:g} cores" if limit is not None else " cores"
    load = LoadLevel.IDLE if busy is None or not limit else frame.loads.at("cpu", busy / limit, frame.now_ns)
    spans += [
        Span("  cpu ", "dim"),
        Span(three_digits_of(None if busy is None else busy / 100)),
        Span(of, "dim"),
    ]
    if room:
        spans += [Span(" "), *frame.gauge("cpu", busy, 100 * (limit or 0), room, load.style("link"))]
    used, total = number(values, "memory_used_bytes"), number(values, "memory_total_bytes")
    load, scale = frame.load_of_memory(host), memory_scale(frame.units)
    of = f" of {three_digits_of(total / scale)}" if total else ""
    figure = three_digits_of(None if used is None else used / scale)
    spans += [Span("  mem ", "dim"), Span(figure, FIGURE_STYLES[max(load, LoadLevel.WORKING)])]
    spans.append(Span(f"{of} {frame.units.memory}", "dim"))
    if room:
        spans += [Span(" "), *frame.gauge("host memory", used, total or 0.0, room, load.style("memory"))]
    for part in _rest(frame, host, width):
        if line_width((*spans, part)) <= width:
            spans.append(part)
    return fitted(spans, width)


def _rest(frame: Frame, host: DeviceSample, width: int) -> list[Span]:
    """What is shown while there is room."""
    values = host.values
    parts: list[Span] = []
    swap = number(values, "swap_used_bytes")
    if swap:
        text = memory_of(swap, number(values, "swap_total_bytes"), frame.units)
        parts.append(Span(f"  swap {text}", "warn"))
    load = number(values, "load_1min")
    if load is not None:
        parts.append(Span(f"  load {load:.1f}", "dim"))
    if width < 100:
        return parts
    for metric in OF_THE_HOST:
        amount = metric.amount(values) if metric.unit == "B/s" else None
        if amount is not None:
            parts.append(Span(left(f"  {metric.name} {with_unit(amount, 'B/s')}", 17), "dim"))
    return parts


def without_gpus(frame: Frame, opening: str, width: int, height: int) -> list[Line]:
    """Why there is no GPU, what works without (`opening`), and the host in charts."""
    if height < 1:
        return []
    host = frame.sample.host
    lines: list[Line] = []
    for missing in frame.sample.absent.values():
        for row in wrapped(clean(missing.reason), width, 2):
            lines.append(fitted((Span(row),), width))
    if not lines:
        lines = [fitted((Span("no GPU was found"),), width)]
    lines = lines[: max(height - 1, 1)]
    if opening and height >= len(lines) + 8:
        for row in wrapped(f"You can still: {opening}", width, 2):
            parts = re.split(r"(\b\d\b)", row)
            lines.append(fitted([Span(part, "accent" * part.isdigit()) for part in parts], width))
    name = clean(word(host.values, "name")[:256]).strip()
    room = height - len(lines)
    if room < 5 or host.problem is not None:
        return filled([*lines, host_line(frame, width)], width, height)
    lines.append(fitted((Span("host", "title"), Span(f"  {cut(name, width - 6)}", "dim")), width))
    per_core = host.values.get("cpu_core_pct")
    core_lines = _cores(per_core, width) if isinstance(per_core, str) and room >= 12 else []
    lines += charts(frame, host, OF_THE_HOST, width, room - 1 - len(core_lines))
    return filled([*lines, *core_lines], width, height)


def _cores(text: str, width: int) -> list[Line]:
    """One cell for each core."""
    shares: list[float | None] = []
    for part in text.split(",")[:4096]:
        try:
            shares.append(float(part))
        except ValueError:
            shares.append(None)
    drawn = heat(shares)
    lines = []
    for start in range(0, len(drawn), max(width - 9, 1)):
        label = "cores" if start == 0 else ""
        piece = drawn[start : start + max(width - 9, 1)]
        lines.append(fitted((Span(left(label, 9), "dim"), Span(piece, "link 1")), width))
    return lines
