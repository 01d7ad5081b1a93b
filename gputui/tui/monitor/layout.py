"""Where everything of the Monitor screen stands, from the size of the terminal and what there is to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_WIDTH = 40
MIN_HEIGHT = 8
"""Of the body: a terminal of 40x10 less the header and the footer."""
TWO_COLUMNS = 150
THREE_COLUMNS = 240
"""From these widths on, panes stand beside each other."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of cells."""

    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """The first column behind it."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """The first row below it."""
        return self.y + self.height


NOWHERE = Box(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes that do not overlap; a part that has no room is NOWHERE."""

    form: str
    """How GPUs are shown: `panes`, `rows`, `strip` (rows that scroll, and a strip of all), or `none`."""
    gpus: tuple[Box, ...]
    """For `panes`, one for each GPU, in order."""
    instances_shown: bool
    """MIG instances have a row each inside the box of their GPU."""
    list: Box
    """For `rows` and `strip`: where the rows stand, a heading included if `has_heading`."""
    has_heading: bool
    strip: Box
    host: Box
    lower: Box
    """Processes, or what is shown in their place."""
    status: Box


def laid_out(width: int, height: int, instances: Sequence[int], *, with_lower: bool = True) -> Layout:
    """Places for `len(instances)` GPUs, each with so many MIG instances, and for what stands below them.

    Every GPU is visible if there is a row for each; the rest gives way in this order: charts, processes but a
    few, rows of MIG instances, the heading, the host, all processes. Only then the rows scroll, above a strip
    that has a cell for every GPU.
    """
    status_rows = 1
    host_rows = 1 if height < 30 else 3
    room = height - status_rows
    lower_least = _lower_least(height) if with_lower else 0
    count = len(instances)
    if count == 0:
        lower_rows = max(lower_least, (room * 2) // 5) if with_lower else 0
        return _stacked(width, height, "none", 0, room - lower_rows, lower_rows)
    columns = _columns(width, count)
    panes = _panes(width, room - host_rows - lower_least, instances, columns, all_room=not with_lower)
    if panes is not None:
        used = max(box.bottom for box in panes)
        return _below(width, height, "panes", panes, used, host_rows, with_lower=with_lower)
    total = count + sum(instances)
    for rows, instances_shown, heading, host, lower in (
        (total + 1, True, True, 1, lower_least),
        (total + 1, True, True, 1, min(lower_least, 3)),
        (count + 1, False, True, 1, min(lower_least, 3)),
        (count + 1, False, True, 1, min(lower_least, 2)),
        (count, False, False, 1, min(lower_least, 2)),
        (count, False, False, 1, 0),
        (count, False, False, 0, 0),
    ):
        if rows + host + lower <= room:
            spare = room - rows - host - lower
            return _rows(width, height, rows, instances_shown, heading, host, lower + spare if lower else 0)
    return _strip(width, height, count)


def _lower_least(height: int) -> int:
    """A heading and a few processes."""
    if height < 12:
        return 0 if height < 9 else 3
    return min(max(4, height // 4), 12)


def _columns(width: int, count: int) -> int:
    if width >= THREE_COLUMNS and count >= 6:
        return 3
    return 2 if width >= TWO_COLUMNS and count >= 2 else 1


def _panes(
    width: int, room: int, instances: Sequence[int], columns: int, *, all_room: bool
) -> tuple[Box, ...] | None:
    """A pane for each GPU, all of one height but for their instances; None if even small ones do not fit."""
    count = len(instances)
    bands = [tuple(instances[i : i + columns]) for i in range(0, count, columns)]
    extra = sum(max(band) for band in bands)
    per_pane = (room - extra) // len(bands)
    if per_pane < 3 and not (count == 1 and per_pane >= 2):
        return None
    most = (24 if all_room else 16) if count == 1 else (10 if count <= 4 else 6)
    body = min(per_pane, most)
    boxes = []
    y = 0
    for band_number, band in enumerate(bands):
        here = count - band_number * columns
        across = min(columns, here)
        height = body + max(band)
        pane_width = (width - (columns - 1)) // columns
        for column in range(across):
            x = column * (pane_width + 1)
            last = column == columns - 1
            boxes.append(Box(x, y, width - x if last else pane_width, height))
        y += height
    return tuple(boxes)


def _below(
    width: int, height: int, form: str, gpus: tuple[Box, ...], used: int, host_rows: int, *, with_lower: bool
) -> Layout:
    room = height - 1
    lower_rows = room - used - host_rows if with_lower else 0
    if lower_rows < 2:
        lower_rows = 0
    if not lower_rows:
        host_rows = min(room - used, 5)
    return Layout(
        form,
        gpus,
        True,
        NOWHERE,
        False,
        NOWHERE,
        Box(0, used, width, host_rows) if host_rows > 0 else NOWHERE,
        Box(0, used + host_rows, width, lower_rows) if lower_rows else NOWHERE,
        Box(0, height - 1, width, 1),
    )


def _stacked(width: int, height: int, form: str, top: int, host_rows: int, lower_rows: int) -> Layout:
    return Layout(
        form,
        (),
        True,
        NOWHERE,
        False,
        NOWHERE,
        Box(0, top, width, host_rows),
        Box(0, top + host_rows, width, lower_rows) if lower_rows else NOWHERE,
        Box(0, height - 1, width, 1),
    )


def _rows(
    width: int, height: int, rows: int, instances_shown: bool, heading: bool, host: int, lower: int
) -> Layout:
    return Layout(
        "rows",
        (),
        instances_shown,
        Box(0, 0, width, rows),
        heading,
        NOWHERE,
        Box(0, rows, width, host) if host else NOWHERE,
        Box(0, rows + host, width, lower) if lower else NOWHERE,
        Box(0, height - 1, width, 1),
    )


def _strip(width: int, height: int, count: int) -> Layout:
    strip_rows = -(-count // max(width - 8, 1))
    strip_rows = min(strip_rows, max(height // 3, 1))
    host = 1
    rows = height - 1 - strip_rows - host
    return Layout(
        "strip",
        (),
        False,
        Box(0, strip_rows, width, rows),
        False,
        Box(0, 0, width, strip_rows),
        Box(0, strip_rows + rows, width, host),
        NOWHERE,
        Box(0, height - 1, width, 1),
    )
