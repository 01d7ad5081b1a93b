"""Lines of styled text: panes build them with pure functions, one widget shows them."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    """Safe to show: no control characters. Its width is counted in cells."""
    style: str = ""
    """A name of the theme (`theme.STYLES`); empty is plain."""


Line = tuple[Span, ...]
"""One row of cells, already cut to its width."""

_MARKED = ("warn", "alarm")
"""Styles that are an underline or reverse video where there are no colours."""


def without_marked_blanks(line: Line) -> Line:
    """The same line, in which words of warning are marked without the blanks around them."""
    if not any(span.style in _MARKED and span.text != span.text.strip(" ") for span in line):
        return line
    return tuple(part for span in line for part in _parts(span))


def _parts(span: Span) -> Line:
    words = span.text.strip(" ")
    if span.style not in _MARKED or words == span.text:
        return (span,)
    before = len(span.text) - len(span.text.lstrip(" ")) if words else 0
    after = len(span.text) - before - len(words)
    parts = (Span(" " * before), Span(words, span.style), Span(" " * after))
    return tuple(part for part in parts if part.text)
