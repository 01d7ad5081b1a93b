"""What goes further than the table of a run: commands to type next, the most useful first; and what is kept
outside its result file, logs of its workers and Chrome traces."""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.analysis.peak_tests import BELOW_NORMAL
from gputui.model.journal import TRACES_NAME, ProfiledPass
from gputui.model.plan import RECORD_PROFILE
from gputui.model.result import Run, RunSummary
from gputui.recording.worker_process import log_of
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import main_case
from gputui.services.results.labels import day, has_failed, is_recording, lacking, needs_budget
from gputui.services.results.selectors import from_here
from gputui.services.results.throughput import contention_of
from gputui.services.support.paths import run_directories
from gputui.store.locking import cleared, new_draft
from gputui.store.text import clean_text
from gputui.worker.workloads import WORKLOADS


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
    budget_s = run.summary.budget_s * (lost + measured) / max(measured, 1)
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
