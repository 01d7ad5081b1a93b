"""Result files, the runs of several in one list, pairs of them to compare, and one run in full."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # whatever a job is for

from gputui.analysis.findings import Finding
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.plan import TRACE_PROFILE
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.serving import ServingRecords
from gputui.services.results.conditions import Evidence, findings_of_case
from gputui.services.results.headline import case_order
from gputui.services.results.kept_files import end_of_log, logs_of
from gputui.services.results.selectors import Selection, batches, files_in, from_here, run_in
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.support.background import Job
from gputui.services.support.paths import default_result_file, run_directories
from gputui.store.reading import (
    CaseConditions,
    FailedLaunch,
    MeasuredSpan,
    Readers,
    ResultFile,
    StoredEvent,
    TelemetrySeries,
    open_result,
    summaries_of,
)
from gputui.store.selecting import with_common_ids

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


MOST_FILES = 200
PIECES = 400
"""Of a run's time: telemetry is cut into as many in SQL, so that a day costs what a minute does."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that may hold results, not opened yet."""

    path: Path
    total_bytes: int
    modified_s: float
    """Seconds since 1970."""
    is_default: bool


@dataclass(frozen=True, slots=True)
class FileRuns:
    """What one result file holds."""

    path: Path
    runs: tuple[RunSummary, ...]
    """Newest first."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RunDetail:
    """One run in full, which equals only itself, so that what is worked out of it can be kept."""

    path: Path
    run: Run
    passes: Mapping[int, ProfiledPass]
    conditions: Mapping[int, CaseConditions]
    spans: tuple[MeasuredSpan, ...]
    """In the order of time."""
    events: tuple[StoredEvent, ...]
    series: tuple[TelemetrySeries, ...]
    last_words: tuple[tuple[FailedLaunch, tuple[str, ...]], ...]
    """How launches failed, and the end of each worker's log if it is still on this machine."""
    logs: Path | None
    """The directory of the whole logs of its workers, if it is of this machine and still there."""
    findings: tuple[tuple[CaseResult, tuple[Finding, ...]], ...]
    """Of the cases whose profiled pass is believed and has some, the main case first."""
    loads: ServingRecords
    """What was offered to a server, request by request; empty for other runs."""


def breakdown_for(detail: RunDetail, case: CaseResult) -> StepBreakdown | Missing:
    """The step breakdown of a case; Missing with the reason."""
    found = detail.passes.get(case.case_id)
    return Missing("it has no profiled pass") if found is None else breakdown_of(found, case)


def recent_files(
    directory: Path, opened: Iterable[Path] = (), environ: Mapping[str, str] = os.environ
) -> tuple[FileEntry, ...]:
    """Files with the extension of result files: beside the default one, in `directory`, and those `opened`.

    The last changed first, at most MOST_FILES. Only names are looked at.
    """
    default = default_result_file(environ).expanduser().absolute()
    found: dict[Path, FileEntry] = {}
    for path in (default, *opened, *files_in(default.parent), *map(Path.absolute, files_in(directory))):
        with suppress(OSError):
            stat = path.stat()
            if path.is_file():
                entry = FileEntry(path, stat.st_size, stat.st_mtime, path == default)
                found.setdefault(path.resolve(), entry)
    return tuple(sorted(found.values(), key=lambda entry: -entry.modified_s)[:MOST_FILES])


def read_runs(db: Path, job: Job[Any]) -> FileRuns:
    """The runs of a file. Raises GputuiError if it cannot be read, Cancelled if the job was cancelled."""
    job.say(f"opening {db}")
    with open_result(db) as file, job.interrupted_by(file.interrupt):
        job.say("reading its runs")
        return FileRuns(db, file.summaries(), file.warnings)


def read_detail(db: Path, run_id: str, job: Job[Any]) -> RunDetail:
    """One run of a file. Raises as `read_runs` does."""
    job.say(f"opening {db}")
    with open_result(db) as file, job.interrupted_by(file.interrupt):
        return _detail(file, db, run_id, job)


def read_series(
    db: Path, run_id: str, within_us: tuple[int, int], job: Job[Any]
) -> tuple[TelemetrySeries, ...]:
    """Telemetry of a part of a run, in as many pieces as the whole run. Raises as `read_runs` does."""
    with open_result(db) as file, job.interrupted_by(file.interrupt):
        return file.telemetry_series(run_id, PIECES, within_us)


def _detail(file: ResultFile, db: Path, run_id: str, job: Job[Any]) -> RunDetail:
    job.say("reading cases and blocks")
    run = run_in(file, run_id)
    job.say("reading profiled passes")
    passes = file.profiled(run_id)
    events = file.events(run_id)
    failed = file.failed_launches(run_id)
    job.say("reading telemetry")
    conditions = file.conditions(run_id)
    spans = file.measured_spans(run_id)
    series = file.telemetry_series(run_id, PIECES)
    job.say("looking for findings")
    selection = Selection(str(db), db, (run,), file.warnings, {run_id: passes})
    evidence = Evidence((selection,), conditions={run_id: conditions})
    ordered = sorted(run.cases, key=lambda case: case_order(case.case))
    findings = [(case, findings_of_case(case, run.summary, evidence)) for case in ordered]
    return RunDetail(
        path=db,
        run=run,
        passes=passes,
        conditions=conditions,
        spans=spans,
        events=events,
        last_words=tuple(
            (launch, end_of_log(run_directories() / run_id, launch.launch_id)) for launch in failed
        ),
        logs=logs_of(run_id),
        series=series,
        findings=tuple((case, found) for case, found in findings if found),
        loads=file.serving(run_id),
    )


_MOST_FILES, _MOST_PAIRS = 8, 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two runs of one profile."""

    a: ListedRun
    """The earlier one."""
    b: ListedRun
    is_one_box: bool

    @property
    def words(self) -> tuple[str, ...]:
        """Behind `gputui compare`."""
        return self.a.name, self.b.name

    @property
    def command(self) -> str:
        return shlex.join(("gputui", "compare", *self.words))


def candidates(directory: Path, job: Job[Any]) -> tuple[Candidate, ...]:
    """For each profile its newest run with the newest one before it, on another box if there is one.

    Looks at the result files that changed last; what is wrong with one is shown where it is opened.
    Raises Cancelled if the job was cancelled.
    """
    found: list[tuple[Path, Sequence[RunSummary]]] = []
    for entry in recent_files(directory)[:_MOST_FILES]:
        with suppress(GputuiError):
            runs = read_runs(entry.path, job).runs
            found.append(
                (
                    entry.path,
                    [run for run in runs if run.status == "finished" and run.profile != TRACE_PROFILE],
                )
            )
    known = with_common_ids([runs for _, runs in found])
    stored = [ListedRun(run, path) for (path, _), runs in zip(found, known, strict=True) for run in runs]
    unique = {one.summary.run_id: one for one in reversed(stored)}
    newest = sorted(unique.values(), key=lambda one: -one.summary.started_utc_us)
    return tuple(_pairs(newest))[:_MOST_PAIRS]


def _pairs(newest: Sequence[ListedRun]) -> Iterator[Candidate]:
    by_profile: dict[tuple[str, int], list[ListedRun]] = {}
    for one in newest:
        by_profile.setdefault((one.summary.profile, one.summary.profile_version), []).append(one)
    for b, *earlier in by_profile.values():
        if earlier:
            here = b.summary.machine.machine_id
            a = next((one for one in earlier if one.summary.machine.machine_id != here), earlier[0])
            yield Candidate(a, b, is_one_box=a.summary.machine.machine_id == here)
