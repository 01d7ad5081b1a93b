"""Replaces characters for terminals that show only ASCII."""

from __future__ import annotations

import os
import sys

from gputui.services.support.plain_text import in_encoding
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import width_of

_OF_ONE_CELL = {"…": "~", "°": " ", "±": "~", "≥": ">", "≤": "<", "≠": "#", "²": "2", "³": "3"}
"""For characters whose usual replacement is wider than they are."""
_SHAPES = dict(zip("▁▂▃▄▅▆▇█━╸╺┄●○◆", ".,:;+x*#===.o?*", strict=True))
"""For the shapes of charts, gauges and intervals, which differ from each other in ASCII too."""
_NO_SHAPES: tuple[str, ...] = ("linux", "vt1", "vt2", "vt3", "dumb")
"""Beginnings of the names of terminals whose fonts lack them: the console of Linux, and the old ones."""


def in_ascii(line: Line) -> Line:
    """The same line in ASCII, with the same width."""
    if all(span.text.isascii() for span in line):
        return line
    return tuple(Span(text_in_ascii(span.text), span.style) for span in line)


def text_in_ascii(text: str) -> str:
    """The same text in ASCII, with the same width."""
    if text.isascii():
        return text
    return "".join(one if one.isascii() else _cells(one) for one in text)


def _cells(character: str) -> str:
    plain = _OF_ONE_CELL.get(character) or _SHAPES.get(character) or in_encoding(character, "ascii")
    width = width_of(character)
    return plain if len(plain) == width else "?" * width


def wants_ascii(environment: dict[str, str] | None = None) -> bool:
    """Whether the terminal shows only ASCII: GPUTUI_ASCII, else by its name; or an encoding without more."""
    environ = os.environ if environment is None else environment
    # Not sys.stdout, which Textual replaces while it runs: screens call this then.
    encoding = (getattr(sys.__stdout__, "encoding", None) or "ascii").lower().replace("-", "")
    wanted = environ.get("GPUTUI_ASCII") or str(int(environ.get("TERM", "").startswith(_NO_SHAPES)))
    return wanted != "0" or encoding != "utf8"
