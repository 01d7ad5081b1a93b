"""Logs of workers, while the run directory exists."""

from __future__ import annotations

import os
from pathlib import Path

from gputui.model.result import Run
from gputui.recording.worker_process import log_of
from gputui.services.results.labels import has_failed
from gputui.services.support.paths import run_directories
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
