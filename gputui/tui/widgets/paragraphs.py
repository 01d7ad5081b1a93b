"""Paragraphs wrapped to the width of a page."""

from __future__ import annotations

from gputui.document.spans import Line, Span, wrapped


def paragraph(text: str, width: int, style: str = "", *, indent: int = 0) -> tuple[Line, ...]:
    """A text wrapped at spaces: paths and options stay whole where they can, and numbers keep their unit.

    Lines after the first are indented.
    """
    return tuple((Span(line, style),) for line in wrapped(text, max(width - 1, 20), indent))
