"""GPUs as rows of a table, in columns and scrolled if necessary; and what replaces them: all values of one
GPU, and the choice of metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from gputui.analysis.health import CAUSES, age
from gputui.document.spans import Line, Span, width_of
from gputui.metrics import ABSENT, GIB, METRICS, Metric, number, three_digits_of, with_unit
from gputui.model.absent import Missing
from gputui.model.telemetry import LOST, DeviceSample, Value
from gputui.model.units import format_percent, with_prefix
from gputui.tui.monitor.cards import with_gauge
from gputui.tui.monitor.frame import (
    FIGURE_STYLES,
    Frame,
    account_text,
    device_title,
    findings_spans,
    idle_text,
    is_idle,
    profile_text,
    short_name,
    slices_of,
    span_text,
)
from gputui.tui.monitor.history import LoadLevel
from gputui.tui.monitor.layout import Layout, Rect
from gputui.tui.monitor.settings import BY_ID, OF_GPUS
from gputui.tui.widgets.cells import (
    clean,
    facts_lines,
    filled,
    fitted,
    left,
    right,
    ruled,
    side_by_side,
    wrapped,
)

_BUSY, _POWER, _SM = (BY_ID[name] for name in ("busy", "power", "sm"))


_Cells = Callable[[DeviceSample, str], Iterable[Span]]
"""A column of a GPU, or with a branch of a MIG instance below its GPU."""


def _columns(
    frame: Frame, width: int, labels: int, of_each: float | None, kinds: str, *, differ: bool
) -> list[tuple[int, str, _Cells]]:
    """Width, heading and cells of the columns of a table so wide: figures, shapes beside them, and health.

    `of_each` is the memory of each GPU; where those `differ`, each has its own behind it. `kinds` heads the
    column of names.
    """
    span = f", {span_text(frame.span_ns)}"
    kind = 11 if kinds and width >= 56 else 0
    total = 7 if differ and width >= 64 else 0
    clock = 6 if width >= 104 else 0
    # The figures: index, busy, memory, watts, degrees, and the gaps before them.
    room = width - (1 + labels) - kind - 5 - 7 - total - 7 - 5 - clock - 2
    health = min(max(room * 2 // 5, 12), 30)
    room -= health
    busy = min(room * 2 // 5, 41) if room >= 16 else 0
    power = min(room // 3, 21) if width >= 110 else 0
    memory = min(room - busy - power, 17) if room >= 8 else 0
    held = "MEMORY"
    if of_each is not None and memory > 8:
        held += f" of {three_digits_of(of_each / GIB)} GiB"
    elif memory:
        held += ", GiB"
    rest = room - busy - power - memory + health
    columns: tuple[tuple[int, str, _Cells], ...] = (
        (1 + labels, "GPU", partial(_label, frame, labels)),
        (kind, f" {kinds}", partial(_kind, frame, kind)),
        (5 + busy, f"  BUSY %{span if busy > 9 else ''}" if busy else " BUSY", partial(_busy, frame, busy)),
        (
            7 + memory + total,
            f"  {held}" if memory else right("GiB", 7),
            partial(_memory, frame, memory, total),
        ),
        (
            7 + power,
            f"  WATTS{span if power > 9 else ''}" if power else right("WATTS", 7),
            partial(_watts, frame, power),
        ),
        (5, right("°C", 5), partial(_degrees, frame)),
        (clock, right("GHz", clock), partial(_clock, frame)),
        (2 + rest, "  HEALTH", partial(_health, frame, rest)),
    )
    return [column for column in columns if column[0]]


def _label(frame: Frame, width: int, device: DeviceSample, branch: str) -> list[Span]:
    is_selected = device.device == frame.selected
    mark = Span(branch or ("▸" if is_selected else " "), "track" if branch else "accent")
    return [mark, Span(right(device.label, width), "accent" if is_selected else "title")]


def _kind(frame: Frame, width: int, device: DeviceSample, branch: str) -> list[Span]:
    kind = profile_text(device) if branch else slices_of(frame, device)
    if not any(frame.instances.values()):
        kind = short_name(device)
    return [Span(left(" " + kind, width), "" if branch else "dim")]


def _watts(frame: Frame, width: int, device: DeviceSample, branch: str) -> list[Span]:
    power_w = number(device.values, "power_w")
    figure = _figure(device, power_w, ".0f", 7, FIGURE_STYLES[frame.load_of_power(device)])
    return [figure, Span(" "), _history(frame, device, _POWER, width - 1)] if width else [figure]


def _degrees(frame: Frame, device: DeviceSample, branch: str) -> list[Span]:
    celsius = number(device.values, "temperature_c")
    style = "dim" if device.problem is not None else FIGURE_STYLES[frame.load_of_temperature(device)]
    return [_figure(device, celsius, ".0f", 5, style)]


def _clock(frame: Frame, device: DeviceSample, branch: str) -> list[Span]:
    megahertz = number(device.values, "sm_clock_mhz")
    ghz = None if megahertz is None else megahertz / 1000
    return [_figure(device, ghz, ".2f", 6, FIGURE_STYLES[frame.load_of_power(device)])]


def _figure(device: DeviceSample, value: float | None, form: str, width: int, style: str) -> Span:
    """Blank of a MIG instance, which has no such value."""
    text = ABSENT if value is None or device.problem is not None else f"{value:{form}}"
    return Span(f"{'' if device.parent is not None else text:>{width}}", style)


def _history(frame: Frame, device: DeviceSample, metric: Metric, width: int) -> Span:
    ceiling = frame.ceiling(device, metric)
    drawn = frame.chart(device.device, metric, ceiling, width, 1)[0]
    return Span(drawn, "stale" if device.problem is not None else f"{metric.hue} 1")


def _busy(frame: Frame, width: int, device: DeviceSample, branch: str) -> list[Span]:
    """The driver reports no load for a GPU that MIG divides; an instance has that of its SMs."""
    metric = _SM if device.parent is not None else _BUSY
    share = None if device.problem is not None else metric.amount(device.values)
    text = ABSENT if share is None else f"{share:.0f}"
    figure = Span(f"{text:>5}", FIGURE_STYLES[frame.load_of_busy(device, share)])
    if not width:
        return [figure]
    if frame.instances.get(device.device):
        return [Span(left("  see below", 5 + width), "dim")]
    history = _history(frame, device, metric, width - 1)
    gauge = with_gauge(frame, device, metric, history, history.text, 100.0)
    return [figure, Span(" "), *(gauge or [history])]


def _memory(frame: Frame, width: int, of: int, device: DeviceSample, branch: str) -> list[Span]:
    used, total = number(device.values, "memory_used_bytes"), number(device.values, "memory_total_bytes")
    used = None if device.problem is not None else used
    load = frame.load_of_memory(device)
    spans = [Span(f"{three_digits_of(None if used is None else used / GIB):>7}", FIGURE_STYLES[load])]
    if width:
        key = (device.device, "memory")
        gauge = frame.gauge(key, used, total or 0.0, width - 1, load.style("memory"))
        spans += [Span(" "), *gauge]
    if of:
        text = f" of {three_digits_of(total / GIB)}" if total else ""
        spans.append(Span(left(text, of), "dim"))
    return spans


def _health(frame: Frame, room: int, device: DeviceSample, branch: str) -> list[Span]:
    findings, gap = frame.findings[device.device], Span("  ")
    if device.problem is not None:
        why = clean(device.problem.reason).removeprefix(f"{LOST}: ")
        return [gap, *findings_spans(findings[:1], room, brief=True), Span("  " + why, "dim")]
    spans = [gap]
    if device.parent is not None and frame.load_of_memory(device) is LoadLevel.NEAR_LIMIT:
        spans += [Span("FULL", "warn"), gap]
        room -= 6
    is_past = all(finding.severity == "note" for finding in findings)
    if is_past and len(spans) == 1 and is_idle(frame, device):
        return [gap, Span(idle_text(frame, device) if device.parent is None else "idle", "dim")]
    return [*spans, *findings_spans(findings, room, brief=True)]


def gpu_table(
    frame: Frame, layout: Layout, width: int, first: int
) -> tuple[list[Line], list[tuple[Rect, int]], int]:
    """As many lines as the list of the layout has; it scrolls with the selected GPU.

    `first` is the first row in sight. Also returns where each GPU in sight is, and the new `first`.
    """
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
    has_slices = any(frame.instances.values())
    are_shown = layout.instances_shown and has_slices
    are_several = len({short_name(gpu) for gpu in frame.gpus if gpu.problem is None}) > 1
    kinds = ("SLICE" if has_slices else "KIND") if are_shown or are_several else ""
    labels = max(2, *(len(device.label) for device, _ in entries))
    differ = are_shown or len(totals) > 1
    columns = _columns(frame, each, labels, None if differ or not totals else totals[0], kinds, differ=differ)
    headings = "".join(left(text, cells) for cells, text, _ in columns)
    heading = fitted((Span(headings.rstrip(), "dim"),), each)
    hits: list[tuple[Rect, int]] = []
    blocks: list[list[Line]] = []
    for column in range(layout.columns):
        block = [heading] if layout.has_heading else []
        for device, branch in seen[column * used_rows : (column + 1) * used_rows]:
            if not branch:
                place = Rect(column * (each + gap), layout.list.y + len(block), each, 1)
                hits.append((place, device.device))
            block.append(fitted((span for *_, cells in columns for span in cells(device, branch)), each))
        blocks.append(filled(block, each, layout.list.height))
    return side_by_side(blocks, width, gap), hits, first


REASONS: tuple[tuple[int, str], ...] = (
    (0x1, "idle"),
    (0x2, "clocks set by an application"),
    (0x4, "power limit"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "heat"),
    (0x40, "heat, by the hardware"),
    (0x80, "power brake"),
    (0x100, "clocks of the display"),
)
"""Clocks-event reasons, nvml.h."""


def details_lines(frame: Frame, device: DeviceSample, width: int) -> list[Line]:
    """All values of one GPU and its MIG instances, as many lines as needed."""
    lines = [ruled((Span(device_title(device), "title"), Span("details")), width)]
    findings = frame.findings[device.device]
    for finding in findings:
        for row in wrapped(f"{clean(finding.word)}: {clean(finding.why)}", width, 4):
            lines.append(fitted((Span(row, finding.style),), width))
    if not findings:
        lines.append(fitted((Span("no problems", "good"),), width))
    account = frame.ledger.accounts[device.device]
    lines.append(fitted((Span(account_text(frame, (account,))),), width))
    shares = [(name, account.throttling.share(name)) for name, _, _ in CAUSES]
    causes = ", ".join(f"{name} {format_percent(share)}" for name, share in shares if share is not None)
    if causes:
        lines.append(
            fitted((Span(f"slowed, of the last {age(account.throttling.span_s)}: {causes}"),), width)
        )
    lines.append(fitted((), width))
    lines += _values(frame, device, frame.sample.absent, width)
    for one in frame.instances[device.device]:
        lines += [fitted((), width), ruled((Span(device_title(one), "title"), Span("MIG instance")), width)]
        lines += _values(frame, one, {}, width)
    return lines


def _values(frame: Frame, device: DeviceSample, absent: Mapping[str, Missing], width: int) -> list[Line]:
    lines: list[Line] = []
    present = [(key, value) for key, value in device.values.items() if not isinstance(value, Missing)]
    shown = [(_name_of(key), value_text(key, value)) for key, value in present]
    shown += [("source", clean(device.source)), ("read", f"{age((frame.now_ns - device.t_ns) / 1e9)} ago")]
    label_cells = min(max((width_of(label) for label, _ in shown), default=0) + 2, 24)
    lines += facts_lines(shown, width, label_cells, max(width // 40, 1))
    why: dict[str, list[str]] = {}
    for key, value in device.values.items():
        if isinstance(value, Missing):
            why.setdefault(clean(value.reason), []).append(_name_of(key))
    for name, missing in absent.items():
        why.setdefault(clean(missing.reason), []).append(f"all of {clean(name)}")
    if why:
        lines += [fitted((), width), ruled((Span("absent, and why"),), width)]
    for reason, labels in why.items():
        for row in wrapped(f"{reason}: {', '.join(labels)}", width, 12):
            lines.append(fitted((Span(row, "dim"),), width))
    return lines


def metrics_lines(chosen: Sequence[str], cursor: int, width: int) -> list[Line]:
    """All metrics, with the chosen ones checked; line n is OF_GPUS[n - 1]."""
    lines = [ruled((Span("metrics", "title"), Span("enter chooses, esc leaves", "dim")), width)]
    for place, metric in enumerate(OF_GPUS):
        mark = "[x]" if metric.id in chosen else "[ ]"
        text = f"{mark} {left(metric.id, 13)} {metric.title}"
        lines.append(fitted((Span(left(text, width), "selected" if place == cursor else ""),), width))
    return lines


def value_text(key: str, value: Value) -> str:
    """One value with the unit that its key implies."""
    if isinstance(value, Missing):
        return clean(value.reason)
    if isinstance(value, str):
        return clean(value[:1000]).strip() or "(empty)"
    show = next((show for ending, show in _TEXTS.items() if key.endswith(ending)), None)
    return f"{value:g}" if show is None else show(value)


def _reasons(bits: float) -> str:
    return ", ".join(name for bit, name in REASONS if int(bits) & bit) or "none"


_TEXTS: Mapping[str, Callable[[float], str]] = {
    "throttle_bits": _reasons,
    "mig_mode": lambda value: "on" if value else "off",
    "is_memory_shared": lambda value: "yes" if value else "no",
    "_mj": lambda value: "{} {}J".format(*with_prefix(value / 1e3)),
    "_mhz": lambda value: f"{value:.0f} MHz",
    "_ns": lambda value: f"{value / 1e9:.1f} s",
    "_bytes_per_s": lambda value: with_unit(value, "B/s"),
    "_bytes": lambda value: with_unit(value, "B"),
    "_pct": lambda value: with_unit(value, "%"),
    "_w": lambda value: with_unit(value, "W"),
    "_c": lambda value: with_unit(value, "°C"),
}
"""By the key, or how it ends."""


_LABELS = {one.key: one.name for one in METRICS if one.scope == "gpu" and (one.code or one.id == "sm")}


def _name_of(key: str) -> str:
    if key in _LABELS:
        return _LABELS[key]
    key = re.sub("_(mj|mhz|ns|bytes_per_s|bytes|pct|w|c)$", "", key)
    return clean(key.removeprefix("gpm_").removeprefix("is_")).replace("_", " ")
