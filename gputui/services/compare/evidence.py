"""The evidence of a row as a document, which the Compare screen and the page show: what was measured of both
sides, why they differ, what would help, and how sure all of that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gputui.analysis.attribution import Attribution
from gputui.analysis.judgement import Judgement
from gputui.analysis.statistics import bin_of, histogram
from gputui.analysis.verdict import LAUNCHES_MEASURED, RatioEstimate, SpeedEstimate
from gputui.document.drawings import columns_picture, strip
from gputui.document.spans import Line, Span
from gputui.document.table import Column, Drawing, Part, Section, Table, table_of
from gputui.errors import GputuiError
from gputui.metrics import metric_named
from gputui.model.absent import Missing
from gputui.model.result import TimeSeries
from gputui.model.units import counted, format_change, format_percent, format_seconds
from gputui.services.compare.columns import COST, ENERGY, PEAK, ComparisonColumn
from gputui.services.compare.pairing import Cell, Comparison, Row
from gputui.services.compare.row_text import (
    boxes_text,
    change_text,
    costs_text,
    figure_values,
    figure_verdict,
    rate_text,
    style_of,
    time_text,
    verdict_text,
)
from gputui.services.compare.side_records import MOST_LAUNCHES, SideCurves, curves_of, serving_of_side
from gputui.services.compare.suggestions import next_steps
from gputui.services.compare.why import Why, finding_lines, part_table, sentence, trust_line
from gputui.services.results.conditions import NOT_PROFILED, Evidence
from gputui.services.results.labels import interval_words
from gputui.services.results.metrics import load_of
from gputui.services.results.throughput import step_times_of
from gputui.services.serving.curve import Level, ServingRun
from gputui.services.serving.text import curve_table, server_line, serving_notes, unmeasured_lines

HUES = ("compute", "power")
"""Of the drawings of the baseline and of the other side."""
_LEAST_SPAN = 0.02
"""Of the highest value that a curve is high, so that a megahertz does not look like a fall."""
_LEAST_CELLS, _MOST_CELLS = 12, 100
_PICTURE_CELLS = 120


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded beside a row, by side."""

    curves: tuple[SideCurves | Missing, ...] = ()
    """What the boxes did while it was timed."""
    loads: tuple[ServingRun | Missing, ...] = ()
    """All that the servers were offered; empty where the row is of something else."""


def recorded_of(row: Row, comparison: Comparison, evidence: Evidence, *, pool: bool) -> Recorded:
    """Read it; what can no longer be read says so."""
    loads: tuple[ServingRun | Missing, ...] = ()
    try:
        curves = curves_of(row, evidence, pool=pool)
        if not row.case.has_steps:
            loads = tuple(serving_of_side(side, evidence) for side in (comparison.a, comparison.b))
    except GputuiError as error:
        curves = loads = (Missing(error.message), Missing(error.message))
    return Recorded(curves, loads)


def evidence_parts(
    row: Row, why: Why | None, evidence: Evidence, recorded: Recorded | None = None
) -> list[Part | Section]:
    """All that is known of a row, what matters most first."""
    unknown = row.estimate.reason if isinstance(row.estimate, Missing) and row.case.has_steps else ""
    flags = [f"! {flag.side} {flag.word}, {format_percent(flag.share)} of the time" for flag in row.flags]
    remarks = dict.fromkeys(filter(None, (row.verdict.reason, row.note, unknown, *flags)))
    found: list[Part | Section] = [value_table(row), tuple(remarks)]
    found += [Section(title, parts) for title, parts in _sections(row, why, evidence, recorded) if parts]
    return found


def _sections(
    row: Row, why: Why | None, evidence: Evidence, recorded: Recorded | None
) -> Iterator[tuple[str, tuple[Part, ...]]]:
    steps = next_steps(row, evidence)
    yield "what would help", (steps,) if steps else ()
    yield "why", why_parts(why) if why is not None and row.case.has_steps else ()
    blocks = block_table(row)
    yield "time per step, block by block", () if blocks is None else (blocks,)
    if recorded is not None:
        yield "every load", (*_load_parts(recorded.loads, row),)
        yield "while it was timed", (*_curve_parts(recorded.curves),)
    sure = (*_sure_lines(row), *_absent_lines(row))
    yield "how sure", (sure,) if sure else ()


def value_table(row: Row) -> Table:
    """What was measured of both sides beside each other, and how it differs."""
    rows: list[tuple[str | Span, ...]] = [
        (Span(title, "dim"), *sides, *_judged(judged, word)) for title, sides, judged, word in _values(row)
    ]
    return table_of(("", "a", "b", "b vs a", ""), rows, (1, 2), (0, 4))


def _values(row: Row) -> Iterator[tuple[str, Sequence[str], Judgement | None, str]]:
    """Rate, time, cost, energy, share of the peak, other results: title, both sides, verdict and its word."""
    cells = row.a, row.b
    word = row.rate.reason if row.rate.ratio is None else verdict_text(row.rate)
    yield row.rate.respect, [rate_text(cell) for cell in cells], row.rate, word
    if row.case.has_steps:
        speeds = [cell.speed for cell in cells]
        yield "95 %", ["—" if isinstance(one, Missing) else interval_words(one) for one in speeds], None, ""
    if row.case.has_steps and not row.case.is_whole:
        yield "a step", [time_text(cell) for cell in cells], None, ""
    columns: list[tuple[str, ComparisonColumn, Judgement | None]] = [
        (f"cost per {costs_text(cells)[1]}", COST, row.cost),
        ("energy", ENERGY, row.energy),
        ("of spec", PEAK, None),
    ]
    for title, column, judged in columns:
        values = [column.on_side(cell, cells, in_full=column is ENERGY) for cell in cells]
        if not all(isinstance(value, Missing) for value in values):
            texts = ["—" if isinstance(value, Missing) else value for value in values]
            yield title, texts, judged, "" if judged is None else verdict_text(judged)
    for figure in row.figures:
        yield figure.title, figure_values(figure), figure.judgement, figure_verdict(figure)


def _judged(judged: Judgement | None, word: str) -> tuple[str, Span]:
    if judged is None:
        return "", Span("")
    if judged.ratio is None:
        return "", Span(word, "dim")
    return change_text(judged), Span(word, style_of(judged))


def why_parts(why: Why) -> tuple[Part, ...]:
    """A sentence, a row for each part of a step, how far both are believed, and what holds the sides back."""
    found, findings = why.attribution, tuple(finding_lines(why))
    if isinstance(found, Attribution):
        return sentence(why.row, found), part_table(found, is_drawn=True), (trust_line(found), *findings)
    hint = ("gputui run --trace makes a profiled pass of every case",) if found.reason == NOT_PROFILED else ()
    return ((f"unknown: {found.reason}", *hint, *findings),)


def block_table(row: Row) -> Table | None:
    """How often blocks took how long, both sides over one logarithmic axis of time; None without blocks."""
    launches = [step_times_of(cell.result) for cell in (row.a, row.b)]
    times = [[seconds for launch in side for seconds in launch] for side in launches]
    intervals = [_interval(cell) for cell in (row.a, row.b)]
    known = [seconds for of in (*times, *intervals) for seconds in of if seconds > 0]
    if not any(times) or not known:
        return None
    low, high = min(known), max(known)
    if high <= low:
        low, high = low * 0.99, high * 1.01

    def counts(seconds: Sequence[float], cells: int) -> list[float | None]:
        return [count or None for count in histogram(seconds, low, high, cells, is_log=True)]

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        first, last = format_seconds(low), f"{format_seconds(high)} a step"
        heading = f"{first}{last.rjust(max(cells - len(first), 0))}"
        drawn: list[list[Line]] = []
        for seconds, ends, hue in zip(times, intervals, HUES, strict=True):
            values = counts(seconds, cells)
            lines = [strip(values, max((one or 0.0 for one in values), default=0.0))]
            if ends:
                lines.append(_whisker([bin_of(end, low, high, cells, is_log=True) for end in ends]))
            drawn.append([(Span(line.ljust(cells), hue),) for line in lines])
        return Column(heading, drawn)

    def picture() -> tuple[str, Sequence[str]]:
        of_sides = [counts(seconds, _PICTURE_CELLS) for seconds in times]
        drawn = [
            columns_picture(values, max((one or 0.0 for one in values), default=0.0), letter)
            for letter, values in zip("ab", of_sides, strict=True)
        ]
        return f"{format_seconds(low)} to {format_seconds(high)} a step", drawn

    letters = [Span(letter, "title") for letter in "ab"]
    words = [Span(_block_words(side), "dim") for side in launches]
    drawing = Drawing(draw, _LEAST_CELLS, _MOST_CELLS, picture=picture)
    return Table((Column("", letters), Column("", words, priority=2), drawing))


def _block_words(launches: Sequence[Sequence[float]]) -> str:
    times = [seconds for launch in launches for seconds in launch]
    if not times:
        return "no blocks"
    blocks, of = counted(len(times), "block"), counted(len(launches), "launch")
    return f"{blocks} in {of}, median {format_seconds(median(times))}"


def _interval(cell: Cell) -> tuple[float, ...]:
    """Low, middle and high of the time of a step."""
    if cell.result is None or not isinstance(cell.speed, SpeedEstimate):
        return ()
    units, speed = cell.result.case.units_per_step, cell.speed
    return units / speed.high, units / speed.units_per_s, units / speed.low


def _whisker(cells: Sequence[int]) -> str:
    """The 95 % interval as a line, and the estimate on it."""
    first, middle, last = cells
    return " " * first + "━" * (middle - first) + "●" + "━" * (last - middle)


def _sure_lines(row: Row) -> Iterator[str]:
    """How the verdict was found, and what would have shown."""
    estimate = row.estimate
    if isinstance(estimate, RatioEstimate):
        launches = _alike(estimate.launches_a, estimate.launches_b, "launch")
        blocks = "" if row.case.is_whole else f", {_alike(estimate.n_a, estimate.n_b, 'block')}"
        beside = "the other side's, with the same arrivals" if row.case.is_load else "the one next to it"
        pairs = f", each compared with {beside}" if estimate.paired else ""
        yield f"{launches}{blocks}{pairs} (a launch is a fresh process, a block a few steps)"
        if estimate.independent_a < estimate.n_a or estimate.independent_b < estimate.n_b:
            worth = f"{estimate.independent_a} and {estimate.independent_b}"
            yield f"blocks next to each other are alike, so they count as {worth}"
        yield f"a difference below {format_change(estimate.resolvable).lstrip('+')} would not show"
        if max(estimate.launches_a, estimate.launches_b) < LAUNCHES_MEASURED:
            yield "how much launches vary is assumed, not measured: --launches 3 measures it"
    if row.holds_between_models is False and not isinstance(row.models_band, Missing):
        yield boxes_text(row.models_band)


def _alike(a: int, b: int, noun: str) -> str:
    return f"{counted(a, noun)} each" if a == b else f"{a} and {counted(b, noun)}"


def _absent_lines(row: Row) -> Iterator[str]:
    """Why a side has no cost, energy or share of the peak."""
    for column in (COST, ENERGY, PEAK):
        for reason, letters in column.reasons([("a", row.a), ("b", row.b)]).items():
            yield f"no {column.absent} of {' and '.join(letters)}: {reason}"


def _curve_parts(sides: Sequence[SideCurves | Missing]) -> Iterator[Part]:
    """What both boxes did, launches end to end; why nothing is known of one."""
    known = [(letter, one) for letter, one in zip("ab", sides, strict=False) if isinstance(one, SideCurves)]
    if known:
        yield curve_table_of(known)
    absent: dict[str, list[str]] = {}
    for letter, one in zip("ab", sides, strict=False):
        if isinstance(one, Missing):
            absent.setdefault(one.reason, []).append(letter)
    notes = [f"no telemetry of {' and '.join(of)}: {reason}" for reason, of in absent.items()]
    if any(len(side.starts_s) >= MOST_LAUNCHES for _, side in known):
        notes.append(f"the first {MOST_LAUNCHES} launches of a side are drawn")
    if notes:
        yield tuple(notes)


@dataclass(frozen=True, slots=True)
class _Curve:
    """A line of the table of curves."""

    name: str
    side: str
    words: str
    series: TimeSeries
    seconds: float
    low: float
    high: float
    hue: str

    def values(self, points: int, longest_s: float) -> list[float | None]:
        """At so many points of a time that is as long as the longest side."""
        times_s = ((point + 0.5) / points * longest_s for point in range(points))
        found = (self.series.at(t_s) if t_s <= self.seconds else math.nan for t_s in times_s)
        return [value if math.isfinite(value) else None for value in found]


def curve_table_of(sides: Sequence[tuple[str, SideCurves]]) -> Table:
    """A line for each metric and side, and where a device was held back."""
    longest_s = max((side.seconds for _, side in sides), default=0.0)
    curves = [*_curves(sides)]

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        drawn = [[(Span(strip(one.values(cells, longest_s), one.high, one.low), one.hue),)] for one in curves]
        return Column(f"0 s{format_seconds(longest_s).rjust(max(cells - 3, 0))}", drawn)

    def picture() -> tuple[str, Sequence[str]]:
        drawn = [
            columns_picture(
                [
                    None if value is None else value - one.low
                    for value in one.values(_PICTURE_CELLS, longest_s)
                ],
                one.high - one.low,
                one.side,
            )
            for one in curves
        ]
        return f"0 to {format_seconds(longest_s)}", drawn

    names = [
        "" if number and curves[number - 1].name == one.name else one.name
        for number, one in enumerate(curves)
    ]
    return Table(
        (
            Column("", [Span(name, "dim") for name in names]),
            Column("", [Span(one.side, "title") for one in curves]),
            Column("", [one.words for one in curves]),
            Drawing(draw, _LEAST_CELLS, _MOST_CELLS, picture=picture),
        )
    )


def _curves(sides: Sequence[tuple[str, SideCurves]]) -> Iterator[_Curve]:
    for metric in dict.fromkeys(metric_named(key, side.device) for _, side in sides for key in side.curves):
        of_metric = [(*one, one[1].curves[metric.key]) for one in sides if metric.key in one[1].curves]
        values = [value for _, _, series in of_metric for value in series.known]
        high = max(values)
        low = min(min(values), high - _LEAST_SPAN * abs(high))
        for letter, side, series in of_metric:
            ends = metric.between(min(series.known), max(series.known))
            yield _Curve(metric.name, letter, ends, series, side.seconds, low, high, f"{metric.hue} 1")


def _load_parts(sides: Sequence[ServingRun | Missing], row: Row) -> Iterator[Part]:
    """Every load, with a line for each side that was offered it; the server of each side, and its notes."""
    known = [(letter, one) for letter, one in zip("ab", sides, strict=False) if isinstance(one, ServingRun)]
    keys = dict.fromkeys(_key(level) for _, side in known for level in side.levels)
    levels = [
        (letter, level)
        for key in keys
        for letter, side in known
        for level in side.levels
        if _key(level) == key
    ]
    if levels:
        yield _load_table(levels, row)
    notes: list[str] = []
    for letter, side in zip("ab", sides, strict=False):
        if isinstance(side, Missing):
            notes.append(f"{letter}  its loads are not known: {side.reason}")
        else:
            notes += [f"{letter}  {server_line(side)}", *unmeasured_lines(side), *serving_notes(side)]
    if notes:
        yield tuple(notes)


def _key(level: Level) -> tuple[str, int | None, float | None]:
    return level.kind, level.users, level.rate_per_s


def _load_table(levels: Sequence[tuple[str, Level]], row: Row) -> Table:
    """The load of the row stands out."""
    styles = [HUES["ab".index(letter)] for letter, _ in levels]
    names, *rest = curve_table([level for _, level in levels], is_full=True, styles=styles).columns
    assert isinstance(names, Column)
    titles = ["title" if load_of(level.case) == load_of(row.case) else "" for _, level in levels]
    labels = [Span(name, title) for name, title in zip(names.texts, titles, strict=True)]
    letters = [Span(letter, "title") for letter, _ in levels]
    return Table((replace(names, cells=labels), Column("", letters), *rest))
