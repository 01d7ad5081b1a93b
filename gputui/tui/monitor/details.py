"""Lists that replace the panes: all values of one GPU, and the choice of metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gputui.analysis.health import CAUSES, age
from gputui.metrics import METRICS, Units, with_unit
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, Value
from gputui.model.units import format_percent, with_prefix
from gputui.tui.monitor.frame import Frame, account_text, device_title
from gputui.tui.monitor.metrics import OF_GPUS
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, fitted, left, ruled, width_of, wrapped
from gputui.tui.widgets.sections import facts_lines

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
    account = frame.ledger.account(device.device)
    lines.append(fitted((Span(account_text(frame, (account,), len(frame.gpus))),), width))
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
    """The known values, and the reasons why others are absent."""
    lines: list[Line] = []
    present = [(key, value) for key, value in device.values.items() if not isinstance(value, Missing)]
    shown = [(_label(key), value_text(key, value, frame.units)) for key, value in present]
    shown += [("source", clean(device.source)), ("read", f"{age((frame.now_ns - device.t_ns) / 1e9)} ago")]
    label_cells = min(max((width_of(label) for label, _ in shown), default=0) + 2, 24)
    lines += facts_lines(shown, width, label_cells, max(width // 40, 1), is_down=True)
    why: dict[str, list[str]] = {}
    for key, value in device.values.items():
        if isinstance(value, Missing):
            why.setdefault(clean(value.reason), []).append(_label(key))
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


def value_text(key: str, value: Value, units: Units) -> str:
    """One value with the unit that its key implies."""
    if isinstance(value, Missing):
        return clean(value.reason)
    if isinstance(value, str):
        return clean(value[:1000]).strip() or "(empty)"
    show = next((show for ending, show in _TEXTS.items() if key.endswith(ending)), None)
    return f"{value:g}" if show is None else show(value, units)


def _reasons(bits: float, units: Units) -> str:
    return ", ".join(name for bit, name in REASONS if int(bits) & bit) or "none"


_TEXTS: Mapping[str, Callable[[float, Units], str]] = {
    "throttle_bits": _reasons,
    "mig_mode": lambda value, units: "on" if value else "off",
    "is_memory_shared": lambda value, units: "yes" if value else "no",
    "_mj": lambda value, units: "{} {}J".format(*with_prefix(value / 1e3)),
    "_mhz": lambda value, units: f"{value:.0f} MHz",
    "_ns": lambda value, units: f"{value / 1e9:.1f} s",
    "_bytes_per_s": lambda value, units: with_unit(value, "B/s", units),
    "_bytes": lambda value, units: with_unit(value, "B", units),
    "_pct": lambda value, units: with_unit(value, "%", units),
    "_w": lambda value, units: with_unit(value, "W", units),
    "_c": lambda value, units: with_unit(value, "°C", units),
}
"""By the key, or how it ends."""


_LABELS = {one.key: one.name for one in METRICS if one.scope == "gpu" and (one.code or one.id == "sm")}


def _label(key: str) -> str:
    if key in _LABELS:
        return _LABELS[key]
    key = re.sub("_(mj|mhz|ns|bytes_per_s|bytes|pct|w|c)$", "", key)
    return clean(key.removeprefix("gpm_").removeprefix("is_")).replace("_", " ")
