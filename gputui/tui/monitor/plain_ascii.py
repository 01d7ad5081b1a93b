"""Lines for terminals that show ASCII alone."""

from __future__ import annotations

from gputui.tui.lines import Line, Span
from gputui.tui.monitor.cells import width_of

_SUBSTITUTES = {
    "—": "-",
    "–": "-",
    "─": "-",
    "…": "~",
    "·": "|",
    "▸": ">",
    "▼": "v",
    "▲": "^",
    "└": "`",
    "├": "|",
    "│": "|",
    "×": "x",
    "°": " ",
}


def in_ascii(line: Line) -> Line:
    """The same line without a character beyond ASCII, each cell kept."""
    if all(span.text.isascii() for span in line):
        return line
    return tuple(Span(text_in_ascii(span.text), span.style) for span in line)


def text_in_ascii(text: str) -> str:
    """The same text without a character beyond ASCII, each cell kept."""
    if text.isascii():
        return text
    return "".join(one if one.isascii() else _SUBSTITUTES.get(one) or "?" * width_of(one) for one in text)
