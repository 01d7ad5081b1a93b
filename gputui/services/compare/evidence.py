"""The evidence of a row as a document, which the Compare screen and the page show: what was measured of both
sides, why they differ, what would help, and how sure all of that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from statistics import median

from gputui.analysis.judgement import Judgement
from gputui.analysis.statistics import bin_of, histogram
from gputui.analysis.verdict import LAUNCHES_MEASURED, RatioEstimate, SpeedEstimate
from gputui.document.drawings import columns_picture, strip
from gputui.document.spans import Line, Span
from gputui.document.table import Column, Drawing, Part, Section, Table, table_of
from gputui.errors import GputuiError
from gputui.metrics import charted, metric_named
from gputui.model.absent import Missing
from gputui.model.result import TimeSeries
from gputui.model.telemetry import HOST
from gputui.model.units import counted, format_change, format_percent, format_seconds
from gputui.services.compare.columns import COST, ENERGY, PEAK, ComparisonColumn
from gputui.services.compare.pairing import Cell, Comparison, Row, Side
from gputui.services.compare.row_text import (
    boxes_text,
    change_text,
    cost_unit_of,
    figure_values,
    figure_verdict,
    rate_text,
    style_of,
    time_text,
    verdict_text,
)
from gputui.services.compare.suggestions import next_steps
from gputui.services.compare.why import why_parts
from gputui.services.results.conditions import NOT_PROFILED, Evidence
from gputui.services.results.labels import interval_words
from gputui.services.results.metrics import load_of
from gputui.services.results.throughput import step_times_of
from gputui.services.serving.curve import Level, ServingRun, serving_of
from gputui.services.serving.text import curve_table, server_line, serving_notes, unmeasured_lines
from gputui.store.reading import LaunchSeries

HUES = ("compute", "power")
"""Of the drawings of the baseline and of the other side."""
_LEAST_SPAN = 0.02
"""Of the highest value that a curve is high, so that a megahertz does not look like a fall."""
_LEAST_CELLS, _MOST_CELLS = 12, 100
_PICTURE_CELLS = 120
MOST_LAUNCHES = 6
"""Of a side: more would be too narrow to read."""
_PIECES = 200
"""Of a launch."""
_MOST_METRICS = 3
"""The first of a device: more would hide what matters."""


@dataclass(frozen=True, slots=True)
class SideCurves:
    """What a box did while a row was timed, launches end to end."""

    seconds: float
    """Of all launches, from the first block to the last of each."""
    starts_s: tuple[float, ...]
    """Where launches begin."""
    device: int
    """HOST for a CPU."""
    curves: Mapping[str, TimeSeries]
    """By metric key."""


Curves = Sequence[SideCurves | Missing]
"""Of both sides; empty where they were not read."""
Loads = Sequence[ServingRun | Missing]
"""All that the servers of both sides were offered; empty where the row is of something else."""


def recorded_of(row: Row, comparison: Comparison, evidence: Evidence, *, pool: bool) -> tuple[Curves, Loads]:
    """Read what was recorded beside a row; what can no longer be read says so, and what was not sampled."""
    loads: Loads = ()
    try:
        curves: Curves = [Missing("launches of several runs were pooled")] * 2
        if not pool:
            curves = [_curves_of_side(cell, evidence) for cell in (row.a, row.b)]
        if not row.case.has_steps:
            loads = [_serving_of_side(side, evidence) for side in (comparison.a, comparison.b)]
    except GputuiError as error:
        absent = [Missing(error.message)] * 2
        return absent, absent
    return curves, loads


def _curves_of_side(cell: Cell, evidence: Evidence) -> SideCurves | Missing:
    if cell.result is None or cell.run is None or cell.result.outcome != "ok":
        return Missing("it was not measured")
    on_gpu = cell.result.case.variant.device_class == "gpu"
    device = cell.result.device_index if on_gpu and cell.result.device_index is not None else HOST
    timed = [m.launch_id for m in cell.result.measurements if m.outcome == "ok" and m.blocks]
    launches = evidence.launches(cell.run.run_id, cell.result.case_id, timed[:MOST_LAUNCHES], _PIECES)
    starts, seconds = [], 0.0
    for span, _ in launches:
        starts.append(seconds)
        seconds += (span.last_utc_us - span.first_utc_us) * 1e-6
    wanted = charted(device)[:_MOST_METRICS]
    made = {metric.key: _joined(launches, starts, device, metric.key) for metric in wanted}
    curves = {key: series for key, series in made.items() if series.known}
    if not curves:
        return Missing("nothing was sampled while it was timed")
    return SideCurves(seconds, tuple(starts), device, curves)


def _joined(launches: Sequence[LaunchSeries], starts: Sequence[float], device: int, key: str) -> TimeSeries:
    t_s: list[float] = []
    values: list[float] = []
    for (span, of_devices), start_s in zip(launches, starts, strict=True):
        t_s.append(start_s)  # of a launch without a reading nothing is known, whatever came before
        values.append(math.nan)
        for series in of_devices:
            if series.device_index == device and key in series.columns:
                # the first reading stands for the time before it
                for number, (t_us, value) in enumerate(zip(series.t_us, series.columns[key], strict=True)):
                    t_s.append(start_s + (number > 0) * (t_us - span.first_utc_us) * 1e-6)
                    values.append(value)
    return TimeSeries(t_s, values)


def _serving_of_side(side: Side, evidence: Evidence) -> ServingRun | Missing:
    """All that its newest run offered to a server. Raises GputuiError if that can no longer be read."""
    if not any(one.result.case.is_load for one in side.cases):
        return Missing("it offered no load to a server")
    return serving_of(evidence.run(side.run.run_id), evidence.loads(side.run.run_id))


def evidence_parts(
    row: Row, evidence: Evidence, curves: Curves = (), loads: Loads = ()
) -> list[Part | Section]:
    """All that is known of a row, what matters most first."""
    unknown = row.estimate.reason if isinstance(row.estimate, Missing) and row.case.has_steps else ""
    flags = [f"! {flag.side} {flag.word}, {format_percent(flag.share)} of the time" for flag in row.flags]
    remarks = dict.fromkeys(filter(None, (row.verdict.reason, row.note, unknown, *flags)))
    found: list[Part | Section] = [value_table(row), tuple(remarks)]
    steps, blocks = next_steps(row, evidence), block_table(row)
    sure = (*_sure_lines(row), *_absent_lines(row))
    sections: tuple[tuple[str, Iterable[Part]], ...] = (
        ("what would help", (steps,) if steps else ()),
        ("why", (*_unexplained(row), *why_parts(row, is_drawn=True)) if row.case.has_steps else ()),
        ("time per step, block by block", () if blocks is None else (blocks,)),
        ("every load", _load_parts(loads, row)),
        ("while it was timed", _curve_parts(curves)),
        ("how sure", (sure,) if sure else ()),
    )
    return found + [Section(title, parts) for title, made in sections if (parts := tuple(made))]


def value_table(row: Row) -> Table:
    """What was measured of both sides beside each other, and how it differs."""
    rows: list[tuple[str | Span, ...]] = []
    for title, sides, judged, word in _values(row):
        change, style = "", "" if judged is None else "dim"
        if judged is not None and judged.ratio is not None:
            change, style = change_text(judged), style_of(judged)
        rows.append((Span(title, "dim"), *sides, change, Span(word, style)))
    return table_of(("", "a", "b", "b vs a", ""), rows, (1, 2, 3), (0, 4))


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
        (f"cost per {cost_unit_of(cells)[1]}", COST, row.cost),
        ("energy", ENERGY, row.energy),
        ("of spec", PEAK, None),
    ]
    for title, column, judged in columns:
        both = column.of_both(row, in_full=column is ENERGY)
        if set(both) != {"—"}:
            yield title, both, judged, "" if judged is None else verdict_text(judged)
    for figure in row.figures:
        yield figure.title, figure_values(figure), figure.judgement, figure_verdict(figure)


def _unexplained(row: Row) -> Iterator[Part]:
    """That it is not known why a row differs, and what would tell."""
    if row.why is not None and isinstance(row.why.attribution, Missing):
        reason = row.why.attribution.reason
        hint = "gputui run --trace makes a profiled pass of every case"
        yield (f"unknown: {reason}", *([hint] if reason == NOT_PROFILED else ()))


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

    def shares(seconds: Sequence[float], cells: int) -> list[float | None]:
        counts = histogram(seconds, low, high, cells, is_log=True)
        return [count / max(counts) if count else None for count in counts]

    def whiskers(cells: int) -> list[str]:
        """The 95 % interval of each side as a line, and the estimate on it."""
        lines = []
        for ends in intervals:
            first, middle, last = (bin_of(end, low, high, cells, is_log=True) for end in ends or [low] * 3)
            line = f"{' ' * first}{'━' * (middle - first)}●{'━' * (last - middle)}"
            lines.append(line if ends else "")
        return lines

    letters = [Span(letter, "title") for letter in "ab"]
    words = [Span(_block_words(side), "dim") for side in launches]
    rows = [(letter, hue, partial(shares, of)) for letter, hue, of in zip("ab", HUES, times, strict=True)]
    drawing = _strips(rows, format_seconds(low), f"{format_seconds(high)} a step", whiskers)
    return Table((Column("", letters), Column("", words, priority=2), drawing))


_Strip = tuple[str, str, Callable[[int], Sequence[float | None]]]
"""The letter of a side, a hue, and shares of the height in so many cells."""


def _strips(
    rows: Sequence[_Strip], first: str, last: str, below: Callable[[int], Sequence[str]] = lambda cells: ()
) -> Drawing:
    """Rows of columns over one axis from `first` to `last`; in cells a line `below` each that has one."""

    def draw(cells: int, beside: Sequence[Column]) -> Column:
        drawn: list[list[Line]] = []
        for (_, hue, shares), line in zip_longest(rows, below(cells)):
            lines = [strip(shares(cells), 1.0), *([line] if line else ())]
            drawn.append([(Span(one.ljust(cells), hue),) for one in lines])
        return Column(f"{first}{last.rjust(max(cells - len(first), 0))}", drawn)

    def picture() -> tuple[str, Sequence[str]]:
        drawn = [columns_picture(shares(_PICTURE_CELLS), 1.0, letter) for letter, _, shares in rows]
        return f"{first} to {last}", drawn

    return Drawing(draw, _LEAST_CELLS, _MOST_CELLS, picture=picture)


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


def _sure_lines(row: Row) -> Iterator[str]:
    """How the verdict was found, and what would have shown."""
    estimate = row.estimate
    if isinstance(estimate, RatioEstimate):
        launches = _alike(estimate.launches_a, estimate.launches_b, "launch")
        blocks = "" if row.case.is_whole else f", {_alike(estimate.blocks_a, estimate.blocks_b, 'block')}"
        beside = "the other side's, with the same arrivals" if row.case.is_load else "the one next to it"
        pairs = f", each compared with {beside}" if estimate.paired else ""
        yield f"{launches}{blocks}{pairs} (a launch is a fresh process, a block a few steps)"
        independent = (estimate.independent_blocks_a, estimate.independent_blocks_b)
        if sum(independent) < estimate.blocks_a + estimate.blocks_b:
            yield "blocks next to each other are alike, so they count as {} and {}".format(*independent)
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


def _curve_parts(sides: Curves) -> Iterator[Part]:
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


def curve_table_of(sides: Sequence[tuple[str, SideCurves]]) -> Table:
    """A line for each metric and side, and where a device was held back."""
    longest_s = max((side.seconds for _, side in sides), default=0.0)
    names, letters, words, strips = list[Span](), list[Span](), list[str](), list[_Strip]()
    for metric in dict.fromkeys(metric_named(key, side.device) for _, side in sides for key in side.curves):
        of_metric = [(*one, one[1].curves[metric.key]) for one in sides if metric.key in one[1].curves]
        values = [value for _, _, series in of_metric for value in series.known]
        high = max(values)
        low = min(min(values), high - _LEAST_SPAN * abs(high))
        for number, (letter, side, series) in enumerate(of_metric):
            names.append(Span("" if number else metric.name, "dim"))
            letters.append(Span(letter, "title"))
            words.append(metric.between(min(series.known), max(series.known)))
            shares = partial(_shares, series, side.seconds, longest_s, low, high)
            strips.append((letter, f"{metric.hue} 1", shares))
    drawing = _strips(strips, "0 s", format_seconds(longest_s))
    return Table((Column("", names), Column("", letters), Column("", words), drawing))


def _shares(
    series: TimeSeries, seconds: float, longest_s: float, low: float, high: float, points: int
) -> list[float | None]:
    """Of the height from low to high, at so many points of a time that is as long as the longest side."""
    times_s = ((point + 0.5) / points * longest_s for point in range(points))
    found = (series.at(t_s) if t_s <= seconds else math.nan for t_s in times_s)
    span = high - low
    return [((value - low) / span if span else 0.0) if math.isfinite(value) else None for value in found]


def _load_parts(sides: Loads, row: Row) -> Iterator[Part]:
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
