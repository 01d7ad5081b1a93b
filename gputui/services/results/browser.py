"""Data of the Results screen: files, their runs, and one run in full."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputui.analysis.findings import Finding
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.serving import ServingRecords
from gputui.services.results.conditions import Evidence, findings_of_case
from gputui.services.results.headline import case_order
from gputui.services.results.selectors import Selection, files_in, run_in
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.worker_logs import end_of_log, logs_of
from gputui.services.support.background import Job
from gputui.services.support.paths import default_result_file, run_directories
from gputui.store.reading import (
    CaseConditions,
    FailedLaunch,
    MeasuredSpan,
    ResultFile,
    StoredEvent,
    TelemetrySeries,
    open_result,
)

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
