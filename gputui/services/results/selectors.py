"""Resolves what a user types to runs: `F`, `F@RUN`, or a run and a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from gputui.errors import GputuiError
from gputui.model.profiled import ProfiledPass
from gputui.model.result import Run, RunSummary
from gputui.services.results.exports import result_file_of
from gputui.services.results.reference_runs import run_of_reference
from gputui.services.results.references import PREFIX, reference_named, reference_path
from gputui.services.results.variation import (
    RUNS_TAKEN,
    BoxVariation,
    variation_by_machine,
    with_spreads,
)
from gputui.services.support.paths import default_result_file
from gputui.store.locking import Locked
from gputui.store.machines import runs_with_common_ids, with_common_ids
from gputui.store.opening import SUFFIXES, TooLarge, check_place, expanded, is_export
from gputui.store.reading import (
    ResultFile,
    open_result,
    open_results,
    passes_of,
    runs_at_a_time,
    runs_of,
    summaries_of,
    warnings_of,
)
from gputui.store.selecting import find_run, find_runs

_File = TypeVar("_File", str, Path)
_TOGETHER = 50
"""Files that are open at a time: some 0.7 MiB and a descriptor each; more of them save little more time."""

_GROUPS_AT_A_TIME = 2
"""While DuckDB reads one, another is made into values."""


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
    history: tuple[Run, ...] = ()
    """Other runs of the same machines in the file, the newest: they tell how much such a box varies."""


def split_selector(text: str) -> tuple[Path, str]:
    """File and run of `F[@RUN]`; what exists as a path is one, else the last `@` divides.

    An exported directory is the file with what it holds, `reference:NAME` that of a reference. Raises
    GputuiError if there is none of that name.
    """
    path = expanded(Path(text))
    if is_there(path):
        return result_file_of(path), ""
    if text.startswith(PREFIX):
        return reference_path(text.removeprefix(PREFIX)), ""
    if "@" not in text:
        return path, ""
    file, _, run = text.rpartition("@")
    return result_file_of(expanded(Path(file))), run


def every_file(texts: Sequence[str]) -> tuple[str, ...]:
    """Selectors, where a directory that is no export stands for the result files in it, by name.

    Raises GputuiError for a directory without one.
    """
    found: list[str] = []
    for text in texts:
        path = expanded(Path(text))
        if not is_there(path) or not path.is_dir() or is_export(path):
            found.append(text)
            continue
        found += map(str, result_files_in(path))
    return tuple(found)


def result_files_in(directory: Path) -> list[Path]:
    """Those of a directory by name. Raises GputuiError if there is none."""
    inside = sorted(entry for entry in directory.iterdir() if entry.suffix in SUFFIXES)
    if not inside:
        raise GputuiError(
            f"{directory}: no result file (*.db) in this directory", "name the files, or their directory"
        )
    return inside


def chosen_files(texts: Sequence[str]) -> tuple[list[Path], dict[Path, frozenset[str]]]:
    """The files of some selectors, directories as in `every_file`; of those named as `F@RUN`, the runs.

    Raises GputuiError if a file cannot be read or a run is unknown.
    """
    paths: list[Path] = []
    only: dict[Path, frozenset[str]] = {}
    whole: set[Path] = set()
    for text in every_file(texts):
        path, selector = split_selector(text)
        path = path.resolve()
        paths.append(path)
        if not selector:
            whole.add(path)
            continue
        with open_result(path) as file:
            run = find_run(file.summaries(), selector).run_id
        only[path] = only.get(path, frozenset()) | {run}
    return paths, {path: runs for path, runs in only.items() if path not in whole}


def from_here(word: str) -> str:
    """A path relative to the working directory if it lies below, to type in a shell there."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # removed while we were at work
        return word
    left = word.removeprefix(f"{here}/")
    return word if left.startswith("-") else left


def is_there(path: Path) -> bool:
    """Whether a path exists; false if that cannot be found out."""
    try:
        return path.exists()
    except OSError:
        return False


def run_and_file(run: str, file: Path | None) -> tuple[Path, str | None]:
    """File and run of `RUN [F]`, `F@RUN`, or `F` alone, whose run is None.

    Raises GputuiError if run and file are swapped.
    """
    if run.startswith(PREFIX) and not is_there(expanded(Path(run))):
        name = run.removeprefix(PREFIX)
        raise GputuiError(f"{run} is a reference, not a run", f"gputui reference show {name}")
    if file is not None:
        if is_there(expanded(Path(run))) and not is_there(expanded(file)):
            raise GputuiError(f"{run} is a file, {file} is not", f"the run goes first: {file} {run}")
        return result_file_of(expanded(file)), run
    path, selector = split_selector(run)
    if selector or is_there(path) or path.suffix in SUFFIXES:
        return path, selector or None
    default = default_result_file()
    if not is_there(default):
        what = "" if run == "latest" else f"there is no file {run}, and "
        raise GputuiError(
            f"{what}nothing is stored in {default} yet",
            "measure this box: gputui run; or name a file, such as a.db",
        )
    return default, run


def locate_run(run: str, file: Path | None, *, guesses: bool = True) -> tuple[Path, RunSummary]:
    """The result file and the run that `RUN [F]` or `F@RUN` name; without a file, the default one.

    Raises GputuiError if the file cannot be read or the run is unknown.
    """
    path, selector = run_and_file(run, file)
    if selector is None:
        check_place(path)
        raise GputuiError(f"{run} is a file: which run of it?", f"name one: {run}@RUN; gputui runs {run}")
    with open_result(path) as opened:
        return path, find_run(opened.summaries(), selector, guesses=guesses)


def select_runs(
    text: str, *, trust: bool = False, pool: bool = False, with_passes: bool = False
) -> Selection:
    """The run of `F@RUN`, or all runs of `F`, with their blocks; with `pool` all runs of a label.

    `with_passes`: read their profiled passes too, while the file is open; opening it takes longest.

    Raises GputuiError if the file cannot be read, the run is unknown, or there is nothing to compare.
    """
    return select_all([text], trust=trust, pool=pool, with_passes=with_passes)[0]


def select_all(
    texts: Sequence[str], *, trust: bool = False, pool: bool = False, with_passes: bool = False
) -> list[Selection]:
    """As `select_runs` for each text, in a fraction of the time: files are opened and read together.

    Raises GputuiError for the first that `select_runs` raises it for.
    """
    references = {place: found for place, text in enumerate(texts) if (found := _reference(text)) is not None}
    if references:
        files_asked = [text for place, text in enumerate(texts) if place not in references]
        rest = iter(
            select_all(files_asked, trust=trust, pool=pool, with_passes=with_passes) if files_asked else ()
        )
        return [references[place] if place in references else next(rest) for place in range(len(texts))]
    groups = batches(texts)
    if len(groups) != 1:
        read = partial(select_all, trust=trust, pool=pool, with_passes=with_passes)
        executor = ThreadPoolExecutor(_GROUPS_AT_A_TIME)
        try:
            return _of_common_boxes(
                [selection for group in executor.map(read, groups) for selection in group], pool
            )
        finally:
            executor.shutdown(cancel_futures=True)
    selectors: list[tuple[Path, str]] = []
    file_of: list[int] = []
    places: dict[object, int] = {}
    try:
        for text in texts:
            selectors.append(split_selector(text))
            file_of.append(places.setdefault(identity(selectors[-1][0]), len(places)))
        paths = [selectors[file_of.index(place)][0] for place in range(len(places))]
        with ExitStack() as stack:
            files: Sequence[ResultFile] = (
                [stack.enter_context(open_result(paths[0], trust))]
                if len(paths) == 1
                else stack.enter_context(open_results(paths, trust))
            )
            summaries = with_common_ids(summaries_of(files), pool=pool)
            chosen = [
                chosen_runs(path, selector, summaries[place], pool)
                for (path, selector), place in zip(selectors, file_of, strict=True)
            ]
            others = [
                _others(of_one, summaries[place]) for place, of_one in zip(file_of, chosen, strict=True)
            ]
            needed: list[dict[str, RunSummary]] = [{} for _ in files]
            for place, of_one, more in zip(file_of, chosen, others, strict=True):
                needed[place].update((summary.run_id, summary) for summary in (*of_one, *more))
            runs: list[dict[str, Run]] = [{} for _ in files]
            at_a_time = runs_at_a_time(files)
            for start in range(0, max(map(len, needed)), at_a_time):
                some = [tuple(of_file.values())[start : start + at_a_time] for of_file in needed]
                for place, of_file in enumerate(runs_of(files, some)):
                    runs[place].update((run.summary.run_id, run) for run in of_file)
            asked = [dict[str, None]() for _ in files]
            for place, of_one in zip(file_of, chosen, strict=True):
                asked[place].update((summary.run_id, None) for summary in of_one)
            passes = passes_of(files, [tuple(of_file) for of_file in asked]) if with_passes else []
    except TooLarge:
        raise
    except (GputuiError, Locked):
        if len(texts) == 1:
            raise
        # one by one, each is waited for, and the one at fault is named
        alone = [select_runs(text, trust=trust, pool=pool, with_passes=with_passes) for text in texts]
        return _of_common_boxes(alone, pool)
    return [
        Selection(
            text,
            path,
            tuple(runs[place][summary.run_id] for summary in of_one),
            warnings_of(expanded(path).absolute()),
            {s.run_id: passes[place].get(s.run_id, {}) for s in of_one} if with_passes else {},
            tuple(runs[place][summary.run_id] for summary in of_others),
        )
        for text, (path, _), place, of_one, of_others in zip(
            texts, selectors, file_of, chosen, others, strict=True
        )
    ]


def _reference(text: str) -> Selection | None:
    """What `reference:NAME` selects; None for anything else, and for a file of that name."""
    if not text.startswith(PREFIX) or is_there(expanded(Path(text))):
        return None
    name = text.removeprefix(PREFIX)
    run = run_of_reference(reference_named(name))
    return Selection(text, reference_path(name), (run,), (), {run.summary.run_id: {}})


def _of_common_boxes(selections: Sequence[Selection], pool: bool) -> list[Selection]:
    """Selections of files that were read apart, whose runs have equal ids if they are of one box."""
    runs = [run for selection in selections for run in (*selection.runs, *selection.history)]
    left = iter(runs_with_common_ids(runs, pool=pool))
    return [
        replace(
            selection,
            runs=tuple(islice(left, len(selection.runs))),
            history=tuple(islice(left, len(selection.history))),
        )
        for selection in selections
    ]


def batches(files: Sequence[_File], size: int = 0) -> list[Sequence[_File]]:
    """Files in groups that may be open at the same time: of this size, or of 50."""
    size = size or _TOGETHER
    return [files[start : start + size] for start in range(0, len(files), size)]


def identity(path: Path) -> object:
    """The identity of a file, since DuckDB opens none twice."""
    try:
        found = path.stat()
    except OSError:
        return path
    return (found.st_dev, found.st_ino) if found.st_ino else path.resolve()


def run_in(file: ResultFile, run_id: str) -> Run:
    """One run of a file, as `judged_runs` has it.

    Raises GputuiError if the file does not contain it, or a row holds an impossible value.
    """
    known = [summary for summary in file.summaries() if summary.run_id == run_id]
    (found,) = judged_runs(file, known or [file.run(run_id).summary])
    return found


def judged_runs(file: ResultFile, chosen: Sequence[RunSummary]) -> Iterator[Run]:
    """These runs, with what the file shows of how much their boxes vary in each case; some at a time.

    Raises GputuiError if a row holds an impossible value.
    """
    variations: dict[str, BoxVariation] = {}
    at_a_time = runs_at_a_time([file])
    for start in range(0, len(chosen), at_a_time):
        for run in runs_of([file], [chosen[start : start + at_a_time]])[0]:
            machine = run.summary.machine.machine_id
            if machine not in variations:
                variations |= variation_by_machine(runs_of([file], [_of_box(machine, file.summaries())])[0])
            yield with_spreads(run, variations[machine])
        file.drop()


def _of_box(machine_id: str, all_runs: Sequence[RunSummary]) -> Sequence[RunSummary]:
    """The runs of a machine that tell how much it varies."""
    found = [summary for summary in all_runs if summary.machine.machine_id == machine_id]
    return sorted(found, key=lambda summary: summary.started_utc_us)[-RUNS_TAKEN:]


def _others(chosen: Sequence[RunSummary], all_runs: Sequence[RunSummary]) -> Sequence[RunSummary]:
    """What else the file holds of the machines of some runs, as far as it is worth reading."""
    machines = {summary.machine.machine_id for summary in chosen}
    ids = {summary.run_id for summary in chosen}
    found = [s for s in all_runs if s.machine.machine_id in machines and s.run_id not in ids]
    return sorted(found, key=lambda summary: summary.started_utc_us)[-RUNS_TAKEN:]


def chosen_runs(
    path: Path, selector: str, summaries: Sequence[RunSummary], pool: bool
) -> Sequence[RunSummary]:
    """The runs of a file that a selector names; empty names all. Raises GputuiError if there is none."""
    if selector:
        found = find_runs(summaries, selector) if pool else (find_run(summaries, selector),)
    else:
        found = tuple(summaries)
    if not found:
        raise GputuiError(f"{path}: no run to compare", f"measure one: gputui run quick --db {path}")
    return found
