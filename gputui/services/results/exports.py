"""Runs for other programs: as JSON, which docs/json.md describes, as tables to save, and as Chrome traces."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any  # JSON

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.peak_tests import PerformanceCheck
from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import GputuiError
from gputui.metrics import STORED
from gputui.model.absent import Missing, known
from gputui.model.journal import Operator, ProfiledPass, to_plain, trace_name
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.telemetry import HOST
from gputui.model.units import counted
from gputui.services.results.browser import RunDetail, breakdown_for
from gputui.services.results.expected import performance_checks, uses_of
from gputui.services.results.headline import run_headline
from gputui.services.results.kept_files import HOW_TO_OPEN, copy_whole, traces_of
from gputui.services.results.labels import case_name, device_words, measured_first, run_notes
from gputui.services.results.metrics import CaseMetric, metrics_of
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_breakdown import timed_step_ns
from gputui.services.results.throughput import cost_of, is_host_bound, rate_of, speed_of, waited_share
from gputui.services.support.output_files import Value, csv_text, write, write_output
from gputui.store.reading import TelemetrySeries


def run_as_json(run: Run, passes: Mapping[int, ProfiledPass] | None = None) -> dict[str, Any]:
    """One run with its cases; a value that is absent is null with its reason beside it.

    `passes` are the profiled passes by case, where they were read.
    """
    return {
        **summary_as_json(run.summary),
        "cases": [
            {
                **case_identity(case.case),
                "device_name": case.device_name,
                "outcome": case.outcome,
                "reason": case.reason,
                "speed": estimate_as_json(speed_of(case), "units_per_s"),
                "waited_share": known(waited_share(case)),
                "is_host_bound": is_host_bound(case),
                "clock_units_per_s": known(rate_of(case, by_clock=True)),
                "cost": cost_as_json(cost_of(case, run.summary.price), case.case.unit),
                "figures": metrics_as_json(case),
                "uses": [to_plain(use) for use in uses_of(case, run.cases, run.summary.machine)],
                **({} if passes is None else {"profiled": _profiled(case, passes)}),
            }
            for case in run.cases
        ],
        "headline": run_headline(run),
        "why": why_sentence(run, passes or {}),
        "notes": run_notes(run),
        "normality": [performance_as_json(check) for check in performance_checks(run)],
    }


def performance_as_json(check: PerformanceCheck) -> dict[str, Any]:
    """Whether a device performs as expected; `standing` is where it stands among the boxes of a reference.

    Without the name of the reference, which the user may have chosen: JSON is passed on.
    """
    standing: dict[str, Any] | None = None if check.standing is None else to_plain(check.standing)
    if standing is not None:
        del standing["reference"]
    return {"word": check.word, "text": check.text, "standing": standing}


def summary_as_json(run: RunSummary) -> dict[str, Any]:
    """One run without its cases."""
    return {"short_id": run.short_id, **to_plain(run)}


def case_identity(case: Case) -> dict[str, Any]:
    """What was measured, and in which variant."""
    return {
        **case.identity(),
        "units_per_step": case.units_per_step,
    }


def metrics_as_json(case: CaseResult) -> list[dict[str, Any]]:
    """Results other than speed."""
    return [to_plain(metric) for metric in metrics_of(case)]


def _profiled(case: CaseResult, passes: Mapping[int, ProfiledPass]) -> dict[str, Any] | None:
    found = passes.get(case.case_id)
    return None if found is None else {**to_plain(found), "timed_step_ns": known(timed_step_ns(case))}


def estimate_as_json(found: SpeedEstimate | Cost | Energy | Missing, name: str) -> dict[str, Any]:
    """An estimate, or under the name of its value null with the reason."""
    if isinstance(found, Missing):
        return {name: None, "missing": found.reason}
    plain: dict[str, Any] = to_plain(found)
    return plain


def cost_as_json(cost: Cost | Missing, unit: str) -> dict[str, Any]:
    """A cost, or null with its reason."""
    plain = estimate_as_json(cost, "usd_per_million")
    if isinstance(cost, Missing):
        return plain
    bought = cost.units_per_usd(unit)
    if isinstance(bought, Missing):
        return {**plain, "units_per_usd": None}
    return {**plain, "units_per_usd": dict(zip(("value", "low", "high"), bought, strict=True))}


SCHEMA = 1
"""Of the JSON; columns may be added without another number."""
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
        speed = _speed(case)
        rows.append((*named, *speed, *(None,) * _FIGURE_COLUMNS))
        rows += [(*named, *(None,) * len(speed), *_metric(metric)) for metric in metrics_of(case)]
    return Sheet("cases", _CASE_COLUMNS, tuple(rows), _about(detail))


def _speed(case: CaseResult) -> tuple[Value, ...]:
    speed, unit, units = speed_of(case), case.case.unit, case.case.units_per_step
    waited = known(waited_share(case))
    if isinstance(speed, Missing):
        return unit, None, None, None, units, None, None, None, waited
    per_s = speed.units_per_s
    return unit, per_s, speed.low, speed.high, units, units / per_s, speed.launches, speed.blocks, waited


def _metric(metric: CaseMetric) -> tuple[Value, ...]:
    why = metric.value.reason if isinstance(metric.value, Missing) else None
    return metric.key, metric.unit, known(metric.value), metric.low, metric.high, why


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
    """`schema`, what the rows are and of what, and the rows by column; what is absent is null."""
    rows = [dict(zip(sheet.columns, map(_finite, row), strict=True)) for row in sheet.rows]
    plain = {"schema": SCHEMA, "what": sheet.what, **sheet.about, "rows": rows}
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


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
