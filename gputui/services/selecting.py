"""From what a user types to runs: `F`, `F@RUN`, or a run and a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.result import Run
from gputui.store.reading import open_result
from gputui.store.selecting import find_run

COMPARABLE_STATES = ("finished", "interrupted")
"""An interrupted run counts with the launches it finished."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs that one selector names."""

    text: str
    """As the user typed it."""
    runs: tuple[Run, ...]
    warnings: tuple[str, ...]


def split_selector(text: str) -> tuple[Path, str]:
    """File and run of `F[@RUN]`; what exists as a path is one, else the last `@` divides."""
    path = Path(text).expanduser()
    if path.exists() or "@" not in text:
        return path, ""
    file, _, run = text.rpartition("@")
    return Path(file).expanduser(), run


def select_runs(text: str, *, trust: bool = False) -> Selection:
    """The run of `F@RUN`, or all comparable runs of `F`, with their blocks.

    Raises GputuiError if the file cannot be read, the run is unknown, or there is nothing to compare.
    """
    path, selector = split_selector(text)
    with open_result(path, trust) as file:
        summaries = file.summaries()
        chosen = [s for s in summaries if s.status in COMPARABLE_STATES]
        if selector:
            chosen = [find_run(summaries, selector)]
        if not chosen:
            raise GputuiError(
                f"{path}: holds no run to compare", f"measure one: gputui run quick --db {path}"
            )
        return Selection(text, tuple(file.run(s.run_id) for s in chosen), file.warnings)
