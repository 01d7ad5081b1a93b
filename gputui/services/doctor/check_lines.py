"""A check in lines, as the command, the start of a run and the Doctor screen show it."""

from __future__ import annotations

from gputui.document.spans import Line, Span, wrapped
from gputui.services.doctor.checks import STYLES, WORDS
from gputui.services.doctor.disturbances import Check
from gputui.store.text import clean_text

STATE, TOPIC = 9, 16
_NARROW = 60
"""Below this width findings begin on a new line."""


def check_lines(check: Check, width: int, indent: int = 0, *, breaks: bool = True) -> list[Line]:
    """State, topic, finding, and the next step below, in lines of at most `width` cells.

    What is to be typed is never broken; neither are long words, such as paths, unless one `breaks`.
    """
    is_narrow = width < _NARROW
    margin = 2 if is_narrow else indent + STATE + TOPIC
    room = max(width - margin - 1, 12)
    found = wrapped(clean_text(check.found), room, breaks=breaks)
    head = (
        Span("" if is_narrow else " " * indent),
        Span(f"{WORDS[check.state]:{STATE}}", STYLES[check.state]),
        Span(f"{clean_text(check.topic)[: TOPIC - 1]:{TOPIC}}", "" if check.state == "ok" else "title"),
    )
    lines: list[Line] = [head if is_narrow else (*head, Span(found[0]))]
    lines += [(Span(" " * margin + line),) for line in found[not is_narrow :]]
    steps = wrapped(clean_text(check.next_step), room - 3, breaks=breaks) if check.next_step else []
    for number, line in enumerate(steps):
        lines.append((Span(" " * margin + ("   " if number else "-> ") + line, "dim"),))
    if check.command:
        lines.append((Span(" " * margin + "$ ", "dim"), Span(clean_text(check.command), "accent")))
    return lines
