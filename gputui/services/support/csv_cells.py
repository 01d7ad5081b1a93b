"""Text that is safe in a cell of a CSV file."""

from __future__ import annotations

Value = str | int | float | None
"""Of a cell."""
_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_STARTS_FORMULA) else text
