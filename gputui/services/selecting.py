"""From what a user types to runs: `F`, `F@RUN`, or a run and a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.profiled import ProfiledPass
from gputui.model.result import Run, RunSummary
from gputui.services.places import default_result_file
from gputui.services.references import PREFIX, reference_file
from gputui.store.opening import expanded
from gputui.store.reading import open_result
from gputui.store.selecting import find_run, find_runs


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs that one selector names."""

    text: str
    """As the user typed it."""
    path: Path
    runs: tuple[Run, ...]
    warnings: tuple[str, ...]
    passes: Mapping[str, Mapping[int, ProfiledPass]]
    """By run and case; empty if they were not asked for."""


def split_selector(text: str) -> tuple[Path, str]:
    """File and run of `F[@RUN]`; what exists as a path is one, else the last `@` divides.

    `reference:NAME` is the file of a reference. Raises GputuiError if there is none of that name.
    """
    path = expanded(Path(text))
    if is_there(path):
        return path, ""
    if text.startswith(PREFIX):
        name, _, run = text.removeprefix(PREFIX).partition("@")
        return reference_file(name), run
    if "@" not in text:
        return path, ""
    file, _, run = text.rpartition("@")
    return expanded(Path(file)), run


def from_here(word: str) -> str:
    """A path below the working directory without the way to it, to be typed in a shell that stands there."""
    left = word.removeprefix(f"{Path.cwd()}/")
    return word if left.startswith("-") else left


def is_there(path: Path) -> bool:
    """Whether a path exists; one that cannot be looked for does not."""
    try:
        return path.exists()
    except OSError:
        return False


def run_and_file(run: str, file: Path | None) -> tuple[Path, str | None]:
    """File and run of `RUN [F]`, `F@RUN`, or `F` alone, whose run is left open as None."""
    if file is not None:
        return file, run
    path, selector = split_selector(run)
    if selector or is_there(path):
        return path, selector or None
    return default_result_file(), run


def locate_run(run: str, file: Path | None) -> tuple[Path, RunSummary]:
    """The result file and the run that `RUN [F]` or `F@RUN` name; without a file, the default one.

    Raises GputuiError if the file cannot be read or the run is unknown.
    """
    path, selector = run_and_file(run, file)
    if selector is None:
        raise GputuiError(f"{run} is a file: which run of it?", f"name one: {run}@RUN; gputui runs {run}")
    with open_result(path) as opened:
        return path, find_run(opened.summaries(), selector)


def select_runs(
    text: str, *, trust: bool = False, pool: bool = False, with_passes: bool = False
) -> Selection:
    """The run of `F@RUN`, or all runs of `F`, with their blocks; with `pool` all runs of a label.

    `with_passes`: read their profiled passes too, while the file is open: opening it is the dear part.

    Raises GputuiError if the file cannot be read, the run is unknown, or there is nothing to compare.
    """
    path, selector = split_selector(text)
    with open_result(path, trust) as file:
        chosen: tuple[RunSummary, ...] = file.summaries()
        if selector:
            chosen = find_runs(chosen, selector) if pool else (find_run(chosen, selector),)
        if not chosen:
            raise GputuiError(
                f"{path}: holds no run to compare", f"measure one: gputui run quick --db {path}"
            )
        passes = {s.run_id: file.profiled(s.run_id) for s in chosen} if with_passes else {}
        return Selection(text, path, tuple(file.run(s.run_id) for s in chosen), file.warnings, passes)
