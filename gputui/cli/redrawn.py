"""Lines at the end of a terminal that are rewritten in place, below what has scrolled up for good."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
        """What makes these the lines; of the same size, mostly only those that differ are in it."""
        self._drawings += 1
        is_kept = columns == self._columns and len(lines) >= len(self._lines)
        begin = _up(len(self._lines)) if is_kept else self.erasing(columns) or "\r"
        before = self._lines if self._drawings % _WHOLE_EVERY else ()
        changed = [
            "" if place < len(before) and line == before[place] else f"\x1b[K{line}"
            for place, line in enumerate(lines)
        ]
        self._lines, self._columns = tuple(lines), columns
        return begin + "\n".join(changed)

    def erasing(self, columns: int) -> str:
        """What removes them; a terminal that has become narrower goes on with long lines in the next row."""
        rows = sum(-(-width_of(_STYLED.sub("", line)) // max(columns, 1)) or 1 for line in self._lines)
        self._lines = ()
        # Row by row: of a screen that is cleared from its first cell on, tmux keeps the lines in its history.
        return _up(rows) + "\x1b[B".join(["\x1b[K"] * rows) + _up(rows) if rows else ""


def _up(rows: int) -> str:
    """To the first cell of so many rows, the last of which has the cursor."""
    return f"\x1b[{rows - 1}A\r" if rows > 1 else "\r"
