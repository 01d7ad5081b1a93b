"""Paragraphs wrapped to the width of a page."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.wrapping import JOINED


def paragraph(text: str, width: int, style: str = "", *, indent: int = 0) -> tuple[Line, ...]:
    """A text wrapped at spaces: paths and options stay whole, and numbers keep their `%`.

    Lines after the first are indented.
    """
    broken: Iterable[str] = wrap(
        text.replace(" %", f"{JOINED}%"),
        max(width - 1, 20),
        subsequent_indent=" " * indent,
        replace_whitespace=False,
        drop_whitespace=True,
        break_on_hyphens=False,
    )
    return tuple((Span(line.replace(JOINED, " "), style),) for line in broken)
