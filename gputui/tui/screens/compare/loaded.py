"""What the Compare screen has read, the command line that asks for the same, and what stands around its rows:
the sides, what differs, and how a comparison is begun.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gputui.document.spans import Line, Span, cut
from gputui.document.table import Column, Table
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import format_hourly
from gputui.services.compare.columns import ENERGY, RATE, RATIO, ComparisonColumn
from gputui.services.compare.fleet_why import ranking_of
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.headline import Headline
from gputui.services.compare.options import request_of
from gputui.services.compare.pairing import Comparison, Row, Side
from gputui.services.compare.row_text import (
    LABEL_CELLS,
    called,
    difference_words,
    label_of,
    launches_words,
    letter_of,
    no_difference_words,
    short_name,
    unmeasured_words,
)
from gputui.services.compare.rows_table import RowOfSides, rows_of_sides
from gputui.services.compare.session import Answer, Asked, ComparisonRequest, ask
from gputui.services.compare.side_records import SideCurves
from gputui.services.compare.why import Why
from gputui.services.results.browser import Candidate, ListedRun
from gputui.services.results.labels import day, device_words, short_case_name, torch_words
from gputui.services.results.references import PREFIX, known_references
from gputui.services.results.selectors import every_file, from_here
from gputui.services.serving.curve import ServingRun
from gputui.services.support.background import Job
from gputui.store.text import clean_text
from gputui.tui.widgets.cells import paragraph, section, table_lines, wrapped


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A comparison that was read, which equals only itself, so that its rows can be kept."""

    request: ComparisonRequest
    """As it was typed or chosen."""
    asked: Asked
    baseline: int
    """The place of the baseline among the sides."""
    answer: Answer
    with_energy: bool = False
    """Whether the power of GPUs was read too."""

    @property
    def ignore(self) -> str:
        """The dimension that the sides differ in; empty if they are files or runs."""
        return self.asked.ignore

    def others(self) -> list[int]:
        """The places of the sides that are compared with the baseline, in the order of the comparisons."""
        return [place for place in range(len(self.asked.sides)) if place != self.baseline]

    def why(self, place: int, row: Row) -> Why | None:
        """Why a row of a comparison differs, where anything is known of it."""
        return next((why for why in self.answer.whys[place] if why.row is row), None)

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


@lru_cache(maxsize=2)
def rows_of(loaded: Loaded) -> Sequence[RowOfSides]:
    """Its rows, each with those of all sides."""
    return rows_of_sides(loaded.answer.comparisons, loaded.ignore)


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row of what was loaded, with its evidence once that was read."""

    loaded: Loaded
    rows: RowOfSides
    place: int
    """Of the side that is looked at."""
    curves: tuple[SideCurves | Missing, ...] | None = None
    """What the boxes did while it was timed; None before that was read."""
    steps: tuple[str, ...] = ()
    """What would let it be judged."""
    loads: tuple[ServingRun | Missing, ...] = ()
    """All that the servers of both sides were offered; empty where the row is of something else."""

    @property
    def row(self) -> Row | None:
        """Of the side that is looked at."""
        return self.rows[self.place]

    @property
    def name(self) -> str:
        """What the case is called."""
        known = next(row for row in self.rows if row is not None)
        return clean_text(short_case_name(known.case, (), self.loaded.ignore))

    @property
    def why(self) -> Why | None:
        """Why its sides differ, where anything is known of it."""
        return None if self.row is None else self.loaded.why(self.place, self.row)


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
            answer = replace(answer, headline=Headline(ranking[0].sentences))
    return Loaded(request, asked, baseline, answer, with_energy)


def _only_traces(files: Sequence[str]) -> GputuiError:
    both = files if len(files) == 2 else (files[0], "OTHER")
    return GputuiError(
        "traces have no rates, which this screen compares",
        f"in a shell, where the steps of two differ: gputui compare {shlex.join(map(from_here, both))}",
    )


def read_text(words: Sequence[str], width: int, job: Job[Any]) -> tuple[str, ...]:
    """The lines that `gputui compare WORDS` prints at this width. Raises as `read` does."""
    loaded = read(words, job)
    text = comparison_text(loaded.asked, loaded.answer, "text", loaded.request.columns, width, True)
    return (*map(clean_text, loaded.asked.warnings), *text.splitlines())


def with_baseline(loaded: Loaded, baseline: int, job: Job[Loaded]) -> Loaded:
    """The same sides against another of them. Raises as `read` does."""
    job.say("comparing")
    answer = loaded.asked.compared(baseline, with_energy=loaded.with_energy)
    return replace(loaded, baseline=baseline, answer=answer)


def with_energy(loaded: Loaded, job: Job[Any]) -> Loaded:
    """The same with what the GPUs drew. Raises as `read` does."""
    job.say("reading power")
    answer = loaded.asked.compared(loaded.baseline, with_energy=True)
    return replace(loaded, answer=replace(answer, headline=loaded.answer.headline), with_energy=True)


_PLAIN = (0, 2, 3)
"""Of the parts of a side: name, box and price; the others are dim."""
_NAME = 28
"""Cells of a stored run's label."""


def pair_lines(comparison: Comparison, place: int, ignore: str, width: int) -> tuple[Line, ...]:
    """Both sides of a pair, a line each; of a later side also its letter in the table."""
    letters = ("a", "b" if place == 0 else f"b ({letter_of(place)} in the table)")
    sides = [_parts(side, ignore) for side in (comparison.a, comparison.b)]
    return tuple(_sides(letters, sides, width, margin=0))


def top_lines(
    loaded: Loaded, place: int, width: int, most_sides: int, most_headline: int, *, is_tall: bool
) -> tuple[Line, ...]:
    """The headline, and a line for each side, with `▸` before the one that is looked at.

    At most `most_sides` are shown; the rest are counted. A tall screen has blank lines between.
    """
    comparisons = loaded.answer.comparisons
    lines = headline_lines(loaded, width, most_headline)
    sides = [comparisons[0].a, *(one.b for one in comparisons)]
    order = list(range(len(sides)))
    if len(sides) > most_sides:
        order = [0, place + 1, *(n for n in order if n not in (0, place + 1))][: max(most_sides - 1, 2)]
        order.sort()
    is_many = len(sides) > 2
    side_rows = _sides(
        ["a" if number == 0 else letter_of(number - 1) for number in order],
        [_parts(sides[number], loaded.ignore) for number in order],
        width,
        margin=2 * is_many,
        marks=[is_many and number == place + 1 for number in order],
    )
    if len(order) < len(sides):
        side_rows.append((Span(f"   {len(sides) - len(order)} more sides: n goes on to them", "dim"),))
    gap: tuple[Line, ...] = ((),) if is_tall else ()
    return (*gap, *lines, *gap, *side_rows, *gap)


def headline_lines(loaded: Loaded, width: int, most: int) -> list[Line]:
    """The answer in at most so many lines; its first sentence stands out."""
    sentences = loaded.answer.headline.sentences
    first, rest = clean_text(sentences[0]), clean_text(" ".join(sentences[1:]))
    lines: list[Line] = [*paragraph(first, width, "title")]
    lines += paragraph(rest, width) if rest else ()
    if len(lines) > most:
        (kept,) = lines[most - 1]
        lines[most - 1 :] = [(Span(cut(kept.text + " …", width), kept.style),)]
    return lines


def _parts(side: Side, ignore: str) -> list[str]:
    """What is known of a side: its name, what tells it apart, and the rest, the last of which go first."""
    run = side.run
    name, short = called(side), short_name(side.name)
    return [
        clean_text(part)
        for part in (
            name if not ignore or name.startswith(ignore) else f"{ignore} {name}",
            short if short != name else "",
            device_words(run),
            "" if isinstance(run.price, Missing) else format_hourly(run.price.usd_per_hour),
            cut(label_of(side), LABEL_CELLS) if not ignore and name == short else "",
            torch_words(run),
            launches_words(side),
            day(run),
        )
    ]


def _sides(
    letters: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    margin: int = 2,
    marks: Sequence[bool] = (),
) -> list[Line]:
    """Sides with their letters, and of what is known of them as much as fits, the first two at least."""
    known = [(place, texts) for place, texts in enumerate(zip(*rows, strict=True)) if any(texts)]
    columns = [
        Column(
            "", [Span(text, "" if place in _PLAIN else "dim") for text in texts], priority=rank * (rank > 1)
        )
        for rank, (place, texts) in enumerate(known)
    ]
    table = Table((Column("", [Span(letter, "title") for letter in letters]), *columns))
    return list(table_lines(table, width, margin=margin, marks=marks, has_headings=False))


def teaching(found: Sequence[Candidate], width: int) -> tuple[Line, ...]:
    """How to begin, and which stored runs would make a pair."""
    references = sorted(f"{PREFIX}{one.name}" for one in known_references())
    return (
        *paragraph("Nothing is compared yet.", width, "title"),
        (),
        *paragraph("Press 3, mark two runs with space, then c. The first is the baseline.", width),
        *paragraph("Or press o and type files as for gputui compare: a.db b.db, a.db@label, a.db", width),
        (),
        *_candidates(found, width),
        *paragraph(
            "One file alone: its devices, precisions or threads against each other; g chooses which.",
            width,
            "dim",
        ),
        *(
            paragraph(f"References to compare with: {', '.join(references)}", width, "dim")
            if references
            else ()
        ),
        *paragraph("Nothing measured so far? Press 2: a profile, on each box that matters.", width, "dim"),
    )


def _candidates(found: Sequence[Candidate], width: int) -> Iterator[Line]:
    """A table of pairs, each with its command."""
    if not found:
        return
    hint = (Span("enter: the first pair", "dim"),)
    yield section((Span("what could be compared", "title"),), width - 1, hint)
    sides = [side for pair in found for side in (pair.a, pair.b)]
    rows = [[clean_text(text) for text in _stored(side)] for side in sides]
    drawn = _sides("ab" * len(found), rows, width - 1)
    for number, pair in enumerate(found):
        whose = "two runs of one box" if pair.is_one_box else "two boxes"
        yield (Span(f"  {clean_text(pair.b.summary.profile)}", "title"), Span(f"  {whose}", "dim"))
        yield from drawn[2 * number : 2 * number + 2]
        for place, text in enumerate(wrapped(f"$ {clean_text(pair.command)}", width - 4, 3)):
            yield (Span("  " + "  " * (place > 0)), Span(text, "accent"))
        yield ()


def _stored(side: ListedRun) -> tuple[str, ...]:
    """What is known of a stored run, as `_parts`."""
    run = side.summary
    price = "" if isinstance(run.price, Missing) else format_hourly(run.price.usd_per_hour)
    name = cut(clean_text(run.label or side.name), _NAME)
    return name, day(run), device_words(run), price, torch_words(run)


def differing(comparison: Comparison, ignore: str, width: int) -> tuple[Line, ...]:
    """What differs, a line each, and what was measured on neither side."""
    lines: list[Line] = []
    lines += pair_lines(comparison, 0, ignore, width)
    lines += [(), (Span("differs", "title"),)]
    for difference in comparison.differs:
        lines += paragraph(f"  {clean_text(difference_words(difference))}", width, indent=4)
    if not comparison.differs:
        lines += paragraph(f"  {no_difference_words(comparison)}", width)
    for text in unmeasured_words(comparison):
        lines += paragraph(clean_text(text), width, "dim")
    return tuple(lines)
