"""Text that is safe in a cell of a CSV file."""

from __future__ import annotations

Value = str | int | float | None
_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless(text: str) -> str:
    """Escape text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(_STARTS_FORMULA) else text
