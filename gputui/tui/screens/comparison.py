"""What the Compare screen has read, the command line that asks for the same, and all that it shows of it, as
lines and documents."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from gputui.document.page import Page, console_on
from gputui.document.spans import Line, Span, cut
from gputui.document.table import Part, Section, Table, table_of
from gputui.errors import GputuiError, clean_text
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import format_hourly
from gputui.services.compare.columns import COLUMNS_OF_SIDES, ENERGY, RATE, RATIO, ComparisonColumn
from gputui.services.compare.evidence import evidence_parts, recorded_of
from gputui.services.compare.fleet import ranking_of
from gputui.services.compare.fleet_forms import fleet_sentences
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Comparison, Row, main_row
from gputui.services.compare.row_text import (
    LABEL_CELLS,
    difference_words,
    judgement_text,
    letter_of,
    no_difference_words,
    part_words,
    short_name,
    style_of,
    unmeasured_words,
)
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_of_sides, rows_table
from gputui.services.compare.session import Answer, Asked, ComparisonRequest, ask, request_of
from gputui.services.compare.tables import sides_table
from gputui.services.results.browser import Candidate, ListedRun
from gputui.services.results.labels import day, device_words, short_case_name, torch_words
from gputui.services.results.selectors import every_file, from_here
from gputui.services.support.background import Job
from gputui.tui.widgets.cells import paragraph, section, table_lines
from gputui.tui.widgets.scrolled import LinesOf

Document = Sequence[Part | Section]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A comparison that was read, and what is looked at of it."""

    request: ComparisonRequest
    asked: Asked
    baseline: int
    """The place of the baseline among the sides."""
    answer: Answer
    rows: Sequence[RowOfSides]
    with_energy: bool = False
    """Whether the power of GPUs was read too."""
    value: ComparisonColumn = RATE
    """What the columns of the sides show."""
    place: int = 0
    """Of the comparison that is looked at, among those of all other sides with the baseline."""

    @property
    def ignore(self) -> str:
        """The dimension that the sides differ in; empty if they are files or runs."""
        return self.asked.ignore

    @property
    def comparison(self) -> Comparison:
        return self.answer.comparisons[self.place]

    def others(self) -> list[int]:
        """The places of the sides that are compared with the baseline, in the order of the comparisons."""
        return [place for place in range(len(self.asked.sides)) if place != self.baseline]

    def row(self, number: int) -> Row | None:
        """A row of the table, of the side that is looked at."""
        return self.rows[number][self.place]

    def name(self, number: int) -> str:
        return clean_text(short_case_name(first_of(self.rows[number]).case, (), self.ignore))

    def next_side(self, steps: int) -> Loaded:
        return replace(self, place=(self.place + steps) % len(self.rows[0]))

    @property
    def columns(self) -> tuple[ComparisonColumn, ...]:
        """What `--columns` names; empty for rates, which the command prints by itself."""
        return () if self.value is RATE else (self.value, RATIO)

    @property
    def words(self) -> tuple[str, ...]:
        """What follows `gputui compare` to ask for the same, with these values."""
        request = self.request
        if self.ignore:
            name = self.asked.sides[self.baseline].name if self.baseline else ""
            request = replace(request, baseline=name)
        else:
            files = list(request.files)
            files.insert(0, files.pop(self.baseline))
            request = replace(request, files=tuple(files), baseline="")
        return tuple(map(from_here, replace(request, columns=self.columns).words))

    @property
    def command(self) -> str:
        return f"gputui compare {shlex.join(self.words)}"

    def against(self, baseline: int) -> Loaded:
        """The same sides against one of them. Raises GputuiError if a file can no longer be read."""
        answer = self.asked.compared(baseline, with_energy=self.with_energy)
        rows = rows_of_sides(answer.comparisons, self.ignore)
        return replace(self, baseline=baseline, answer=answer, rows=rows)


def read(words: Sequence[str], job: Job[Loaded], value: ComparisonColumn = RATE, place: int = 0) -> Loaded:
    """Read and compare what these words of the command line ask for, to look at what the words say, else at
    `value`, of the side at `place` if there is one.

    Raises GputuiError if they say nothing, a file cannot be read, or nothing can be compared; Cancelled if
    nobody wants it any more.
    """
    request = request_of(words)
    if all(file.endswith((".json", ".json.gz")) for file in request.files):
        raise _only_traces(request.files)
    job.say(f"reading {', '.join(short_name(file) for file in request.files)}")
    asked = ask(request.files, by=request.by or None, pool=request.pool, trust=request.trust)
    if all(run.summary.profile == TRACE_PROFILE for run in asked.evidence.runs):
        raise _only_traces(request.files)
    baseline = asked.baseline(request.baseline) if request.baseline else 0
    job.say("comparing")
    value = next((column for column in COLUMNS_OF_SIDES if column in request.columns), value)
    answer = asked.compared(baseline, with_energy=value is ENERGY)
    if not request.baseline:
        files = every_file(request.files)
        ranking = ranking_of(files, request.by, pool=request.pool, trust=request.trust)
        if ranking is not None:
            answer = replace(answer, headline=Headline(fleet_sentences(ranking[0])))
    rows = rows_of_sides(answer.comparisons, asked.ignore)
    place = min(place, len(answer.comparisons) - 1)
    return Loaded(request, asked, baseline, answer, rows, value is ENERGY, value, place)


def _only_traces(files: Sequence[str]) -> GputuiError:
    both = files if len(files) == 2 else (files[0], "OTHER")
    return GputuiError(
        "traces have no rates, which this screen compares",
        f"in a shell, where the steps of two differ: gputui compare {shlex.join(map(from_here, both))}",
    )


def with_energy(loaded: Loaded, job: Job[Any]) -> Loaded:
    """The same with what the GPUs drew. Raises as `read` does."""
    if loaded.with_energy:
        return loaded
    job.say("reading power")
    found = replace(loaded, with_energy=True).against(loaded.baseline)
    return replace(found, answer=replace(found.answer, headline=loaded.answer.headline))


def document_lines(parts: Document, width: int) -> list[Line]:
    """A document as a command prints it at this width."""
    page = Page(console_on(StringIO(), width, is_terminal=False))
    for part in parts:
        page.part(part)
    return page.lines[page.lines[:1] == [()] :]  # without a blank line above a table


HIGH = 13
"""Lines from which there is room for the sides above the rows, and for evidence below many rows."""
_MOST_HEADLINE, _MOST_SIDES = 5, 8


def lines_above(loaded: Loaded, width: int, height: int) -> list[Line]:
    """The answer in a few lines, of which the first sentence stands out; a line for each side where there
    is room, with `▸` before the one that is looked at."""
    first, *rest = map(clean_text, loaded.answer.headline.sentences)
    lines = [*paragraph(first, width, "title"), *(paragraph(" ".join(rest), width) if rest else ())]
    most = _MOST_HEADLINE if height >= HIGH else 2
    if len(lines) > most:
        ((text, style),) = lines[most - 1]
        lines[most - 1 :] = [(Span(cut(f"{text} …", width), style),)]
    if height < HIGH:
        return lines
    sides = [loaded.asked.sides[place] for place in (loaded.baseline, *loaded.others())]
    is_many = len(sides) > 2
    marks = [is_many and place == loaded.place for place in range(-1, len(sides) - 1)]
    table = sides_table(sides, loaded.ignore, LABEL_CELLS)
    drawn = [*table_lines(table, width, margin=2 * is_many, marks=marks, has_headings=False)]
    return [*lines, *drawn[: min(_MOST_SIDES, max(height // 4, 2))]]


def table_of_rows(loaded: Loaded) -> Table:
    return rows_table(
        loaded.answer.comparisons,
        loaded.rows,
        loaded.ignore,
        value=loaded.value,
        place=loaded.place,
        note=lambda row: " !" if row.flags else " *" if row.note else "",
        is_drawn=True,
    )


def main_number(loaded: Loaded) -> int:
    """The number of the row that the headline is about."""
    main = main_row(loaded.comparison.rows)
    shown = [rows[loaded.place] for rows in loaded.rows]
    return next((number for number, row in enumerate(shown) if main and row is main), 0)


def remarks(loaded: Loaded, number: int) -> str:
    """Why values of a row are absent, and what is to know of it."""
    rows, row = loaded.rows[number], loaded.row(number)
    cells = [("a", first_of(rows).a)]
    cells += [(letter_of(place), other.b) for place, other in enumerate(rows) if other is not None]
    reasons = loaded.value.reasons(cells)
    told = [f"{' and '.join(names)}: {reason}" for reason, names in reasons.items()]
    if row is not None:
        flags = [f"{flag.side} {flag.word}" for flag in row.flags]
        told += filter(None, (*flags, row.note))
    return "; ".join(told)


def evidence_lines(loaded: Loaded, number: int, width: int) -> list[Line]:
    """The evidence of a row, without what takes a file to say; nothing where the side has no such row."""
    row = loaded.row(number)
    if row is None:
        return []
    parts = evidence_parts(row, loaded.asked.evidence)
    return [_title_line(loaded, number, width), *document_lines(parts, width)]


def _title_line(loaded: Loaded, number: int, width: int) -> Line:
    """`── gpt_train base amp  36 % slower (34 to 38) ────── here b is c ──`."""
    row = loaded.row(number)
    assert row is not None
    title = Span(f"{loaded.name(number)}  ", "title"), Span(judgement_text(row.rate), style_of(row.rate))
    right = (Span(f"here b is {letter_of(loaded.place)}", "dim"),) if loaded.place else ()
    return section(title, width, right)


def open_row(loaded: Loaded, number: int, job: Job[tuple[Loaded, LinesOf]]) -> tuple[Loaded, LinesOf]:
    """All that is known of a row of the table, with what its boxes did meanwhile.

    Raises GputuiError if the side that is looked at has no such row, or the power of its GPU can no longer be
    read, Cancelled if nobody wants it any more.
    """
    row = loaded.row(number)
    if row is not None and row.case.variant.device_class == "gpu":
        loaded = with_energy(loaded, job)
        row = loaded.row(number)
    if row is None:
        raise GputuiError("neither a nor b has this case", "n shows the next side")
    job.say("reading what the boxes did meanwhile")
    asked, comparison = loaded.asked, loaded.comparison
    recorded = recorded_of(row, comparison, asked.evidence, pool=asked.pool)
    parts = evidence_parts(row, asked.evidence, *recorded)
    sides = sides_table((comparison.a, comparison.b), loaded.ignore, LABEL_CELLS)
    above = [sides, *([part_words(loaded.place)] if loaded.place else ())]

    def lines(width: int) -> list[Line]:
        title = _title_line(loaded, number, width - 1)
        return [*document_lines(above, width - 1), (), title, *document_lines(parts, width - 1)]

    return loaded, lines


def text_of(loaded: Loaded, width: int) -> list[Line]:
    """What the equivalent command prints with its reasons."""
    text = comparison_text(loaded.asked, loaded.answer, "text", loaded.columns, width - 1, True)
    told = document_lines([f"$ {loaded.command}", *loaded.asked.warnings], width - 1)
    return [*told, (), *((Span(line),) for line in text.splitlines())]


def differing(loaded: Loaded) -> Document:
    """What differs, a line each, and what was measured on neither side."""
    comparison = loaded.comparison
    differs = tuple(map(difference_words, comparison.differs)) or (no_difference_words(comparison),)
    return [
        sides_table((comparison.a, comparison.b), loaded.ignore, LABEL_CELLS),
        Section("differs", (differs,)),
        tuple(unmeasured_words(comparison)),
    ]


def teaching(found: Sequence[Candidate]) -> Document:
    return [
        "Nothing is compared yet.",
        "Press 3, mark two runs with space, then c. The first is the baseline.",
        "Or press o and type files as for gputui compare: a.db b.db, a.db@label, a.db",
        "One file alone: its devices, precisions or threads against each other; g chooses which.",
        "Nothing measured so far? Press 2: a profile, on each box that matters.",
        *(("", "What could be compared (enter takes the first pair):") if found else ()),
        *map(_pair, found),
    ]


def _pair(pair: Candidate) -> Section:
    whose = "two runs of one box" if pair.is_one_box else "two boxes"
    sides = table_of([""] * 6, [("a", *_stored(pair.a)), ("b", *_stored(pair.b))], priorities={5: 2, 4: 1})
    return Section(f"{pair.b.summary.profile}, {whose}", (sides, (f"$ {pair.command}",)))


_NAME = 28
"""Cells of a stored run's label."""


def _stored(side: ListedRun) -> Iterable[str]:
    run = side.summary
    price = "" if isinstance(run.price, Missing) else format_hourly(run.price.usd_per_hour)
    return (
        cut(clean_text(run.label or side.name), _NAME),
        day(run),
        device_words(run),
        price,
        torch_words(run),
    )
