"""The evidence of a row: what was measured of each side, for the pane below the rows and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gputui.analysis.judgement import Judgement
from gputui.analysis.statistics import bin_of, histogram
from gputui.analysis.verdict import LAUNCHES_MEASURED, RatioEstimate, SpeedEstimate
from gputui.document.spans import Line, Span, cut, width_of
from gputui.document.table import Column, Table, table_of
from gputui.errors import GputuiError
from gputui.metrics import metric_named
from gputui.model.absent import Missing
from gputui.model.result import TimeSeries
from gputui.model.units import counted, format_change, format_percent, format_seconds
from gputui.services.compare.columns import COST, ENERGY, PEAK, ComparisonColumn
from gputui.services.compare.pairing import Cell, Row
from gputui.services.compare.row_text import (
    boxes_text,
    change_text,
    costs_text,
    figure_values,
    figure_verdict,
    judgement_text,
    point_text,
    rate_cells,
    rate_text,
    style_of,
    time_text,
    verdict_text,
)
from gputui.services.compare.side_records import (
    CROWDED,
    MOST_LAUNCHES,
    THROTTLE,
    SideCurves,
    curves_of,
    serving_of_side,
)
from gputui.services.compare.suggestions import next_steps
from gputui.services.compare.why import Why, finding_lines, part_table, sentence, trust_line
from gputui.services.results.conditions import NOT_PROFILED
from gputui.services.results.labels import interval_words
from gputui.services.results.metrics import load_of
from gputui.services.results.throughput import step_times_of
from gputui.services.serving.curve import Level, ServingRun
from gputui.services.serving.text import curve_table, server_line, serving_notes, unmeasured_lines
from gputui.services.support.background import Job
from gputui.tui.screens.compare.loaded import Loaded, ShownRow, pair_lines, rows_of, with_energy
from gputui.tui.widgets.cells import clean, fitted, paragraph, section, table_lines, wrapped
from gputui.tui.widgets.charts import area, strip

FAMILIES_OF_SIDES = ("compute", "power")
"""Of the charts of the baseline and of the other side."""
_LABEL = 3


def title_line(row: Row, name: str, width: int, hint: str = "") -> Line:
    """`── gpt_train base amp  36 % slower (34 to 38) ────── enter: all of it ──`."""
    title = (Span(f"{name}  ", "title"), Span(judgement_text(row.rate), style_of(row.rate)))
    return section(title, width, (Span(hint, "dim"),) if hint else ())


def heading_line(text: str, width: int, note: str = "") -> Line:
    """A heading in a rule."""
    return section((Span(text, "title"),), width, (Span(note, "dim"),) if note else ())


def value_lines(row: Row, width: int, sure_rows: int = 2) -> list[Line]:
    """Rate, certainty (at most `sure_rows` lines), cost, and what else is known: what matters most first."""
    a, b, unit = rate_cells(row)
    times = [time_text(cell) for cell in (row.a, row.b)]
    is_timed = all(isinstance(cell.speed, SpeedEstimate) for cell in (row.a, row.b))
    step = f", {times[0]} vs {times[1]} a step" if is_timed and not row.case.is_whole else ""
    lines = [_labelled(row.rate.respect, f"{a} vs {f'{b} {unit.text}'.rstrip()}{step}", width)]
    for number, text in enumerate(wrapped(sure_text(row), width - 10, sure_rows)):
        lines.append(_labelled("" if number else "sure", text, width))
    (cost_a, cost_b), work = costs_text((row.a, row.b))
    if cost_a or cost_b:
        judged = f", {judgement_text(row.cost)}" if row.cost.ratio is not None else ""
        lines.append(_labelled("cost", f"{cost_a or '—'} vs {cost_b or '—'} per {work}{judged}", width))
    for column, title in ((PEAK, "of spec"), (ENERGY, "energy")):
        values = [column.on_side(cell, in_full=False) for cell in (row.a, row.b)]
        if all(isinstance(value, Missing) for value in values):
            continue
        text = " vs ".join("—" if isinstance(value, Missing) else value for value in values)
        more = f", {judgement_text(row.energy)}" if column is ENERGY and row.energy.ratio is not None else ""
        lines.append(_labelled(title, text + more, width))
    return lines


def _labelled(label: str, text: str, width: int) -> Line:
    return fitted((Span(f"  {label:8}", "dim"), Span(cut(text, max(width - 10, 0)))), width)


def sure_text(row: Row) -> str:
    """The interval, and what it was measured with; why there is no verdict."""
    estimate = row.estimate
    if isinstance(estimate, Missing):
        return estimate.reason
    reason = "" if row.rate.is_decided or not row.verdict.reason else f"{row.verdict.reason}; "
    return f"{reason}{_counts(row, estimate)}; {_least(estimate)} ({_TERMS})"


_TERMS = "a launch is a fresh process, a block a few steps"


def _counts(row: Row, estimate: RatioEstimate) -> str:
    """`3 launches, 18 blocks each`, `3 launches each, 18 and 12 blocks`."""
    launches = _alike(estimate.launches_a, estimate.launches_b, "launch")
    blocks = _alike(estimate.n_a, estimate.n_b, "block")
    if row.case.is_whole:
        return launches
    return f"{launches.removesuffix(' each') if blocks.endswith(' each') else launches}, {blocks}"


def _least(estimate: RatioEstimate) -> str:
    least = format_change(estimate.resolvable).lstrip("+")
    return f"a difference below {least} would not show"


def _alike(a: int, b: int, noun: str) -> str:
    return f"{counted(a, noun)} each" if a == b else f"{a} and {counted(b, noun)}"


def value_table(row: Row, letter: str, width: int, *, in_full: bool = False) -> list[Line]:
    """What was measured of both sides beside each other, and how it differs; `letter` is the other side.

    In full with intervals, and with results that do not compare.
    """
    rows: list[tuple[str | Span, ...]] = [
        (Span(title, "dim"), *sides, *_judged(judged, word, in_full))
        for title, sides, judged, word in _values(row, in_full)
    ]
    headings = ("", "a", letter, f"{letter} vs a", "")
    return list(table_lines(table_of(headings, rows, (1, 2), (0, 4)), width, folds=True))


def _values(row: Row, in_full: bool) -> Iterator[tuple[str, Sequence[str], Judgement | None, str]]:
    """Rate, time, share of the peak, cost, energy, other results: title, both sides, verdict and its word."""
    cells = row.a, row.b
    columns: list[tuple[str, ComparisonColumn, Judgement | None, str]] = [
        ("of spec", PEAK, None, ""),
        (f"cost per {costs_text(cells)[1]}", COST, row.cost, verdict_text(row.cost)),
        ("energy", ENERGY, row.energy, verdict_text(row.energy)),
    ]
    word = row.rate.reason if row.rate.ratio is None else verdict_text(row.rate)
    yield row.rate.respect, [rate_text(cell) for cell in cells], row.rate, word
    if in_full and row.case.has_steps:
        speeds = [cell.speed for cell in cells]
        yield "95 %", ["—" if isinstance(one, Missing) else interval_words(one) for one in speeds], None, ""
    if row.case.has_steps and not row.case.is_whole:
        yield "a step", [time_text(cell) for cell in cells], None, ""
    for title, column, judged, word in columns:
        values = [column.on_side(cell, cells, in_full=in_full and column is not COST) for cell in cells]
        if not all(isinstance(value, Missing) for value in values):
            yield title, ["—" if isinstance(value, Missing) else value for value in values], judged, word
    for figure in row.figures:
        if in_full or figure.judgement.ratio is not None:
            yield figure.title, figure_values(figure), figure.judgement, figure_verdict(figure)


def _judged(judged: Judgement | None, word: str, in_full: bool) -> tuple[str, Span]:
    if judged is None:
        return "", Span("")
    change = "" if judged.ratio is None else (change_text if in_full else point_text)(judged)
    return change, Span(word, style_of(judged) if change else "dim")


def absent_lines(row: Row, width: int) -> Iterator[Line]:
    """Why a side has no cost, energy or share of the peak."""
    for column in (COST, ENERGY, PEAK):
        for reason, letters in column.reasons([("a", row.a), ("b", row.b)]).items():
            yield from paragraph(f"no {column.absent} of {' and '.join(letters)}: {reason}", width, "dim")


def block_lines(row: Row, letters: str, width: int, rows: int) -> list[Line]:
    """How often blocks took how long, both sides over one logarithmic axis of time.

    From two rows of characters a side on, with the intervals of the speeds. Empty where no side has any.
    """
    sides = [
        [seconds for launch in step_times_of(cell.result) for seconds in launch] for cell in (row.a, row.b)
    ]
    known = [seconds for side in sides for seconds in side]
    if not known:
        return []
    bounds = [*known, *(edge for cell in (row.a, row.b) for edge in _interval(cell))]
    low, high = min(bounds), max(bounds)
    if high <= low:
        low, high = low * 0.99, high * 1.01
    room = max(width - _LABEL - 1, 20)
    lines: list[Line] = []
    for letter, family, cell, seconds in zip(letters, FAMILIES_OF_SIDES, (row.a, row.b), sides, strict=True):
        if not seconds:
            lines.append((Span(f" {letter} ", "title"), Span("no blocks", "dim")))
            continue
        heights = histogram(seconds, low, high, room, is_log=True)
        drawn = area([height or None for height in heights], max(heights), rows)
        for place, text in enumerate(drawn):
            label = letter if place == rows - 1 else " "
            lines.append((Span(f" {label} ", "title"), Span(text.rstrip(), family)))
        edges = _interval(cell)
        if rows > 1 and edges:
            lines.append((Span(" " * _LABEL), Span(_whisker(edges, low, high, room), family)))
    lines.append((Span(" " * _LABEL), Span("─" * room, "track")))
    first, last = format_seconds(low), f"{format_seconds(high)} a step"
    if last.startswith(f"{first} "):
        last += f" (+{format_percent(high / low - 1)})"
    lines.append((Span(" " * _LABEL + first + last.rjust(room - width_of(first)), "dim"),))
    return [fitted(line, width) for line in lines]


def blocks_heading(rows: int) -> Line:
    """What stands above `block_lines` of so many rows: what they show, and what the point below a side is."""
    interval = "; ● typical, ━ 95 % interval" if rows > 1 else ""
    return (Span(f"time per step, block by block{interval}", "dim"),)


def _interval(cell: Cell) -> tuple[float, ...]:
    """Low, middle and high of the time of a step."""
    if cell.result is None or not isinstance(cell.speed, SpeedEstimate):
        return ()
    units, speed = cell.result.case.units_per_step, cell.speed
    return units / speed.high, units / speed.units_per_s, units / speed.low


def _whisker(edges: Sequence[float], low: float, high: float, width: int) -> str:
    """The 95 % interval as a line, and the estimate on it."""
    first, middle, last = (bin_of(edge, low, high, width, is_log=True) for edge in edges)
    return " " * first + "━" * (middle - first) + "●" + "━" * (last - middle)


def why_lines(why: Why | None, width: int, most: int) -> list[Line]:
    """The parts of a step that differ most, as bars; nothing of a row that says no difference, nor where it
    was not profiled."""
    if why is None or isinstance(why.attribution, Missing) or most < 1:
        return []
    columns = part_table(why.attribution, most, is_drawn=True).columns
    understood = Table(
        (*columns[:4], *columns[-2:])
    )  # without headings: times, their difference and its share
    return list(table_lines(understood, width, margin=0, has_headings=False))


def brief_why_lines(why: Why | None, width: int, most: int) -> list[Line]:
    """The same below how much longer a step is."""
    step = step_text(why)
    return [(Span(f"why: {step}", "dim"),), *why_lines(why, width, most)] if step else []


def step_text(why: Why | None) -> str:
    """`a step is 42.9 ms longer`; empty where that is not known."""
    if why is None or isinstance(why.attribution, Missing):
        return ""
    ns = why.attribution.difference_ns
    return f"a step is {format_seconds(abs(ns) * 1e-9)} {'longer' if ns > 0 else 'shorter'}"


def sure_lines(row: Row, width: int) -> list[Line]:
    """How the verdict was found, what would have shown, and what disturbed either side."""
    lines: list[Line] = []
    if isinstance(row.estimate, RatioEstimate):
        for text in _method(row, row.estimate):
            lines += paragraph(text, width, "dim")
    if row.holds_between_models is False and not isinstance(row.models_band, Missing):
        lines += paragraph(boxes_text(row.models_band), width, "dim")
    for flag in row.flags:
        share = format_percent(flag.share)
        lines += paragraph(f"! {flag.word} (side {flag.side}), {share} of the time", width, "warn")
    return lines


def _method(row: Row, estimate: RatioEstimate) -> Iterator[str]:
    pairs = ", each compared with the one next to it" if estimate.paired else ""
    yield f"{_counts(row, estimate)}{pairs} ({_TERMS}); method: gputui help measuring"
    if estimate.independent_a < estimate.n_a or estimate.independent_b < estimate.n_b:
        worth = f"{estimate.independent_a} and {estimate.independent_b}"
        yield f"blocks next to each other are alike, so they count as {worth}"
    yield _least(estimate)
    if max(estimate.launches_a, estimate.launches_b) < LAUNCHES_MEASURED:
        yield "how much launches vary is assumed, not measured: --launches 3 measures it"


_ROWS = 3


def evidence_lines(shown: ShownRow, letters: str, width: int, height: int | None = None) -> list[Line]:
    """All that is known of a row, from its values to what they rest on; `letters` are of its sides.

    With a height in brief, and as much as that holds.
    """
    row, in_full = shown.row, height is None
    assert row is not None
    lines = [title_line(row, shown.name, width), (), *value_table(row, letters[1], width, in_full=in_full)]
    lines += absent_lines(row, width) if in_full else ()
    unknown = row.estimate.reason if isinstance(row.estimate, Missing) and row.case.has_steps else ""
    reasons = dict.fromkeys(filter(None, (row.verdict.reason, row.note, unknown)))
    helps = [line for step in shown.steps for line in paragraph(f"  {step}", width, indent=4)]
    drawn, sure = block_lines(row, letters, width, _ROWS if in_full else 2), sure_lines(row, width)
    parts: list[Sequence[Line]] = [
        [line for reason in reasons for line in paragraph(reason, width, style_of(row.rate))],
        [(Span("what would help", "title"),), *helps] if helps else [],
        [blocks_heading(2), *drawn] if drawn else [],
        [*load_lines(shown.loads, row, width)] if shown.loads else [],
        [*load_notes(shown.loads, width)] if shown.loads else [],
        why_section(shown.why, width) if in_full else brief_why_lines(shown.why, width, 6),
        [(Span("how sure", "dim"),), *sure] if sure else [],
    ]
    during = () if shown.curves is None else telemetry_lines(shown.curves, letters, width)
    if height is None or len(lines) + sum(len(part) + 1 for part in (*parts, during) if part) <= height:
        parts.insert(-1, during)
    lines += [line for part in parts if part for line in ((), *part)]
    return lines[:height]


def why_section(why: Why | None, width: int) -> tuple[Line, ...]:
    """A sentence, a row for each part, and findings; nothing of a row that says no difference."""
    if why is None or not why.row.case.has_steps:
        return ()
    lines: list[Line] = [(Span("why", "title"),)]
    if isinstance(why.attribution, Missing):
        lines += paragraph(f"unknown: {why.attribution.reason}", width, "dim")
        if NOT_PROFILED in why.attribution.reason:
            lines += paragraph("gputui run --trace makes a profiled pass of every case", width, "dim")
    else:
        lines += paragraph(sentence(why.row, why.attribution), width)
        lines += table_lines(part_table(why.attribution, is_drawn=True), width)
        lines += paragraph(trust_line(why.attribution), width, "dim")
    for text in finding_lines(why):
        lines += paragraph(text, width, indent=2)
    return tuple(lines)


def evidence_of(shown: ShownRow, width: int) -> tuple[Line, ...]:
    """The page of evidence of a row that was opened, below its sides."""
    comparison = shown.loaded.answer.comparisons[shown.place]
    sides = pair_lines(comparison, shown.place, shown.loaded.ignore, width - 1)
    return (*sides, (), *evidence_lines(shown, "ab", width - 1))


def open_row(loaded: Loaded, number: int, place: int, job: Job[ShownRow]) -> ShownRow:
    """Row `number` of the table with its evidence, of the side at `place`, which has it.

    Raises GputuiError if the power of its GPU can no longer be read, Cancelled if nobody wants it any more.
    """
    found = rows_of(loaded)[number][place]
    if found is not None and found.case.variant.device_class == "gpu" and not loaded.with_energy:
        loaded = with_energy(loaded, job)
        found = rows_of(loaded)[number][place]
    if found is None:
        raise GputuiError("neither side has this case", "n shows the next side")
    job.say("reading what the boxes did meanwhile")
    evidence = loaded.asked.evidence
    comparison = loaded.answer.comparisons[place]
    curves: tuple[SideCurves | Missing, ...]
    loads: tuple[ServingRun | Missing, ...] = ()
    try:
        curves = curves_of(found, evidence, pool=loaded.asked.pool)
        if not found.case.has_steps:
            loads = tuple(serving_of_side(side, evidence) for side in (comparison.a, comparison.b))
    except GputuiError as error:
        curves = loads = (Missing(error.message), Missing(error.message))
    return ShownRow(loaded, rows_of(loaded)[number], place, curves, next_steps(found, evidence), loads)


_NAME, _LEGEND = 12, 34
"""Cells of the name of a metric, and of name, side and numbers at the left."""
_LEAST_SPAN = 0.02
"""Of the highest value that a strip is high, so that a megahertz does not look like a fall."""
_LEGENDS = {THROTTLE: "! slowed, c cap", CROWDED: "! by others"}
_MARKS: dict[float | None, str] = {1.0: "!", 2.0: "c"}


def telemetry_lines(sides: Sequence[SideCurves | Missing], letters: str, width: int) -> tuple[Line, ...]:
    """A strip for each metric and side, launches end to end; why there is none where nothing was sampled."""
    known: list[tuple[str, SideCurves]] = []
    lines: list[Line] = [(Span("while it was timed", "dim"),)]
    reasons: dict[str, list[str]] = {}
    for letter, side in zip(letters, sides, strict=True):
        if isinstance(side, Missing):
            reasons.setdefault(side.reason, []).append(letter)
        else:
            known.append((letter, side))
    for reason, without in reasons.items():
        lines += paragraph(f"  no telemetry of {' and '.join(without)}: {reason}", width, "dim", indent=4)
    longest_s = max((side.seconds for _, side in known), default=0.0)
    if longest_s <= 0:
        return tuple(lines)
    room, before = max(width - _LEGEND - 1, 10), ""
    for name, letter, words, drawn in _strips(known, longest_s, room):
        lines.append(
            (
                Span(f"  {'' if name == before else name:{_NAME}}", "dim"),
                Span(f"{letter}  ", "title"),
                Span(f"{words:{_LEGEND - _NAME - 5}}"),
                drawn,
            )
        )
        before = name
    end = format_seconds(longest_s)
    lines.append((Span(f"{'':{_LEGEND}}{'0 s'.ljust(max(room - len(end), 4))}{end}", "dim"),))
    if any(len(side.starts_s) >= MOST_LAUNCHES for _, side in known):
        lines += paragraph(f"  the first {MOST_LAUNCHES} launches of a side are drawn", width, "dim")
    return tuple(lines)


def _strips(
    known: Sequence[tuple[str, SideCurves]], longest_s: float, room: int
) -> Iterator[tuple[str, str, str, Span]]:
    """Name, side, words and drawing: metrics, where a device was held back, where launches begin."""

    def drawn(side: SideCurves, curve: TimeSeries) -> list[float | None]:
        times_s = ((column + 0.5) / room * longest_s for column in range(room))
        values = (curve.at(t_s) if t_s <= side.seconds else math.nan for t_s in times_s)
        return [value if math.isfinite(value) else None for value in values]

    for metric in dict.fromkeys(metric_named(key, side.device) for _, side in known for key in side.curves):
        curves = [(*one, one[1].curves[metric.key]) for one in known if metric.key in one[1].curves]
        values = [value for _, _, curve in curves for value in curve.known]
        low, high = min(values), max(values)
        bottom = min(low, high - _LEAST_SPAN * abs(high))
        for letter, side, curve in curves:
            ends = metric.between(min(curve.known), max(curve.known))
            area = strip(drawn(side, curve), high, bottom).rstrip()
            yield metric.name, letter, ends, Span(area, f"{metric.hue} 1")
    for letter, side in known:
        if not isinstance(side.disturbed, Missing):
            words = _LEGENDS[side.disturbance] if any(side.disturbed.known) else "never"
            marks = "".join(_MARKS.get(value, " ") for value in drawn(side, side.disturbed))
            yield side.disturbance, letter, words, Span(marks.rstrip(), "warn")
    for letter, side in known:
        if len(side.starts_s) > 1:
            begins = {min(int(start_s / longest_s * room), room - 1) for start_s in side.starts_s}
            bars = "".join("|" if cell in begins else " " for cell in range(room))
            yield "launches", letter, "", Span(bars.rstrip(), "dim")


def load_lines(sides: Sequence[ServingRun | Missing], row: Row, width: int) -> Iterator[Line]:
    """Every load, with a line for each side that was offered it."""
    known = [(letter, side) for letter, side in zip("ab", sides, strict=True) if isinstance(side, ServingRun)]
    levels = [
        (letter, level)
        for key in dict.fromkeys(_key(level) for _, side in known for level in side.levels)
        for letter, side in known
        for level in side.levels
        if _key(level) == key
    ]
    if levels:
        yield section((Span("every load", "title"),), width - 1, (Span("bar: output tokens/s", "dim"),))
        yield from _load_table(levels, row, width - 1)


def load_notes(sides: Sequence[ServingRun | Missing], width: int) -> Iterator[Line]:
    """The server of each side, and what limits the meaning of its loads."""
    for letter, side in zip("ab", sides, strict=True):
        if isinstance(side, Missing):
            yield from paragraph(f"{letter}  its loads are not known: {side.reason}", width, "dim", indent=3)
            continue
        yield from paragraph(f"{letter}  {clean(server_line(side))}", width, indent=3)
        for text in (*unmeasured_lines(side), *serving_notes(side)):
            yield from paragraph(f"   {clean(text)}", width, "dim", indent=5)


def _key(level: Level) -> tuple[str, int | None, float | None]:
    return level.kind, level.users, level.rate_per_s


def _load_table(levels: Sequence[tuple[str, Level]], row: Row, width: int) -> Iterator[Line]:
    styles = [FAMILIES_OF_SIDES["ab".index(letter)] for letter, _ in levels]
    names, *rest = curve_table([level for _, level in levels], is_full=True, styles=styles).columns
    assert isinstance(names, Column)
    here = [load_of(level.case) == load_of(row.case) for _, level in levels]
    is_first = [name != before for name, before in zip(names.texts, ("", *names.texts), strict=False)]
    labels = [
        Span(name if first else "", "title" if is_here else "")
        for name, first, is_here in zip(names.texts, is_first, here, strict=True)
    ]
    letters = [Span(letter, "title") for letter, _ in levels]
    table = Table((replace(names, cells=labels), Column("", letters), *rest))
    marks = [is_here and first for is_here, first in zip(here, is_first, strict=True)]
    yield from table_lines(table, width, marks=marks)
