"""Merges result files: runs are copied unchanged, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError
from gputui.store import schema
from gputui.store.opening import CATALOG, rows_of
from gputui.store.reading import open_result
from gputui.store.writing import delete_run, explaining, opened_for_writing, real_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of one source file."""

    source: Path
    added: tuple[str, ...]
    """Runs that were missing, or stored without their end."""
    already_there: int


def merge_files(sources: Sequence[Path], out: Path) -> tuple[Merged, ...]:
    """Copy all runs of some files, whoever wrote them, into one, creating it if necessary.

    A single transaction. A run that `out` contains stays as it is, unless it was stored from a journal
    without an end and has its end here. Every run is read completely first, so that invalid values never get
    in: raises GputuiError for a source that is not a readable result file, or is `out` itself; NotStored if
    `out` cannot be written. Changes nothing then.
    """
    out = real_path(out)
    for source in sources:
        _read_whole(source)
        if out.exists() and source.samefile(out):
            raise GputuiError(f"{source} cannot be merged into itself", "name another file with -o")
    paths = dict.fromkeys(source.resolve() for source in sources)
    names = {f"d{number}": path for number, path in enumerate(paths, 1)}
    with opened_for_writing(out, names) as connection, explaining(out):
        connection.execute("BEGIN")
        merged = tuple(_copy(connection, out, name, path) for name, path in names.items())
        connection.execute("COMMIT")
    return merged


def _read_whole(path: Path) -> None:
    with open_result(path) as file:
        for summary in file.summaries():
            file.run(summary.run_id)
            file.events(summary.run_id)
            file.telemetry_summary(summary.run_id)


def _copy(connection: DuckDBPyConnection, out: Path, name: str, path: Path) -> Merged:
    """Copy the runs of one attached file, within the open transaction."""
    ours = {str(run): ended for run, ended in _ends(connection, out, CATALOG)}
    theirs = _ends(connection, path, name)
    new = tuple(
        str(run)
        for run, ended in theirs
        if str(run) not in ours or (ours[str(run)] is None and ended is not None)
    )
    columns = _columns(connection, path, name)
    for run_id in new:
        delete_run(connection, run_id)
        for table in schema.RUN_TABLES:
            present = ", ".join(c for c in table.column_names if (table.name, c) in columns)
            if present:
                connection.execute(
                    f"INSERT INTO {CATALOG}.main.{table.name} ({present})"
                    f" SELECT {present} FROM {name}.main.{table.name} WHERE run_id = ?::UUID",
                    [run_id],
                )
    return Merged(path, new, len(theirs) - len(new))


def _ends(connection: DuckDBPyConnection, db: Path, catalog: str) -> list[tuple[object, ...]]:
    """Id and end of each run."""
    return rows_of(connection, db, f"SELECT run_id, ended_us FROM {catalog}.main.runs")


def _columns(connection: DuckDBPyConnection, path: Path, name: str) -> set[tuple[str, str]]:
    sql = (  # a view may have the name of a table that the file lacks
        "SELECT table_name, column_name FROM duckdb_columns() JOIN duckdb_tables()"
        " USING (database_name, schema_name, table_name)"
        f" WHERE database_name = '{name}' AND schema_name = 'main'"
    )
    return {(str(table), str(column)) for table, column in rows_of(connection, path, sql)}
