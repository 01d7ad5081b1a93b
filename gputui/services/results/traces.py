"""Chrome traces of a run, kept beside the result file and named after run and case."""

from __future__ import annotations

import shutil
from pathlib import Path

from gputui.model.journal import TRACES_NAME
from gputui.store.locking import cleared

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
            copy_trace(trace, place)
        kept.append(place)
    return tuple(kept)


def copy_trace(source: Path, target: Path) -> None:
    """Copy a file that has all its content from the first moment. Raises OSError."""
    draft = target.with_name(f".{target.name}.new")
    with cleared(draft):
        shutil.copyfile(source, draft)
        draft.replace(target)


def traces_of(run_id: str, target: Path) -> tuple[Path, ...]:
    """The existing traces of a run."""
    return tuple(sorted(traces_directory(target).glob(f"{run_id[-8:]}-*.json.gz")))
