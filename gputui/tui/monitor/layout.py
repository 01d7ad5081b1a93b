"""The layout of the Monitor screen, from the size of the terminal and the number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_WIDTH = 40
MIN_HEIGHT = 10
TWO_COLUMNS = 150
THREE_COLUMNS = 240
"""From these widths on, panes and rows are arranged in columns."""
STRIP_FROM = 9
"""From this number of GPUs on there is a heat strip, a cell for each."""
_ROOMY = 9
"""With this many rows for processes, the host has a second one for the account of all GPUs."""
STRIP_LABEL = 7
"""Cells before the first GPU of the strip."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """The first column after it."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """The first row below it."""
        return self.y + self.height

    def holds(self, x: int, y: int) -> bool:
        return self.x <= x < self.right and self.y <= y < self.bottom


NOWHERE = Rect(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes that do not overlap; a part without room is NOWHERE."""

    form: str
    """How GPUs are shown: `panes`, `rows`, or `none` without GPUs."""
    gpus: tuple[Rect, ...]
    """For `panes`, one for each GPU, in order."""
    instances_shown: bool
    """Whether each MIG instance has a row."""
    list: Rect
    """For `rows`: their box, including the heading if `has_heading`."""
    columns: int
    """Number of columns of rows, filled from top to bottom, then from left to right."""
    has_heading: bool
    strip: Rect
    """The heat strip."""
    host: Rect
    lower: Rect
    """Processes."""


def laid_out(width: int, height: int, instances: Sequence[int], *, with_lower: bool = True) -> Layout:
    """The layout for `len(instances)` GPUs, each with that many MIG instances, and for the processes.

    Every GPU is visible if there is a row for each; the rest is reduced in this order: charts, all but a few
    processes, rows of MIG instances, the heat strip, the heading, all processes, the host. Only then rows
    scroll, and the heat strip has a cell for every GPU.
    """
    host_rows = 1 if height < 30 else 3
    lower_least = _lower_least(height) if with_lower else 0
    count = len(instances)
    if count == 0:
        lower_rows = max(lower_least, (height * 2) // 5) if with_lower else 0
        host = Rect(0, 0, width, height - lower_rows)
        lower = Rect(0, host.bottom, width, lower_rows) if lower_rows else NOWHERE
        return Layout("none", (), True, NOWHERE, 1, False, NOWHERE, host, lower)
    panes = _panes(width, height - host_rows - lower_least, instances, with_lower=with_lower)
    if panes is not None:
        return _below(width, height, panes, host_rows, with_lower=with_lower)
    columns = 3 if width >= THREE_COLUMNS else (2 if width >= TWO_COLUMNS else 1)
    total = count + sum(instances)
    strip_rows = min(-(-count // max(width - STRIP_LABEL, 1)), max(height // 3, 1))
    some = min(lower_least, 3)
    few = min(lower_least, 2)
    tries = [
        (total, True, True, 1, lower_least, strip_rows),
        (total, True, True, 1, some, strip_rows),
        (count, False, True, 1, some, strip_rows),
        (count, False, True, 1, few, strip_rows),
        (total, True, True, 1, lower_least, 0),
        (total, True, True, 1, some, 0),
        (count, False, True, 1, some, 0),
        (count, False, True, 1, few, 0),
        (count, False, False, 1, few, 0),
        (count, False, False, 1, 0, 0),
        (count, False, False, 0, 0, 0),
    ]
    for entries, instances_shown, has_heading, host_row, lower_rows, strip in tries:
        if strip and count < STRIP_FROM:
            continue
        rows = -(-entries // columns) + has_heading
        spare = height - rows - host_row - lower_rows - strip
        if spare >= 0:
            if host_row and lower_rows + spare >= _ROOMY:
                host_row, spare = 2, spare - 1
            lower_rows = lower_rows + spare if lower_rows else 0
            return _rows(width, rows, columns, instances_shown, has_heading, strip, host_row, lower_rows)
    lower_rows = lower_least if height >= 20 else 0
    rows = height - strip_rows - 1 - lower_rows
    return _rows(width, rows, columns, False, rows > 4, strip_rows, 1, lower_rows)


def _lower_least(height: int) -> int:
    """A heading and a few processes."""
    if height < 11:
        return 3
    return min(max(4, height // 4), 12)


def _panes(width: int, room: int, instances: Sequence[int], *, with_lower: bool) -> tuple[Rect, ...] | None:
    """A pane for each GPU, equally high apart from their instances; None if even small ones do not fit."""
    count = len(instances)
    columns = (
        3 if width >= THREE_COLUMNS and count >= 6 else (2 if width >= TWO_COLUMNS and count >= 2 else 1)
    )
    bands = [tuple(instances[i : i + columns]) for i in range(0, count, columns)]
    extra = sum(max(band) for band in bands)
    per_pane = (room - extra) // len(bands)
    if per_pane < (2 if count == 1 else 3):
        return None
    most = 11 if count <= 4 else 7
    if count == 1:
        most = room if not with_lower else max(11, room * 2 // 3)
    body = min(per_pane, most)
    boxes = []
    y = 0
    for band_number, band in enumerate(bands):
        across = min(columns, count - band_number * columns)
        height = body + max(band)
        pane_width = (width - (columns - 1)) // columns
        for column in range(across):
            x = column * (pane_width + 1)
            is_last = column == columns - 1
            boxes.append(Rect(x, y, width - x if is_last else pane_width, height))
        y += height
    return tuple(boxes)


def _below(width: int, height: int, panes: tuple[Rect, ...], host_rows: int, *, with_lower: bool) -> Layout:
    used = max(box.bottom for box in panes)
    lower_rows = height - used - host_rows if with_lower else 0
    if lower_rows < 2:
        lower_rows = 0
    if not lower_rows:
        host_rows = height - used
    host = Rect(0, used, width, host_rows) if host_rows > 0 else NOWHERE
    lower = Rect(0, used + host_rows, width, lower_rows) if lower_rows else NOWHERE
    return Layout("panes", panes, True, NOWHERE, 1, False, NOWHERE, host, lower)


def _rows(
    width: int,
    rows: int,
    columns: int,
    instances_shown: bool,
    has_heading: bool,
    strip: int,
    host: int,
    lower: int,
) -> Layout:
    return Layout(
        "rows",
        (),
        instances_shown,
        Rect(0, strip, width, rows),
        columns,
        has_heading,
        Rect(0, 0, width, strip) if strip else NOWHERE,
        Rect(0, strip + rows, width, host) if host else NOWHERE,
        Rect(0, strip + rows + host, width, lower) if lower else NOWHERE,
    )
