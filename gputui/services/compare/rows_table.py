"""The rows of a comparison as one table, which text, Markdown, HTML and the screen all show: figures,
intervals on one axis, verdicts and costs. Each form that laid its rows out by itself would judge by itself
what to leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gputui.analysis.cost import Cost
from gputui.analysis.judgement import Judgement
from gputui.document.drawings import Interval, intervals
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Table
from gputui.errors import clean_text
from gputui.model.absent import Missing
from gputui.model.units import format_usd
from gputui.services.compare.columns import CLOCK, COLUMNS, RATE, RATIO, ComparisonColumn
from gputui.services.compare.pairing import MEANS, Comparison, GroupMean, Row, pairing, table_order
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.row_text import (
    both_text,
    case_heading,
    change_text,
    cost_unit_of,
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


_Line = Sequence[Row | GroupMean | None]
"""A case, or the mean of a class, against the baseline, by side."""


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
) -> Table:
    """These rows, then the means of classes; of a pair with these columns, or with the usual ones, which go
    where there is no room.

    `is_drawn`: intervals are drawn. `value` takes the place of the rates. `place` is of the side that stays
    in sight where there is no room for all; `note` follows a verdict.
    """
    lines: list[_Line] = [*rows, *(_means(comparisons) if has_means else ())]
    is_pair = len(comparisons) == 1
    before: list[Column | Drawing] = [_names(comparisons, lines, rows, ignore, is_drawn)]
    if is_pair:
        behind = [_verdicts(lines, note)]
        styles = ["title" if isinstance(one, Row) and one.rate.differs else "" for (one,) in lines]
    else:
        before += _columns_of_many(lines, value, place, is_drawn)
        behind, styles = [_fastest(lines, is_drawn)], []
    for column in _columns_shown(comparisons[0], columns, is_drawn) if is_pair else ():
        if column is RATIO:
            before.append(_changes(lines, is_drawn))
        elif column is RATE and value is not RATE:
            before += [*_units(value, lines), *(_of_side(value, letter, lines, 0) for letter in "ab")]
        else:
            blank = ("",) * len(column.headings)
            cells = [column.cells_of(one) if isinstance(one, Row) else blank for (one,) in lines]
            side = before if column.is_before_verdict else behind
            side += _with_headings(column, cells, is_drawn, is_usual=columns is None)
    if is_drawn:
        before.append(intervals([_intervals(line) for line in lines], _WISHES))
    if has_costs and any(row is not None and row.cost.ratio is not None for of in rows for row in of):
        behind += _prices(lines) if is_pair and is_drawn and value is RATE else []
        behind += _costs(lines)
    return Table((*before, *behind), styles, 2 if not is_pair else int(columns is not None))


def _columns_shown(
    comparison: Comparison, columns: Sequence[ComparisonColumn] | None, is_drawn: bool
) -> list[ComparisonColumn]:
    """Of a pair: these, or the usual ones, so far as any row has something in them."""
    usual = ("always",) if is_drawn else ("always", "wide")
    chosen = [one for one in COLUMNS if (one.default in usual if columns is None else one in columns)]
    return [one for one in chosen if not is_absent(comparison, one)]


def _with_headings(
    column: ComparisonColumn, cells: Sequence[Sequence[str | Span]], is_drawn: bool, is_usual: bool
) -> list[Column]:
    """The parts of a column, whose cells are those of each row."""
    priority: float = _EXTRA if is_usual else 10 * bool(column.table_heading)
    if column.is_before_verdict:
        priority = _VALUES if is_drawn else _CLOCK if column is CLOCK and is_usual else 0
    return [
        Column(heading, [of[place] for of in cells], column.is_before_verdict and heading != "unit", priority)
        for place, heading in enumerate(column.headings)
    ]


def _verdicts(lines: Sequence[_Line], note: Callable[[Row], str]) -> Column:
    """Those of a pair, each with its note."""
    cells = [
        Span("—", "dim")
        if one is None
        else Span(verdict_text(one.rate) + (note(one) if isinstance(one, Row) else ""), style_of(one.rate))
        for (one,) in lines
    ]
    return Column("verdict", cells)


def _costs(lines: Sequence[_Line]) -> list[Column]:
    """How much more or less a unit of work costs on each side than on the baseline."""
    made = []
    for side in range(len(lines[0])):
        paid = [row.cost if isinstance(row := line[side], Row) else None for line in lines]
        cells = _spans(lines, paid, doubted_point_text, is_coloured=lambda one: one.is_decided)
        made.append(Column("cost " if len(lines[0]) == 1 else f"cost {letter_of(side)} ", cells, True, _COST))
    return made


def _columns_of_many(
    lines: Sequence[_Line], value: ComparisonColumn, place: int, is_drawn: bool
) -> list[Column]:
    """The value of the baseline, then of each side, where it is no rate, and its change; on a screen those
    that are further from the side in sight go first."""
    count = len(lines[0]) if lines else 0
    nearest = [*range(place, count), *reversed(range(place))]
    made = _units(value, lines)
    made.append(_of_side(value, "a", lines, 0, _VALUES if value is RATE and is_drawn else 0))
    clock = _of_side(CLOCK, "a", lines, 0, _VALUES if is_drawn else _CLOCK)
    made += [clock] if value is RATE and set(clock.texts) - {"", "—"} else []
    for side in range(count):
        letter, judged = letter_of(side), [_judged(line[side]) for line in lines]
        priority = 2 + nearest.index(side) / count if is_drawn and side != place else 0
        made += [_of_side(value, letter, lines, side, priority)] if value is not RATE else []
        if is_drawn:  # `-4 %?` where it may be none; else with its verdict, as no picture stands beside it
            cells = _spans(lines, judged, doubted_point_text, "— ")
        else:
            cells = _spans(lines, judged, both_text, "—", lambda one: True)
        made.append(Column(f"{letter} vs a", cells, True, priority))
    return made


def is_absent(comparison: Comparison, column: ComparisonColumn) -> bool:
    """Whether no row has anything in a column, which is then left out."""
    return column.absent != "" and all(
        isinstance(column.on_side(cell), Missing) for row in comparison.rows for cell in (row.a, row.b)
    )


def _means(comparisons: Sequence[Comparison]) -> Iterator[_Line]:
    """Those that say anything on any side."""
    by_group = [{(mean.group, mean.device_class): mean for mean in one.groups} for one in comparisons]
    for name in dict.fromkeys(name for found in by_group for name in found):
        line = [found.get(name) for found in by_group]
        if any(map(_judged, line)):
            yield line


def _judged(one: Row | GroupMean | None) -> Judgement | None:
    """Of its rate; None where that has no ratio, and of a mean of one row."""
    is_one_row = isinstance(one, GroupMean) and one.common < 2
    return None if one is None or one.rate.ratio is None or is_one_row else one.rate


def _row(line: _Line) -> Row | None:
    """That of the first side that has the case; None of a mean."""
    return next((one for one in line if isinstance(one, Row)), None)


def _names(
    comparisons: Sequence[Comparison],
    lines: Sequence[_Line],
    rows: Sequence[RowOfSides],
    ignore: str,
    is_drawn: bool,
) -> Column:
    """What each case is called; shorter where intervals have no room, then without the size where a workload
    has one, and so is the heading in its turn."""
    common = shared_case_words((row.case for of in rows for row in of if row), ignore)
    works = {first_of(of).case.work for of in rows}
    devices = mean_devices(comparisons)

    def name(line: _Line, is_short: bool) -> Span:
        row = _row(line)
        if row is not None:
            is_only_size = {row.case.work} == {one for one in works if one.workload == row.case.work.workload}
            unsaid = [*common, row.case.work.size] if is_short and is_only_size else common
            is_marked = any(isinstance(one, Row) and one.is_host_bound for one in line)
            called = clean_text(short_case_name(row.case, unsaid, ignore, is_short=is_short))
            return Span(f"{called} ({HOST_BOUND})" if is_marked else called)
        mean = next(one for one in line if isinstance(one, GroupMean))
        device = devices[mean.device_class]
        if len(comparisons) == 1:
            return Span(mean_name(mean, device), "dim")
        return Span(", ".join(("average", f"{device} {MEANS[mean.group]}".strip())), "dim")

    heading, short = case_heading(common), [name(line, True) for line in lines]
    bare = Column("case", short, breaks=True)
    priority = _VALUES + 0.5 if is_drawn else _HEADING
    narrow = Column(heading, short, priority=priority, narrow=bare, breaks=True)
    return Column(heading, [name(line, False) for line in lines], False, _INTERVAL, narrow, breaks=True)


def _units(value: ComparisonColumn, lines: Sequence[_Line]) -> list[Column]:
    """What a value is for, where it does not say so."""
    if value.unit is None:
        return []
    cells = [Span(value.unit(row) if (row := _row(line)) else "", "dim") for line in lines]
    return [Column(f"{value.name} of", cells)]


def _of_side(
    value: ComparisonColumn, letter: str, lines: Sequence[_Line], side: int, priority: float = 0
) -> Column:
    """A value of one side, `a` the baseline."""
    shown: list[str] = []
    for line in lines:
        row = _row(line) if letter == "a" else line[side]
        cell = None if not isinstance(row, Row) else row.a if letter == "a" else row.b
        text = "" if cell is None else value.on_side(cell, in_full=value is RATE)
        shown.append("—" if isinstance(text, Missing) else text)
    return Column(f"{letter} {value.title}".strip(), shown, True, priority)


def _spans(
    lines: Sequence[_Line],
    judged: Iterable[Judgement | None],
    text_of: Callable[[Judgement], str],
    absent: str = "",
    is_coloured: Callable[[Judgement], bool] = lambda one: one.differs,
) -> list[Span]:
    """The texts of judgements in the styles of their verdicts, so far as these are to be coloured; `absent`
    of a case without one."""
    return [
        Span(absent if _row(line) else "", "dim")
        if one is None or one.ratio is None
        else Span(text_of(one), style_of(one) if is_coloured(one) else "")
        for line, one in zip(lines, judged, strict=True)
    ]


def _changes(lines: Sequence[_Line], is_drawn: bool) -> Column:
    """`-36 % (-38 to -34)`; on a screen without the interval where it has no room."""
    judged = [_judged(line[0]) for line in lines]
    whole = Column("b vs a", _spans(lines, judged, change_text, "—"), True)
    if not is_drawn:
        return whole
    narrow = replace(whole, cells=_spans(lines, judged, point_text, "—"))
    return replace(whole, priority=_INTERVAL, narrow=narrow)


def _intervals(line: _Line) -> list[Interval]:
    """Of the sides in sight, with their letters where there are several."""
    drawn = []
    for side, one in enumerate(line):
        judged, letter = _judged(one), letter_of(side)
        if judged is not None and judged.ratio is not None:
            mark, beside = (letter, f"{letter} vs a") if len(line) > 1 else (mark_of(judged), "")
            drawn.append(Interval(*judged.ratio, mark, style_of(judged), beside))
    return drawn


def _fastest(lines: Sequence[_Line], is_drawn: bool) -> Column:
    cells = []
    for line in lines:
        rows = {letter_of(place): row for place, row in enumerate(line) if isinstance(row, Row)}
        text = fastest_text(next(iter(rows.values())).a, rows) if rows else ""
        cells.append(Span(text, {"same": "dim", "—": "dim"}.get(text, "accent" if " " in text else "title")))
    return Column("fastest", cells, priority=0 if is_drawn else _FASTEST)


def _prices(lines: Sequence[_Line]) -> list[Column]:
    """What a unit of work costs on either side, and which unit."""
    shown: list[tuple[str, str, str]] = []
    for line in lines:
        row = _row(line)
        millions, unit = cost_unit_of(() if row is None else (row.a, row.b))
        a, b = (
            format_usd(cell.cost.usd_per_million * millions) if cell and isinstance(cell.cost, Cost) else ""
            for cell in (row and row.a, row and row.b)
        )
        shown.append((a, b, unit))
    on_a, on_b, units = zip(*shown, strict=True)
    return [
        Column("$ a", [Span(text, "dim") for text in on_a], True, _PRICES),
        Column("$ b", on_b, True, _PRICES),
        Column("per", [Span(unit, "dim") for unit in units], priority=_PRICES),
    ]
