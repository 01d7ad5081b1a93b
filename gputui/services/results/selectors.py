"""Resolves what a user types to runs: `F`, `F@RUN`, an exported directory, or a run and a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gputui.errors import GputuiError, NoFile, NotStored
from gputui.model.journal import ProfiledPass
from gputui.model.result import Run, RunSummary
from gputui.model.units import listed
from gputui.services.results.variation import RUNS_TAKEN, BoxVariation, variation_by_machine, with_spreads
from gputui.services.support.paths import default_result_file, exports_cache, make_directory
from gputui.store.opening import SUFFIXES, check_place, expanded, is_export
from gputui.store.reading import (
    ResultFile,
    in_parts,
    open_result,
    passes_of,
    read_each,
    runs_of,
    summaries_of,
    warnings_of,
)
from gputui.store.selecting import find_run, find_runs, runs_with_common_ids, with_common_ids

T = TypeVar("T")

_KEPT = 4
"""Copies of exports that are kept, the last used."""


def result_file_of(path: Path) -> Path:
    """The result file with what an exported directory holds; any other path as it is.

    It is named after the names, sizes and times of the directory's files. Raises GputuiError if they cannot
    be read, NotStored if there is no place for the copy.
    """
    if not is_export(path):
        return path
    path = path.resolve()
    text = "\n".join(
        f"{file.relative_to(path)} {file.stat().st_size} {file.stat().st_mtime_ns}"
        for file in sorted(path.glob("**/*.parquet"))
    )
    name = hashlib.sha256(f"{path}\n{text}".encode(errors="surrogateescape")).hexdigest()[:24]
    copy = exports_cache() / f"{name}.db"
    if copy.exists():
        with suppress(OSError):
            copy.touch()
        return copy
    try:
        make_directory(copy.parent)
    except OSError as error:
        raise NotStored(f"{copy.parent} cannot be made: {error.strerror}", "set XDG_CACHE_HOME") from error
    from gputui.store.parquet import import_export  # takes 0.05 s with all that writes

    import_export(path, copy)
    for old in sorted(copy.parent.glob("*.db"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
        for file in (old, old.with_name(f"{old.name}.lock")):
            with suppress(OSError):
                file.unlink()
    return copy


_TOGETHER = 12
"""Files that are open at a time in each thread: some 2 MiB each; with fewer, the connections take long."""
_THREADS = 2
"""While DuckDB reads files in one, another makes values."""


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

    An exported directory is the file with what it holds.
    """
    path = expanded(Path(text))
    if is_there(path):
        return result_file_of(path), ""
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


def files_in(directory: Path) -> list[Path]:
    """The files of a directory with the ending of result files, by name; none if it cannot be read."""
    try:
        return sorted(entry for entry in directory.iterdir() if entry.suffix in SUFFIXES)
    except OSError:
        return []


def result_files_in(directory: Path) -> list[Path]:
    """Those of a directory by name. Raises GputuiError if there is none."""
    inside = files_in(directory)
    if not inside:
        raise GputuiError(
            f"{directory}: no result file (*.db) in this directory", "name the files, or their directory"
        )
    return inside


def readable(
    texts: Sequence[str],
    use: Callable[[tuple[str, ...]], T],
    read: Callable[[str], object],
    warn: Callable[[Iterable[str]], None],
) -> T:
    """What `use` makes of all files of these selectors; where it fails, without those that were found in a
    directory and that `read` cannot read, of which `warn` gets a line each.

    Raises GputuiError as `use` does if that is none or all of them.
    """
    files, at_fault = every_file(texts), dict[str, GputuiError]()
    try:
        return use(files)
    except GputuiError:
        for file in (file for file in files if file not in texts):
            try:
                read(file)
            except GputuiError as error:
                at_fault[file] = error
        if len(at_fault) in (0, len(files)):
            raise
    warn(f"left out: {error}" for error in at_fault.values())
    return use(tuple(file for file in files if file not in at_fault))


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
        raise NoFile(
            default,
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


def select_all(
    texts: Sequence[str],
    *,
    trust: bool = False,
    pool: bool = False,
    with_passes: bool = False,
    only_rates: bool = False,
) -> list[Selection]:
    """The run of each `F@RUN`, or all runs of `F`, with their blocks; with `pool` all runs of a label.

    Files are opened and read together: opening them takes longest. `with_passes`: read their profiled passes
    too. `only_rates`: only what was measured, and no other runs of its boxes.

    Raises GputuiError for files that are not there, else for the first that cannot be read, run that is
    unknown, or file without a run.
    """
    selectors = {text: split_selector(text) for text in texts}
    file_of: dict[object, Path] = {}
    asked: dict[Path, dict[str, tuple[Path, str]]] = {}
    for text, (path, run) in selectors.items():
        asked.setdefault(file_of.setdefault(identity(path), expanded(path).absolute()), {})[text] = path, run
    missing = [str(path) for path in asked if not is_there(path)]
    if any(text.startswith("reference:") for text in selectors):
        raise GputuiError(
            "a reference is no side of a comparison", "gputui show F judges its cases by the reference"
        )
    if len(missing) > 1:
        raise GputuiError(f"there are no result files {listed(missing)}", "name files that are there")
    reading = _Reading(asked, pool, with_passes, only_rates)
    read_each(list(asked), reading.read, trust=trust, at_a_time=_TOGETHER, threads=_THREADS)
    found = [reading.found[text] for text in texts]
    # files that were read apart may be of one box
    groups = runs_with_common_ids([runs for one in found for runs in (one.runs, one.history)], pool=pool)
    in_pairs = zip(found, groups[::2], groups[1::2], strict=True)
    return [replace(one, runs=runs, history=history) for one, runs, history in in_pairs]


class _Reading:
    """What selectors select of some files; `asked` has their paths and runs by file and text."""

    def __init__(
        self, asked: Mapping[Path, Mapping[str, tuple[Path, str]]], pool: bool, passes: bool, only_rates: bool
    ) -> None:
        self.asked, self.pool, self.with_passes, self.only_rates = asked, pool, passes, only_rates
        self.found: dict[str, Selection] = {}

    def read(self, files: Sequence[ResultFile]) -> None:
        """Find what is asked of these."""
        named = list(self._named(files))
        needed: list[dict[str, RunSummary]] = [{} for _ in files]
        for place, _, _, own, rest in named:
            needed[place].update((summary.run_id, summary) for summary in (*own, *rest))
        runs: dict[tuple[int, str], Run] = {}
        for part in in_parts(files, [list(of_file.values()) for of_file in needed]):
            for place, some in enumerate(runs_of(files, part, only_rates=self.only_rates)):
                runs.update(((place, run.summary.run_id), run) for run in some)
        asked = [
            [one.run_id for at, *_, own, _ in named if at == place for one in own]
            for place in range(len(files))
        ]
        passes = passes_of(files, asked) if self.with_passes else []
        for place, text, path, own, rest in named:
            self.found[text] = Selection(
                text,
                path,
                tuple(runs[place, summary.run_id] for summary in own),
                warnings_of(expanded(path).absolute()),
                {one.run_id: passes[place].get(one.run_id, {}) for one in own if self.with_passes},
                tuple(runs[place, summary.run_id] for summary in rest),
            )

    def _named(
        self, files: Sequence[ResultFile]
    ) -> Iterator[tuple[int, str, Path, Sequence[RunSummary], Sequence[RunSummary]]]:
        """Each selector by the place of its file, its text and its path, with its runs and their history."""
        summaries = with_common_ids(summaries_of(files), pool=self.pool)
        for place, (file, every) in enumerate(zip(files, summaries, strict=True)):
            for text, (path, selector) in self.asked[file.db].items():
                own: Sequence[RunSummary] = every
                if selector:
                    own = find_runs(every, selector) if self.pool else (find_run(every, selector),)
                if not own:
                    hint = f"measure one: gputui run quick --db {path}"
                    raise GputuiError(f"{path}: no run to compare", hint)
                ids, machines = {one.run_id for one in own}, {one.machine.machine_id for one in own}
                others = [one for one in every if one.run_id not in ids]
                yield place, text, path, own, () if self.only_rates else _of_boxes(machines, others)


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
    (found,) = judged_runs(file, [file.summary(run_id)])
    return found


def judged_runs(file: ResultFile, chosen: Sequence[RunSummary]) -> Iterator[Run]:
    """These runs, with what the file shows of how much their boxes vary in each case; some at a time.

    Raises GputuiError if a row holds an impossible value.
    """
    variations: dict[str, BoxVariation] = {}
    for some in in_parts([file], [chosen]):
        for run in runs_of([file], some)[0]:
            machine = run.summary.machine.machine_id
            if machine not in variations:
                variations |= variation_by_machine(
                    runs_of([file], [_of_boxes((machine,), file.summaries())])[0]
                )
            yield with_spreads(run, variations[machine])
        file.held_bytes = 0


def _of_boxes(machine_ids: Collection[str], all_runs: Iterable[RunSummary]) -> Sequence[RunSummary]:
    """The runs of these machines that tell how much they vary, as far as they are worth reading."""
    found = [summary for summary in all_runs if summary.machine.machine_id in machine_ids]
    return sorted(found, key=lambda summary: summary.started_utc_us)[-RUNS_TAKEN:]
