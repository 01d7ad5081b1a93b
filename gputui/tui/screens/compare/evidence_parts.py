"""What the verdict of one row rests on, in parts that the pane and the page of a row are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.analysis.judgement import Judgement
from gputui.analysis.statistics import bin_of, histogram
from gputui.analysis.verdict import LAUNCHES_MEASURED, RatioEstimate, SpeedEstimate
from gputui.document.table import Table, table_of
from gputui.model.absent import Missing
from gputui.model.units import (
    counted,
    format_change,
    format_percent,
    format_seconds,
)
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
from gputui.services.compare.why import Why, part_table
from gputui.services.results.labels import interval_words
from gputui.services.results.throughput import step_times_of
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import cut, fitted, width_of, wrapped
from gputui.tui.widgets.charts import area
from gputui.tui.widgets.sections import paragraph, section, table_lines

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
