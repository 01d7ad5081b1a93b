"""Rows as a CSV file whose text no spreadsheet runs, which each form would have to think of by itself."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

Value = str | int | float | None
_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless(text: str) -> str:
    """Escape text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(_STARTS_FORMULA) else text


def csv_text(rows: Iterable[Iterable[Value]]) -> str:
    """RFC 4180, with what is absent empty; text that a spreadsheet would run gets an apostrophe before it."""
    made = StringIO(newline="")
    writer = csv.writer(made, lineterminator="\r\n")
    writer.writerows([harmless(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return made.getvalue()
