"""A comparison as tables and lines of text, which each form lays out in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gputui.analysis.judgement import TIME
from gputui.analysis.verdict import BAND, RatioEstimate
from gputui.document.spans import Span
from gputui.document.table import Column, Section, Table, table_of
from gputui.model.absent import Missing
from gputui.model.units import format_change, format_percent
from gputui.services.compare.columns import COLUMNS, ComparisonColumn
from gputui.services.compare.pairing import Comparison, Row, Side, performance_checks_of_side
from gputui.services.compare.row_text import (
    boxes_text,
    change_text,
    choice_words,
    difference_words,
    figure_values,
    figure_verdict,
    letter_of,
    no_difference_words,
    part_words,
    short_name,
    side_parts,
    unmeasured_words,
)
from gputui.services.compare.rows_table import is_absent, rows_of_sides, rows_table
from gputui.services.compare.why import why_parts
from gputui.services.results.conditions import NOT_PROFILED
from gputui.services.results.labels import (
    ending_words,
    lost_words,
    shared_case_words,
    short_case_name,
    some_of,
)
from gputui.services.results.throughput import HOST_BOUND, LIFTS

BELOW = tuple(column for column in COLUMNS if column.default == "below")


class Naming:
    """Names the rows of a comparison and numbers their notes."""

    def __init__(self, comparison: Comparison, ignore: str) -> None:
        self.common = shared_case_words((row.case for row in comparison.rows), ignore)
        self.ignore = ignore
        self.notes: list[str] = []

    def name(self, row: Row, *, is_short: bool = False) -> str:
        """Without what all rows share."""
        return short_case_name(row.case, self.common, self.ignore, is_short=is_short)

    def note(self, row: Row) -> str:
        """` [1]`: the number of the note that says more about a verdict; empty where there is no more to
        say."""
        said = "; ".join(filter(None, (row.verdict.reason, row.note)))
        if not said:
            return ""
        if said not in self.notes:
            self.notes.append(said)
        return f" [{self.notes.index(said) + 1}]"


def sides_table(sides: Sequence[Side], ignore: str, label_cells: int = 1000) -> Table:
    """A line for each side: its letter, name, box, price, torch, launches and day; the last have no room
    first. Files are called by their names where these differ.
    """
    short = [short_name(side.name) for side in sides]
    if len(set(short)) == len(sides):
        sides = [replace(side, name=name) for side, name in zip(sides, short, strict=True)]
    letters = [Span("a" if place < 0 else letter_of(place), "title") for place in range(-1, len(sides) - 1)]
    parts = zip(*(side_parts(side, ignore, label_cells) for side in sides), strict=True)
    columns = [
        Column("", texts, priority=place, breaks=not place) for place, texts in enumerate(parts) if any(texts)
    ]
    return Table((Column("", letters), *columns))


def about_lines(
    comparisons: Sequence[Comparison], ignore: str, place: int = 0, width: int | None = None
) -> Iterator[str]:
    """Which runs were chosen, and what differs; of a pair as the comparison at this place, with the values
    where these fit in `width`."""
    if len(comparisons) == 1:
        if place:
            yield part_words(place)
        yield from choice_words(comparisons[0], ignore)
    found: dict[str, list[str]] = {}
    for number, comparison in enumerate(comparisons):
        for what, _, _ in comparison.differs:
            found.setdefault(what, []).append(letter_of(number))
    names = [
        what if len(of) == len(comparisons) else f"{what} ({' and '.join(of)})" for what, of in found.items()
    ]
    if len(comparisons) > 1 and names:
        yield f"differs from a: {', '.join(names)}"
    elif names:
        told = f"differs: {', '.join(map(difference_words, comparisons[0].differs))}"
        yield told if width is None or len(told) <= width else f"differs: {', '.join(names)}"
    elif not ignore:
        yield no_difference_words(comparisons[0]) if len(comparisons) == 1 else "no recorded differences"


def row_table(
    comparison: Comparison, naming: Naming, columns: Sequence[ComparisonColumn] | None = None
) -> Table:
    """The rows and the means of their classes with all there is to say; costs have a table of their own."""
    rows = rows_of_sides((comparison,), naming.ignore, one_sided=False)
    return rows_table((comparison,), rows, naming.ignore, columns, note=naming.note, has_costs=False)


def absent_lines(comparison: Comparison, columns: Sequence[ComparisonColumn]) -> Iterable[str]:
    """Why columns that were asked for are not there, and what would fill them."""
    for column in COLUMNS:
        if column in columns and is_absent(comparison, column):
            reasons = column.reasons([("", cell) for row in comparison.rows for cell in (row.a, row.b)])
            yield f"no {column.absent}: {'; '.join(reasons) or 'nothing was measured'}"


def metric_table(comparison: Comparison, naming: Naming) -> Table | None:
    """Results other than speed, below their case, with their verdicts; None if there are none."""
    rows: list[tuple[str, ...]] = []
    for row in comparison.rows:
        if row.figures:
            rows.append((naming.name(row), "", "", "", ""))
        rows += [
            (f"  {one.title}", *figure_values(one), change_text(one.judgement), figure_verdict(one))
            for one in row.figures
        ]
    return table_of(("figure", "a", "b", "b vs a", "verdict"), rows, (1, 2, 3)) if rows else None


def column_table(column: ComparisonColumn, comparison: Comparison, naming: Naming) -> Table | None:
    """A column with a `table_heading` in a table after the rows; None if no row has a value."""
    rows = []
    for row in comparison.rows:
        both = column.of_both(row)
        if set(both) != {"—"}:
            rows.append((naming.name(row), *both, *((column.unit(row),) if column.unit else ())))
    headings = (column.table_heading, "a", "b", *(("per",) if column.unit else ()))
    return table_of(headings, rows, (1, 2)) if rows else None


_MISSING_FIRST = ("oom", "failed", "interrupted", "unsupported", "skipped", "")


def missing_lines(comparison: Comparison, naming: Naming, letters: str = "ab") -> list[str]:
    """Which rows one side lacks and why, the failures first; of those with one reason a line."""
    found: dict[tuple[int, str, str, str], list[str]] = {}
    for row in comparison.rows:
        for letter, cell in zip(letters, (row.a, row.b), strict=True):
            if cell.result is None:
                key = (_MISSING_FIRST.index(""), f"not in {letter}", "", "")
            elif isinstance(cell.speed, Missing):
                known = cell.result.outcome
                place = _MISSING_FIRST.index(known) if known in _MISSING_FIRST else len(_MISSING_FIRST)
                key = (place, letter, *ending_words(cell.result))
            else:
                continue
            found.setdefault(key, []).append(naming.name(row, is_short=True))
    return [
        f"{f'{who} {verb}'.rstrip()}: {some_of(names)}{f' ({reason})' if reason else ''}"
        for (_, who, verb, reason), names in sorted(found.items())
    ]


def remarks(comparison: Comparison, naming: Naming) -> Iterable[str]:
    """Differences that were too small to show, disturbances, and impossible rates; a line each."""
    told = [
        f"{format_change(row.estimate.resolvable).lstrip('+')} of {naming.name(row)}"
        for row in comparison.rows
        if row.verdict.word in ("same", "inconclusive")
        and isinstance(row.estimate, RatioEstimate)
        and not row.estimate.is_beyond(BAND)
    ]
    if told:
        yield f"would not show: a difference below {', '.join(told)}"
    narrow: dict[float, list[str]] = {}
    for row in comparison.rows:
        if row.holds_between_models is False and not isinstance(row.models_band, Missing):
            narrow.setdefault(row.models_band, []).append(naming.name(row))
    for band, names in sorted(narrow.items()):
        yield f"{boxes_text(band)}: {', '.join(names)}"
    yield from disturbances(comparison, naming)


def disturbances(comparison: Comparison, naming: Naming, b: str = "b") -> Iterable[str]:
    """What makes rows doubtful: heat, caps, neighbors, failed launches and impossible rates; a line each.

    `b` is the letter of the second side, another one where there are more than two.
    """
    found: dict[tuple[str, str], list[str]] = {}
    timed = [row for row in comparison.rows if row.rate.respect != TIME]  # its load says the same
    for row in timed:
        for flag in row.flags:
            said = f"{naming.name(row)} {format_percent(flag.share)}"
            found.setdefault((flag.side, flag.word), []).append(said)
    for (side, word), rows in sorted(found.items()):
        lifts = f". {LIFTS}" if word == HOST_BOUND else ""
        yield f"! {b if side == 'b' else side} {word}: {', '.join(rows)} of the time{lifts}"
    for letter, of_side in (("a", 0), (b, 1)):
        named = [(naming.name(row), (row.a, row.b)[of_side]) for row in timed]
        for words in lost_words((name, cell.result) for name, cell in named if cell.result is not None):
            yield f"! {letter}: {words}"
        for name, cell in named:
            wrong = [use.of_sheet for use in cell.uses if use.is_impossible]
            if shares := [share for share in wrong if not isinstance(share, Missing)]:
                yield (
                    f"! {letter} {name}: {format_percent(max(shares))} of the data sheet's peak is a"
                    " measurement error, or the device is not what its name says"
                )


def performance_lines(comparison: Comparison) -> Iterable[str]:
    """Whether each side's devices perform as elsewhere; nothing without reference figures."""
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        for performance in performance_checks_of_side(side):
            yield f"{letter} {performance.text}"


def left_out(comparison: Comparison, naming: Naming) -> Iterable[str]:
    """Cases without a row, and why."""
    yield from unmeasured_words(comparison)
    for side, letter in ((comparison.a, "a"), (comparison.b, "b")):
        alone: Sequence[Row] = [
            row for row in comparison.one_sided if (row.a if letter == "a" else row.b).result is not None
        ]
        if alone:
            names = ", ".join(dict.fromkeys(naming.name(row) for row in alone))
            yield f"only with {naming.ignore} {side.name}: {names}"


def below_rows(
    comparison: Comparison, naming: Naming, columns: Iterable[ComparisonColumn], more: Iterable[str] = ()
) -> Iterator[str | Table | tuple[str, ...] | Section]:
    """Notes, remarks with `more` of them, reasons, figures, tables of these columns, and what was left out.

    An empty text stands before what is set apart.
    """
    yield tuple(f"[{number}] {note}" for number, note in enumerate(naming.notes, 1))
    yield (*remarks(comparison, naming), *more, *performance_lines(comparison))
    unknown: dict[str, list[str]] = {}
    for row in comparison.rows:
        name = naming.name(row)
        if parts := why_parts(row):
            yield Section(f"why {name}" if isinstance(parts[0], str) else name, parts)
        found = row.why and row.why.attribution
        if isinstance(found, Missing) and found.reason != NOT_PROFILED:
            unknown.setdefault(found.reason, []).append(name)
    if unknown:
        yield ""
        yield tuple(f"why {', '.join(names)}: unknown: {reason}" for reason, names in unknown.items())
    tables = (metric_table(comparison, naming), *(column_table(one, comparison, naming) for one in columns))
    yield from (table for table in tables if table is not None)
    yield tuple(left_out(comparison, naming))


def pair_parts(
    comparison: Comparison, ignore: str, columns: Sequence[ComparisonColumn] = (), place: int = 0
) -> list[str | Table | tuple[str, ...] | Section]:
    """The comparison at this place among others, with all there is to say."""
    naming = Naming(comparison, ignore)
    rows = row_table(comparison, naming, columns or None)  # which numbers the notes
    absent = absent_lines(comparison, columns)
    return [
        sides_table((comparison.a, comparison.b), ignore),
        tuple(about_lines((comparison,), ignore, place)),
        rows,
        *(part for part in below_rows(comparison, naming, () if columns else BELOW, absent) if part),
    ]
