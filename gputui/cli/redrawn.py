"""Lines at the end of a terminal that are rewritten in place, below what has scrolled up for good."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter

from gputui.document.spans import width_of

_WHOLE_EVERY = 30
"""Drawings: whatever a key or another program wrote into the lines meanwhile is gone then."""
_MOVE = 4
"""Bytes that move the cursor to the right."""
_STYLED = re.compile(r"(\x1b\[[\d;]*m)")


class Redrawn:
    """What such lines need to be changed: texts for a terminal that moves its cursor; it writes none itself.

    The cursor stays in the last line, so that as many lines as the terminal has fit without scrolling.
    """

    def __init__(self) -> None:
        self._lines: tuple[str, ...] = ()
        self._columns = 0
        self._drawings = 0

    def drawing(self, lines: Sequence[str], columns: int) -> str:
        """What makes these the lines; of the same size, mostly only the cells that differ."""
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
    """From the first cell of a line, what makes it the new one: only the cells that differ."""
    if old is None:
        return f"\x1b[K{new}"
    before, cells = _cells(old), _cells(new)
    parts, at = [], 0
    both = enumerate(zip_longest(before[: len(cells)], cells))
    for first, end in _spans(n for n, (was, cell) in both if was != cell):
        parts.append(_right(first - at))
        for style, group in groupby(cells[first:end], key=itemgetter(0)):
            text = "".join(character for _, character in group)
            parts.append(f"{style}{text}\x1b[0m" if style else text)
        at = end
    if len(before) > len(cells):
        parts.append(f"{_right(len(cells) - at)}\x1b[K")
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


def _spans(cells: Iterable[int]) -> Iterator[tuple[int, int]]:
    """From and to which cell to write: what is between two that differ is written where moving takes more."""
    first = end = 0
    for cell in cells:
        if cell - end > _MOVE and end:
            yield first, end
        if cell - end > _MOVE or not end:
            first = cell
        end = cell + 1
    if end:
        yield first, end


def _right(cells: int) -> str:
    return f"\x1b[{cells}C" if cells else ""


def _up(rows: int) -> str:
    """To the first cell of so many rows, the last of which has the cursor."""
    return f"\x1b[{rows - 1}A\r" if rows > 1 else "\r"
