"""One trace in words: how long a step takes, how busy the device is, and what slows it down."""

from __future__ import annotations

from collections import Counter

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import StepFacts, findings_of
from gputui.document.table import Table, table_of
from gputui.model.profiled import IDLE, ProfiledPass
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.compare.why import time_text
from gputui.services.results.operator_rates import efficiency_text
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.step_tables import CATEGORY_WORDS, operator_table, step_sentence
from gputui.services.traces.difference import TraceDifference, short_kernel

_LEAST_SHARE = 0.01
_FIGURES_WIDTH = 50


def sentence(found: ProfiledPass, device: str) -> str:
    """`A step takes 222 ms. The GPU waits 76 % of it, most of it for the dispatch of operators: ...`"""
    length = format_seconds(found.window_ns / found.steps * 1e-9)
    what = f"{'A step' if found.steps > 1 else 'The window'} takes {length}."
    breakdown = breakdown_of(found)
    return (
        f"{what} {step_sentence(breakdown, 'it', is_on_gpu=bool(device))}"
        if isinstance(breakdown, StepBreakdown)
        else what
    )


def finding_lines(found: ProfiledPass, device: str) -> list[str]:
    """What slows a step down, as far as a trace without peaks and telemetry tells."""
    step_ns = round(found.window_ns / found.steps)
    side = ProfiledSide(found, step_ns, bool(device))
    texts = [finding.text for finding in findings_of(StepFacts(side, "", None, None))]
    return texts if found.steps > 1 else [text.replace("the step", "the window") for text in texts]


def held_back(found: TraceDifference) -> list[str]:
    """What slows down the first trace of each side."""
    return [
        f"{letter}  {line}"
        for letter, side in (("a", found.a), ("b", found.b))
        for line in finding_lines(side[0].found, side[0].device)
    ]


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


def largest_operators(found: ProfiledPass, device: str, width: int, most: int) -> Table:
    """The operators with the most time, and how well they use the device."""
    rows = found.operators[:most]
    room = max(20, width - _FIGURES_WIDTH)
    names = [short_kernel(row.operator.removeprefix("aten::"), room) for row in rows]
    efficiencies = [efficiency_text(row, found, device) for row in rows]
    return operator_table(found, rows, names=names, efficiencies=efficiencies)


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
