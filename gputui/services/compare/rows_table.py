"""The rows of a comparison as one table, which text, Markdown, HTML and the screen all show: figures,
intervals on one axis, verdicts and costs. Each form that laid its rows out by itself would judge by itself
what to leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.judgement import Judgement
from gputui.document.drawings import Interval, intervals
from gputui.document.spans import Span, width_of
from gputui.document.table import Column, Drawing, Table
from gputui.model.absent import Missing
from gputui.services.compare.columns import CLOCK, COLUMNS, RATE, RATIO, ComparisonColumn
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

_ABSENT = Span("—", "dim")
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
class Item:
    """A line of the table: a case on all sides, or the mean of a class."""

    key: int
    """The place among all rows; negative of a mean."""
    rows: RowOfSides = ()
    means: tuple[GroupMean | None, ...] = ()

    def judgement(self, place: int) -> Judgement | None:
        """Of the rate of one side."""
        one = self.rows[place] if self.rows else self.means[place]
        if one is None or one.rate.ratio is None or (isinstance(one, GroupMean) and one.common < 2):
            return None
        return one.rate


@dataclass(frozen=True, slots=True)
class RowsTable:
    """The table, and what its lines are about."""

    table: Table
    items: tuple[Item, ...]
    groups: dict[int, str]
    """The class of workloads that begins before an item, by its place; empty if classes have no headings."""


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
    has_groups: bool = False,
    has_means: bool = True,
    is_beside_evidence: bool = False,
) -> RowsTable:
    """These rows; of a pair with these columns, or with the usual ones, which go where there is no room.

    `is_drawn` is for a screen: intervals are drawn, and verdicts are told by signs and colours. `value` takes
    the place of the rates. With `has_groups`, classes of workloads have headings and their means follow their
    rows, else all means come last. `place` is of the side that stays in sight where there is no room for
    all; `note` follows a verdict. Beside evidence, whole names are elsewhere.
    """
    items, groups = _items(comparisons, rows, has_groups=has_groups, has_means=has_means)
    sides = range(len(comparisons))
    is_pair = len(sides) == 1
    made: list[Column | Drawing] = [
        _names(
            items,
            rows,
            ignore,
            is_pair,
            bool(groups),
            _VALUES + 0.5 if is_beside_evidence else _HEADING,
            mean_devices(comparisons),
        )
    ]
    of_a = [first_of(item.rows).a if item.rows else None for item in items]
    of_sides = [[row.b if (row := _row(item, side)) else None for item in items] for side in sides]
    if is_pair:
        shown = _columns_shown(comparisons[0], columns, is_drawn)
        for column in shown:
            if column is RATE and value is not RATE:
                made += _unit(value, items)
                made += [_of_side(value, "a", of_a), _of_side(value, "b", of_sides[0])]
            elif column is RATIO:
                made.append(_changes(items, is_drawn))
            elif column.is_before_verdict:
                is_unasked = column is CLOCK and columns is None
                made += _column(column, items, _VALUES if is_drawn else _CLOCK if is_unasked else 0)
    else:
        nearest = [*range(place, len(sides)), *reversed(range(place))]
        priorities = [2 + nearest.index(side) / len(sides) if is_drawn else 0 for side in sides]
        priorities[place] = 0
        made += _unit(value, items)
        made.append(_of_side(value, "a", of_a, _VALUES if value is RATE and is_drawn else 0))
        clock = _of_side(CLOCK, "a", of_a, _VALUES if is_drawn else _CLOCK)
        made += [clock] if value is RATE and set(clock.texts) - {"", "—"} else []
        for side in sides:
            if value is not RATE:
                made.append(_of_side(value, letter_of(side), of_sides[side], priorities[side]))
            made.append(_changes_of_many(items, side, priorities[side], is_drawn))
    if is_drawn:
        made.append(intervals([[*_intervals(item, sides)] for item in items], _WISHES))
    if is_pair:
        made.append(Column("verdict", [_verdict(item, note) for item in items]))
        for column in shown:
            if not column.is_before_verdict:
                priority = _EXTRA if columns is None else 10 if column.table_heading else 0
                made += _column(column, items, priority)
    else:
        made.append(Column("fastest", [*map(_fastest, items)], priority=0 if is_drawn else _FASTEST))
    if has_costs and any(row is not None and row.cost.ratio is not None for of in rows for row in of):
        made += _prices(items) if is_pair and is_drawn and value is RATE else []
        made += [_costs(items, side, is_pair=is_pair) for side in sides]
    if not is_pair:
        return RowsTable(Table(tuple(made), keeps=2), tuple(items), groups)
    styles = ["title" if (row := _row(item, 0)) and row.rate.differs else "" for item in items]
    return RowsTable(Table(tuple(made), styles, keeps=columns is not None), tuple(items), groups)


def _columns_shown(
    comparison: Comparison, columns: Sequence[ComparisonColumn] | None, is_drawn: bool
) -> list[ComparisonColumn]:
    """Those asked for, or the usual ones, in the order of every table; without those that nothing fills."""
    usual = ("always",) if is_drawn else ("always", "wide")
    chosen = [one for one in COLUMNS if (one.default in usual if columns is None else one in columns)]
    return [one for one in chosen if not is_absent(comparison, one)]


def is_absent(comparison: Comparison, column: ComparisonColumn) -> bool:
    """Whether no row has anything in a column, which is then left out."""
    return column.absent != "" and all(
        isinstance(column.on_side(cell), Missing) for row in comparison.rows for cell in (row.a, row.b)
    )


def _items(
    comparisons: Sequence[Comparison], rows: Sequence[RowOfSides], *, has_groups: bool, has_means: bool
) -> tuple[list[Item], dict[int, str]]:
    items = [Item(key, row) for key, row in enumerate(rows)]
    by_group = [{(mean.group, mean.device_class): mean for mean in one.groups} for one in comparisons]
    names = dict.fromkeys(name for found in by_group for name in found) if has_means else {}
    means = {name: Item(-1, means=tuple(found.get(name) for found in by_group)) for name in names}
    drawn = {name: item for name, item in means.items() if any(map(item.judgement, range(len(comparisons))))}
    if not has_groups:
        return [*items, *drawn.values()], {}
    classes = [first_of(item.rows).case.workload_class for item in items]
    groups = [GROUPS.get(of, of) for of in classes]
    headings: dict[int, str] = {}
    ordered: list[Item] = []
    for group in dict.fromkeys(groups):
        headings[len(ordered)] = MEANS.get(group, group)
        ordered += [item for item, of in zip(items, groups, strict=True) if of == group]
        ordered += [item for (of, _), item in drawn.items() if of == group]
    return ordered, headings


def _names(
    items: Sequence[Item],
    rows: Sequence[RowOfSides],
    ignore: str,
    is_pair: bool,
    has_groups: bool,
    heading_priority: float,
    devices: Mapping[str, str],
) -> Column:
    """What each case is called; shorter where intervals have no room, then without the size where a workload
    has one, and so is the heading in its turn."""
    common = shared_case_words((row.case for of in rows for row in of if row), ignore)
    works = {first_of(of).case.work for of in rows}

    def name(item: Item, is_short: bool) -> Span:
        if item.rows:
            row = first_of(item.rows)
            is_only_size = {row.case.work} == {one for one in works if one.workload == row.case.work.workload}
            unsaid = [*common, row.case.work.size] if is_short and is_only_size else common
            is_marked = any(one is not None and one.is_host_bound for one in item.rows)
            called = clean_text(short_case_name(row.case, unsaid, ignore, is_short=is_short))
            return Span(f"{called} ({HOST_BOUND})" if is_marked else called)
        mean = next(mean for mean in item.means if mean is not None)
        device = devices[mean.device_class]
        if is_pair and not has_groups:
            return Span(mean_name(mean, device), "dim")
        of = " ".join(filter(None, (device, "" if has_groups else MEANS[mean.group])))
        return Span(f"average, {of}" if of else "average", "dim")

    heading = case_heading(common)
    short = [name(item, True) for item in items]
    is_wide = width_of(heading) > max((width_of(one.text) for one in short), default=0)
    bare = Column("case", short, breaks=True)
    narrow = replace(bare, heading=heading)
    narrow = replace(narrow, priority=heading_priority, narrow=bare) if is_wide else narrow
    names = [name(item, False) for item in items]
    return Column(heading, names, priority=_INTERVAL, narrow=narrow, breaks=True)


def _column(column: ComparisonColumn, items: Sequence[Item], priority: float) -> list[Column]:
    blank = [""] * len(column.headings)
    cells = [column.cells(row) if (row := _row(item, 0)) else blank for item in items]
    by_heading = zip(*cells, strict=True) if cells else blank
    return [
        Column(heading, list(of), column.is_before_verdict and heading != "unit", priority)
        for heading, of in zip(column.headings, by_heading, strict=True)
    ]


def _unit(value: ComparisonColumn, items: Sequence[Item]) -> list[Column]:
    """What a value is for, where it does not say so."""
    if value.unit is None:
        return []
    cells = [Span(value.unit(first_of(item.rows)) if item.rows else "", "dim") for item in items]
    return [Column(f"{value.name} of", cells)]


def _of_side(
    value: ComparisonColumn, letter: str, cells: Sequence[Cell | None], priority: float = 0
) -> Column:
    """A value of one side; of rates the baseline's alone, as changes say the rest."""
    texts = [None if cell is None else value.on_side(cell, in_full=value is RATE) for cell in cells]
    shown = ["" if text is None else "—" if isinstance(text, Missing) else text for text in texts]
    return Column(f"{letter} {value.title}".strip(), shown, True, priority)


def _row(item: Item, side: int) -> Row | None:
    return item.rows[side] if item.rows else None


def _spans(
    judged: Iterable[Judgement | None],
    text_of: Callable[[Judgement], str],
    is_coloured: Callable[[Judgement], bool] = lambda one: one.differs,
    absent: Callable[[int], Span] = lambda line: Span(""),
) -> list[Span]:
    """The texts of judgements in the styles of their verdicts, so far as these are to be coloured."""
    return [
        absent(line) if one is None else Span(text_of(one), style_of(one) if is_coloured(one) else "")
        for line, one in enumerate(judged)
    ]


def _changes(items: Sequence[Item], is_drawn: bool) -> Column:
    """`-36 % (-38 to -34)`; on a screen without the interval where it has no room."""
    judged = [item.judgement(0) for item in items]
    whole, short = (
        _spans(judged, text_of, absent=lambda line: _ABSENT if items[line].rows else Span(""))
        for text_of in (change_text, point_text)
    )
    if not is_drawn:
        return Column("b vs a", whole, True)
    return Column("b vs a", whole, True, _INTERVAL, Column("b vs a", short, True))


def _changes_of_many(items: Sequence[Item], side: int, priority: float, is_drawn: bool) -> Column:
    """`-36 %`, or `-4 %?` where it may be none; with its verdict where no picture stands beside it."""
    cells = _spans(
        [item.judgement(side) for item in items],
        doubted_point_text if is_drawn else both_text,
        lambda one: one.differs or not is_drawn,
        lambda line: Span("— " if is_drawn else "—", "dim") if items[line].rows else Span(""),
    )
    return Column(f"{letter_of(side)} vs a", cells, True, priority)


def _intervals(item: Item, sides: Sequence[int]) -> Iterator[Interval]:
    """Of the sides in sight, with their letters where there are several."""
    for side in sides:
        judged = item.judgement(side)
        if judged is None or judged.ratio is None:
            continue
        mark, beside = mark_of(judged), ""
        if len(sides) > 1:
            mark, beside = letter_of(side), f"{letter_of(side)} vs a"
        yield Interval(*judged.ratio, mark, style_of(judged), beside)


def _verdict(item: Item, note: Callable[[Row], str]) -> Span:
    one = item.rows[0] if item.rows else item.means[0]
    if one is None:
        return _ABSENT
    return Span(verdict_text(one.rate) + (note(one) if isinstance(one, Row) else ""), style_of(one.rate))


def _fastest(item: Item) -> Span:
    if not item.rows:
        return Span("")
    rows = {letter_of(place): row for place, row in enumerate(item.rows) if row is not None}
    text = fastest_text(first_of(item.rows).a, rows)
    return Span(text, {"same": "dim", "—": "dim"}.get(text, "accent" if " " in text else "title"))


def _prices(items: Sequence[Item]) -> list[Column]:
    """What a unit of work costs on either side, and which unit."""
    found = [costs_text((row.a, row.b)) if (row := _row(item, 0)) else (["", ""], "") for item in items]
    return [
        Column("$ a", [Span(texts[0], "dim") for texts, _ in found], True, _PRICES),
        Column("$ b", [texts[1] for texts, _ in found], True, _PRICES),
        Column("per", [Span(unit, "dim") for _, unit in found], priority=_PRICES),
    ]


def _costs(items: Sequence[Item], side: int, *, is_pair: bool) -> Column:
    rows = [_row(item, side) for item in items]
    judged = [None if row is None or row.cost.ratio is None else row.cost for row in rows]
    name = "cost" if is_pair else f"cost {letter_of(side)}"
    cells = _spans(judged, doubted_point_text, lambda one: one.is_decided)
    return Column(f"{name} ", cells, True, _COST)
