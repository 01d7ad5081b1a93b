"""The last line: a question, the filter, a message, or counts and keys; and what a newcomer asks above it."""

from __future__ import annotations

from collections.abc import Container, Mapping

from gputui.analysis.health import is_lost
from gputui.model.units import counted, format_usd, format_whole_seconds
from gputui.tui.monitor.actions import Action, EndProcess, shown_key
from gputui.tui.monitor.frame import Frame
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import cut, fitted, left, ruled, width_of
from gputui.tui.widgets.sections import fitting, joined

SIGNALS: tuple[tuple[str, str], ...] = (
    ("SIGHUP", "its terminal is gone"),
    ("SIGINT", "as Ctrl-C"),
    ("SIGTERM", "asks it to end"),
    ("SIGQUIT", "ends with a core dump"),
    ("SIGKILL", "cannot be refused"),
)
"""Signals to end a process with, mildest first, and what they mean."""
QUESTIONS_HEIGHT = 5
_QUESTION = 43
"""Cells of a question, up to what is known of its answer."""
_HINTS: Mapping[str, tuple[str, ...]] = {
    "": (
        "help",
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
}


def question_line(question: EndProcess, width: int) -> Line:
    """Asks whether to end the process, and with which signal."""
    name, meaning = question.signal, dict(SIGNALS)[question.signal]
    ask = f"End {question.pid} "
    keys = f" with {name} ({meaning})?  y yes  n no"
    keys += "  up milder" if name != SIGNALS[0][0] else ""
    keys += "  down harsher" if name != SIGNALS[-1][0] else ""
    if width < len(ask) + len(keys) + 12:
        keys = f" with {name}?  y yes  n no  up, down"
    if width < len(ask) + len(keys):
        keys = f" with {name}? y n up down"
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


def hints_line(
    actions: Mapping[str, Action], counts: str, mode: str, width: int, there: Container[str], without: str
) -> Line:
    """As many keys of `actions` as fit, except those that need something not in `there`, and counts.

    The one with the id `without` is left out.
    """
    room = width - (width_of(counts) + 2 if counts else 0)
    named = [actions[name] for name in _HINTS.get(mode, _HINTS[""]) if name in actions and name != without]
    hints = [
        (Span(shown_key(action), "accent"), Span(f" {action.title}", "dim"))
        for action in named
        if not action.needs or action.needs in there
    ]
    kept = joined(fitting(hints, room, "  "))
    return fitted((*fitted(kept, width - width_of(counts)), Span(counts, "dim")), width)


def counts_text(hidden_gpus: int, above: int, below: int) -> str:
    """The numbers of GPUs and processes out of view, empty if there are none: `2 GPUs  12 ▲ 31 ▼`."""
    parts = [counted(hidden_gpus, "GPU") + " out of sight"] if hidden_gpus else []
    if above or below:
        parts.append(
            " ".join(
                part for part in (f"{above} ▲" if above else "", f"{below} more ▼" if below else "") if part
            )
        )
    return "  ".join(parts)


def question_lines(frame: Frame, quick_s: float, width: int) -> list[Line]:
    """QUESTIONS_HEIGHT lines; `quick_s` is the most that the profile quick takes, in seconds."""
    usd_per_hour = frame.ledger.usd_per_hour
    cost = "" if usd_per_hour is None else f", {format_usd(usd_per_hour * quick_s / 3600)}"
    time = f"quick: up to {format_whole_seconds(quick_s)}{cost}"
    rows = (
        ("2", "Is this box as fast as it should be?", Span(time, "dim")),
        ("4", "Which of two boxes is faster or cheaper?", Span("needs a result file of each", "dim")),
        ("5", *_of_health(frame)),
        ("d", "What does all of it look like?", Span("five screens of made-up data", "dim")),
    )
    heading = ruled((Span("new here?", "title"), Span("x hides this", "accent")), width)
    return [
        heading,
        *(
            fitted((Span(f"  {key}  ", "accent"), Span(left(question, _QUESTION)), answer), width)
            for key, question, answer in rows
        ),
    ]


def _of_health(frame: Frame) -> tuple[str, Span]:
    for gpu in frame.gpus:
        if gpu.problem is not None and is_lost(gpu.problem):
            return f"Why is GPU {gpu.label} lost?", Span("doctor: what to do about it", "alarm")
    looks_at = "GPUs, driver, torch" if frame.gpus else "torch, CPU, memory, disk"
    return "Is this box healthy?", Span(f"doctor: {looks_at}", "dim")
