"""Makes text from outside safe to show: names of files and processes, cells of a foreign file."""

from __future__ import annotations

import unicodedata


def clean_text(text: str) -> str:
    """One line in which everything is visible and nothing steers the terminal.

    Line breaks, tabs and other spaces become a plain space. A control character, a mark of writing direction
    or a byte that was not UTF-8 is shown as its escape: `\\x1b`, `\\u202e`, `\\xff`.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _shown(c) for c in text)


def clean_lines(text: str) -> str:
    """As `clean_text` for several lines, keeping their line ends."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(
        f"{clean_text(line[:-1])}\r" if line.endswith("\r") else clean_text(line) for line in text.split("\n")
    )


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character).startswith("Z"):
        return " "
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python represents a byte that it could not decode
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
