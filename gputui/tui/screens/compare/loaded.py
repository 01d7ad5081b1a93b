"""What the Compare screen has read, and the command line that asks for the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any  # whatever a job is for

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.services.compare.columns import ENERGY, RATE, RATIO, ComparisonColumn
from gputui.services.compare.fleet_why import ranking_of
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.headline import Headline
from gputui.services.compare.pairing import Row
from gputui.services.compare.row_text import short_name
from gputui.services.compare.rows_table import RowOfSides, rows_of_sides
from gputui.services.compare.session import Answer, Asked, ComparisonRequest, ask, request_of
from gputui.services.compare.telemetry_overlay import SideCurves
from gputui.services.compare.why import Why
from gputui.services.results.labels import short_case_name
from gputui.services.results.selectors import every_file, from_here
from gputui.services.serving.curve import ServingRun
from gputui.services.support.background import Job
from gputui.store.text import clean_text


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
