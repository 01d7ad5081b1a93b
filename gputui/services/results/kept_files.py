"""What is kept of a run outside the result file: logs of its workers, and Chrome traces."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gputui.model.journal import TRACES_NAME
from gputui.model.result import Run
from gputui.recording.worker_process import log_of
from gputui.services.results.labels import has_failed
from gputui.services.support.paths import run_directories
from gputui.store.locking import cleared, new_draft
from gputui.store.text import clean_text

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
