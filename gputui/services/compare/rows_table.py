"""The rows of a comparison as one table, which text, Markdown, HTML and the screen all show: figures,
intervals on one axis, verdicts and costs. Each form that laid its rows out by itself would judge by itself
what to leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
from gputui.document.drawings import Interval, intervals
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Table
from gputui.model.absent import Missing
from gputui.services.compare.columns import CLOCK, COLUMNS, RATE, RATIO, ComparisonColumn
from gputui.services.compare.pairing import (
    MEANS,
    Comparison,
    GroupMean,
    Row,
    pairing,
    table_order,
)
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.row_text import (
    both_text,
    case_heading,
    change_text,
    costs_text,
    doubted_point_text,
    letter_of,
    mark_of,
    mean_devices,
    mean_name,
    point_text,
    style_of,
    verdict_text,
)
from gputui.services.results.labels import shared_case_words, short_case_name
from gputui.services.results.throughput import HOST_BOUND
from gputui.store.text import clean_text

RowOfSides = tuple[Row | None, ...]
"""One case against the baseline, by side; None on a side where neither it nor the baseline has it."""

_CLOCK, _FASTEST, _HEADING, _COST, _VALUES, _INTERVAL, _PRICES, _EXTRA = 2, 3, 3.5, 4, 5, 6, 7, 9
"""What goes first where there is little room: what is beside the point, prices, intervals in figures, rates,
costs, what the heading says of all cases, the fastest side, what a clock saw, the drawing."""
_WISHES = ((_PRICES, 40), (_INTERVAL, 14))
"""Cells of the drawing that are worth more than these."""


def rows_of_sides(
    comparisons: Sequence[Comparison], ignore: str, *, one_sided: bool = True
) -> list[RowOfSides]:
    """The rows of every side beside each other, in the order of the table; what only one side has last."""
    alone = {
        pairing(row.case, ignore): row for one in comparisons for row in (one.one_sided if one_sided else ())
    }
    paired = {pairing(row.case, ignore): row for one in comparisons for row in one.rows}
    by_key = [{pairing(row.case, ignore): row for row in (*one.rows, *one.one_sided)} for one in comparisons]
    keys = sorted(paired, key=lambda key: table_order(paired[key].case))
    keys += [key for key in alone if key not in paired]
    return [tuple(found.get(key) for found in by_key) for key in keys]


def first_of(rows: RowOfSides) -> Row:
    """The row of the first side that has the case."""
    return next(row for row in rows if row is not None)


@dataclass(frozen=True, slots=True)
class _Item:
    """A line of the table: a case on all sides, or the mean of a class."""

    key: int
    """The place among all rows; negative of a mean."""
    rows: RowOfSides = ()
    means: tuple[GroupMean | None, ...] = ()

    def row(self, side: int) -> Row | None:
        return self.rows[side] if self.rows else None

    def judgement(self, side: int) -> Judgement | None:
        """Of the rate of one side."""
        one = self.rows[side] if self.rows else self.means[side]
        if one is None or one.rate.ratio is None or (isinstance(one, GroupMean) and one.common < 2):
            return None
        return one.rate


@dataclass(frozen=True, slots=True)
class RowsTable:
    """The table, and which row each of its lines is: its place among all, negative of a mean."""

    table: Table
    keys: tuple[int, ...]


def rows_table(
    comparisons: Sequence[Comparison],
    rows: Sequence[RowOfSides],
    ignore: str,
    columns: Sequence[ComparisonColumn] | None = None,
    *,
    value: ComparisonColumn = RATE,
    place: int = 0,
    note: Callable[[Row], str] = lambda row: "",
    is_drawn: bool = False,
    has_costs: bool = True,
    has_means: bool = True,
) -> RowsTable:
    """These rows; of a pair with these columns, or with the usual ones, which go where there is no room.

    `is_drawn`: intervals are drawn. `value` takes the place of the rates. `place` is of the side that stays
    in sight where there is no room for all; `note` follows a verdict.
    """
    items = _items(comparisons, rows, has_means)
    sides = range(len(comparisons))
    if len(sides) == 1:
        before, behind = _columns_of_pair(comparisons[0], items, columns, value, note, is_drawn)
        styles = ["title" if (row := item.row(0)) and row.rate.differs else "" for item in items]
        keeps = int(columns is not None)
    else:
        before, behind = (
            _columns_of_many(items, len(sides), value, place, is_drawn),
            [_fastest(items, is_drawn)],
        )
        styles, keeps = [], 2
    made: list[Column | Drawing] = [
        _names(comparisons, items, rows, ignore, _VALUES + 0.5 if is_drawn else _HEADING),
        *before,
    ]
    if is_drawn:
        made.append(intervals([[*_intervals(item, sides)] for item in items], _WISHES))
    made += behind
    if has_costs and any(row is not None and row.cost.ratio is not None for of in rows for row in of):
        made += _prices(items) if len(sides) == 1 and is_drawn and value is RATE else []
        made += [
            _costs(items, side, "cost" if len(sides) == 1 else f"cost {letter_of(side)}") for side in sides
        ]
    return RowsTable(Table(tuple(made), styles, keeps), tuple(item.key for item in items))


def _columns_of_pair(
    comparison: Comparison,
    items: Sequence[_Item],
    columns: Sequence[ComparisonColumn] | None,
    value: ComparisonColumn,
    note: Callable[[Row], str],
    is_drawn: bool,
) -> tuple[list[Column], list[Column]]:
    """Those before the drawing, and the verdict with those behind it."""
    usual = ("always",) if is_drawn else ("always", "wide")
    chosen = [one for one in COLUMNS if (one.default in usual if columns is None else one in columns)]
    before: list[Column] = []
    behind = [Column("verdict", [_verdict(item, note) for item in items])]
    for column in chosen:
        if is_absent(comparison, column):
            continue
        if column is RATE and value is not RATE:
            sides = (_of_side(value, letter, items, 0) for letter in "ab")
            before += [*_units(value, items), *sides]
        elif column is RATIO:
            before.append(_changes(items, is_drawn))
        elif column.is_before_verdict:
            is_unasked = column is CLOCK and columns is None
            before += _column(column, items, _VALUES if is_drawn else _CLOCK if is_unasked else 0)
        else:
            behind += _column(column, items, _EXTRA if columns is None else 10 * bool(column.table_heading))
    return before, behind


def _columns_of_many(
    items: Sequence[_Item], count: int, value: ComparisonColumn, place: int, is_drawn: bool
) -> list[Column]:
    """The value of the baseline, then of each side, where it is no rate, and its change; on a screen those
    that are further from the side in sight go first."""
    nearest = [*range(place, count), *reversed(range(place))]
    made = _units(value, items)
    made.append(_of_side(value, "a", items, 0, _VALUES if value is RATE and is_drawn else 0))
    clock = _of_side(CLOCK, "a", items, 0, _VALUES if is_drawn else _CLOCK)
    made += [clock] if value is RATE and set(clock.texts) - {"", "—"} else []
    for side in range(count):
        priority = 2 + nearest.index(side) / count if is_drawn and side != place else 0
        made += [_of_side(value, letter_of(side), items, side, priority)] if value is not RATE else []
        made.append(_changes_of_many(items, side, priority, is_drawn))
    return made


def is_absent(comparison: Comparison, column: ComparisonColumn) -> bool:
    """Whether no row has anything in a column, which is then left out."""
    return column.absent != "" and all(
        isinstance(column.on_side(cell), Missing) for row in comparison.rows for cell in (row.a, row.b)
    )


def _items(comparisons: Sequence[Comparison], rows: Sequence[RowOfSides], has_means: bool) -> list[_Item]:
    """The rows, then the means that say anything."""
    items = [_Item(key, row) for key, row in enumerate(rows)]
    by_group = [{(mean.group, mean.device_class): mean for mean in one.groups} for one in comparisons]
    names = dict.fromkeys(name for found in by_group for name in found) if has_means else {}
    means = [_Item(-1, means=tuple(found.get(name) for found in by_group)) for name in names]
    return [*items, *(mean for mean in means if any(map(mean.judgement, range(len(comparisons)))))]


def _names(
    comparisons: Sequence[Comparison],
    items: Sequence[_Item],
    rows: Sequence[RowOfSides],
    ignore: str,
    heading_priority: float,
) -> Column:
    """What each case is called; shorter where intervals have no room, then without the size where a workload
    has one, and so is the heading in its turn."""
    common = shared_case_words((row.case for of in rows for row in of if row), ignore)
    works = {first_of(of).case.work for of in rows}
    devices = mean_devices(comparisons)

    def name(item: _Item, is_short: bool) -> Span:
        if item.rows:
            row = first_of(item.rows)
            is_only_size = {row.case.work} == {one for one in works if one.workload == row.case.work.workload}
            unsaid = [*common, row.case.work.size] if is_short and is_only_size else common
            is_marked = any(one is not None and one.is_host_bound for one in item.rows)
            called = clean_text(short_case_name(row.case, unsaid, ignore, is_short=is_short))
            return Span(f"{called} ({HOST_BOUND})" if is_marked else called)
        mean = next(mean for mean in item.means if mean is not None)
        device = devices[mean.device_class]
        if len(comparisons) == 1:
            return Span(mean_name(mean, device), "dim")
        return Span(", ".join(("average", f"{device} {MEANS[mean.group]}".strip())), "dim")

    heading, short = case_heading(common), [name(item, True) for item in items]
    bare = Column("case", short, breaks=True)
    narrow = Column(heading, short, priority=heading_priority, narrow=bare, breaks=True)
    return Column(heading, [name(item, False) for item in items], False, _INTERVAL, narrow, breaks=True)


def _column(column: ComparisonColumn, items: Sequence[_Item], priority: float) -> list[Column]:
    blank = [""] * len(column.headings)
    cells = [column.cells(row) if (row := item.row(0)) else blank for item in items]
    by_heading = zip(*cells, strict=True) if cells else blank
    return [
        Column(heading, list(of), column.is_before_verdict and heading != "unit", priority)
        for heading, of in zip(column.headings, by_heading, strict=True)
    ]


def _units(value: ComparisonColumn, items: Sequence[_Item]) -> list[Column]:
    """What a value is for, where it does not say so."""
    if value.unit is None:
        return []
    cells = [Span(value.unit(first_of(item.rows)) if item.rows else "", "dim") for item in items]
    return [Column(f"{value.name} of", cells)]


def _of_side(
    value: ComparisonColumn, letter: str, items: Sequence[_Item], side: int, priority: float = 0
) -> Column:
    """A value of one side, `a` the baseline."""
    shown: list[str] = []
    for item in items:
        row = first_of(item.rows) if item.rows and letter == "a" else item.row(side)
        cell = None if row is None else row.a if letter == "a" else row.b
        text = "" if cell is None else value.on_side(cell, in_full=value is RATE)
        shown.append("—" if isinstance(text, Missing) else text)
    return Column(f"{letter} {value.title}".strip(), shown, True, priority)


def _spans(
    items: Sequence[_Item],
    judged: Iterable[Judgement | None],
    text_of: Callable[[Judgement], str],
    absent: str = "",
    is_coloured: Callable[[Judgement], bool] = lambda one: one.differs,
) -> list[Span]:
    """The texts of judgements in the styles of their verdicts, so far as these are to be coloured; `absent`
    of a case without one."""
    return [
        Span(absent if item.rows else "", "dim")
        if one is None
        else Span(text_of(one), style_of(one) if is_coloured(one) else "")
        for item, one in zip(items, judged, strict=True)
    ]


def _changes(items: Sequence[_Item], is_drawn: bool) -> Column:
    """`-36 % (-38 to -34)`; on a screen without the interval where it has no room."""
    judged = [item.judgement(0) for item in items]
    whole = _spans(items, judged, change_text, "—")
    if not is_drawn:
        return Column("b vs a", whole, True)
    return Column(
        "b vs a", whole, True, _INTERVAL, Column("b vs a", _spans(items, judged, point_text, "—"), True)
    )


def _changes_of_many(items: Sequence[_Item], side: int, priority: float, is_drawn: bool) -> Column:
    """`-36 %`, or `-4 %?` where it may be none; with its verdict where no picture stands beside it."""
    judged = [item.judgement(side) for item in items]
    if is_drawn:
        cells = _spans(items, judged, doubted_point_text, "— ")
    else:
        cells = _spans(items, judged, both_text, "—", lambda one: True)
    return Column(f"{letter_of(side)} vs a", cells, True, priority)


def _intervals(item: _Item, sides: Sequence[int]) -> Iterator[Interval]:
    """Of the sides in sight, with their letters where there are several."""
    for side in sides:
        judged = item.judgement(side)
        if judged is None or judged.ratio is None:
            continue
        mark, beside = mark_of(judged), ""
        if len(sides) > 1:
            mark, beside = letter_of(side), f"{letter_of(side)} vs a"
        yield Interval(*judged.ratio, mark, style_of(judged), beside)


def _verdict(item: _Item, note: Callable[[Row], str]) -> Span:
    one = item.rows[0] if item.rows else item.means[0]
    if one is None:
        return Span("—", "dim")
    return Span(verdict_text(one.rate) + (note(one) if isinstance(one, Row) else ""), style_of(one.rate))


def _fastest(items: Sequence[_Item], is_drawn: bool) -> Column:
    cells = []
    for item in items:
        rows = {letter_of(place): row for place, row in enumerate(item.rows) if row is not None}
        text = fastest_text(first_of(item.rows).a, rows) if rows else ""
        cells.append(Span(text, {"same": "dim", "—": "dim"}.get(text, "accent" if " " in text else "title")))
    return Column("fastest", cells, priority=0 if is_drawn else _FASTEST)


def _prices(items: Sequence[_Item]) -> list[Column]:
    """What a unit of work costs on either side, and which unit."""
    found = [costs_text((row.a, row.b)) if (row := item.row(0)) else (["", ""], "") for item in items]
    return [
        Column("$ a", [Span(texts[0], "dim") for texts, _ in found], True, _PRICES),
        Column("$ b", [texts[1] for texts, _ in found], True, _PRICES),
        Column("per", [Span(unit, "dim") for _, unit in found], priority=_PRICES),
    ]


def _costs(items: Sequence[_Item], side: int, name: str) -> Column:
    rows = [item.row(side) for item in items]
    judged = [None if row is None or row.cost.ratio is None else row.cost for row in rows]
    cells = _spans(items, judged, doubted_point_text, is_coloured=lambda one: one.is_decided)
    return Column(f"{name} ", cells, True, _COST)
