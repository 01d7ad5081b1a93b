"""The layout of the Monitor screen, from the size of the terminal and the number of devices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

MIN_WIDTH = 40
MIN_HEIGHT = 10
TWO_COLUMNS = 150
THREE_COLUMNS = 240
"""From these widths on, rows of GPUs are arranged in columns."""
CARDS_FROM = 150
"""From this width on, GPUs are cards, if all have room."""
_FEW, _FEW_CARDS_FROM = 4, 110
"""So few GPUs are cards from this width on, two abreast."""
CARD_GAP = 3
ROOMY = 36
"""From this height on, a blank row separates blocks."""
_LEAST_CARD, _LEAST_NARROW_CARD = 8, 10
_MOST_CARD = 14
_TALL_CARD = 36
"""Rows of a card above few processes."""
_LEAST_DETAIL = 7
"""Rows of the selected GPU's charts: a rule, a title, rows of charts, the time."""
_MOST_DETAIL = 11
"""More only where few GPUs leave two fifths of the rows, or few processes leave more."""
_PROCESSES_BESIDE_DETAIL = 9
"""Processes that keep their rows when the selected GPU gets charts."""


@dataclass(frozen=True, slots=True)
class Rect:
    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def bottom(self) -> int:
        return self.y + self.height

    def moved(self, down: int) -> Rect:
        return Rect(self.x, self.y + down, self.width, self.height)

    def holds(self, x: int, y: int) -> bool:
        return self.x <= x < self.right and self.y <= y < self.bottom


NOWHERE = Rect(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes that do not overlap; a part without room is NOWHERE."""

    form: str
    """How GPUs are shown: `single` (large charts), `cards`, `rows`, or `none` without GPUs."""
    gpus: tuple[Rect, ...] = ()
    """For `cards` and `single`, one for each GPU, in order."""
    instances_shown: bool = True
    list: Rect = NOWHERE
    """For `rows`: their box, including the heading if `has_heading`."""
    columns: int = 1
    """Number of columns of rows, filled from top to bottom, then from left to right."""
    has_heading: bool = False
    host: Rect = NOWHERE
    detail: Rect = NOWHERE
    """For `rows`: charts of the selected GPU."""
    lower: Rect = NOWHERE


_PROCESS_STEPS = (3, 8, 16)
"""Processes get room for so many, which seldom changes with their number; more of them take what is left."""


@lru_cache(maxsize=4)  # it seldom changes
def laid_out(
    width: int,
    height: int,
    instances: tuple[int, ...],
    *,
    with_lower: bool = True,
    processes: int | None = None,
) -> Layout:
    """The layout for `len(instances)` GPUs, each with that many MIG instances, and for the processes.

    Rows that these `processes` do not need go to charts.
    Every GPU is visible if there is a row for each; the rest is reduced in this order: charts, all but a few
    processes, rows of MIG instances, the heading, all processes, the host. Only then rows scroll.
    """
    count = len(instances)
    lower_least = 0  # a heading and a few processes
    if with_lower:
        lower_least = 3 if height < 11 else min(max(4, height // 4), 12)
    if count == 0:
        lower_rows = max(lower_least, height // 2) if with_lower else 0
        host = Rect(0, 0, width, height - lower_rows)
        return Layout("none", host=host, lower=_below(host, width, lower_rows))
    gap = int(height >= ROOMY)
    lower_enough = height if with_lower or not gap else 1  # the account
    if with_lower and processes is not None:  # a rule, a heading, and a row for each
        lower_enough = min(3 + next((step for step in _PROCESS_STEPS if processes <= step), height), height)
    if count == 1 and not instances[0]:
        return _single(width, height, gap, lower_least, lower_enough, with_lower=with_lower)
    if not any(instances):
        cards = _cards(width, height - 1, lower_least, lower_enough, count, gap)
        if cards:
            host = Rect(0, cards[-1].bottom + gap, width, 1)
            lower = _below(host, width, height - host.bottom if with_lower else 0)
            return Layout("cards", cards, host=host, lower=lower)
    return _rows(width, height, instances, lower_least, lower_enough)


def _rows(width: int, height: int, instances: tuple[int, ...], lower_least: int, lower_enough: int) -> Layout:
    """A row for each GPU; what has no room is given up in the order of `laid_out`."""
    count = len(instances)
    columns = 3 if width >= THREE_COLUMNS else (2 if width >= TWO_COLUMNS else 1)
    total = count + sum(instances)
    some = min(lower_least, 3)
    few = min(lower_least, 2)
    tries = [
        (total, True, True, 1, lower_least),
        (total, True, True, 1, some),
        (count, False, True, 1, some),
        (count, False, True, 1, few),
        (count, False, False, 1, few),
        (count, False, False, 1, 0),
        (count, False, False, 0, 0),
    ]
    for entries, instances_shown, has_heading, host_rows, lower_rows in tries:  # noqa: B007 - used behind it
        # Rows that fill one column need no second one.
        across = columns if entries > 12 or columns == 1 else 1
        rows = -(-entries // across) + has_heading
        if rows + host_rows + lower_rows <= height:
            break
    else:
        lower_rows = lower_least if height >= 20 else 0
        rows, across, host_rows, lower_enough = height - 1 - lower_rows, columns, 1, height
        instances_shown, has_heading = False, rows > 4
    host = Rect(0, rows, width, host_rows)
    spare = height - host.bottom
    most = max(_MOST_DETAIL, (height - rows) * 2 // 5)
    detail_rows = min(spare - (_PROCESSES_BESIDE_DETAIL if lower_rows else 0), most)
    detail_rows = max(detail_rows, spare - lower_enough)
    detail = Rect(0, host.bottom, width, detail_rows) if detail_rows >= _LEAST_DETAIL else NOWHERE
    return Layout(
        "rows",
        (),
        instances_shown,
        Rect(0, 0, width, rows),
        across,
        has_heading,
        host if host_rows else NOWHERE,
        detail,
        _below(detail if detail.height else host, width, spare - detail.height) if lower_rows else NOWHERE,
    )


def _below(upper: Rect, width: int, rows: int) -> Rect:
    return Rect(0, upper.bottom, width, rows) if rows >= 2 else NOWHERE


def _single(
    width: int, height: int, gap: int, lower_least: int, lower_enough: int, *, with_lower: bool
) -> Layout:
    """Large charts, the host, and processes in what is left."""
    room = height - 1 - 2 * gap
    rows = max(min(room - lower_least, height * 5 // 8), room - lower_enough) if with_lower else room
    box = Rect(0, 0, width, rows)
    host = Rect(0, box.bottom + gap, width, 1)
    lower = height - host.bottom - gap if with_lower else 0
    return Layout(
        "single", (box,), host=host, lower=Rect(0, host.bottom + gap, width, lower) if lower >= 2 else NOWHERE
    )


def _cards(
    width: int, room: int, lower_least: int, lower_enough: int, count: int, gap: int
) -> tuple[Rect, ...]:
    """A card for each GPU, up to four abreast, all of one size; empty if even small ones do not fit."""
    if width < (_FEW_CARDS_FROM if count <= _FEW else CARDS_FROM):
        return ()
    columns = min(count, 4 if width >= 180 else 3 if width >= CARDS_FROM else 2)
    if columns > 2 and count % columns and count % (columns - 1) == 0 and count > columns:
        columns -= 1
    bands = -(-count // columns)
    height = min((room - lower_least) // bands - gap, _MOST_CARD if bands == 1 else 11)
    height = max(height, min((room - lower_enough) // bands - gap, _TALL_CARD))
    if height < (_LEAST_CARD if width >= CARDS_FROM else _LEAST_NARROW_CARD):
        return ()
    card_width = (width - CARD_GAP * (columns - 1)) // columns
    return tuple(
        Rect(place % columns * (card_width + CARD_GAP), place // columns * (height + gap), card_width, height)
        for place in range(count)
    )
