"""Text wrapped to rows of cells."""

from __future__ import annotations

from gputui.tui.widgets.cells import cut, width_of


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Words in at most `most` rows; what does not fit is cut."""
    rows: list[str] = []
    row = ""
    words = text.split()
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
    return [cut(one, width) for one in rows[:most]]
