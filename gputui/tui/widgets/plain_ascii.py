"""Replaces characters for terminals that show only ASCII."""

from __future__ import annotations

import os
import re
import sys

from gputui.services.support.plain_text import in_encoding
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import width_of

_OF_ONE_CELL = {"…": "~", "°": " ", "±": "~", "≥": ">", "≤": "<", "≠": "#", "²": "2", "³": "3"}
"""For characters whose usual replacement is wider than they are."""
_SHAPES = dict(zip("▁▂▃▄▅▆▇█━╸╺┄●○◆", ".,:;+x*#===.o?*", strict=True))
"""For the shapes of charts, gauges and intervals, which differ from each other in ASCII too."""
_SPARE = re.compile("  |──")
_NO_SHAPES: tuple[str, ...] = ("linux", "vt1", "vt2", "vt3", "dumb")
"""Beginnings of the names of terminals whose fonts lack them: the console of Linux, and the old ones."""


def in_ascii(line: Line) -> Line:
    """The same line in ASCII, with the same width."""
    if all(span.text.isascii() for span in line):
        return line
    if any("±" in span.text for span in line):
        line = _with_plus_minus(line)
    return tuple(Span(text_in_ascii(span.text), span.style) for span in line)


def text_in_ascii(text: str) -> str:
    """The same text in ASCII, with the same width."""
    if text.isascii():
        return text
    return "".join(one if one.isascii() else _cells(one) for one in text)


def _with_plus_minus(line: Line) -> Line:
    """The same line with `+-` for `±`, each at the cost of a blank before it or, if only one is there, behind it.

    Where none can go it stays, and becomes `~`.
    """
    texts = [span.text for span in line]
    for number in range(len(texts)):
        at = texts[number].find("±")
        while at >= 0:
            text = texts[number]
            if text[max(at - 2, 0) : at] == "  ":
                texts[number] = f"{text[: at - 1]}+-{text[at + 1 :]}"
            elif (spare := _spare_blank(texts, number, at)) is not None:
                later, place = spare
                texts[later] = texts[later][:place] + texts[later][place + 1 :]
                texts[number] = texts[number][:at] + "+-" + texts[number][at + 1 :]
            at = texts[number].find("±", at + 1)
    return tuple(Span(text, span.style) for text, span in zip(texts, line, strict=True))


def _spare_blank(texts: list[str], number: int, at: int) -> tuple[int, int] | None:
    """The next of two blanks, or of a rule, behind a place: the numbers of its text and of its character."""
    for later in range(number, len(texts)):
        found = _SPARE.search(texts[later], at if later == number else 0)
        if found is not None:
            return later, found.start()
    return (len(texts) - 1, len(texts[-1]) - 1) if texts[-1].endswith(" ") else None


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
