"""Result files, the runs of several in one list, pairs of them to compare, and one run in full with what can
be saved of it: tables and Chrome traces."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any  # whatever a job is for

from gputui.analysis.findings import Finding
from gputui.errors import GputuiError
from gputui.metrics import STORED
from gputui.model.absent import Missing, known
from gputui.model.journal import Operator, ProfiledPass, trace_name
from gputui.model.plan import TRACE_PROFILE
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.serving import ServingRecords
from gputui.model.telemetry import HOST
from gputui.model.units import counted
from gputui.services.results.conditions import Evidence, seen_step, step_findings
from gputui.services.results.headline import case_order
from gputui.services.results.labels import case_name, device_words, measured_first
from gputui.services.results.metrics import metrics_of
from gputui.services.results.run_forms import HOW_TO_OPEN, copy_whole, end_of_log, logs_of, traces_of
from gputui.services.results.selectors import Selection, files_in, from_here, run_in
from gputui.services.results.step_breakdown import StepBreakdown, breakdown_of
from gputui.services.results.throughput import speed_of, waited_share
from gputui.services.support.background import Job
from gputui.services.support.output_files import Value, csv_text, json_text, write, write_output
from gputui.services.support.paths import default_result_file, run_directories
from gputui.store.reading import (
    CaseConditions,
    FailedLaunch,
    MeasuredSpan,
    ResultFile,
    StoredEvent,
    TelemetrySeries,
    open_result,
    read_each,
    summaries_of,
)
from gputui.store.selecting import with_common_ids


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

    found: list[ListedRun] = []

    def read(opened: Sequence[ResultFile]) -> None:
        together = zip(opened, summaries_of(opened), strict=True)
        found.extend(ListedRun(summary, file.db) for file, summaries in together for summary in summaries)

    read_each(files, read, trust=trust, as_stored=as_stored)
    (common,) = with_common_ids([[one.summary for one in found]])
    listed = [ListedRun(summary, one.path) for summary, one in zip(common, found, strict=True)]
    return sorted(listed, key=lambda one: (one.summary.started_utc_us, one.summary.run_id), reverse=True)


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


def read_series(
    db: Path, run_id: str, within_us: tuple[int, int], job: Job[Any]
) -> tuple[TelemetrySeries, ...]:
    """Telemetry of a part of a run, in as many pieces as the whole run. Raises as `read_runs` does."""
    with open_result(db) as file, job.interrupted_by(file.interrupt):
        return file.telemetry_series(run_id, PIECES, within_us)


def read_detail(db: Path, run_id: str, job: Job[Any]) -> RunDetail:
    """One run of a file. Raises as `read_runs` does."""
    job.say(f"opening {db}")
    with open_result(db) as file, job.interrupted_by(file.interrupt):
        job.say("reading cases and blocks")
        run = run_in(file, run_id)
        job.say("reading profiled passes")
        passes, events, failed = file.profiled(run_id), file.events(run_id), file.failed_launches(run_id)
        job.say("reading telemetry")
        conditions, spans = file.conditions(run_id), file.measured_spans(run_id)
        series = file.telemetry_series(run_id, PIECES)
        job.say("looking for findings")
        selection = Selection(str(db), db, (run,), file.warnings, {run_id: passes})
        evidence = Evidence((selection,), conditions={run_id: conditions})
        ordered = sorted(run.cases, key=lambda case: case_order(case.case))
        seen = [(case, seen_step(case, run.summary, evidence)) for case in ordered]
        findings = [
            (case, step_findings(step, evidence)) for case, step in seen if not isinstance(step, Missing)
        ]
        loads = file.serving(run_id)
    logs = run_directories() / run_id
    return RunDetail(
        path=db,
        run=run,
        passes=passes,
        conditions=conditions,
        spans=spans,
        events=events,
        last_words=tuple((launch, end_of_log(logs, launch.launch_id)) for launch in failed),
        logs=logs_of(run_id),
        series=series,
        findings=tuple((case, found) for case, found in findings if found),
        loads=loads,
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
    """For each profile its newest run that measured something with the newest such before it, on another box
    if there is one.

    Looks at the result files that changed last; what is wrong with one is shown where it is opened.
    Raises Cancelled if the job was cancelled.
    """
    found: list[tuple[Path, Sequence[RunSummary]]] = []
    for entry in recent_files(directory)[:_MOST_FILES]:
        with suppress(GputuiError), open_result(entry.path) as file, job.interrupted_by(file.interrupt):
            measured = [run for run in file.measured_summaries() if run.status == "finished"]
            found.append((entry.path, [run for run in measured if run.profile != TRACE_PROFILE]))
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


TRACE_ENDING = ".json.gz"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table to save, with units in the column names; None is what was not measured."""

    what: str
    """One word: `cases`, `operators`, ..."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    about: Mapping[str, str]
    """What the rows are of: the file, the run, the case."""


def runs_sheet(path: Path, runs: Sequence[RunSummary]) -> Sheet:
    """Runs of a file, in this order."""
    columns = (
        *("run_id", "started_utc", "ended_utc", "label", "profile", "status", "status_reason", "device"),
        *("usd_per_hour", "torch_version", "gputui_version"),
    )
    rows = tuple(
        (
            run.run_id,
            _instant(run.started_utc_us),
            None if run.ended_utc_us is None else _instant(run.ended_utc_us),
            run.label,
            run.profile,
            run.status,
            run.status_reason,
            device_words(run),
            None if isinstance(run.price, Missing) else run.price.usd_per_hour,
            known(run.runtime.torch_version),
            run.gputui_version,
        )
        for run in runs
    )
    return Sheet("runs", columns, rows, {"file": str(path)})


_CASE_COLUMNS = (
    *("case", "workload", "workload_version", "size", "device", "precision", "mode", "threads", "outcome"),
    *("reason", "unit", "units_per_s", "units_per_s_low", "units_per_s_high", "units_per_step", "step_s"),
    *("launches", "blocks", "waited_share", "figure", "figure_unit", "figure_value", "figure_low"),
    *("figure_high", "figure_missing"),
)
_FIGURE_COLUMNS = sum(name.startswith("figure") for name in _CASE_COLUMNS)


def cases_sheet(detail: RunDetail) -> Sheet:
    """A row for each case in the order of `measured_first`, and below it one for each of its figures."""
    rows: list[tuple[Value, ...]] = []
    for case in measured_first(detail.run.cases):
        work, variant = case.case.work, case.case.variant
        named: tuple[Value, ...] = (
            *(case_name(case, in_files=True), work.workload, work.version, work.size, variant.device_class),
            *(variant.precision, variant.mode, variant.threads, case.outcome, case.reason),
        )
        speed, waited = speed_of(case), known(waited_share(case))
        unit, units = case.case.unit, case.case.units_per_step
        rate: tuple[Value, ...] = (unit, None, None, None, units, None, None, None, waited)
        if not isinstance(speed, Missing):
            per_s, counts = speed.units_per_s, (speed.launches, speed.blocks)
            rate = (unit, per_s, speed.low, speed.high, units, units / per_s, *counts, waited)
        rows.append((*named, *rate, *(None,) * _FIGURE_COLUMNS))
        for one in metrics_of(case):
            why = one.value.reason if isinstance(one.value, Missing) else None
            figure = one.key, one.unit, known(one.value), one.low, one.high, why
            rows.append((*named, *(None,) * len(rate), *figure))
    return Sheet("cases", _CASE_COLUMNS, tuple(rows), _about(detail))


def operators_sheet(detail: RunDetail, case: CaseResult, operators: Sequence[Operator]) -> Sheet:
    """These operators of a case's profiled pass, in this order."""
    found, breakdown = detail.passes[case.case_id], breakdown_for(detail, case)
    step_ns = found.window_ns / found.steps if isinstance(breakdown, Missing) else breakdown.step_ns
    columns = (
        *("operator", "phase", "category", "shapes", "dtypes", "calls_per_step", "step_s", "share"),
        *("cpu_step_s", "kernels_per_step"),
    )
    rows = tuple(
        (
            *(row.operator, row.phase, row.category, row.shapes, row.dtypes, row.calls / found.steps),
            *(row.time_ns * 1e-9 / found.steps, row.time_ns / found.steps / step_ns),
            *(row.cpu_ns * 1e-9 / found.steps, row.kernels / found.steps),
        )
        for row in operators
    )
    return Sheet("operators", columns, rows, _about(detail, case))


def telemetry_sheet(
    detail: RunDetail, series: Sequence[TelemetrySeries], within_us: tuple[int, int]
) -> Sheet:
    """The pieces of a part of the run: means; of counters the last, of bits all that were set."""
    keys = tuple(metric.stored.key for metric in STORED)
    started_us = detail.run.summary.started_utc_us
    rows: list[tuple[Value, ...]] = []
    for one in series:
        device, scope = ("host", "host") if one.device_index == HOST else (str(one.device_index), "gpu")
        columns = [one.columns.get(metric.key) if metric.scope == scope else None for metric in STORED]
        for place, t_us in enumerate(one.t_us):
            if within_us[0] <= t_us <= within_us[1]:
                values = (
                    None if column is None else column[place] / metric.column_unit
                    for metric, column in zip(STORED, columns, strict=True)
                )
                rows.append((device, t_us, (t_us - started_us) / 1e6, *values))
    return Sheet("telemetry", ("device", "t_utc_us", "since_start_s", *keys), tuple(rows), _about(detail))


def default_name(sheet: Sheet) -> str:
    """A file name made of the run, the kind of table, and the case."""
    words = (sheet.about.get("run", "")[-8:], sheet.what, sheet.about.get("case", ""))
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(filter(None, words))).strip("-") + ".csv"


def save_sheet(path: Path, sheet: Sheet) -> str:
    """Write a table in the form of the file's extension; returns a message that says so.

    Raises GputuiError for another extension, and if it cannot be written.
    """
    form = {".csv": sheet_as_csv, ".json": sheet_as_json}.get(path.suffix.lower())
    if form is None:
        raise GputuiError(f"{path.name}: unknown file type", "end its name in .csv or .json")
    write_output(path, form(sheet))
    return f"saved {counted(len(sheet.rows), 'row')} in {path}"


def sheet_as_csv(sheet: Sheet) -> str:
    """Its rows below its columns, as `csv_text` writes them."""
    return csv_text((sheet.columns, *(map(_finite, row) for row in sheet.rows)))


def sheet_as_json(sheet: Sheet) -> str:
    """What the rows are and of what, and the rows by column; what is absent is null."""
    rows = [dict(zip(sheet.columns, map(_finite, row), strict=True)) for row in sheet.rows]
    return json_text({"what": sheet.what, **sheet.about, "rows": rows})


def trace_of(detail: RunDetail, case: CaseResult | None) -> Path:
    """The Chrome trace of a case, or the only one of the run.

    Raises GputuiError if there is none, with how to get one.
    """
    kept = traces_of(detail.run.summary.run_id, detail.path)
    if not kept:
        profile = detail.run.summary.profile
        raise GputuiError("this run kept no Chrome trace", f"gputui run {profile} --trace keeps them")
    mine = [t for t in kept if case is not None and t.name.endswith(f"-{trace_name(case.case.name)}")]
    found = mine or (kept if len(kept) == 1 and case is None else ())
    if not found:
        there = f"it kept {len(kept)}, next to {detail.path.name}"
        if case is None:
            raise GputuiError(f"which trace? {there}", "press e on the Step tab of one of their cases")
        raise GputuiError(f"there is no Chrome trace of {case_name(case)}", there)
    return found[0]


def save_trace(path: Path, detail: RunDetail, case: CaseResult | None) -> str:
    """Copy the trace; returns how to open it. Raises GputuiError if there is none or it cannot be copied."""
    found = trace_of(detail, case)
    write(path, lambda: copy_whole(found, path))
    return f"saved the Chrome trace in {path}; {HOW_TO_OPEN}"


def _about(detail: RunDetail, case: CaseResult | None = None) -> dict[str, str]:
    about = {"file": str(detail.path), "run": detail.run.summary.run_id}
    return about if case is None else {**about, "case": case_name(case, in_files=True)}


def _instant(utc_us: int) -> str:
    return datetime.fromtimestamp(utc_us / 1e6, timezone.utc).isoformat(timespec="milliseconds")


def _finite(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value
