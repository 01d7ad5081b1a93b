"""Styled text measured in cells, of which the lines of a terminal and of a screen are made."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
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

_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_SUBSTITUTES = {
    "±": "+-",
    "×": "x",
    "÷": "/",
    "µ": "u",
    "μ": "u",
    "°": "deg ",
    "²": "^2",
    "³": "^3",
    "…": "...",
    "·": "|",
    "•": "*",
    "●": "o",
    "○": "?",
    "◆": "*",
    "◇": "?",
    "■": "#",
    "–": "-",
    "—": "-",
    "−": "-",
    "‐": "-",
    "‑": "-",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "«": '"',
    "»": '"',
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "≈": "~",
    "∞": "inf",
    "→": "->",
    "←": "<-",
    "↔": "<->",
    "↑": "^",
    "↓": "v",
    "▸": ">",
    "▲": "^",
    "▼": "v",
    "█": "#",
    "▇": "#",
    "▆": "*",
    "▅": "+",
    "▄": "=",
    "▃": "-",
    "▂": ".",
    "▁": "_",
    "▚": "/",
    "▞": "+",
    "░": ".",
    "▒": ":",
    "▓": "%",
    "─": "-",
    "━": "=",
    "╸": "=",
    "╺": "=",
    "│": "|",
    "┃": "|",
    "├": "|",
    "┤": "|",
    "└": "`",
    "®": "(R)",
    "©": "(c)",
    "€": "EUR",
    "£": "GBP",
    "ß": "ss",
    "æ": "ae",
    "Æ": "AE",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
}
_BRAILLE = range(0x2800, 0x2900)
_BOX_DRAWING = range(0x2500, 0x2580)
_UNKNOWN = "?"


def in_encoding(text: str, encoding: str) -> str:
    """The text with a plain substitute for each character that the encoding lacks; it may get longer."""
    if text.isascii():
        return text
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(c if c.isascii() else _substitute(c, encoding) for c in text)
    return text


@lru_cache(maxsize=4096)
def _substitute(character: str, encoding: str) -> str:
    if _has(encoding, character):
        return character
    known = _SUBSTITUTES.get(character)
    if known is not None:
        return known
    code = ord(character)
    if code in _BRAILLE:
        return " .:#"[(code.bit_count() - 0x2800.bit_count() + 2) // 3]
    if code in _BOX_DRAWING:
        return "+"
    plain = "".join(
        c
        for c in unicodedata.normalize("NFKD", character)
        if not unicodedata.combining(c) and _has(encoding, c)
    )
    return plain or _UNKNOWN


def _has(encoding: str, character: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def ranges(numbers: Iterable[int]) -> list[str]:
    """`0-3` and `5`, of 0, 1, 2, 3 and 5."""
    parts: list[tuple[int, int]] = []
    for number in sorted({*numbers}):
        is_next = bool(parts) and number == parts[-1][1] + 1
        first = parts.pop()[0] if is_next else number
        parts.append((first, number))
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in parts]


def command_lines(command: str, width: int | None, prefix: str = "", why: str = "") -> list[str]:
    """A command for a shell, with a backslash at each end of a line where `width` breaks it; None never does.

    It is broken between words, and an option stays beside its value. `prefix` begins the first line; `why`
    follows as a comment if that line has room for it.
    """
    text = f"{prefix}{command}"
    whole = f"{text}  # {why}" if why else text
    if width is None or len(whole) <= width:
        return [whole]
    if len(text) <= width:
        return [text]
    parts: list[str] = []
    for word in _WORD.findall(command):
        if parts and parts[-1].startswith("-") and " " not in parts[-1] and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = [f"{prefix}{parts[0]}"]
    for part in parts[1:]:
        if len(f"{lines[-1]} {part} \\") <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(" " * (len(prefix) + 2) + part)
    return lines


def command_spans(command: str, width: int | None, prefix: str, why: str = "") -> Iterator[Line]:
    """The same in the styles of what can be typed, and of what explains it."""
    for place, line in enumerate(command_lines(command, width, prefix, why)):
        lead = "" if place else prefix
        typed, mark, comment = line.removeprefix(lead).partition("  # ")
        yield Span(lead, "dim"), Span(typed, "accent"), Span(f"{mark}{comment}", "dim")
