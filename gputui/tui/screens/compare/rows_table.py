"""The rows of a comparison as cells of a table: as many sides and words as the width has room for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
from gputui.model.absent import Missing
from gputui.services.compare.columns import ComparisonColumn
from gputui.services.compare.pairing import MEANS, Cell, Comparison, Row, pairing, table_order
from gputui.services.compare.row_text import (
    change_text,
    mean_name,
    point_text,
    row_name,
    shared_words,
    short_change_text,
    verdict_text,
)
from gputui.store.text import clean_text
from gputui.tui.widgets.cells import cut, width_of

_PADDING = 2
"""Cells beside the text of each column."""
_LONGEST_NAME = 12
"""Of a side in a heading, where there are more than two."""
_ABSENT = "—"

RowOfSides = tuple[Row | None, ...]
"""One case against the baseline, by side; None on a side where neither it nor the baseline has it."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """How much a row says."""

    change: str
    """`wide` prints the interval and rates per second, `ends` the interval, `bare` none; `told` puts the
    change behind the verdict."""
    has_remarks: bool = False
    """Remarks have a column of their own, else `!` behind the verdict says that something disturbed the row,
    `*` that there is more to know."""

    @property
    def is_wide(self) -> bool:
        """Whether rates are per second in every cell, and costs have their intervals."""
        return self.change == "wide"


_FORMS = (RowForm("wide", True), RowForm("wide"), RowForm("ends"), RowForm("bare"), RowForm("told"))


@dataclass(frozen=True, slots=True)
class SidesTable:
    """What the table shows."""

    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    first: int
    """The place of the first side in sight among those against the baseline."""
    shown: int
    """How many of them are in sight."""
    unsaid: str
    """What all rows share, where the heading has no room for it."""

    @property
    def width(self) -> int:
        """Cells it takes."""
        return sum(_widths([self.headings, *self.cells]))


def rows_of_sides(comparisons: Sequence[Comparison], ignore: str) -> list[RowOfSides]:
    """The rows of every side beside each other, in the order of the table; what only one side has last."""
    by_key = [{pairing(row.case, ignore): row for row in (*one.rows, *one.one_sided)} for one in comparisons]
    paired = {pairing(row.case, ignore): row for one in comparisons for row in one.rows}
    alone = {pairing(row.case, ignore): row for one in comparisons for row in one.one_sided}
    keys = sorted(paired, key=lambda key: table_order(paired[key].case))
    keys += [key for key in alone if key not in paired]
    return [tuple(found.get(key) for found in by_key) for key in keys]


def sheet_of(
    comparisons: Sequence[Comparison],
    rows: Sequence[RowOfSides],
    names: Sequence[str],
    place: int,
    ignore: str,
    value: ComparisonColumn,
    width: int,
) -> SidesTable:
    """The form that says most among those in which all sides fit, else as many sides as fit from `place` on.

    `names` are of the sides against the baseline.
    """
    made = _Columns(comparisons, rows, names, place, ignore, value)
    every = range(len(comparisons))
    for form in _FORMS:
        if form.has_remarks and (len(comparisons) > 1 or not made.has_remarks()):
            continue
        sheet = made.sheet(form, every)
        if sheet.width <= width:
            return sheet
    form = _FORMS[-1]
    shown = range(place, place + 1)
    for wider in _growing(place, len(comparisons)):
        if made.sheet(form, wider).width > width:
            break
        shown = wider
    return made.sheet(form, shown)


def _growing(place: int, count: int) -> Iterable[range]:
    """Sides from `place` on, one more each time; from the last on to the left."""
    first, end = place, place + 1
    while first > 0 or end < count:
        if end < count:
            end += 1
        else:
            first -= 1
        yield range(first, end)


class _Columns:
    """Cells of a comparison in any form."""

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        rows: Sequence[RowOfSides],
        names: Sequence[str],
        place: int,
        ignore: str,
        value: ComparisonColumn,
    ) -> None:
        self._comparisons = comparisons
        self._rows = rows
        self._names = short_names(names)
        self._place = place
        self._ignore = ignore
        self._value = value
        self._common = shared_words((row for rows in self._rows for row in rows if row), ignore)

    def has_remarks(self) -> bool:
        """Whether any row of the only pair of sides has one."""
        return any(row is not None and remarks(row) for rows in self._rows for row in rows)

    def sheet(self, form: RowForm, shown: range) -> SidesTable:
        """Headings and cells with these sides in sight."""
        is_pair = len(self._comparisons) == 1
        title = self._value.title or ("" if form.is_wide else "per s")
        common = " ".join(self._common)
        is_said = form.change != "told" or is_pair
        case = f"case ({common})" if common and is_said else "case"
        unsaid = "" if is_said else common
        headings = [case, *self._for_heading(), f"a {title}".strip()]
        for place in shown:
            name = f"b {title}".strip() if is_pair else self._name(place)
            ratio = "b vs a" if is_pair else "vs a"
            headings += [name, *([ratio] if form.change == "told" else [ratio, "verdict"])]
        headings += ["remarks"] if form.has_remarks else []
        cells = [self._row(rows, form, shown) for rows in self._rows]
        cells += self._means(form, shown)
        padded = ((*row, *[""] * (len(headings) - len(row))) for row in cells)
        return SidesTable(tuple(headings), tuple(padded), shown.start, len(shown), unsaid)

    def _name(self, place: int) -> str:
        """Of a side; the one that is looked at is b as well."""
        return f"b {self._names[place]}" if place == self._place else self._names[place]

    def _for_heading(self) -> list[str]:
        return [f"{self._value.name} of"] if self._value.unit else []

    def _row(self, rows: RowOfSides, form: RowForm, shown: range) -> list[str]:
        known = next(row for row in rows if row is not None)
        cells = [row_name(known, self._common, self._ignore, is_short=not form.is_wide)]
        if self._value.unit:
            cells.append(self._value.unit(known))
        cells.append(self._side(known.a, form))
        for place in shown:
            row = rows[place]
            if row is None:
                cells += [_ABSENT, *[""] * (1 if form.change == "told" else 2)]
                continue
            disturbed = "" if form.has_remarks else " !" if row.flags else " *" if row.note else ""
            cells.append(self._side(row.b, form))
            if form.change == "told":
                cells.append(_told(row.rate) + disturbed)
            else:
                cells += [_change(row.rate, form), verdict_text(row.rate) + disturbed]
        return [*cells, *([remarks(known)] if form.has_remarks else [])]

    def _side(self, cell: Cell, form: RowForm) -> str:
        value = self._value.on_side(cell, in_full=form.is_wide)
        return _ABSENT if isinstance(value, Missing) else value

    def _means(self, form: RowForm, shown: range) -> list[list[str]]:
        """A row for each class of workloads that any side has rows of."""
        found = []
        for group in dict.fromkeys(mean.group for one in self._comparisons for mean in one.groups):
            by_side = [next((m for m in one.groups if m.group == group), None) for one in self._comparisons]
            # with several sides the number of common rows differs from side to side
            only = by_side[0] if len(by_side) == 1 else None
            name = (
                f"{MEANS[group].removesuffix(' tests')} mean"
                if only is None or form.change == "told"
                else mean_name(only)
            )
            cells = [name, *[""] * (1 + len(self._for_heading()))]
            for place in shown:
                mean = by_side[place]
                if mean is None or isinstance(mean.mean, Missing):
                    cells += [""] * (2 if form.change == "told" else 3)
                elif form.change == "told":
                    cells += ["", _told(mean.rate)]
                else:
                    cells += ["", _change(mean.rate, form), verdict_text(mean.rate)]
            found.append(cells)
        return found


def row_line(rows: RowOfSides, place: int, names: Sequence[str], value: ComparisonColumn) -> str:
    """What there is no room for in a row: why values are absent, the reason of its verdict, and remarks.

    The reason is of the side at `place`, which it calls b; `names` are of the sides against the baseline.
    """
    known = next(row for row in rows if row is not None)
    is_pair = len(rows) == 1
    sides = [("b" if is_pair else name, row.b) for name, row in zip(names, rows, strict=True) if row]
    reasons = value.reasons([("a", known.a), *sides])
    absent = "; ".join(f"{' and '.join(names)}: {reason}" for reason, names in reasons.items())
    row = rows[place]
    told = "" if row is None else "; ".join(filter(None, (row.verdict.reason, remarks(row))))
    if told and not is_pair:
        told = f"{names[place]} as b: {told}"
    return "; ".join(filter(None, (absent, told)))


def remarks(row: Row) -> str:
    """What disturbed a row, and what a reader must know of it."""
    sides: dict[str, list[str]] = {}
    for flag in row.flags:
        sides.setdefault(flag.word, []).append(flag.side)
    return "; ".join(filter(None, (*(f"{' and '.join(of)} {word}" for word, of in sides.items()), row.note)))


def _change(rate: Judgement, form: RowForm) -> str:
    return (short_change_text if form.change == "bare" else change_text)(rate)


def _told(rate: Judgement) -> str:
    """`slower -36 %`; without a difference the word alone."""
    return f"{rate.word} {point_text(rate)}" if rate.differs else verdict_text(rate)


def short_names(names: Sequence[str]) -> list[str]:
    """Names for headings: without the file where all are of one, and where they are long, without what all
    begin with or their middle."""
    files = {name.rpartition("@")[0] for name in names}
    if len(files) == 1 and "" not in files:
        names = [f"@{name.rpartition('@')[2]}" for name in names]
    clean = [clean_text(name) for name in names]
    if max(map(width_of, clean)) > _LONGEST_NAME:
        clean = _without_ends(clean)
    return [_cut_in_the_middle(name) for name in clean]


def _without_ends(names: Sequence[str]) -> list[str]:
    """Names without the ending of files, and without a beginning that all share."""
    bare = [name.removesuffix(".duckdb").removesuffix(".db") for name in names]
    letters = enumerate(zip(*bare, strict=False))
    first = next((place for place, of in letters if len(set(of)) > 1), 0)
    return [f"…{name[first:]}" if first > 1 else name for name in bare]


def _cut_in_the_middle(name: str) -> str:
    """Names of files begin alike and end in what was typed last: both ends tell."""
    if width_of(name) <= _LONGEST_NAME:
        return name
    kept = (_LONGEST_NAME - 1) // 2
    return f"{cut(name, kept + 1).removesuffix('…')}…{name[-kept:]}"


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width_of, column)) + _PADDING for column in zip(*lines, strict=True)]
