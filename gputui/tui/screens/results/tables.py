"""Rows of the Results screen's tables, as plain text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.profiled import Operator
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import counted, format_bytes, format_percent, format_rate, format_seconds
from gputui.services.results.browser import FileEntry
from gputui.services.results.labels import (
    case_name,
    day,
    device_words,
    interval_words,
    measured_first,
    metric_range,
    metric_text,
)
from gputui.services.results.metrics import metrics_of
from gputui.services.results.step_breakdown import added_up
from gputui.services.results.step_tables import CATEGORY_WORDS
from gputui.services.results.throughput import GAVE, HELD_BY_OTHERS, gave_text, speed_of
from gputui.services.results.waiting import is_crowded, is_undecidable, waited_share
from gputui.store.text import clean_text

FILE_HEADINGS = ("file", "size", "changed", "in")
RUN_HEADINGS = ("", "run", "when", "label", "profile", "status", "device")
STEP_HEADING = "per step"
CASE_HEADINGS = ("case", "rate", "95 %", STEP_HEADING, "remarks")
RUN_ORDERS: tuple[tuple[str, Callable[[RunSummary], object]], ...] = (
    ("when", lambda run: -run.started_utc_us),
    ("label", lambda run: (not run.label, run.label.casefold())),
    ("profile", lambda run: run.profile),
    ("status", lambda run: run.status),
    ("device", device_words),
)
"""Orders of runs; equal ones newest first."""
OPERATOR_ORDERS: tuple[tuple[str, Callable[[Operator], object]], ...] = (
    ("time", lambda row: -row.time_ns),
    ("calls", lambda row: -row.calls),
    ("name", lambda row: row.operator),
)
GROUPS = ("operator", "category", "phase")
MARK = "*"


def file_row(entry: FileEntry) -> tuple[str, ...]:
    """Name, size, time of the last change, directory."""
    changed = datetime.fromtimestamp(entry.modified_s)
    name = f"{entry.path.name} (default)" if entry.is_default else entry.path.name
    return (
        clean_text(name),
        format_bytes(entry.total_bytes),
        f"{changed:%Y-%m-%d %H:%M}",
        clean_text(str(entry.path.parent)),
    )


def run_row(run: RunSummary) -> tuple[str, ...]:
    """One run, without its mark."""
    return (run.short_id, day(run), run.label, run.profile, run.status, device_words(run))


def holds_text(cells: Sequence[str], wanted: str) -> bool:
    """Whether any cell contains the text, ignoring case."""
    return any(wanted.casefold() in cell.casefold() for cell in cells)


def sorted_runs(runs: Sequence[RunSummary], order: int) -> list[RunSummary]:
    """Runs in one of RUN_ORDERS."""
    key = RUN_ORDERS[order][1]
    newest_first = sorted(runs, key=lambda run: -run.started_utc_us)
    return sorted(newest_first, key=lambda run: key(run))  # type: ignore[arg-type,return-value]


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A row of the table of cases: a case, or a metric of the case above."""

    case: CaseResult
    cells: tuple[str, ...]


def case_rows(run: Run) -> list[CaseRow]:
    """Each case with its metrics below it; those that were not to be run here come last."""
    rows: list[CaseRow] = []
    for case in measured_first(run.cases):
        speed = speed_of(case)
        cells = (case_name(case), case.outcome, "", "", case.reason)
        if isinstance(speed, SpeedEstimate):
            cells = (
                case_name(case),
                format_rate(speed.units_per_s, case.case.unit),
                interval_words(speed),
                "" if case.case.is_load else format_seconds(case.case.units_per_step / speed.units_per_s),
                _flags(case),
            )
        rows.append(CaseRow(case, cells))
        for metric in metrics_of(case):
            cells = (f"  {metric.title}", metric_text(metric), "", "", metric_range(metric))
            rows.append(CaseRow(case, cells))
    return rows


def _flags(case: CaseResult) -> str:
    """Remarks on a result, in a word or two."""
    flags = []
    if case.outcome != "ok":
        flags.append(f"{case.outcome}: {case.reason}" if case.reason else case.outcome)
    if gave := "this" if is_undecidable(case) else gave_text(case):
        flags.append(f"{GAVE} {gave}")
    if is_crowded(case):
        share = waited_share(case)
        flags.append(HELD_BY_OTHERS + ("" if isinstance(share, Missing) else f" {format_percent(share)}"))
    if any(m.outcome == "ok" and m.stable is False for m in case.measurements):
        flags.append("not stable")
    failed = [m for m in case.measurements if m.outcome != "ok"]
    if failed and case.outcome == "ok":
        flags.append(f"{len(failed)} of {len(case.measurements)} launches {failed[-1].outcome}")
    return ", ".join(flags)


def chosen_operators(rows: Sequence[Operator], group: int, order: int, wanted: str) -> list[Operator]:
    """Operators that contain a text, individually or grouped, in one of OPERATOR_ORDERS."""
    kept = [
        row
        for row in rows
        if holds_text(
            (row.operator, row.phase, row.category, CATEGORY_WORDS.get(row.category, ""), row.shapes), wanted
        )
    ]
    if GROUPS[group] != "operator":
        kept = _added_up(kept, GROUPS[group])
    key = OPERATOR_ORDERS[order][1]
    kept.sort(key=lambda row: key(row))  # type: ignore[arg-type,return-value]
    return kept


def _added_up(rows: Sequence[Operator], by: str) -> list[Operator]:
    """One row for each category or phase."""
    groups: dict[str, list[Operator]] = {}
    for row in rows:
        name = CATEGORY_WORDS.get(row.category, row.category) if by == "category" else row.phase
        groups.setdefault(name, []).append(row)
    return [
        replace(
            added_up(members),
            phase="",
            category="",
            operator=f"{name} ({counted(len(members), 'row')})",
            shapes="",
            dtypes="",
        )
        for name, members in groups.items()
    ]
