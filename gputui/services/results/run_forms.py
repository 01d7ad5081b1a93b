"""What is shown of one run below its answer, in the forms that commands and screens share.

Its cases and figures as tables; all of it as JSON, which docs/json.md describes; commands to type next, the
most useful first; and what is kept outside its result file, logs of its workers and Chrome traces.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # JSON

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.peak_tests import BELOW_NORMAL, PerformanceCheck
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import bars
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Table, table_of
from gputui.errors import clean_text
from gputui.model.absent import Missing, fields_of, known, to_plain
from gputui.model.journal import TRACES_NAME, Price, ProfiledPass
from gputui.model.plan import RECORD_PROFILE, Case
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import cost_unit, format_percent, format_rate, format_usd
from gputui.recording.worker_process import log_of
from gputui.services.results.expected import performance_checks, share_of_sheet, share_text, uses_of
from gputui.services.results.headline import main_case, run_headline
from gputui.services.results.labels import (
    case_name,
    day,
    has_failed,
    interval_words,
    is_recording,
    lacking,
    metric_range,
    metric_text,
    needs_budget,
    run_notes,
    shared_case_words,
    short_result_name,
)
from gputui.services.results.metrics import metrics_of
from gputui.services.results.selectors import from_here
from gputui.services.results.step_answer import why_sentence
from gputui.services.results.step_breakdown import timed_step_ns
from gputui.services.results.throughput import (
    GAVE,
    HOST_BOUND,
    STEP_KEYS,
    Speeds,
    contention_of,
    cost_of,
    gave_text,
    is_host_bound,
    rate_of,
    speed_of,
    waited_share,
)
from gputui.services.support.paths import run_directories
from gputui.store.locking import cleared, new_draft
from gputui.worker.workloads import WORKLOADS

_PEAK, _COST, _BAR = 1, 2, 3
"""The highest goes first where there is little room."""


def _cost_cells(measured: Speeds, price: Price | Missing) -> list[str]:
    """Heading and `$4.52 per Gtok`, one unit per workload; empty where there is no price."""
    found = [(case.case, cost_of(case, price)) for case, _ in measured]
    priced = [(case, cost) for case, cost in found if isinstance(cost, Cost)]
    least: dict[str, float] = {}
    for case, cost in priced:
        name = case.work.workload
        least[name] = min(least.get(name, cost.usd_per_million), cost.usd_per_million)
    shares = {cost.share for _, cost in priced}
    is_one_share = len(shares) == 1 and shares != {1.0}
    cells = [f"cost ({format_percent(min(shares))} share)" if is_one_share else "cost"]
    for case, maybe in found:
        if isinstance(maybe, Missing):
            cells.append("")
            continue
        millions, name = cost_unit(least[case.work.workload], case.unit)
        share = f" ({format_percent(maybe.share)} share)" if maybe.is_share and not is_one_share else ""
        cells.append(f"{format_usd(maybe.usd_per_million * millions)} per {name}{share}")
    return cells


def brief_table(run: Run, measured: Speeds, widest_bar: int = 80) -> Table:
    """The cases without what all of them share in their names, which the heading says."""
    common = shared_case_words(case.case for case, _ in measured)
    unsaid = [*common, "gpu"]  # beside cases on a CPU the others need no word
    names = [short_result_name(case, unsaid, is_short=True) for case, _ in measured]
    return rates_table(run, measured, names, f"case ({' '.join(common)})" if common else "case", widest_bar)


def rates_table(
    run: Run, measured: Speeds, names: Sequence[str], heading: str = "case", widest_bar: int = 80
) -> Table:
    """Rates with their intervals, shares of the peak, also drawn, and costs; the bars go first."""
    cost, *costs = _cost_cells(measured, run.summary.price)
    rates = [format_rate(speed.units_per_s, case.case.unit).partition(" ") for case, speed in measured]
    gave = [gave_text(case) for case, _ in measured]
    marks = [HOST_BOUND if is_host_bound(case) else "" for case, _ in measured]
    shares = [share_of_sheet(uses_of(case, (), run.summary.machine)) for case, _ in measured]
    used = [None if share is None else min(share, 1.0) for share in shares]
    columns: list[Column | Drawing] = [
        Column(heading, names, breaks=True),
        Column("rate", [Span(number, "title") for number, _, _ in rates], True),
        Column("", [Span(unit, "dim") for _, _, unit in rates]),
        Column("95 % range", [interval_words(speed) for _, speed in measured], True),
    ]
    if any(gave):
        columns.append(Column(GAVE, [Span(text, "warn") for text in gave], True))
    if any(marks):
        columns.append(Column("", [Span(mark, "warn") for mark in marks]))
    if any(used):
        columns.append(bars(used, 1.0, "compute", most=widest_bar, priority=_BAR))
        columns.append(Column("% of spec", [share_text(share) or "—" for share in shares], True, _PEAK))
    if any(costs):
        columns.append(Column(cost, costs, True, _COST))
    return Table(tuple(columns))


def metric_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """Of `metric_rows`."""
    return table_of(("figure", "value", "range of launches"), rows, right=(1,), breaks=(2,))


def metric_rows(run: Run, *, is_brief: bool = False) -> list[tuple[str, str, str]]:
    """What cases gave besides their speed, below the name of each.

    `is_brief`: without device and host time of a step where it is not host-bound.
    """
    rows: list[tuple[str, str, str]] = []
    for case in run.cases:
        unsaid = STEP_KEYS if is_brief and not is_host_bound(case) else ()
        found = [metric for metric in metrics_of(case) if metric.key not in unsaid]
        if found:
            rows.append((case_name(case), "", ""))
        rows += [(f"  {f.title}", metric_text(f), metric_range(f)) for f in found]
    return rows


def run_as_json(run: Run, passes: Mapping[int, ProfiledPass] | None = None) -> dict[str, Any]:
    """One run with its cases; a value that is absent is null with its reason beside it.

    `passes` are the profiled passes by case, where they were read.
    """
    return {
        **summary_as_json(run.summary),
        "cases": [
            {
                **case_identity(case.case),
                **fields_of(case, "device_name", "outcome", "reason"),
                "speed": estimate_as_json(speed_of(case), "units_per_s"),
                "waited_share": known(waited_share(case)),
                "is_host_bound": is_host_bound(case),
                "clock_units_per_s": known(rate_of(case, by_clock=True)),
                "cost": cost_as_json(cost_of(case, run.summary.price), case.case.unit),
                "figures": to_plain(metrics_of(case)),
                "uses": to_plain(uses_of(case, run.cases, run.summary.machine)),
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
    plain = fields_of(check, "word", "text", "standing")
    if check.standing is not None:
        del plain["standing"]["reference"]
    return plain


def summary_as_json(run: RunSummary) -> dict[str, Any]:
    """One run without its cases."""
    return {"short_id": run.short_id, **to_plain(run)}


def case_identity(case: Case) -> dict[str, Any]:
    """What was measured, and in which variant."""
    return {**case.identity(), "units_per_step": case.units_per_step}


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
    if isinstance(cost, Cost):
        bought = known(cost.units_per_usd(unit))
        plain["units_per_usd"] = bought and dict(zip(("value", "low", "high"), bought, strict=True))
    return plain


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command to type next."""

    command: str
    why: str


def next_steps(
    results: Sequence[Run],
    path: Path,
    stored: Collection[RunSummary] = (),
    *,
    passes: Collection[ProfiledPass] = (),
    like: str = "",
) -> Iterator[NextStep]:
    """Two or three commands after runs that ended together.

    `stored` are the runs of their file that measured a case. `passes` are those of the only run; from a valid
    one `show -v` has the operators. `like` is the run that they repeat, as `F@RUN`; empty for none.
    """
    if not results:
        return
    here = from_here(str(path))
    file, newest = shlex.quote(here), results[-1]
    measured = [run for run in results if any(case.outcome == "ok" for case in run.cases)]
    mains = [main for run in measured if (main := main_case(run)) is not None]
    is_busy = any(contention_of(main) > 0 for main in mains)
    yield from _again(newest, here, is_busy=is_busy)
    earlier = _earlier(newest.summary, stored)
    if earlier is not None and newest.summary.status != "finished":
        yield NextStep(f"gputui show {earlier.short_id} {file}", "the run before it, which is complete")
    if not measured:
        if is_recording(newest):
            run = f"{here}@{newest.summary.short_id}"
            yield NextStep(f"gputui results {shlex.quote(run)}", "its telemetry over time")
        elif not newest.summary.status_reason.startswith("stopped "):
            yield NextStep(f"gputui show {newest.summary.short_id} {file} -v", f"why {lacking(newest)}")
        return
    below = [check for run in measured for check in performance_checks(run) if check.word == BELOW_NORMAL]
    if below:
        yield NextStep("gputui doctor", "what is wrong with the box")
    names = [shlex.quote(f"{here}@{run.summary.short_id}") for run in measured]
    if below and len(measured) == 1:
        yield NextStep(f"gputui share {names[0]} -o report.md", "for the provider")
    if like:
        yield NextStep(
            shlex.join(("gputui", "compare", like)) + f" {' '.join(names)}", "this run vs that one"
        )
        return
    if len(names) > 1:
        yield NextStep(f"gputui compare {' '.join(names)}", "one vs the other")
        return
    gpus = {case.device_index for case in newest.cases if case.outcome == "ok"} - {None}
    if len(gpus) > 1:
        yield NextStep(f"gputui compare {names[0]} --by gpu", f"which of the {len(gpus)} GPUs stands out")
    if earlier is not None:
        name = shlex.quote(f"{here}@{earlier.short_id}")
        yield NextStep(f"gputui compare {name} {names[0]}", f"vs the run of {day(earlier)}")
    if any(one.is_valid for one in passes):
        yield NextStep(
            f"gputui show {newest.summary.short_id} {file} -v", "a step by operator, efficiency, the box"
        )
    if earlier is None and not is_busy:
        has_others = len({run.machine.machine_id for run in stored}) > 1
        side = names[0] if has_others else file
        yield NextStep(f"gputui compare {side} OTHER.db", "once another box has run the same")


def _again(run: Run, path: str, *, is_busy: bool) -> Iterator[NextStep]:
    """The same run on an idle box, with more time where at least half of its cases had too little, or to its
    end; nothing where what defines its cases is not stored."""
    built_in = {workload.name for workload in WORKLOADS}
    if any(case.case.work.workload not in built_in for case in run.cases):
        return
    lost = sum(case.outcome == "skipped" and needs_budget(case) for case in run.cases)
    measured = sum(case.outcome == "ok" for case in run.cases)
    is_short = 0 < lost >= measured
    budget_s = run.summary.budget_s * (1 + lost / max(measured, 1))
    budget = f" --budget {math.ceil(budget_s)}" if is_short else ""
    again = f"gputui run --like {shlex.quote(f'{path}@{run.summary.short_id}')}"
    command = f"{again}{_device(run)} --db {shlex.quote(path)}{budget}"
    if is_busy:
        yield NextStep(command, "again, once the box is idle")
    elif is_short:
        yield NextStep(command, "with more time")
    elif run.summary.status_reason.startswith("stopped "):
        yield NextStep(command, "again, to the end")


def _device(run: Run) -> str:
    """The option, where the run was not on the first GPU alone."""
    gpus = {case.device_index for case in run.cases} - {None}
    if len(gpus) > 1:
        return " --device all"
    return "".join(f" --device gpu:{gpu}" for gpu in gpus if gpu)


def _earlier(run: RunSummary, stored: Collection[RunSummary]) -> RunSummary | None:
    """The newest finished run before it of the same profile; of recordings, of the same label, if any."""
    alike = [
        other
        for other in stored
        if (other.profile, other.profile_version, other.status)
        == (run.profile, run.profile_version, "finished")
        and other.started_utc_us < run.started_utc_us
        and (run.profile != RECORD_PROFILE or (run.label and other.label == run.label))
    ]
    return max(alike, key=lambda other: other.started_utc_us, default=None)


MOST_LINES = 40
LOG_WORDS = "the worker's log"
"""Of a reason whose message the log has."""
_MOST_BYTES = 16 * 1024


def logs_of(run_id: str) -> Path | None:
    """The directory with the logs of a run's workers, if it exists on this machine."""
    logs = run_directories() / run_id / "logs"
    return logs if logs.is_dir() else None


def where_messages_are(run: Run) -> tuple[str, ...]:
    """Where to find the messages that the result file leaves out, if this machine has them."""
    logs = logs_of(run.summary.run_id)
    has_some = has_failed(run) or any(LOG_WORDS in case.reason for case in run.cases)
    return (f"logs of its workers, with the messages: {logs}",) if logs and has_some else ()


def end_of_log(run_dir: Path, launch_id: int) -> tuple[str, ...]:
    """The last lines of a worker's log, safe to show; empty if there is none."""
    try:
        with log_of(run_dir, launch_id).open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _MOST_BYTES, 0))
            text = log.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    rows = [clean_text(row.rpartition("\r")[2]) for row in text.rstrip().split("\n")]
    return tuple(rows[-MOST_LINES:]) if text.strip() else ()


HOW_TO_OPEN = "open it at https://ui.perfetto.dev or in chrome://tracing"


def traces_directory(target: Path) -> Path:
    """Where the traces of a result file's runs lie."""
    return target.with_name(f"{target.stem}-traces")


def keep_traces(run_dir: Path, run_id: str, target: Path) -> tuple[Path, ...]:
    """Copy the traces of a run beside the file it is stored in; those that are there already stay.

    Raises OSError if they cannot be written.
    """
    found = sorted((run_dir / TRACES_NAME).glob("*.json.gz"))
    kept = []
    for trace in found:
        place = traces_directory(target) / f"{run_id[-8:]}-{trace.name}"
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            copy_whole(trace, place)
        kept.append(place)
    return tuple(kept)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file that has all its content from the first moment. Raises OSError."""
    draft = new_draft(target)
    with cleared(draft):
        shutil.copyfile(source, draft)
        draft.replace(target)


def traces_of(run_id: str, target: Path) -> tuple[Path, ...]:
    """The existing traces of a run."""
    return tuple(sorted(traces_directory(target).glob(f"{run_id[-8:]}-*.json.gz")))
