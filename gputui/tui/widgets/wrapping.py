"""Text wrapped to a few rows of cells."""

from __future__ import annotations

from gputui.document import spans
from gputui.tui.widgets.cells import cut


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Words in at most `most` rows, none of no words; what does not fit is cut."""
    words = " ".join(text.split())
    rows = spans.wrapped(words, width) if words else []
    return rows if len(rows) <= most else [*rows[: most - 1], cut(" ".join(rows[most - 1 :]), width)]
