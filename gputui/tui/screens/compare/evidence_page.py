"""All that the verdict of one row rests on: both distributions of blocks, intervals, the boxes, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gputui.document.table import Column, Table
from gputui.errors import GputuiError
from gputui.metrics import metric_named
from gputui.model.absent import Missing
from gputui.model.result import TimeSeries
from gputui.model.units import format_seconds
from gputui.services.compare.load_terms import serving_of_side
from gputui.services.compare.pairing import Row
from gputui.services.compare.row_text import style_of
from gputui.services.compare.suggestions import next_steps
from gputui.services.compare.telemetry_overlay import CROWDED, MOST_LAUNCHES, THROTTLE, SideCurves, curves_of
from gputui.services.compare.why import Why, finding_lines, part_table, sentence, trust_line
from gputui.services.results.conditions import NOT_PROFILED
from gputui.services.results.load_times import load_of
from gputui.services.serving.curve import Level, ServingRun
from gputui.services.serving.text import curve_table, server_line, serving_notes, unmeasured_lines
from gputui.services.support.background import Job
from gputui.tui.screens.compare.evidence_parts import (
    FAMILIES_OF_SIDES,
    absent_lines,
    block_lines,
    blocks_heading,
    brief_why_lines,
    sure_lines,
    title_line,
    value_table,
)
from gputui.tui.screens.compare.loaded import Loaded, ShownRow, rows_of, with_energy
from gputui.tui.screens.compare.pages import pair_lines
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import clean
from gputui.tui.widgets.charts import strip
from gputui.tui.widgets.sections import paragraph, section, table_lines

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
        why_lines(shown.why, width) if in_full else brief_why_lines(shown.why, width, 6),
        [(Span("how sure", "dim"),), *sure] if sure else [],
    ]
    during = () if shown.curves is None else telemetry_lines(shown.curves, letters, width)
    if height is None or len(lines) + sum(len(part) + 1 for part in (*parts, during) if part) <= height:
        parts.insert(-1, during)
    lines += [line for part in parts if part for line in ((), *part)]
    return lines[:height]


def why_lines(why: Why | None, width: int) -> tuple[Line, ...]:
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


_NAME, _LABEL = 12, 34
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
    room, before = max(width - _LABEL - 1, 10), ""
    for name, letter, words, drawn in _strips(known, longest_s, room):
        lines.append(
            (
                Span(f"  {'' if name == before else name:{_NAME}}", "dim"),
                Span(f"{letter}  ", "title"),
                Span(f"{words:{_LABEL - _NAME - 5}}"),
                drawn,
            )
        )
        before = name
    end = format_seconds(longest_s)
    lines.append((Span(f"{'':{_LABEL}}{'0 s'.ljust(max(room - len(end), 4))}{end}", "dim"),))
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
