"""Lines at the end of a terminal that are rewritten in place, below what has scrolled up for good."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from gputui.document.spans import width_of

_WHOLE_EVERY = 30
"""Drawings: whatever a key or another program wrote into the lines meanwhile is gone then."""
_STYLED = re.compile(r"\x1b\[[\d;]*m")


class Redrawn:
    """What such lines need to be changed: texts for a terminal that moves its cursor; it writes none itself.

    The cursor stays in the last line, so that as many lines as the terminal has fit without scrolling.
    """

    def __init__(self) -> None:
        self._lines: tuple[str, ...] = ()
        self._columns = 0
        self._drawings = 0

    def drawing(self, lines: Sequence[str], columns: int) -> str:
        """What makes these the lines; of the same size, mostly only what differs, to the end of each line."""
        self._drawings += 1
        is_kept = columns == self._columns and len(lines) >= len(self._lines)
        begin = _up(len(self._lines)) if is_kept else self.erasing(columns) or "\r"
        before = self._lines if self._drawings % _WHOLE_EVERY else ()
        changed = [_change(old, line) for old, line in zip_longest(before[: len(lines)], lines)]
        self._lines, self._columns = tuple(lines), columns
        return begin + "\n".join(changed)

    def erasing(self, columns: int) -> str:
        """What removes them; a terminal that has become narrower goes on with long lines in the next row."""
        rows = sum(-(-width_of(_STYLED.sub("", line)) // max(columns, 1)) or 1 for line in self._lines)
        self._lines = ()
        # Row by row: of a screen that is cleared from its first cell on, tmux keeps the lines in its history.
        return _up(rows) + "\x1b[B".join(["\x1b[K"] * rows) + _up(rows) if rows else ""


def _change(old: str | None, new: str) -> str:
    """From the first cell of a line, what makes it the new one: all behind what both begin with."""
    if old is None or old == new:
        return "" if old == new else f"\x1b[K{new}"
    same = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    before, reset, last = new[:same].rpartition("\x1b[0m")
    kept = before + reset + last.partition("\x1b")[0]  # up to where a style begins
    cells = width_of(_STYLED.sub("", kept))
    return (f"\x1b[{cells}C" if cells else "") + f"\x1b[K{new[len(kept) :]}"


def _up(rows: int) -> str:
    """To the first cell of so many rows, the last of which has the cursor."""
    return f"\x1b[{rows - 1}A\r" if rows > 1 else "\r"
