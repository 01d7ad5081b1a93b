"""Text for streams whose encoding lacks some of its characters; numbers and commands as they are written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gputui.document.spans import Line, Span

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
