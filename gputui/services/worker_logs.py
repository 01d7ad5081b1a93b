"""What workers wrote, as long as the directory of their run is kept."""

from __future__ import annotations

import os
from pathlib import Path

from gputui.recording.worker_process import log_of
from gputui.store.text import clean_text

MOST_LINES = 40
_MOST_BYTES = 16 * 1024


def end_of_log(run_dir: Path, launch_id: int) -> tuple[str, ...]:
    """The last lines of the output of a launch's worker, safe to show; nothing if there is no log."""
    try:
        with log_of(run_dir, launch_id).open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _MOST_BYTES, 0))
            text = log.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    rows = [clean_text(row.rpartition("\r")[2]) for row in text.rstrip().split("\n")]
    return tuple(rows[-MOST_LINES:]) if text.strip() else ()
