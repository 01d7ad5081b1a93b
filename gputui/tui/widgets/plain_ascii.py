"""Replaces characters for terminals that show only ASCII."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from gputui.document.spans import in_encoding
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import width_of

_OF_ONE_CELL = {"…": "~", "°": " ", "±": "~", "≥": ">", "≤": "<", "≠": "#", "²": "2", "³": "3"}
"""For characters whose usual replacement is wider than they are; `±` where there is no room for `+-`."""
_BLANK_BEHIND = re.compile(r"[^│|]*?(?= (?: |$))")
"""Up to a blank that a line can spare; what stands behind a border stays in its place."""
_IN_NUMBER = re.compile(r"±[\d.]+(?= %)")
_DEGREES = re.compile(r"(?<=\d )°([CF])(?= |$)")
_SHAPES = dict(zip("▁▂▃▄▅▆▇█━╸╺┄●○◆■", ".,:;+x*#===.o?*#", strict=True))
"""For the shapes of charts, gauges and intervals, which differ from each other in ASCII too."""
_NO_SHAPES: tuple[str, ...] = ("linux", "vt1", "vt2", "vt3", "dumb")
"""Beginnings of the names of terminals whose fonts lack them: the console of Linux, and the old ones."""


def in_ascii(line: Line) -> Line:
    """The same line in ASCII, with the same width."""
    if all(span.text.isascii() for span in line):
        return line
    found: list[Span] = []
    swaps = _with_room("".join(span.text for span in line))
    begin = 0
    for span in line:
        found.append(Span(_in_ascii(span.text, swaps, begin), span.style))
        begin += len(span.text)
    return tuple(found)


def text_in_ascii(text: str) -> str:
    """The same text in ASCII, with the same width."""
    return text if text.isascii() else _in_ascii(text, _with_room(text), 0)


def _in_ascii(text: str, swaps: Mapping[int, str], begin: int) -> str:
    """`swaps` are by place in a line in which the text begins at `begin`."""
    places = enumerate(text, begin)
    return "".join(swaps.get(place, one if one.isascii() else _cells(one)) for place, one in places)


def _with_room(text: str) -> dict[int, str]:
    """By places: `+-` for each `±` that finds a blank, nothing for that blank, and `64 C ` for `64 °C`.

    `±` takes one of several blanks before it or behind its words, else the one in `±1 %`, else the only one
    before it.
    """
    swaps: dict[int, str] = {}
    for degree in _DEGREES.finditer(text):
        swaps |= {degree.start(): degree[1], degree.start() + 1: " "}
    for sign in re.finditer("±", text):
        at = sign.start()
        behind = _BLANK_BEHIND.match(text, at)
        before = text[max(at - 2, 0) : at]
        if before == "  " and at - 2 not in swaps:
            blank = at - 1
        elif behind and behind.end() not in swaps:
            blank = behind.end()
        elif number := _IN_NUMBER.match(text, at):
            blank = number.end()
        elif before.endswith(" "):
            blank = at - 1
        else:
            continue
        swaps |= {at: "+-", blank: ""}
    return swaps


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
