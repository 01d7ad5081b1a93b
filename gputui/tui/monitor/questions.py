"""What a newcomer asks, and the keys that answer it: below the processes until there is a result file."""

from __future__ import annotations

from gputui.analysis.health import is_lost
from gputui.model.units import format_usd, format_whole_seconds
from gputui.tui.monitor.frame import Frame
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, left, ruled

HEIGHT = 5
_QUESTION = 43
"""Cells of a question, up to what is known of its answer."""


def question_lines(frame: Frame, quick_s: float, width: int) -> list[Line]:
    """HEIGHT lines; `quick_s` is the most that the profile quick takes, in seconds."""
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
