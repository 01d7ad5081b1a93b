"""Paragraphs wrapped to the width of a page."""

from __future__ import annotations

from gputui.document.spans import Line, Span, wrapped
from gputui.store.text import clean_text


def paragraph(text: str, width: int, style: str = "", *, indent: int = 0) -> tuple[Line, ...]:
    """A text wrapped at spaces: paths and options stay whole where they can, and numbers keep their unit.

    Lines after the first are indented.
    """
    return tuple((Span(line, style),) for line in wrapped(text, max(width - 1, 20), indent))


def error_lines(message: str, hint: str, width: int) -> tuple[Line, ...]:
    """An error and what to do next."""
    lines = paragraph(clean_text(message), width, "warn")
    return (*lines, (), *paragraph(clean_text(hint), width)) if hint else lines
