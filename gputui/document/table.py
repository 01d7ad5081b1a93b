"""The parts of a document before they are laid out, each form in its own way: tables, with the one function
that decides which of their columns fit, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType

from gputui.document.spans import Line, Span, cut, line_width, width_of, wrapped

Cell = str | Span | Sequence[Line]
"""A text, a text in a style, or lines of drawn spans."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and a cell for each row."""

    heading: str
    cells: Sequence[Cell]
    is_right: bool = False
    """Numbers are aligned to the right."""
    priority: float = 0
    """0 stays whatever the width; of the others the highest goes first."""
    narrow: Column | None = None
    """What takes its place when its turn to go comes."""
    breaks: bool = False
    """Where the table is still too wide, its cells go on in a second line."""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(map(text_of, self.cells))

    @property
    def width(self) -> int:
        return max(
            width_of(self.heading), *(line_width(line) for cell in self.cells for line in _spans_of(cell)), 0
        )


@dataclass(frozen=True, slots=True)
class Drawing:
    """A column that is drawn as wide as there is room."""

    draw: Callable[[int, Sequence[Column]], Column]
    """Makes it so many cells wide, beside these columns."""
    least: int
    most: int
    priority: float = 1
    wishes: tuple[tuple[float, int], ...] = ()
    """Priorities of columns, and how wide it must be for them to stay, where that is more than `least`."""
    picture: Callable[[], tuple[str, Sequence[str]]] | None = None
    """Of a page: its heading and a cell for each row, as SVG."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of as many cells."""

    columns: tuple[Column | Drawing, ...]
    styles: Sequence[str] = ()
    """Of each row: `title` or none; empty if no row has one."""
    keeps: int = 0
    """So many columns stand in each part of a table that is divided where it is too wide; 0: it never is."""

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that are text, all of them, as wide as they can be."""
        return tuple(column for column in self.columns if isinstance(column, Column))

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(column.heading for column in self.written)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The texts of the cells."""
        return tuple(zip(*(column.texts for column in self.written), strict=True))


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to type or to paste."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Links:
    """What somebody published, and where; both are ours, not from a file."""

    items: tuple[tuple[str, str], ...]


Part = str | Table | Code | Links | tuple[str, ...]
"""A paragraph, a table, lines of code, links, or a list."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what belongs below it."""

    title: str
    parts: tuple[Part, ...]


def table_of(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    right: Collection[int] = (),
    breaks: Collection[int] = (0,),
    styles: Sequence[str] = (),
    priorities: Mapping[int, float] = MappingProxyType({}),
    keeps: int = 0,
) -> Table:
    """A table from its rows; `right` are the places of columns of numbers, `breaks` of those that may go on
    in a second line."""
    cells = list(zip(*rows, strict=True)) or [()] * len(headings)
    return Table(
        tuple(
            Column(heading, of, place in right, priorities.get(place, 0), breaks=place in breaks)
            for place, (heading, of) in enumerate(zip(headings, cells, strict=True))
        ),
        styles,
        keeps,
    )


def columns_that_fit(columns: Sequence[Column | Drawing], width: int, gap: int = 1) -> list[Column]:
    """As many columns as have room beside each other, the highest priorities left out or narrowed first.

    Those of one priority go together. What is drawn gets the rest of the room.
    """
    shown = list(columns)
    while True:
        written = [column for column in shown if isinstance(column, Column)]
        room = width - sum(column.width for column in written) - gap * (len(shown) - 1)
        drawn = next((column for column in shown if isinstance(column, Drawing)), None)
        last = max((column.priority for column in shown), default=0)
        needed = 0 if drawn is None else dict(drawn.wishes).get(last, drawn.least)
        if room >= needed or last <= 0:
            break
        shown = [kept for one in shown if (kept := _without(last, one)) is not None]
    return [
        one if isinstance(one, Column) else one.draw(min(max(room, one.least), one.most), written)
        for one in shown
    ]


def _without(priority: float, column: Column | Drawing) -> Column | Drawing | None:
    if column.priority < priority:
        return column
    return column.narrow if isinstance(column, Column) else None


def parts_of(columns: Sequence[Column], width: int, keeps: int, gap: int = 1) -> Iterator[list[Column]]:
    """The columns, in parts of as many as fit beside the first ones, which stand in each part."""
    rest = list(columns[keeps:]) if keeps else []
    while rest:
        part = [*columns[:keeps], rest.pop(0)]
        while rest and sum(one.width + gap for one in (*part, rest[0])) - gap <= width:
            part.append(rest.pop(0))
        yield part
    if len(columns) <= keeps or not keeps:
        yield list(columns)


def lines_of(
    columns: Sequence[Column], width: int, *, gap: int = 1, cuts: bool = False
) -> list[tuple[Line, ...]]:
    """The lines of the headings and of each row, in this width if columns can be narrower.

    Cells that are too wide go on in the next line, or are cut.
    """
    widths = _widths(columns, width - gap * (len(columns) - 1))
    if cuts:
        columns = [
            _changed(one, _cut_apart(one.texts, wide)) for one, wide in zip(columns, widths, strict=True)
        ]
    made = []
    headings = [Span(column.heading, "dim") for column in columns]
    for cells in (headings, *zip(*(column.cells for column in columns), strict=True)):
        folded = [_lines_of_cell(cell, wide, cuts) for cell, wide in zip(cells, widths, strict=True)]
        made.append(tuple(_joined(line, columns, widths, gap) for line in zip_longest(*folded, fillvalue=())))
    return made


def _joined(cells: Sequence[Line], columns: Sequence[Column], widths: Sequence[int], gap: int) -> Line:
    spans: list[Span] = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        spans += [Span(" " * gap)] if spans else []
        space = Span(" " * (width - line_width(cell)))
        spans += [space, *cell] if column.is_right else [*cell, space]
    return tuple(spans)


_LEAST = 8
"""Cells that a column keeps as long as others are wider."""


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """How wide each column is; where there is too little room the widest of those that break gives way."""
    widths = [min(column.width, max(room, _LEAST)) for column in columns]
    for may_break in (True, False):
        able = [place for place, column in enumerate(columns) if column.breaks is may_break]
        while able and sum(widths) > room and max(widths[place] for place in able) > _LEAST:
            widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _cut_apart(texts: Iterable[str], width: int) -> Callable[[str], str]:
    """What cuts these texts to a width: at the end, but further ahead if more of them stay different so."""
    long = {text for text in texts if width_of(text) > width}

    def cut_before(text: str, tail: int) -> str:
        end = text[len(text) - tail :]
        return cut(cut(text, width - width_of(end)) + end, width) if width_of(text) > width else text

    def different(tail: int) -> int:
        return len({cut_before(text, tail) for text in long})

    best = 0 if different(0) == len(long) else max(range(max(width - _LEAST, 1)), key=different)
    return lambda text: cut_before(text, best)


def _lines_of_cell(cell: Cell, width: int, is_cut: bool) -> Sequence[Line]:
    if not isinstance(cell, str | Span):
        return cell
    text, style = (cell, "") if isinstance(cell, str) else cell
    return [(Span(line, style),) for line in ([text] if is_cut else wrapped(text, width))]


def text_of(cell: Cell) -> str:
    """A cell without its styles."""
    return "".join(text for line in _spans_of(cell) for text, _ in line)


def _spans_of(cell: Cell) -> Sequence[Line]:
    """A text as one line."""
    if isinstance(cell, str):
        return [(Span(cell),)]
    return [(cell,)] if isinstance(cell, Span) else cell


def changed(column: Column | Drawing, change: Callable[[str], str]) -> Column | Drawing:
    """The same column with all of its texts changed."""
    if isinstance(column, Drawing):
        return replace(column, draw=lambda cells, beside: _changed(column.draw(cells, beside), change))
    return _changed(column, change)


def _changed(column: Column, change: Callable[[str], str]) -> Column:
    def of(cell: Cell) -> Cell:
        if isinstance(cell, str | Span):
            return change(cell) if isinstance(cell, str) else Span(change(cell.text), cell.style)
        return [tuple(Span(change(text), style) for text, style in line) for line in cell]

    narrow = None if column.narrow is None else _changed(column.narrow, change)
    return replace(column, heading=change(column.heading), cells=[*map(of, column.cells)], narrow=narrow)
