"""Text wrapped to rows of cells."""

from __future__ import annotations

import re

from gputui.tui.widgets.cells import cut, width_of

JOINED = "\u00a0"
"""Stands for a blank that is no place to break a line at."""
_TOGETHER = re.compile(r" (?=[%·])|(?<=\d) (?=(?:ms|s|min|h)\b)")


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Words in at most `most` rows; what does not fit is cut. A number stays with `%` and units of time."""
    rows: list[str] = []
    row = ""
    words = _TOGETHER.sub(JOINED, " ".join(text.split())).split(" ")
    for place, one in enumerate(words):
        longer = f"{row} {one}" if row else one
        if width_of(longer) <= width or not row:
            row = longer
            continue
        if len(rows) == most - 1:
            row = " ".join([row, *words[place:]])
            break
        rows.append(row)
        row = one
    if row:
        rows.append(row)
    return [cut(one.replace(JOINED, " "), width) for one in rows[:most]]
