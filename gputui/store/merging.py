"""Merges result files: runs are copied unchanged, each once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, NotStored
from gputui.store import schema
from gputui.store.locking import cleared, lock_of, log_of, merge_draft
from gputui.store.opening import CATALOG, Checked, check_place, expanded, rows_of
from gputui.store.reading import check_runs, open_result, open_results, summaries_of
from gputui.store.writing import delete_runs, explaining, opened_for_writing, real_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_AT_ONCE = 20
"""Files that are open at the same time: more take memory, fewer take time."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of one source file."""

    source: Path
    added: tuple[str, ...]
    """Runs that were missing, or stored without their end."""
    already_there: int


def merge_files(
    sources: Sequence[Path], out: Path, progress: Callable[[int], None] = lambda done: None
) -> tuple[Merged, ...]:
    """Copy all runs of some files, whoever wrote them, into one, creating it if necessary.

    A single transaction. A run that `out` contains stays as it is, unless it was stored from a journal
    without an end and has its end here. Every run is read completely first, so that invalid values never get
    in: raises GputuiError for a source that is not a readable result file, or is `out` itself; NotStored if
    `out` cannot be written. Changes nothing then. `progress` is called with the number of files read.

    What is new is collected in a file beside `out`, some files at a time, and moved from there: the memory it
    takes does not grow with the number of files.
    """
    out = real_path(out)
    for source in sources:
        check_place(expanded(source).absolute())
        if out.exists() and expanded(source).samefile(out):
            raise GputuiError(f"{source} cannot be merged into itself", "name another file with -o")
    paths = tuple(dict.fromkeys(expanded(source).resolve() for source in sources))
    known = _ends_in(out) if os.path.lexists(out) else {}
    collection = merge_draft(out)
    with cleared(collection, log_of(collection)), _named(collection, out):
        try:
            merged = collect_new(paths, collection, known, progress)
            if collection.exists() or not out.exists():
                _move(collection, out)
        finally:
            with suppress(OSError):
                lock_of(collection).unlink(missing_ok=True)
    return tuple(merged)


@contextmanager
def _named(collection: Path, out: Path) -> Iterator[None]:
    """Errors about the collection name the file that it is for."""
    try:
        yield
    except NotStored as error:
        raise NotStored(error.message.replace(str(collection), str(out)), error.hint) from error


def _ends_in(db: Path) -> dict[str, bool]:
    """Whether each run of a file has its end."""
    try:
        with open_result(db) as file:
            return {one.run_id: one.ended_utc_us is not None for one in file.summaries()}
    except GputuiError as error:
        raise NotStored(error.message, error.hint) from error


def collect_new(
    paths: Sequence[Path],
    collection: Path,
    known: dict[str, bool],
    progress: Callable[[int], None] = lambda done: None,
    only: Mapping[Path, Collection[str]] | None = None,
) -> list[Merged]:
    """Copy what is new in these files, some at a time, to one file, which is created if there is anything.

    `known` are the runs that need no copy, and whether each has its end; those of the files are added.
    `only`: of some files, the runs that are wanted. Raises as `merge_files`.
    """
    merged: list[Merged] = []
    for place in range(0, len(paths), _AT_ONCE):
        merged += _collect(paths[place : place + _AT_ONCE], collection, known, only or {})
        progress(len(merged))
    return merged


def _collect(
    paths: Sequence[Path], collection: Path, known: dict[str, bool], only: Mapping[Path, Collection[str]]
) -> list[Merged]:
    """Copy what is new in these files; `known` are the runs so far, with those of the files afterwards."""
    merged: list[Merged] = []
    holder: dict[str, Path] = {}
    """The file that a run is copied from: of two in this batch, the later one has its end."""
    opened: dict[Path, Checked] = {}
    with open_results(paths) as files:
        summaries = summaries_of(files)
        chosen = []
        for file, path, every in zip(files, paths, summaries, strict=True):
            new = []
            of_file = [one for one in every if path not in only or one.run_id in only[path]]
            for one in of_file:
                has_end = one.ended_utc_us is not None
                if one.run_id not in known or (has_end and not known[one.run_id]):
                    known[one.run_id] = has_end
                    new.append(one)
            chosen.append(new)
            merged.append(Merged(path, tuple(one.run_id for one in new), len(of_file) - len(new)))
            holder.update((one.run_id, path) for one in new)
            opened[path] = file.opened
        check_runs(files, chosen)
    wanted = {path: tuple(run for run, place in holder.items() if place == path) for path in holder.values()}
    if wanted:
        names = {f"d{number}": path for number, path in enumerate(wanted, 1)}
        with opened_for_writing(collection, names) as connection, explaining(collection):
            connection.execute("BEGIN")
            delete_runs(connection, [run for runs in wanted.values() for run in runs])
            for table in schema.RUN_TABLES:
                _insert(
                    connection,
                    table,
                    {
                        name: (opened[path].columns, wanted[path])
                        for name, path in names.items()
                        if table.name not in opened[path].empty
                    },
                )
            connection.execute("COMMIT")
    return merged


def _move(collection: Path, out: Path) -> None:
    names = {"d1": collection} if collection.exists() else {}
    with opened_for_writing(out, names) as connection, explaining(out):
        if not names:
            return
        connection.execute("BEGIN")
        runs = [str(run) for (run,) in rows_of(connection, collection, "SELECT run_id FROM d1.main.runs")]
        delete_runs(connection, runs)
        for table in schema.RUN_TABLES:
            _insert(connection, table, {"d1": ([(table.name, name) for name in table.column_names], ())})
        connection.execute("COMMIT")


def _insert(
    connection: DuckDBPyConnection,
    table: schema.Table,
    sources: Mapping[str, tuple[Collection[tuple[str, str]], Sequence[str]]],
) -> None:
    """Rows of one table of attached files, of these runs, or of all; NULL for columns that a file lacks."""
    each, parameters = [], list[object]()
    for name, (columns, runs) in sources.items():
        if (table.name, "run_id") not in columns:
            continue
        sql = f"SELECT {table.cells_sql(columns)} FROM {name}.main.{table.name}"
        if runs:
            sql += " WHERE run_id IN (SELECT unnest(?::UUID[]))"
            parameters.append(list(runs))
        each.append(sql)
    if each:
        names = ", ".join(table.column_names)
        connection.execute(
            f"INSERT INTO {CATALOG}.main.{table.name} ({names}) {' UNION ALL '.join(each)}", parameters
        )
