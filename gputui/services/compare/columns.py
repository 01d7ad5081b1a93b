"""A comparison as tables and lines of words: what every format of `compare` lays out in its own way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.cost import Cost
from gputui.analysis.energy import Energy
from gputui.analysis.verdict import BAND, RatioEstimate
from gputui.model.absent import Missing
from gputui.model.units import RATES, format_percent, format_ratio
from gputui.services.compare.pairing import Cell, Comparison, Row, performance_checks_of_side
from gputui.services.compare.row_text import (
    boxes_text,
    change_text,
    common_words,
    cost_text,
    energy_text,
    peak_text,
    peaks_text,
    rate_text,
    row_name,
    time_text,
    unmeasured_words,
)
from gputui.services.compare.row_values import value_of
from gputui.services.results.labels import metric_text
from gputui.services.results.metrics import metrics_of
from gputui.services.results.roofline import IMPOSSIBLE

COLUMNS = ("rate", "time", "ratio", "n", "peak", "cost", "energy")
"""What may be chosen for the table of rows, in their order; its name and verdict are always there."""
LONG_COLUMNS = {"cost", "energy"}
"""Those that have a table of their own where they do not fit beside the others."""


@dataclass(frozen=True, slots=True)
class Form:
    """How much a table of rows says."""

    is_wide: bool = True
    """Blocks and peaks are printed beside the ratio, and energies with both ends of their interval."""
    is_short: bool = False
    """Rates are said to be per second in the heading, and all cores of a CPU are not said."""


@dataclass(frozen=True, slots=True)
class Words:
    """A table of words."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...]
    """Columns whose cells are numbers, to be aligned to the right."""


class Naming:
    """What the rows of a comparison are called, and the notes that they refer to by number."""

    def __init__(self, comparison: Comparison, ignore: str) -> None:
        self.common = common_words(comparison, ignore)
        self.ignore = ignore
        self.notes: list[str] = []

    def name(self, row: Row, *, is_short: bool = False) -> str:
        """Without what all rows share."""
        return row_name(row, self.common, self.ignore, is_short=is_short)

    def verdict(self, row: Row) -> str:
        """The word, with the number of the note that says more."""
        said = "; ".join(filter(None, (row.verdict.reason, row.note)))
        if not said:
            return row.verdict.word
        if said not in self.notes:
            self.notes.append(said)
        return f"{row.verdict.word} [{self.notes.index(said) + 1}]"


def row_table(
    comparison: Comparison, naming: Naming, form: Form, columns: Collection[str] | None = None
) -> Words:
    """The rows and the means of their groups; `columns` are of COLUMNS, None: as many as fit.

    A column in which no row has anything is left out: `absent_lines` tells of it.
    """
    if columns is None:
        has_peak = any(peak_text(row.a) or peak_text(row.b) for row in comparison.rows)
        columns = ["rate", "ratio", *(["n", *(["peak"] if has_peak else [])] if form.is_wide else [])]
    columns = [column for column in columns if not _is_absent(comparison, column)]
    headings = [f"case ({' '.join(naming.common)})" if naming.common else "case"]
    numeric: list[int] = []
    per_s = " per s" if form.is_short else ""
    for column, added in (
        ("rate", [f"a{per_s}", f"b{per_s}"]),
        ("time", ["a step", "b step"] if form.is_short else ["a per step", "b per step"]),
        ("ratio", ["b against a"]),
    ):
        if column in columns:
            numeric += range(len(headings), len(headings) + len(added))
            headings += added
    ratio_place = len(headings) - 1 if "ratio" in columns else None
    headings.append("verdict")
    rest = [column for column in COLUMNS[3:] if column in columns]
    headings += [_HEADINGS[column] for column in rest]
    rows = []
    for row in comparison.rows:
        cells = [naming.name(row, is_short=form.is_short)]
        if "rate" in columns:
            rates = [rate_text(row.a), rate_text(row.b)]
            cells += [rate.removesuffix("/s") for rate in rates] if form.is_short else rates
        if "time" in columns:
            cells += [time_text(row.a), time_text(row.b)]
        if "ratio" in columns:
            cells.append(change_text(row.estimate, row.verdict))
        cells += [naming.verdict(row), *(_cell(column, row, form) for column in rest)]
        rows.append(tuple(cells))
    for group in comparison.groups if ratio_place is not None else ():
        cells = [f"mean of {group.common}/{group.rows} {group.group}"] + [""] * (len(headings) - 1)
        cells[ratio_place or 0] = change_text(group.mean, group.verdict)
        cells[headings.index("verdict")] = "" if isinstance(group.mean, Missing) else group.verdict.word
        rows.append(tuple(cells))
    return Words(tuple(headings), tuple(rows), tuple(numeric))


_HEADINGS = {"n": "n", "peak": "of peak a/b", "cost": "cost a, b", "energy": "energy a, b"}


def _cell(column: str, row: Row, form: Form) -> str:
    if column == "n":
        return f"{row.estimate.n_a}/{row.estimate.n_b}" if isinstance(row.estimate, RatioEstimate) else ""
    if column == "peak":
        return peaks_text(row)
    sides = [
        cost_text(cell) if column == "cost" else energy_text(cell, with_interval=form.is_wide)
        for cell in (row.a, row.b)
    ]
    if sides == ["—", "—"]:
        return ""
    unit = f" for {RATES[row.case.unit].per_million}" if column == "cost" else ""
    return f"{sides[0]}, {sides[1]}{unit}"


def absent_lines(comparison: Comparison, columns: Collection[str]) -> Iterable[str]:
    """Why columns that were asked for are not there, and what would fill them."""
    for column in COLUMNS:
        if column in columns and _is_absent(comparison, column):
            values = [
                value_of(cell, column) for row in comparison.rows for cell in (row.a, row.b) if _has(cell)
            ]
            reasons = dict.fromkeys(value.reason for value in values if isinstance(value, Missing))
            yield f"no {_SAID[column]}: {'; '.join(reasons) or 'nothing was measured'}"


_SAID = {"peak": "share of the peak", "cost": "cost", "energy": "energy"}
"""Columns that may have nothing in any row, as a sentence calls them."""


def _is_absent(comparison: Comparison, column: str) -> bool:
    return column in _SAID and all(
        isinstance(value_of(cell, column), Missing) for row in comparison.rows for cell in (row.a, row.b)
    )


def _has(cell: Cell) -> bool:
    """Whether there is a speed of which it can be told why it has no cost."""
    return not isinstance(cell.speed, Missing)


def metric_table(comparison: Comparison, naming: Naming) -> Words | None:
    """What the cases gave besides their speed, side by side and without a verdict; None if nothing."""
    rows: list[tuple[str, str, str]] = []
    for row in comparison.rows:
        sides = [
            {f.key: f for f in metrics_of(cell.result)} if cell.result else {} for cell in (row.a, row.b)
        ]
        found = {**sides[1], **sides[0]}
        if found:
            rows.append((naming.name(row), "", ""))
        for key, metric in found.items():
            on_a, on_b = (metric_text(side[key]) if key in side else "—" for side in sides)
            rows.append((f"  {metric.title}", on_a, on_b))
    return Words(("figures, not judged", "a", "b"), tuple(rows), (1, 2)) if rows else None


def cost_table(comparison: Comparison, naming: Naming) -> Words | None:
    """What a million units of each row's work cost, if a price is known on either side; else None."""
    rows = [
        (naming.name(row), cost_text(row.a), cost_text(row.b), RATES[row.case.unit].per_million)
        for row in comparison.rows
        if isinstance(row.a.cost, Cost) or isinstance(row.b.cost, Cost)
    ]
    return Words(("cost", "a", "b", "for"), tuple(rows), (1, 2)) if rows else None


def energy_table(comparison: Comparison, naming: Naming) -> Words | None:
    """Joules for a unit of each row's work, if they are known on either side; else None."""
    rows = [
        (naming.name(row), energy_text(row.a), energy_text(row.b))
        for row in comparison.rows
        if isinstance(row.a.energy, Energy) or isinstance(row.b.energy, Energy)
    ]
    return Words(("energy of the GPU", "a", "b"), tuple(rows), (1, 2)) if rows else None


def remarks(comparison: Comparison, naming: Naming) -> Iterable[str]:
    """What would have shown where nothing did, what disturbed rows, and what cannot be; a line each."""
    told = [
        f"{naming.name(row)} {format_ratio(row.estimate.resolvable)}"
        for row in comparison.rows
        if row.verdict.word in ("same", "inconclusive")
        and isinstance(row.estimate, RatioEstimate)
        and not row.estimate.is_beyond(BAND)
    ]
    if told:
        yield f"smallest ratio that would have shown: {', '.join(told)}"
    narrow: dict[float, list[str]] = {}
    for row in comparison.rows:
        if row.holds_between_models is False and not isinstance(row.models_band, Missing):
            narrow.setdefault(row.models_band, []).append(naming.name(row))
    for band, names in sorted(narrow.items()):
        yield f"{boxes_text(band)}: {', '.join(names)}"
    found: dict[tuple[str, str], list[str]] = {}
    for row in comparison.rows:
        for flag in row.flags:
            said = f"{naming.name(row)} {format_percent(flag.share)}"
            found.setdefault((flag.side, flag.word), []).append(said)
    for (side, word), rows in sorted(found.items()):
        yield f"! {side} {word}: {', '.join(rows)} of the time"
    for letter, impossible in (("a", _impossible(comparison, 0)), ("b", _impossible(comparison, 1))):
        for row, share in impossible:
            yield (
                f"! {letter} {naming.name(row)}: {format_percent(share)} of the data sheet's peak is an error"
                " of measurement, or another device than its name says"
            )


def _impossible(comparison: Comparison, place: int) -> Iterable[tuple[Row, float]]:
    for row in comparison.rows:
        shares = [use.of_sheet for use in (row.a, row.b)[place].uses]
        known = [share for share in shares if not isinstance(share, Missing)]
        if known and max(known) > IMPOSSIBLE:
            yield row, max(known)


def performance_lines(comparison: Comparison) -> Iterable[str]:
    """Whether each side's devices reach what they reach elsewhere; nothing where no figures are known."""
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        for performance in performance_checks_of_side(side):
            yield f"{letter} {performance.text}"


def left_out(comparison: Comparison, naming: Naming) -> Iterable[str]:
    """Cases that no row tells of, and why."""
    yield from unmeasured_words(comparison)
    for side, letter in ((comparison.a, "a"), (comparison.b, "b")):
        alone: Sequence[Row] = [
            row for row in comparison.one_sided if (row.a if letter == "a" else row.b).result is not None
        ]
        if alone:
            names = ", ".join(dict.fromkeys(naming.name(row) for row in alone))
            yield f"only with {naming.ignore} {side.name}: {names}"
