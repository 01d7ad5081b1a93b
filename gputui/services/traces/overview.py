"""One trace in words: how long a step takes, how busy the device is, and what it waits for."""

from __future__ import annotations

from collections import Counter

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import StepFacts, findings_of
from gputui.document.table import Table, table_of
from gputui.model.profiled import IDLE, ProfiledPass
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.compare.why_text import time_text
from gputui.services.results.step_tables import CATEGORY_WORDS, operator_table
from gputui.services.traces.difference import short_kernel

_LEAST_SHARE = 0.01
_FIGURES_WIDTH = 50


def sentence(found: ProfiledPass, device: str) -> str:
    """`A step takes 222 ms: the GPU is busy 24 % of it, and waits mostly for dispatch gaps (60 %).`"""
    length = format_seconds(found.window_ns / found.steps * 1e-9)
    idle: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for part in found.slices:
        if part.time_class == IDLE:
            idle[part.cause] += part.time_ns
        else:
            classes[part.time_class] += part.time_ns
    busy = format_percent(classes.total() / found.window_ns)
    what = f"A step takes {length}" if found.steps > 1 else f"The window takes {length}"
    if not device:
        return f"{what}: operators run {busy} of it."
    text = f"{what}: the GPU is busy {busy} of it"
    if classes["communication"] > _LEAST_SHARE * found.window_ns:
        text += f", {format_percent(classes['communication'] / found.window_ns)} with communication alone"
    for cause, ns in idle.most_common(1):
        if ns > _LEAST_SHARE * found.window_ns:
            name = f"idle: {cause.replace('_', ' ')}"
            share = format_percent(ns / found.window_ns)
            text += f"; most of its idle time is {CATEGORY_WORDS.get(name, name)} ({share})"
    return text + "."


def finding_lines(found: ProfiledPass, device: str) -> list[str]:
    """What slows a step down, as far as a trace without peaks and telemetry tells; of one step, nothing."""
    if found.steps == 1:
        return []
    step_ns = round(found.window_ns / found.steps)
    facts = StepFacts(ProfiledSide(found, step_ns, bool(device)), "", None, None)
    return [finding.text for finding in findings_of(facts)]


def category_table(found: ProfiledPass) -> Table:
    """Device time by category, and idle time by cause; they sum to the step."""
    sums: Counter[str] = Counter()
    for operator in found.operators:
        sums[operator.category] += operator.time_ns
    for part in found.slices:
        if part.time_class == IDLE:
            sums[f"idle: {part.cause.replace('_', ' ')}"] += part.time_ns
    rows = [
        (CATEGORY_WORDS.get(name, name), time_text(ns // found.steps), format_percent(ns / found.window_ns))
        for name, ns in sums.most_common()
        if ns >= _LEAST_SHARE * found.window_ns
    ]
    rest = [ns for ns in sums.values() if ns < _LEAST_SHARE * found.window_ns]
    if sum(rest):
        rows.append(
            (
                counted(len(rest), "other"),
                time_text(sum(rest) // found.steps),
                format_percent(sum(rest) / found.window_ns),
            )
        )
    return table_of(("part of a step", "time", "share"), rows, (1, 2))


def largest_operators(found: ProfiledPass, width: int, most: int) -> Table:
    """The operators with the most time."""
    rows = found.operators[:most]
    room = max(20, width - _FIGURES_WIDTH)
    names = [short_kernel(row.operator.removeprefix("aten::"), room) for row in rows]
    return operator_table(found, rows, names=names)


def kernel_table(found: ProfiledPass, width: int, most: int) -> Table | None:
    """The kernels with the most time; None on a CPU."""
    rows = [
        (
            short_kernel(row.name, max(20, width - _FIGURES_WIDTH)),
            f"{row.calls / found.steps:.3g}",
            time_text(row.time_ns // found.steps),
            time_text(row.longest_ns),
        )
        for row in found.kernels[:most]
    ]
    return table_of(("kernel", "calls", "per step", "longest"), rows, (1, 2, 3)) if rows else None
