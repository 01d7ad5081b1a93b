"""The last line: a question, the filter, a message, a finding of the selected GPU, or counts and keys."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from gputui.analysis.health import GpuFinding
from gputui.tui.monitor.actions import OF_THE_APP, Action, shown_key
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean, cut, fitted, line_width, width_of

SIGNALS: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")
"""Signals to end a process with, mildest first."""
_HINTS: Mapping[str, tuple[str, ...]] = {
    "": (
        "keys",
        "quit",
        "pause",
        "seek-back",
        "seek-forward",
        "play-faster",
        "filter",
        "sort",
        "details",
        "metrics",
        "end",
    ),
    "details": ("back", "next-gpu", "down", "pause"),
    "metrics": ("back", "toggle", "down", "up"),
    "keys": ("back", "down", "up"),
}
_LEAST_WHY = 30
"""Minimum width of a finding's reason next to counts."""


@dataclass(slots=True)
class EndQuestion:
    """A request to confirm ending a process."""

    pid: int
    start_ticks: int
    command: str
    """Cleaned."""
    signal: int = 0
    """Index in SIGNALS."""


def question_line(question: EndQuestion, width: int) -> Line:
    """Asks whether to end the process, and with which signal."""
    ask = f"End {question.pid} "
    keys = f" with {SIGNALS[question.signal]}? enter yes, esc no, down harsher"
    if width < len(ask) + len(keys) + 12:
        keys = f" {SIGNALS[question.signal]}? enter/esc/down"
    room = max(width - len(ask) - len(keys), 0)
    return fitted((Span(ask, "warn"), Span(cut(question.command, room)), Span(keys, "warn")), width)


def filter_line(
    typed: str, found: int, total: int, out_of_sight: int, width: int, *, is_typing: bool
) -> Line:
    """The filter, and the number of processes that match it."""
    counts = f"  {found} of {total} processes"
    if out_of_sight:
        counts += f", {out_of_sight} out of sight"
    room = max(width - len(counts) - 2, 8)
    while width_of(typed) > room:
        typed = typed[1:]
    cursor = "_" if is_typing else ""
    return fitted((Span("/", "accent"), Span(typed + cursor), Span(counts, "dim")), width)


def finding_line(device: int, finding: GpuFinding, counts: str, width: int) -> Line | None:
    """A finding of a GPU, and its reason; None if counts leave too little room for it."""
    text = f"{device}: {clean(finding.brief)}: {clean(finding.why)}"
    if not counts:
        return fitted((Span(cut(text, width), finding.severity),), width)
    room = width - width_of(counts) - 2
    if room < _LEAST_WHY:
        return None
    return fitted((Span(cut(text, room), finding.severity), Span("  "), Span(counts, "dim")), width)


def hints_line(counts: str, mode: str, width: int, there: Container[str], actions: Sequence[Action]) -> Line:
    """Counts, and as many keys of `actions` as fit, except those that need something not in `there`."""
    spans = [Span(counts, "dim")] if counts else []
    by_id = {action.id: action for action in (*actions, *OF_THE_APP)}
    for name in _HINTS.get(mode, _HINTS[""]):
        action = by_id.get(name)
        if action is None or (action.needs and action.needs not in there):
            continue
        gap = Span("  " if spans else "")
        hint = (gap, Span(shown_key(action), "accent"), Span(f" {action.title}", "dim"))
        if line_width((*spans, *hint)) > width:
            break
        spans += hint
    return fitted(spans, width)


def counts_text(hidden_gpus: int, hidden_processes: int) -> str:
    """The numbers of GPUs and processes out of view, empty if there are none."""
    parts = []
    if hidden_gpus:
        parts.append("1 GPU" if hidden_gpus == 1 else f"{hidden_gpus} GPUs")
    if hidden_processes:
        parts.append("1 process" if hidden_processes == 1 else f"{hidden_processes} processes")
    return f"{', '.join(parts)} out of sight" if parts else ""
