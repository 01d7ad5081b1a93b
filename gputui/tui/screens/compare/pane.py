"""The evidence of the selected row, beside or below the table, and what stands around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from gputui.analysis.judgement import Judgement
from gputui.document.drawings import Interval, intervals
from gputui.document.spans import Line, Span, command_lines, cut, width_of
from gputui.document.table import Column, Drawing, Table, table_of
from gputui.model.units import (
    counted,
    format_change_interval,
    format_minutes,
    format_seconds,
    format_usd,
    three_digits,
)
from gputui.services.compare.columns import ENERGY, PEAK, ComparisonColumn
from gputui.services.compare.pairing import Cell, Comparison, Row
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.row_text import (
    costs_text,
    doubted_point_text,
    judgement_text,
    letter_of,
    no_difference_words,
    rate_text,
    style_of,
    time_text,
)
from gputui.services.compare.rows_table import RowOfSides
from gputui.services.compare.suggestions import effort_words, next_steps, settling_steps
from gputui.services.compare.text import turning_points
from gputui.services.results.labels import short_case_name
from gputui.services.results.throughput import step_times_of
from gputui.store.text import clean_text
from gputui.tui.screens.compare.evidence import (
    FAMILIES_OF_SIDES,
    block_lines,
    blocks_heading,
    brief_why_lines,
    evidence_lines,
    heading_line,
    sure_lines,
    title_line,
    value_lines,
    why_lines,
)
from gputui.tui.screens.compare.loaded import Loaded, ShownRow
from gputui.tui.widgets.cells import fitted, side_by_side, table_lines, wrapped
from gputui.tui.widgets.charts import strip

HINT = "enter: all of it"
_TWO_COLUMNS = 110
"""From this width on blocks and reasons stand beside each other."""
_GAP = 4
_MOST_DIFFERENCES = 6
_LEAST_UNSURE, _MOST_UNSURE = 2, 6
"""Undecided rows that are listed, by the room there is."""
_MOST_HINTS = 2
_SURE_ROWS = 5
"""Of why a row is not judged, where there is room."""


def pane_lines(shown: ShownRow, width: int, height: int) -> list[Line]:
    """Below the table, at most `height` lines: what matters most first."""
    if height < 2:
        return []
    if len(shown.rows) > 1:
        return sides_lines(shown.rows, shown.name, width, height, HINT)[:height]
    row = shown.row
    if row is None:
        return []
    values = value_lines(row, width, _SURE_ROWS)
    if len(values) + (shown.why is not None) >= height:  # why matters more than how sure it is
        values = value_lines(row, width, 2 - (shown.why is not None))
    lines = [title_line(row, shown.name, width, HINT), *values]
    room = height - len(lines)
    if width < _TWO_COLUMNS or room < 6:
        reasons = why_lines(shown.why, width - 10, max(min(room, 5), 0))
        for place, reason in enumerate(reasons):
            lines.append((Span(f"  {'why' if place == 0 else '':8}", "dim"), *reason))
        return lines[:height]
    half = (width - 2 - _GAP) // 2
    blocks = block_lines(row, "ab", half, 2 if room >= 10 else 1)
    if blocks:
        blocks.insert(0, blocks_heading(2 if room >= 10 else 1))
    why = brief_why_lines(shown.why, half, room - 2)
    why = why or [(Span("how sure", "dim"),), *sure_lines(row, half if blocks else width - 2)]
    if blocks:
        first, second = ([fitted(line, half) for line in column] for column in (blocks, why))
        why = side_by_side([first, second], width - 2, _GAP)
    return [*lines, (), *((Span("  "), *line) for line in why)][:height]


def beside_lines(shown: ShownRow, width: int, height: int) -> list[Line]:
    """Beside the table: all sides, and what is known of the row, as far as it fits."""
    lines = sides_lines(shown.rows, shown.name, width, height, "") if len(shown.rows) > 1 else []
    if shown.row is not None:
        lines += [()] if lines else []
        lines += evidence_lines(shown, f"a{letter_of(shown.place)}", width, height - len(lines))
    return lines[:height]


def _open_rows(shown: ShownRow) -> list[tuple[Row, str]]:
    """Undecided rows with the letter of the side that is not the baseline, the selected row first."""
    found = [
        (row, letter_of(place))
        for place, comparison in enumerate(shown.loaded.answer.comparisons)
        for row in comparison.rows
        if row.rate.word == "inconclusive"
    ]
    return sorted(found, key=lambda one: all(one[0] is not row for row in shown.rows))


def _count(found: Sequence[object], loaded: Loaded) -> str:
    rows = sum(len(comparison.rows) for comparison in loaded.answer.comparisons)
    return f"{len(found)} of {counted(rows, 'row')}"


def unsure_line(shown: ShownRow, width: int, *, has_command: bool) -> Line:
    """How many rows are undecided, perhaps with a command that would settle the first; empty if none is."""
    loaded, found = shown.loaded, _open_rows(shown)
    if not found:
        return ()
    steps = [step for row, _ in found for step in settling_steps(row, loaded.asked.evidence)]
    command = f": {clean_text(steps[0].command)}" if steps and has_command else ""
    return fitted((Span(f"can't tell {_count(found, loaded)}", "accent"), Span(command, "dim")), width)


def unsure_lines(shown: ShownRow, width: int, room: int = 0) -> list[Line]:
    """Undecided rows, with the reason and the command that would settle them below those that share both.

    More than two where all fits into `room` lines.
    """
    found = _open_rows(shown)
    heading = heading_line("can't tell", width, _count(found, shown.loaded))
    for count in range(min(len(found), _MOST_UNSURE), 0, -1):
        below: dict[tuple[Line, ...], list[Line]] = {}
        for row, letter in found[:count]:
            name = clean_text(short_case_name(row.case, (), shown.loaded.ignore))
            side = f" ({letter} vs a)" if len(shown.rows) > 1 else ""
            head = Span(f"  {name}{side}  "), Span(judgement_text(row.rate), "dim")
            why = tuple(_why_unsure(shown.loaded, row, letter, width))
            below.setdefault(why, []).append(fitted(head, width))
        lines = [heading, *(line for why, heads in below.items() for line in (*heads, *why))]
        if len(lines) <= room or count <= _LEAST_UNSURE:
            return lines
    return []


def _why_unsure(loaded: Loaded, row: Row, letter: str, width: int) -> Iterator[Line]:
    """The reason, and commands that would settle it, else other advice."""
    evidence = loaded.asked.evidence
    steps = settling_steps(row, evidence)
    advice = [] if steps else next_steps(row, evidence)[:_MOST_HINTS]
    for text in (*wrapped(row.verdict.reason, width - 2, 2), *map(clean_text, advice)):
        yield fitted((Span(f"  {text}", "dim"),), width)
    for step in steps:
        box = step.box if step.box == "a" else letter
        price = "" if step.usd is None else f", {format_usd(step.usd)}"
        taken = f"  about {format_minutes(step.seconds)}{price}"
        command = cut(clean_text(step.command), max(width - width_of(taken) - 6, 10))
        yield fitted((Span(f"  {box}$ "), Span(command, "accent"), Span(taken, "dim")), width)


def settling_lines(shown: ShownRow, width: int) -> list[Line]:
    """The whole commands that would settle the selected row; empty if it is judged or they hardly would."""
    row = shown.row
    if row is None or row.rate.word != "inconclusive":
        return []
    letters = {"a": "a", "b": letter_of(shown.place)}
    found = settling_steps(row, shown.loaded.asked.evidence)
    steps = [replace(step, box=letters[step.box]) for step in found]
    if not steps:
        return []
    lines: list[Line] = [(Span(f"  to tell, {effort_words(steps)}:", "dim"),)]
    for step in steps:
        for text in command_lines(clean_text(step.command), width - 2, f"{step.box}$ "):
            lines.append((Span("  "), Span(text, "accent")))
    return lines


def turning_lines(comparison: Comparison, width: int) -> list[Line]:
    """What would change the answer; empty where the main case is undecided."""
    found = turning_points(comparison)
    rows = [(condition, Span(answer, "dim")) for condition, answer in found]
    table = table_lines(table_of(("", ""), rows), width, has_headings=False)
    return [heading_line("what would change the answer", width), *table] if found else []


def differences_lines(comparison: Comparison, letter: str, width: int) -> list[Line]:
    """What is recorded of both sides and differs."""
    found = comparison.differs
    note = "d: all" if len(found) > _MOST_DIFFERENCES else ""
    if not found:
        return [heading_line("environments", width), (Span(f"  {no_difference_words(comparison)}", "dim"),)]
    shown = found[:_MOST_DIFFERENCES]
    columns = [Column("", [Span(what, "dim") for what, _, _ in shown])]
    for side, values in (("a", [on_a for _, on_a, _ in shown]), (letter, [on_b for _, _, on_b in shown])):
        columns += [Column("", [Span(side, "title")] * len(shown)), Column("", values, breaks=True)]
    table = table_lines(Table(tuple(columns)), width, has_headings=False)
    return [heading_line(f"environments differ in {counted(len(found), 'fact')}", width, note), *table]


def launches_lines(row: Row, letters: str, name: str, width: int, most: int) -> list[Line]:
    """Block after block of each launch of both sides: how long a step took, the slowest block the highest."""
    rows: list[tuple[Span | str, ...]] = []
    for letter, family, cell in zip(letters, FAMILIES_OF_SIDES, (row.a, row.b), strict=True):
        launches = step_times_of(cell.result)
        blocks = [seconds for launch in launches for seconds in launch]
        slowest, fastest = max(blocks, default=0.0), min(blocks, default=0.0)
        for number, launch in enumerate(launches, 1):
            drawn = strip(_resampled(launch, min(width - 52, 70)), slowest, min(fastest, slowest * 0.9))
            spread = 100 * (max(launch) / min(launch) - 1)
            rows.append(
                (
                    Span(letter if number == 1 else "", "title"),
                    Span(f"launch {number}", "dim"),
                    format_seconds(sum(launch) / len(launch)),
                    Span(drawn, f"{family} 1"),
                    Span(f"{counted(len(launch), 'block')}, {three_digits(spread)} % apart", "dim"),
                )
            )
    if not rows or len(rows) + 1 > most:
        return []
    heading = heading_line(f"launch by launch, {name}", width, "block after block, the slowest the highest")
    table = table_of(("",) * 5, rows, right=(2, 4))
    return [heading, *table_lines(table, width, has_headings=False)]


def _resampled(values: Sequence[float], most: int) -> list[float]:
    """At most so many, each the largest of those it stands for."""
    count = len(values)
    if count <= most or most < 1:
        return list(values)
    bounds = [place * count // most for place in range(most + 1)]
    return [max(values[begin:end]) for begin, end in pairwise(bounds)]


def rule_between(lines: Sequence[Line], width: int) -> list[Line]:
    """Lines to the right of a vertical rule, filling a width."""
    return [fitted((Span("│ ", "track"), *line), width) for line in lines]


def sides_lines(rows: RowOfSides, name: str, width: int, most: int, hint: str) -> list[Line]:
    """A line for each side, with its rate and what a unit of work costs on it."""
    known = next(row for row in rows if row is not None)
    sides: list[tuple[str, Cell, Row | None]] = [("a", known.a, None)]
    sides += [(letter_of(place), row.b, row) for place, row in enumerate(rows) if row is not None]
    fastest = fastest_text(known.a, {letter: row for letter, _, row in sides if row is not None})
    return [heading_line(name, width, hint), *_table(sides, width, fastest)][:most]


def _table(sides: Sequence[tuple[str, Cell, Row | None]], width: int, fastest: str) -> list[Line]:
    costs, unit = costs_text([cell for _, cell, _ in sides])
    columns = [
        Column("", [Span(letter, "title") for letter, _, _ in sides]),
        Column("rate", [rate_text(cell) for _, cell, _ in sides], True),
        Column("vs a", [_point(row.rate if row else None) for _, _, row in sides], True),
        Column("95 %", [_ends(row.rate if row else None) for _, _, row in sides], True),
        Column("", [Span("fastest", "title") if letter == fastest else "" for letter, _, _ in sides]),
        Column(f"$ per {unit}", costs, True),
        Column("vs a", [_point(row.cost if row else None) for _, _, row in sides], True),
        Column("95 %", [_ends(row.cost if row else None) for _, _, row in sides], True),
        Column("a step", [time_text(cell) for _, cell, _ in sides], True),
        Column("% of spec", [_value(PEAK, cell) for _, cell, _ in sides], True),
        Column("energy", [_value(ENERGY, cell) for _, cell, _ in sides], True),
    ]
    known = [column for column in columns if any(text not in ("", "—") for text in column.texts)]
    ordered: list[Column | Drawing] = [replace(column, priority=place) for place, column in enumerate(known)]
    drawn = [
        [Interval(*row.cost.ratio, letter, style_of(row.cost))] if row and row.cost.ratio else []
        for letter, _, row in sides
    ]
    ordered += [replace(intervals(drawn), priority=len(known))] if any(drawn) else []
    return list(table_lines(Table(tuple(ordered)), width))


def _value(column: ComparisonColumn, cell: Cell) -> Span:
    value = column.on_side(cell, in_full=False)
    return Span(value if isinstance(value, str) else "—", "" if isinstance(value, str) else "dim")


def _point(judgement: Judgement | None) -> Span:
    if judgement is None or judgement.ratio is None:
        return Span("")
    return Span(doubted_point_text(judgement), style_of(judgement) if judgement.differs else "")


def _ends(judgement: Judgement | None) -> Span:
    if judgement is None or judgement.ratio is None:
        return Span("")
    ratio, low, high = judgement.ratio
    return Span(format_change_interval(low, high, ratio), "dim")
