"""Text from a file, before a person sees it."""

from __future__ import annotations


def clean_text(text: str) -> str:
    """A string from a file without control characters, which a terminal would obey.

    Line breaks and tabs become spaces; escape sequences lose the character that makes them work.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if c in "\n\t" else c for c in text if c.isprintable() or c in "\n\t")
