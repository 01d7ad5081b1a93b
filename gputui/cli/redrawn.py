"""Lines at the end of a terminal that are rewritten in place, below what has scrolled up for good."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, zip_longest
from operator import itemgetter

from gputui.document.spans import width_of

_WHOLE_EVERY = 30
"""Drawings: whatever a key or another program wrote into the lines meanwhile is gone then."""
_STYLED = re.compile(r"(\x1b\[[\d;]*m)")


class Redrawn:
    """What such lines need to be changed: texts for a terminal that moves its cursor; it writes none itself.

    The cursor stays in the first cell of the last line, so that as many lines as the terminal has fit without
    scrolling, and it is known where it is when lines are broken.
    """

    def __init__(self) -> None:
        self._lines: tuple[str, ...] = ()
        self._above: list[int] = []
        """Cells of older lines that a smaller terminal pushed out of sight; a larger one shows them again."""
        self.size = 0, 0
        """Columns and rows of the terminal that has them."""
        self._drawings = 0

    def drawing(self, lines: Sequence[str], size: tuple[int, int], in_sight: int) -> str:
        """What makes these the lines; of the same size, mostly only what differs.

        Of another size it counts how many rows, down to that of the cursor, are `in_sight`.
        """
        self._drawings += 1
        is_kept = size == self.size and len(lines) >= len(self._lines)
        begin = _up(len(self._lines)) if is_kept else self._clearing(size[0], in_sight) or "\r"
        before = self._lines if self._drawings % _WHOLE_EVERY else ()
        changed = [_change(old, line) for old, line in zip_longest(before[: len(lines)], lines)]
        self._lines, self.size = tuple(lines), size
        return begin + "\n".join(changed) + "\r"

    def erasing(self, size: tuple[int, int]) -> str:
        """What removes them, for something else to be written in their place."""
        text = self._clearing(*size)
        self._above = []  # it stands between those and the next lines
        return text

    def _clearing(self, columns: int, in_sight: int) -> str:
        """What removes all that is in sight; a narrower terminal goes on with long lines in the next row."""
        cells = [*self._above, *(width_of(_STYLED.sub("", line)) for line in self._lines[:-1])]
        cells += [0] * bool(self._lines)  # the cursor is in the first row of the last line
        seen = 0
        while cells and seen < in_sight:
            taken = -(-cells[-1] // max(columns, 1)) or 1
            hidden = max(seen + taken - in_sight, 0)
            seen += taken - hidden
            cells[-1:] = [hidden * columns] if hidden else []
        self._lines, self._above = (), cells
        # Row by row: of a screen that is cleared from its first cell on, tmux keeps the lines in its history.
        return _up(seen) + "\x1b[B".join(["\x1b[K"] * seen) + "\x1b[C\x1b[J" + _up(seen) if seen else ""


def _change(old: str | None, new: str) -> str:
    """From the first cell of a line, what makes it the new one: from the first that differs to the last."""
    cells, before = _cells(new), [] if old is None else _cells(old)
    if old is None or len(before) > len(cells):  # cleared at its end, it would stay as long
        return f"\x1b[K{new}"
    differ = [n for n, (was, cell) in enumerate(zip_longest(before, cells)) if was != cell]
    if not differ:
        return ""
    parts = [f"\x1b[{differ[0]}C"] if differ[0] else []
    for style, group in groupby(cells[differ[0] : differ[-1] + 1], key=itemgetter(0)):
        text = "".join(character for _, character in group)
        parts.append(f"{style}{text}\x1b[0m" if style else text)
    return "".join(parts)


def _cells(line: str) -> list[tuple[str, str]]:
    """Of each cell its style and character; that of the second cell of a wide character is empty."""
    cells: list[tuple[str, str]] = []
    style = ""
    for part in _STYLED.split(line):
        if part.startswith("\x1b"):
            style = "" if part == "\x1b[0m" else style + part
            continue
        for character in part:
            width = width_of(character)
            if not width and cells:  # it combines with the one before
                place = -1 if cells[-1][1] else -2
                cells[place] = (cells[place][0], cells[place][1] + character)
            cells += [(style, character), *[(style, "")] * (width - 1)] if width else []
    return cells


def _up(rows: int) -> str:
    """To the first cell of so many rows, the last of which has the cursor."""
    return f"\x1b[{rows - 1}A\r" if rows > 1 else "\r"
