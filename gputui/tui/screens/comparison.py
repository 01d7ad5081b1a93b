"""What the Compare screen has read, the command line that asks for the same, and its pages as documents."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from gputui.document.page import Page, console_on
from gputui.document.spans import Line, Span, cut
from gputui.document.table import Part, Section, table_of
from gputui.errors import GputuiError, clean_text
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import format_hourly
from gputui.services.compare.columns import ENERGY, RATE, RATIO, ComparisonColumn
from gputui.services.compare.evidence import evidence_parts, recorded_of
from gputui.services.compare.fleet import ranking_of
from gputui.services.compare.fleet_forms import fleet_sentences
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.headline import Headline
from gputui.services.compare.row_text import (
    LABEL_CELLS,
    difference_words,
    judgement_text,
    no_difference_words,
    part_words,
    short_name,
    style_of,
    unmeasured_words,
)
from gputui.services.compare.rows_table import RowOfSides, first_of, rows_of_sides
from gputui.services.compare.session import Answer, Asked, ComparisonRequest, ask, request_of
from gputui.services.compare.tables import sides_table
from gputui.services.results.browser import Candidate, ListedRun
from gputui.services.results.labels import day, device_words, short_case_name, torch_words
from gputui.services.results.selectors import every_file, from_here
from gputui.services.support.background import Job
from gputui.tui.widgets.cells import section
from gputui.tui.widgets.scrolled import LinesOf

Document = Sequence[Part | Section]


@dataclass(frozen=True, slots=True)
class Loaded:
    request: ComparisonRequest
    asked: Asked
    baseline: int
    """The place of the baseline among the sides."""
    answer: Answer
    rows: Sequence[RowOfSides]
    with_energy: bool = False
    """Whether the power of GPUs was read too."""

    @property
    def ignore(self) -> str:
        """The dimension that the sides differ in; empty if they are files or runs."""
        return self.asked.ignore

    def others(self) -> list[int]:
        """The places of the sides that are compared with the baseline, in the order of the comparisons."""
        return [place for place in range(len(self.asked.sides)) if place != self.baseline]

    def name(self, number: int) -> str:
        return clean_text(short_case_name(first_of(self.rows[number]).case, (), self.ignore))

    def columns(self, value: ComparisonColumn) -> tuple[ComparisonColumn, ...]:
        """What `--columns` names; empty for rates, which the command prints by itself."""
        return () if value is RATE else (value, RATIO)

    def words(self, value: ComparisonColumn) -> tuple[str, ...]:
        """What follows `gputui compare` to ask for the same, with these values."""
        request = self.request
        if self.ignore:
            name = self.asked.sides[self.baseline].name if self.baseline else ""
            request = replace(request, baseline=name)
        else:
            files = list(request.files)
            files.insert(0, files.pop(self.baseline))
            request = replace(request, files=tuple(files), baseline="")
        return tuple(map(from_here, replace(request, columns=self.columns(value)).words))

    def command(self, value: ComparisonColumn) -> str:
        return f"gputui compare {shlex.join(self.words(value))}"

    def against(self, baseline: int, *, with_energy: bool, headline: Headline | None = None) -> Loaded:
        """The same sides against one of them. Raises GputuiError if a file can no longer be read."""
        answer = self.asked.compared(baseline, with_energy=with_energy)
        answer = answer if headline is None else replace(answer, headline=headline)
        rows = rows_of_sides(answer.comparisons, self.ignore)
        return Loaded(self.request, self.asked, baseline, answer, rows, with_energy)


def read(words: Sequence[str], job: Job[Loaded], *, with_energy: bool = False) -> Loaded:
    """Read and compare what these words of the command line ask for.

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
    with_energy = with_energy or ENERGY in request.columns
    answer = asked.compared(baseline, with_energy=with_energy)
    if not request.baseline:
        files = every_file(request.files)
        ranking = ranking_of(files, request.by, pool=request.pool, trust=request.trust)
        if ranking is not None:
            answer = replace(answer, headline=Headline(fleet_sentences(ranking[0])))
    rows = rows_of_sides(answer.comparisons, asked.ignore)
    return Loaded(request, asked, baseline, answer, rows, with_energy)


def _only_traces(files: Sequence[str]) -> GputuiError:
    both = files if len(files) == 2 else (files[0], "OTHER")
    return GputuiError(
        "traces have no rates, which this screen compares",
        f"in a shell, where the steps of two differ: gputui compare {shlex.join(map(from_here, both))}",
    )


def with_energy(loaded: Loaded, job: Job[Any]) -> Loaded:
    """The same with what the GPUs drew. Raises as `read` does."""
    job.say("reading power")
    return loaded.against(loaded.baseline, with_energy=True, headline=loaded.answer.headline)


def document_lines(parts: Document, width: int) -> list[Line]:
    """A document as a command prints it at this width."""
    page = Page(console_on(StringIO(), width, is_terminal=False))
    for part in parts:
        page.part(part)
    return page.lines[page.lines[:1] == [()] :]  # without a blank line above a table


def evidence_lines(loaded: Loaded, number: int, place: int, width: int, hint: str = "") -> list[Line]:
    """The evidence of a row of the table that the side at `place` has, without what takes a file to say."""
    row = loaded.rows[number][place]
    if row is None:
        return []
    parts = evidence_parts(row, loaded.asked.evidence)
    return [_title_line(loaded, number, place, width, hint), *document_lines(parts, width)]


def _title_line(loaded: Loaded, number: int, place: int, width: int, hint: str) -> Line:
    """`── gpt_train base amp  36 % slower (34 to 38) ────── enter: all of it ──`."""
    row = loaded.rows[number][place]
    assert row is not None
    title = Span(f"{loaded.name(number)}  ", "title"), Span(judgement_text(row.rate), style_of(row.rate))
    right = part_words(place) if place else hint
    return section(title, width, (Span(right, "dim"),) if right else ())


def open_row(
    loaded: Loaded, number: int, place: int, job: Job[tuple[Loaded, LinesOf]]
) -> tuple[Loaded, LinesOf]:
    """All that is known of a row of the table, of the side at `place`, with what its boxes did meanwhile.

    Raises GputuiError if that side has no such row, or the power of its GPU can no longer be read, Cancelled
    if nobody wants it any more.
    """
    row = loaded.rows[number][place]
    if row is not None and row.case.variant.device_class == "gpu" and not loaded.with_energy:
        loaded = with_energy(loaded, job)
        row = loaded.rows[number][place]
    if row is None:
        raise GputuiError("neither side has this case", "n shows the next side")
    job.say("reading what the boxes did meanwhile")
    asked, comparison = loaded.asked, loaded.answer.comparisons[place]
    recorded = recorded_of(row, comparison, asked.evidence, pool=asked.pool)
    parts = evidence_parts(row, asked.evidence, *recorded)
    sides = sides_table((comparison.a, comparison.b), loaded.ignore, LABEL_CELLS)
    above = [sides, *([part_words(place)] if place else ())]

    def lines(width: int) -> list[Line]:
        title = _title_line(loaded, number, place, width - 1, "")
        return [*document_lines(above, width - 1), (), title, *document_lines(parts, width - 1)]

    return loaded, lines


def text_of(loaded: Loaded, value: ComparisonColumn, width: int) -> list[Line]:
    """What the equivalent command prints with its reasons."""
    columns = loaded.columns(value)
    text = comparison_text(loaded.asked, loaded.answer, "text", columns, width - 1, True)
    told = document_lines([f"$ {loaded.command(value)}", *loaded.asked.warnings], width - 1)
    return [*told, (), *((Span(line),) for line in text.splitlines())]


def differing(loaded: Loaded, place: int) -> Document:
    """What differs, a line each, and what was measured on neither side."""
    comparison = loaded.answer.comparisons[place]
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
