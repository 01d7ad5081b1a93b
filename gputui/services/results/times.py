"""Rates of many runs, read without what only a comparison of two needs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import get_ident

from gputui.errors import GputuiError
from gputui.model.result import RunSummary
from gputui.services.results.selectors import batches, chosen_runs, identity, split_selector
from gputui.store.locking import Locked
from gputui.store.machines import with_common_ids
from gputui.store.opening import FilesInTurn, TooLarge, expanded
from gputui.store.reading import (
    CaseTimes,
    ResultFile,
    case_times_of,
    open_result,
    open_results_in_turn,
    runs_at_a_time,
    summaries_of,
    warnings_of,
)

_TOGETHER = 12
"""Files that are open at a time in each thread: some 2 MiB each; with fewer, the connections take long."""
_THREADS = 2
"""While DuckDB reads files in one, another makes values."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """A run with its measured cases."""

    summary: RunSummary
    cases: tuple[CaseTimes, ...]


@dataclass(frozen=True, slots=True)
class TimedSelection:
    """The runs that one selector names."""

    text: str
    """As the user typed it."""
    path: Path
    runs: tuple[RunTimes, ...]
    warnings: tuple[str, ...]


def select_times(texts: Sequence[str], *, trust: bool = False, pool: bool = False) -> list[TimedSelection]:
    """The runs that `F` and `F@RUN` name, as `select_all`, with the block times of their measured cases.

    Raises GputuiError for the first file that cannot be read or holds nothing to compare.
    """
    executor = ThreadPoolExecutor(_THREADS)
    readers = _Readers(texts, trust)
    try:
        read = partial(_selected, readers=readers, trust=trust, pool=pool)
        found = [one for group in executor.map(read, batches(texts, _TOGETHER)) for one in group]
    finally:
        executor.shutdown(cancel_futures=True)
        readers.close()
    common = with_common_ids([[run.summary for run in one.runs] for one in found], pool=pool)
    return [
        TimedSelection(
            one.text,
            one.path,
            tuple(RunTimes(summary, run.cases) for summary, run in zip(summaries, one.runs, strict=True)),
            one.warnings,
        )
        for one, summaries in zip(found, common, strict=True)
    ]


class _Readers:
    """One for each thread, which reads files of these selectors."""

    def __init__(self, texts: Sequence[str], trust: bool) -> None:
        self._paths = [_absolute(split_selector(text)[0]) for text in texts]
        self._trust = trust
        self._made: dict[int, FilesInTurn] = {}

    @property
    def mine(self) -> FilesInTurn:
        return self._made.setdefault(get_ident(), FilesInTurn(self._paths, self._trust))

    def close(self) -> None:
        for reader in self._made.values():
            reader.close()


def _absolute(path: Path) -> Path:
    return expanded(path).absolute()


def _selected(texts: Sequence[str], readers: _Readers, trust: bool, pool: bool) -> list[TimedSelection]:
    try:
        return _read(texts, readers, trust, pool)
    except TooLarge:
        raise
    except (GputuiError, Locked):
        if len(texts) == 1:
            raise
        # one by one, each is waited for, and the one at fault is named
        return [one for text in texts for one in _read([text], readers, trust, pool)]


def _read(texts: Sequence[str], readers: _Readers, trust: bool, pool: bool) -> list[TimedSelection]:
    selectors = [split_selector(text) for text in texts]
    paths = {identity(path): path for path, _ in selectors}
    place_of = {key: place for place, key in enumerate(paths)}
    with ExitStack() as stack:
        files: Sequence[ResultFile] = (
            [stack.enter_context(open_result(selectors[0][0], trust))]
            if len(paths) == 1
            else stack.enter_context(open_results_in_turn(readers.mine, [*map(_absolute, paths.values())]))
        )
        places = [place_of[identity(path)] for path, _ in selectors]
        summaries = summaries_of(files)
        chosen = [
            chosen_runs(path, selector, summaries[place], pool)
            for (path, selector), place in zip(selectors, places, strict=True)
        ]
        needed: list[dict[str, RunSummary]] = [{} for _ in files]
        for place, of_one in zip(places, chosen, strict=True):
            needed[place].update((summary.run_id, summary) for summary in of_one)
        times: list[dict[str, tuple[CaseTimes, ...]]] = [{} for _ in files]
        at_a_time = runs_at_a_time(files)
        for start in range(0, max(map(len, needed)), at_a_time):
            some = [tuple(of_file.values())[start : start + at_a_time] for of_file in needed]
            for of_file, found in zip(times, case_times_of(files, some), strict=True):
                of_file.update(found)
    return [
        TimedSelection(
            text,
            path,
            tuple(RunTimes(summary, times[place].get(summary.run_id, ())) for summary in of_one),
            warnings_of(_absolute(path)),
        )
        for text, (path, _), place, of_one in zip(texts, selectors, places, chosen, strict=True)
    ]
