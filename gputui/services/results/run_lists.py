"""The runs of several result files in one list, and one case on every box that is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # whatever a job is for

from gputui.analysis.cost import Cost
from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.result import Run, RunSummary
from gputui.services.results.selectors import batches, from_here, run_in
from gputui.services.results.throughput import cost_of, speed_of
from gputui.services.support.background import Job
from gputui.store.reading import Readers, ResultFile, open_result, summaries_of
from gputui.store.selecting import runs_with_common_ids, with_common_ids

_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run, and the file that holds it."""

    summary: RunSummary
    path: Path

    @property
    def name(self) -> str:
        """As `compare` takes it: `a.db@8e2aad19`."""
        return f"{from_here(str(self.path))}@{self.summary.short_id}"


def list_runs(files: Sequence[Path], trust: bool = False, as_stored: bool = False) -> list[ListedRun]:
    """The runs of these files by absolute path, newest first; `as_stored` as in `open_result`.

    Raises GputuiError for the first file that cannot be read.
    """

    def read(opened: Sequence[ResultFile]) -> list[ListedRun]:
        together = zip(opened, summaries_of(opened), strict=True)
        return [ListedRun(summary, file.db) for file, summaries in together for summary in summaries]

    readers = Readers(files, trust, as_stored)
    try:
        found = [one for some in batches(files, _TOGETHER) for one in readers.read(some, read)]
    finally:
        readers.close()
    (common,) = with_common_ids([[one.summary for one in found]])
    found = [ListedRun(summary, one.path) for summary, one in zip(common, found, strict=True)]
    return sorted(found, key=lambda one: (one.summary.started_utc_us, one.summary.run_id), reverse=True)


MOST_FILES = 12
"""Files that are opened: the last changed."""
_MOST_RUNS = 12
"""Of a file."""


@dataclass(frozen=True, slots=True)
class OnBox:
    """One case on one box."""

    run: RunSummary
    speed: SpeedEstimate
    cost: Cost | Missing


def read_boxes(files: Sequence[Path], job: Job[Any]) -> tuple[Run, ...]:
    """The newest run of each machine that measured anything; files that cannot be read are left out.

    Raises Cancelled if the job was cancelled.
    """
    newest: dict[str, Run] = {}
    for path in files[:MOST_FILES]:
        with suppress(GputuiError), open_result(path) as file, job.interrupted_by(file.interrupt):
            for summary in file.summaries()[:_MOST_RUNS]:
                known = newest.get(summary.machine.machine_id)
                if known is not None and known.summary.started_utc_us >= summary.started_utc_us:
                    continue
                run = run_in(file, summary.run_id)
                if any(case.outcome == "ok" for case in run.cases):
                    newest[summary.machine.machine_id] = run
    by_box: dict[str, Run] = {}
    for run in sorted(
        runs_with_common_ids(list(newest.values())), key=lambda run: run.summary.started_utc_us
    ):
        by_box[run.summary.machine.machine_id] = run
    return tuple(by_box.values())


def on_boxes(case: Case, runs: Iterable[Run]) -> list[OnBox]:
    """This case wherever it was measured, the fastest first."""
    found = []
    for run in runs:
        result = next((one for one in run.cases if one.case == case), None)
        speed = None if result is None else speed_of(result)
        if result is not None and isinstance(speed, SpeedEstimate):
            found.append(OnBox(run.summary, speed, cost_of(result, run.summary.price)))
    return sorted(found, key=lambda one: -one.speed.units_per_s)
