"""Styled text measured in cells: what the lines of a terminal and of a screen are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    """Safe to show: no control characters. Its width is counted in cells."""
    style: str = ""
    """A name of the theme of the screens, such as `good` or `dim`; empty is plain."""


Line = tuple[Span, ...]
"""One row of cells."""


@cache
def _measure() -> Callable[[str], int]:
    from rich.cells import cell_len  # what reads results in Python needs no widths

    return cell_len


def width_of(text: str) -> int:
    """The width of a cleaned text in cells."""
    return len(text) if text.isascii() else _measure()(text)


def line_width(line: Iterable[Span]) -> int:
    return sum(width_of(text) for text, _ in line)


def cut(text: str, width: int) -> str:
    """The text in at most `width` cells; `…` marks where it was cut."""
    if width_of(text) <= width:
        return text
    return f"{_head(text, width - 1)}…" if width > 0 else ""


def wrapped(text: str, width: int, indent: int | None = None, *, breaks: bool = True) -> list[str]:
    """Lines of at most `width` cells that end between words, but not between a number and its unit.

    Later lines are indented by `indent`, or as far as the first. A word that is wider than a line goes on in
    the next, unless none `breaks`: what is to be copied stays whole.
    """
    if width_of(text) <= width and not text.endswith(" "):
        return [text]
    width = max(width, 1)
    begin = " " * min(len(text) - len(text.lstrip(" ")) if indent is None else indent, width // 2)
    lines = [""]
    for number, word in enumerate(_BEFORE_UNIT.sub(_KEPT_SPACE, text.rstrip(" ")).split(" ")):
        is_begun = len(lines) == 1 or lines[-1].strip(" ")
        longer = f"{lines[-1]}{' ' if number else ''}{word}" if is_begun else begin + word
        if width_of(longer) <= width or not lines[-1].strip(" "):
            lines[-1] = longer
        else:
            lines.append(begin + word)
        while breaks and width_of(lines[-1]) > width:
            head = _head(lines[-1], width) or lines[-1][:1]
            lines[-1:] = [head, begin + lines[-1][len(head) :]]
    return [line.replace(_KEPT_SPACE, " ").rstrip(" ") for line in lines]


def _head(text: str, width: int) -> str:
    """As many characters as `width` cells hold."""
    if text.isascii():
        return text[:width]
    taken = 0
    for count, character in enumerate(text):
        taken += width_of(character)
        if taken > width:
            return text[:count]
    return text


_BEFORE_UNIT = re.compile(r" (?=·)|(?<=\d) (?=(?:%|[A-Za-zµ]{1,3}(?:/[a-z]+)?)(?:[ ,;:.)]|$))")
_KEPT_SPACE = "\ue000"
"""In place of a space at which no line is to end."""
