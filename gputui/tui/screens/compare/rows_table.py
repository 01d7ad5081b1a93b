"""The rows of a comparison as lines: figures, their intervals on one axis, verdicts and costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.judgement import Judgement
from gputui.model.absent import Missing
from gputui.services.compare.columns import RATE, ComparisonColumn
from gputui.services.compare.forest import ForestAxis, forest_axis, mark_of
from gputui.services.compare.pairing import (
    GROUPS,
    MEANS,
    Cell,
    Comparison,
    GroupMean,
    Row,
    pairing,
    table_order,
)
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.row_text import (
    change_text,
    costs_text,
    doubted_point_text,
    mean_name,
    mean_point_text,
    point_text,
    rates_text,
    row_name,
    shared_words,
    verdict_text,
)
from gputui.store.text import clean_text
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted, left, right, width_of
from gputui.tui.widgets.lines_list import MARKER, Entry

_GAP = 2
"""Cells between columns."""
_WIDEST_FOREST = 56
_ROOMY = 18
"""Where the drawing has so many cells, the heading may say what all cases share."""
_LEAST_NAME = 10
_ABSENT = "—"
_NAMES_B = re.compile(r"\bb\b")
"""In a reason: it is said of the second side, whatever its letter is."""
_STYLES = {
    "faster": "good",
    "cheaper": "good",
    "less": "good",
    "slower": "warn",
    "dearer": "warn",
    "more": "warn",
    "inconclusive": "accent",
}

RowOfSides = tuple[Row | None, ...]
"""One case against the baseline, by side; None on a side where neither it nor the baseline has it."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """Which columns a table has besides case, change, drawing and verdict."""

    forest: int
    """The fewest cells for the drawing; 0: none."""
    has_values: bool = False
    has_interval: bool = False
    has_cost: bool = False
    has_prices: bool = False


_FORMS = (
    RowForm(40, has_values=True, has_interval=True, has_cost=True, has_prices=True),
    RowForm(32, has_values=True, has_interval=True, has_cost=True),
    RowForm(18, has_values=True, has_cost=True),
    RowForm(15, has_cost=True),
    RowForm(9),
    RowForm(0),
)
"""What says most first: prices and intervals go before values, values before costs."""
_FORMS_OF_VALUES = (
    RowForm(32, has_values=True, has_interval=True, has_cost=True),
    RowForm(18, has_values=True, has_cost=True),
    RowForm(9, has_values=True),
    RowForm(0, has_values=True),
)
"""Where values were asked for that are not rates."""


@dataclass(frozen=True, slots=True)
class RowsTable:
    """What the table shows."""

    heading: Line
    entries: tuple[Entry, ...]
    """The key of a row is its place among all rows."""
    text: str
    """Headings and cells with tabs between them, without the drawing."""
    first: int
    """The place of the first side in sight among those against the baseline."""
    shown: int
    """How many of them are in sight."""


def style_of(judgement: Judgement) -> str:
    """The style of a verdict."""
    return _STYLES.get(judgement.word, "dim")


def rows_of_sides(comparisons: Sequence[Comparison], ignore: str) -> list[RowOfSides]:
    """The rows of every side beside each other, in the order of the table; what only one side has last."""
    by_key = [{pairing(row.case, ignore): row for row in (*one.rows, *one.one_sided)} for one in comparisons]
    paired = {pairing(row.case, ignore): row for one in comparisons for row in one.rows}
    alone = {pairing(row.case, ignore): row for one in comparisons for row in one.one_sided}
    keys = sorted(paired, key=lambda key: table_order(paired[key].case))
    keys += [key for key in alone if key not in paired]
    return [tuple(found.get(key) for found in by_key) for key in keys]


def letter_of(place: int) -> str:
    """Of the side at a place among those against the baseline, which is `a`: `b` to `z`, then `B` to `Z`."""
    return chr(ord("b") + place) if place < 25 else chr(ord("B") + place % 25)


def table_of(
    comparisons: Sequence[Comparison],
    rows: Sequence[RowOfSides],
    place: int,
    ignore: str,
    value: ComparisonColumn,
    width: int,
    *,
    has_groups: bool,
) -> RowsTable:
    """The form that says most among those in which all sides fit, else as many sides as fit from `place` on.

    With `has_groups`, classes of workloads have headings and their means follow their rows, else all means
    come last.
    """
    made = _Maker(comparisons, rows, ignore, value, width - len(MARKER), has_groups=has_groups)
    every = range(len(comparisons))
    forms = _FORMS if value is RATE else _FORMS_OF_VALUES
    for form in forms:
        if (len(every) == 1 or form.forest) and made.fits(form, every):
            return made.table(form, every)
    if len(every) == 1:
        return made.table(forms[-1], every)
    form = replace(forms[-1], forest=9)
    shown = range(place, place + 1)
    for wider in _growing(place, len(comparisons)):
        if not made.fits(form, wider):
            break
        shown = wider
    return made.table(form if made.fits(form, shown) else forms[-1], shown)


def _growing(place: int, count: int) -> Iterable[range]:
    """Sides from `place` on, one more each time; from the last on to the left."""
    first, end = place, place + 1
    while first > 0 or end < count:
        if end < count:
            end += 1
        else:
            first -= 1
        yield range(first, end)


@dataclass(frozen=True, slots=True)
class _Item:
    """A row of the table, or the mean of a class."""

    key: int
    rows: RowOfSides = ()
    means: tuple[GroupMean | None, ...] = ()

    def judgement(self, place: int) -> Judgement | None:
        """Of the rate of one side."""
        one = self.rows[place] if self.rows else self.means[place]
        if one is None or one.rate.ratio is None or (isinstance(one, GroupMean) and one.common < 2):
            return None
        return one.rate


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cells: tuple[Span, ...]
    """One for each item."""
    is_right: bool = False

    @property
    def width(self) -> int:
        return max(map(width_of, (self.heading, *(cell.text for cell in self.cells))))

    def aligned(self, text: str, width: int) -> str:
        return right(text, width) if self.is_right else left(text, width)


class _Maker:
    """Lines of a comparison in any form."""

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        rows: Sequence[RowOfSides],
        ignore: str,
        value: ComparisonColumn,
        width: int,
        *,
        has_groups: bool,
    ) -> None:
        self._comparisons, self._ignore, self._value, self._width = comparisons, ignore, value, width
        self._is_pair = len(comparisons) == 1
        self._common = shared_words((row for of in rows for row in of if row), ignore)
        items = [_Item(key, row) for key, row in enumerate(rows)]
        means = {
            group: _Item(-1, means=tuple(_mean_of(one, group) for one in comparisons))
            for group in dict.fromkeys(mean.group for one in comparisons for mean in one.groups)
        }
        drawn = {
            group: item for group, item in means.items() if any(map(item.judgement, range(len(comparisons))))
        }
        self._headings: dict[int, str] = {}
        """The class that begins before an item, by its place."""
        self._items: list[_Item] = []
        if not has_groups:
            self._items = [*items, *drawn.values()]
        else:
            groups = [_group_of(item.rows) for item in items]
            for group in dict.fromkeys(groups):
                self._headings[len(self._items)] = MEANS.get(group, group)
                self._items += [item for item, of in zip(items, groups, strict=True) if of == group]
                self._items += [drawn[group]] if group in drawn else []

    def fits(self, form: RowForm, shown: range) -> bool:
        """Whether this form has room with these sides in sight."""
        before, after = self._columns(form, shown)
        return self._room_for_forest(before, after) >= form.forest

    def table(self, form: RowForm, shown: range) -> RowsTable:
        """The lines; the name of a case is cut where even the narrowest form has no room for it."""
        before, after = self._columns(form, shown)
        room = min(self._room_for_forest(before, after), _WIDEST_FOREST) if form.forest else 0
        columns = [*before, *after]
        widths = [column.width for column in columns]
        over = sum(widths) + _GAP * (len(widths) - 1) - self._width
        if not form.forest and over > 0:
            widths[0] = max(widths[0] - over, _LEAST_NAME)
        judged = [one for item in self._items for place in shown if (one := item.judgement(place))]
        axis = forest_axis(judged, room) if room else None

        def line(texts: Sequence[Span], forest: Line) -> Line:
            spans: list[Span] = []
            for place, (text, width) in enumerate(zip(texts, widths, strict=True)):
                if place:
                    spans.append(Span(" " * _GAP))
                if place == len(before) and axis is not None:
                    spans += [*forest, Span(" " * _GAP)]
                spans.append(Span(columns[place].aligned(text.text, width), text.style))
            if len(texts) == len(before) and axis is not None:
                spans += [Span(" " * _GAP), *forest]
            return fitted(spans, self._width)

        heading = line(
            [Span(column.heading, "dim") for column in columns],
            () if axis is None else (Span(axis.heading(), "dim"),),
        )
        entries: list[Entry] = []
        for place, item in enumerate(self._items):
            if place in self._headings:
                entries.append(Entry((_group_line(self._headings[place], self._width + len(MARKER)),)))
            drawn = [()] if axis is None else self._forest(axis, item, shown)
            cells = [column.cells[place] for column in columns]
            blank = [Span("")] * len(columns)
            lines = [line(cells if number == 0 else blank, forest) for number, forest in enumerate(drawn)]
            indent = () if item.key >= 0 else (Span(" " * len(MARKER)),)
            entries.append(Entry(tuple((*indent, *one) for one in lines), item.key))
        text = [[column.heading for column in columns]]
        text += [[column.cells[place].text for column in columns] for place in range(len(self._items))]
        return RowsTable(
            (Span(" " * len(MARKER)), *heading),
            tuple(entries),
            "\n".join("\t".join(cells) for cells in text),
            shown.start,
            len(shown),
        )

    def _room_for_forest(self, before: Sequence[_Column], after: Sequence[_Column]) -> int:
        columns = [*before, *after]
        return self._width - sum(column.width for column in columns) - _GAP * len(columns)

    def _forest(self, axis: ForestAxis, item: _Item, shown: range) -> list[Line]:
        marked = [
            (mark_of(one) if self._is_pair else letter_of(place), one)
            for place in shown
            if (one := item.judgement(place)) is not None
        ]
        return [
            tuple(
                Span(text, "track" if judgement is None else style_of(judgement))
                for text, judgement in pieces
            )
            for pieces in axis.lines(marked)
        ]

    def _columns(self, form: RowForm, shown: range) -> tuple[list[_Column], list[_Column]]:
        """Those before and after the drawing."""
        common = f"case ({' '.join(self._common)})" if self._common else "case"
        names = tuple(self._name(item, is_short=not form.has_interval) for item in self._items)
        if width_of(common) > max(width_of(name.text) for name in names) and form.forest < _ROOMY:
            common = "case"
        before = [_Column(common, names)]
        if form.has_values:
            before += self._values(shown)
        if self._is_pair:
            before.append(self._changes(0, "b vs a", has_interval=form.has_interval))
            after = [_Column("verdict", tuple(map(self._verdict, self._items)))]
        else:
            before += [self._changes(place, f"{letter_of(place)} vs a", has_mark=True) for place in shown]
            after = [_Column("fastest", tuple(map(self._fastest, self._items)))]
        if form.has_cost and any(
            row is not None and row.cost.ratio is not None for item in self._items for row in item.rows
        ):
            after += self._prices() if form.has_prices and self._is_pair else []
            after += [self._costs(place) for place in shown]
        return before, after

    def _name(self, item: _Item, *, is_short: bool) -> Span:
        row = next((row for row in item.rows if row is not None), None)
        if row is not None:
            return Span(clean_text(row_name(row, self._common, self._ignore, is_short=is_short)))
        mean = next(mean for mean in item.means if mean is not None)
        if not self._is_pair or self._headings:
            return Span("mean" if self._headings else f"mean, {MEANS[mean.group]}", "dim")
        return Span(mean_name(mean), "dim")

    def _values(self, shown: range) -> list[_Column]:
        """Of the baseline and the others; of rates only of a pair, as changes say the rest."""
        if self._value is RATE and self._is_pair:
            texts = [rates_text(row) if row else ("", "") for row in map(_first_row, self._items)]
            return [
                _Column("a", tuple(Span(a) for a, _ in texts), is_right=True),
                _Column("b", tuple(Span(b.partition(" ")[0]) for _, b in texts), is_right=True),
                _Column("", tuple(Span(b.partition(" ")[2], "dim") for _, b in texts)),
            ]
        title = self._value.title
        columns: list[_Column] = []
        if self._value.unit:
            unit = self._value.unit
            of = tuple(Span(unit(row) if row else "", "dim") for row in map(_first_row, self._items))
            columns.append(_Column(f"{self._value.name} of", of))
        sides = [("a", [row.a if row else None for row in map(_first_row, self._items)])]
        if self._value is not RATE:
            for place in shown:
                rows = [item.rows[place] if item.rows else None for item in self._items]
                name = "b" if self._is_pair else letter_of(place)
                sides.append((name, [row.b if row else None for row in rows]))
        for name, cells in sides:
            texts_of = tuple(Span("" if cell is None else self._side(cell)) for cell in cells)
            columns.append(_Column(f"{name} {title}".strip(), texts_of, is_right=True))
        return columns

    def _side(self, cell: Cell) -> str:
        value = self._value.on_side(cell, in_full=self._value is RATE)
        return _ABSENT if isinstance(value, Missing) else value

    def _changes(
        self, place: int, heading: str, *, has_interval: bool = False, has_mark: bool = False
    ) -> _Column:
        return _Column(
            heading,
            tuple(_change(item, place, has_interval, has_mark) for item in self._items),
            is_right=True,
        )

    def _verdict(self, item: _Item) -> Span:
        one = item.rows[0] if item.rows else item.means[0]
        if one is None:
            return Span(_ABSENT, "dim")
        more = "" if not isinstance(one, Row) else " !" if one.flags else " *" if one.note else ""
        return Span(verdict_text(one.rate) + more, style_of(one.rate))

    def _fastest(self, item: _Item) -> Span:
        if not item.rows:
            return Span("")
        rows = {letter_of(place): row for place, row in enumerate(item.rows) if row is not None}
        text = fastest_text(known.a, rows) if (known := _first_row(item)) else _ABSENT
        return Span(text, {"same": "dim", _ABSENT: "dim"}.get(text, "accent" if " " in text else "title"))

    def _prices(self) -> list[_Column]:
        """What a unit of work costs on either side, and which unit."""
        rows = [_first_row(item) for item in self._items]
        found = [costs_text((row.a, row.b)) if row else (["", ""], "") for row in rows]
        return [
            _Column("$ a", tuple(Span(texts[0], "dim") for texts, _ in found), is_right=True),
            _Column("$ b", tuple(Span(texts[1]) for texts, _ in found), is_right=True),
            _Column("per", tuple(Span(unit, "dim") for _, unit in found)),
        ]

    def _costs(self, place: int) -> _Column:
        cells = []
        for item in self._items:
            row = item.rows[place] if item.rows else None
            if row is None or row.cost.ratio is None:
                cells.append(Span(""))
            else:
                style = style_of(row.cost) if row.cost.is_decided else ""
                cells.append(Span(_doubted(row.cost), style))
        name = "cost" if self._is_pair else f"cost {letter_of(place)}"
        return _Column(f"{name} ", tuple(cells), is_right=True)


def _first_row(item: _Item) -> Row | None:
    return next((row for row in item.rows if row is not None), None)


def _group_of(rows: RowOfSides) -> str:
    known = next(row for row in rows if row is not None)
    return GROUPS.get(known.case.workload_class, known.case.workload_class)


def _mean_of(comparison: Comparison, group: str) -> GroupMean | None:
    return next((mean for mean in comparison.groups if mean.group == group), None)


def _change(item: _Item, place: int, has_interval: bool, has_mark: bool) -> Span:
    """`-36 %`, in the style of its verdict; `-4 %?` where it may be none and no verdict stands beside it."""
    if not item.rows:
        mean = item.means[place]
        if mean is None or item.judgement(place) is None:
            return Span("")
        whole = change_text(mean.rate) if has_interval else mean_point_text(mean.rate)
        return Span(whole + (" " if has_mark else ""), style_of(mean.rate) if mean.rate.differs else "dim")
    row = item.rows[place]
    if row is None or row.rate.ratio is None:
        return Span(_ABSENT + (" " if has_mark else ""), "dim")
    text = change_text(row.rate) if has_interval else point_text(row.rate)
    return Span(_doubted(row.rate) if has_mark else text, f"{style_of(row.rate)}" if row.rate.differs else "")


def _doubted(judgement: Judgement) -> str:
    """As wide whether it is decided or not."""
    text = doubted_point_text(judgement)
    return text if text.endswith("?") else f"{text} "


def _group_line(name: str, width: int) -> Line:
    rule = width - width_of(name) - 1
    return Span(name, "dim"), Span(" " + "─" * max(rule, 0), "track")


def row_line(
    rows: RowOfSides, place: int, names: Sequence[str], value: ComparisonColumn, *, has_reason: bool
) -> str:
    """What there is no room for in a row: why values are absent, the reason of its verdict, remarks.

    It is of the side at `place`; `names` are of the sides against the baseline.
    """
    known = next(row for row in rows if row is not None)
    is_pair = len(rows) == 1
    sides = [("b" if is_pair else name, row.b) for name, row in zip(names, rows, strict=True) if row]
    reasons = value.reasons([("a", known.a), *sides])
    absent = "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in reasons.items())
    row = rows[place]
    reason = row.verdict.reason if row is not None and has_reason else ""
    name = names[place]
    is_called_b = row is not None and _NAMES_B.search(f"{reason} {row.note}") is not None
    b = "b" if is_pair or is_called_b else name
    told = "" if row is None else "; ".join(filter(None, (reason, remarks(row, b))))
    if told and not is_pair:
        told = f"{name}: {told}" if b == name else f"{name} as b: {told}"
    return "; ".join(filter(None, (absent, told)))


def remarks(row: Row, b: str = "b") -> str:
    """What disturbed a row, and what a reader must know of it; `b` is what its second side is called."""
    sides: dict[str, list[str]] = {}
    for flag in row.flags:
        sides.setdefault(flag.word, []).append(b if flag.side == "b" else flag.side)
    return "; ".join(filter(None, (*(f"{' and '.join(of)} {word}" for word, of in sides.items()), row.note)))
