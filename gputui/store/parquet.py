"""Runs as Parquet files that any engine reads, partitioned by date, GPU and profile; and back again.

One directory per table of the result file; `rates`, which is computed; and `dictionary`, which says what each
column means. Types are those that every engine has: identifiers are text, counters signed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, NotStored, clean_text
from gputui.store import schema
from gputui.store.describe import VIEWS
from gputui.store.locking import WAIT_S, Locked, write_lock
from gputui.store.merging import collect_new
from gputui.store.opening import (
    CATALOG,
    MARKER,
    attach,
    close_the_doors,
    connect,
    expanded,
    is_export,
    quoted,
    rows_of,
)
from gputui.store.schema import RUN_TABLES, Column, Table
from gputui.store.writing import explaining, opened_for_writing
from gputui.version import version
from gputui.worker.foreign_json import read_json_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

EXPORT_SCHEMA = 1
"""Later versions add tables and columns under the same number; another number is refused."""
PARTITIONS = ("date", "gpu", "profile")
_FORMAT = "gputui parquet export"
_DRAFT = ".exporting-"
_RUNS_AT_A_TIME = 500
_PORTABLE = {"UUID": "VARCHAR", "UBIGINT": "BIGINT"}
_WIDE = "DECIMAL(20, 0)"
"""Of a seed, which takes all 64 bits; no engine lacks it."""
_RENAMED = {("runs", "profile"): "profile_name"}
"""The partition's name is taken, and is the name without characters that a path cannot have."""
_RATES = VIEWS[0]


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    added: tuple[str, ...]
    """Runs that the directory lacked, or had without their end."""
    already_there: int


def export_runs(
    sources: Sequence[Path],
    directory: Path,
    only: Mapping[Path, Collection[str]] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Exported:
    """Add the runs of some result files to a directory of Parquet files, which is made if there is none.

    A run that is there already stays, unless it was exported without its end and has it here. Each file
    appears when it is complete, those of `runs` last: an export that was interrupted is repaired by the next.
    `only`: of some files, the runs that are wanted. Memory does not grow with the number of files. Raises
    GputuiError for a source that is not a readable result file, or a directory that holds anything else;
    NotStored if it cannot be written.
    """
    paths = tuple(dict.fromkeys(expanded(source).resolve() for source in sources))
    directory = expanded(directory).absolute()
    with _locked(directory), tempfile.TemporaryDirectory(prefix="gputui-export-") as place:
        for draft in directory.glob(f"{_DRAFT}*"):
            shutil.rmtree(draft, ignore_errors=True)
        known = _ends_in(directory)
        collection = Path(place) / "new.db"
        merged = collect_new(paths, collection, known, progress, only)
        added = tuple(dict.fromkeys(run_id for one in merged for run_id in one.added))
        if collection.exists():
            with _writing(collection, directory) as connection:
                for start in range(0, len(added), _RUNS_AT_A_TIME):
                    _export(connection, added[start : start + _RUNS_AT_A_TIME], directory)
        _write_marker(directory)
    return Exported(added, sum(one.already_there for one in merged))


def import_export(directory: Path, out: Path) -> None:
    """Write all runs of a directory of Parquet files into a new result file.

    Of a run that is there twice, the later export counts; a column that the files lack is NULL. What the
    files hold is checked when the result file is read. Raises GputuiError if they cannot be read, NotStored
    if `out` cannot be written.
    """
    import duckdb

    _check_marker(directory)
    with opened_for_writing(out, reads=[directory]) as connection:
        try:
            connection.execute("BEGIN")
            connection.execute(
                "CREATE TEMP TABLE chosen AS SELECT run_id, max(batch) AS batch"
                f" FROM ({_read(directory, 'runs', ['run_id'])}) GROUP BY run_id"
            )
            for table in RUN_TABLES:
                if _files_of(directory, table.name):
                    _import(connection, directory, table)
            connection.execute("COMMIT")
        except duckdb.Error as error:
            text = clean_text(str(error).splitlines()[0])[:200]
            raise GputuiError(
                f"{directory} cannot be read: {text}", "export again into a new directory"
            ) from error


def _import(connection: DuckDBPyConnection, directory: Path, table: Table) -> None:
    read = _read(directory, table.name)
    there = {name for name, *_ in connection.execute(f"DESCRIBE {read}").fetchall()}
    cells = []
    for column in table.columns:
        name = _RENAMED.get((table.name, column.name), column.name)
        cells.append(f"{name}::{column.sql_type}" if name in there else f"NULL::{column.sql_type}")
    connection.execute(
        f"INSERT INTO {CATALOG}.main.{table.name} ({', '.join(table.column_names)})"
        f" SELECT {', '.join(cells)} FROM ({read}) SEMI JOIN chosen USING (run_id, batch)"
    )


def _read(directory: Path, table: str, columns: Sequence[str] = ("*",)) -> str:
    """A query of all files of a table, with the batch that each row was exported in."""
    place = quoted(f"{directory}/{table}/**/*.parquet")
    return (
        f"SELECT {', '.join(columns)}, regexp_extract(filename, 'part-([0-9a-f]+)-[^/]*$', 1) AS batch"
        f" FROM read_parquet({place}, union_by_name = true, hive_partitioning = false, filename = true)"
    )


def _files_of(directory: Path, table: str) -> list[Path]:
    return sorted((directory / table).glob("**/*.parquet"))


def _prepare(directory: Path) -> None:
    """Make the directory and its marker, or check that it is one of ours. Raises OSError."""
    if not directory.exists():
        directory.mkdir()
    if is_export(directory):
        _check_marker(directory)
    elif any(directory.iterdir()):
        raise GputuiError(
            f"{directory} holds other files, and no export of gputui", "name a new or an empty directory"
        )
    else:
        _write_marker(directory)


def _check_marker(directory: Path) -> None:
    try:
        marker = read_json_file(directory / MARKER)
        is_ours, number = marker["format"] == _FORMAT, int(marker["schema"])
    except (OSError, ValueError, KeyError, TypeError):
        raise GputuiError(
            f"{directory / MARKER} cannot be read", "export again into a new directory"
        ) from None
    if not is_ours:
        raise GputuiError(
            f"{directory / MARKER} is not of gputui", "name a directory that gputui has exported"
        )
    if number > EXPORT_SCHEMA:
        raise GputuiError(
            f"{directory} has export schema {number}, and this gputui knows {EXPORT_SCHEMA}", "upgrade gputui"
        )


def _write_marker(directory: Path) -> None:
    text = {
        "format": _FORMAT,
        "schema": EXPORT_SCHEMA,
        "result_schema": schema.SCHEMA_VERSION,
        "partitions": PARTITIONS,
        "created_by": f"gputui {version()}",
    }
    draft = directory / f".{MARKER}.new"
    draft.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    draft.replace(directory / MARKER)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """The directory, made if there is none, for one export at a time; errors in the user's words."""
    try:
        _prepare(directory)
        with write_lock(directory / MARKER):
            yield
    except Locked as error:
        raise NotStored(
            f"{directory} is being written by {error.holder} since more than {WAIT_S:.0f} s",
            "export again later",
        ) from error
    except OSError as error:
        raise NotStored(
            f"{directory} cannot be written: {error.strerror}",
            "check its rights and its disk, and export again",
        ) from error


@contextmanager
def _writing(collection: Path, directory: Path) -> Iterator[DuckDBPyConnection]:
    """The collected runs, on a connection that can reach nothing else but the directory."""
    with closing(connect()) as connection:
        attach(connection, collection, ", READ_ONLY")
        close_the_doors(connection, [directory])
        with explaining(directory):
            yield connection


def _ends_in(directory: Path) -> dict[str, bool]:
    """Whether each run of an export has its end."""
    if not _files_of(directory, "runs"):
        return {}
    with closing(connect()) as connection:
        close_the_doors(connection, [directory])
        sql = f"SELECT run_id, ended_us IS NOT NULL FROM ({_read(directory, 'runs', ['run_id', 'ended_us'])})"
        return {str(run_id): bool(has_end) for run_id, has_end in rows_of(connection, directory, sql)}


def _export(connection: DuckDBPyConnection, runs: Sequence[str], directory: Path) -> None:
    """Write some runs of the attached file in one batch, in place of older rows of these runs."""
    batch = f"{time.time_ns():016x}"
    draft = directory / f"{_DRAFT}{batch}"
    connection.execute("DROP TABLE IF EXISTS part CASCADE")
    connection.execute("CREATE TEMP TABLE part AS SELECT unnest(?::UUID[]) AS run_id", [list(runs)])
    connection.execute(f"CREATE OR REPLACE TEMP TABLE place AS {_PLACE_SQL}")
    for table in ("blocks", "measurements", "cases", "runs", "machines", "prices"):
        sql = f"FROM {CATALOG}.main.{table} SEMI JOIN part USING (run_id)"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS {sql}")
    try:
        draft.mkdir()
        _write_dictionary(connection, directory, draft)
        written = [name for name, sql in _queries() if _write(connection, name, sql, draft, batch)]
        for name, _ in _queries():
            _purge(connection, directory, name, draft)
        for name, sql in _queries():
            if name not in written and not _files_of(directory, name):
                _write_empty(connection, name, sql, draft)
                written.append(name)
        for name in (*(name for name in written if name != "runs"), "runs"):
            _move(draft / name, directory / name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


_PLACE_SQL = f"""
SELECT run_id,
    strftime(make_timestamp(started_us), '%Y-%m-%d') AS date,
    coalesce(nullif({{gpu}}, ''), 'none') AS gpu,
    coalesce(nullif({{profile}}, ''), 'none') AS profile
FROM {CATALOG}.main.runs SEMI JOIN part USING (run_id)
LEFT JOIN (
    SELECT run_id, arg_min(device_name, device_index) AS device_name
    FROM {CATALOG}.main.devices GROUP BY run_id
) USING (run_id)""".format(
    **{
        name: f"left(trim(regexp_replace(lower({column}), '[^a-z0-9._]+', '-', 'g'), '-'), 60)"
        for name, column in (("gpu", "device_name"), ("profile", "profile"))
    }
)
"""The partition of each run: names in lower case, with hyphens for all but letters, digits, `.` and `_`."""


def _queries() -> Iterator[tuple[str, str]]:
    """What is written of each table, with its partition."""
    for table in RUN_TABLES:
        cells = ", ".join(_cell(table, column) for column in table.columns)
        yield table.name, f"SELECT {cells}, date, gpu, place.profile FROM {CATALOG}.main.{table.name} AS t"
    yield (
        _RATES.name,
        (
            "SELECT t.* EXCLUDE (profile) REPLACE (t.run_id::VARCHAR AS run_id), date, gpu, place.profile"
            f" FROM ({_RATES.sql}) AS t"
        ),
    )


def _cell(table: Table, column: Column) -> str:
    name = _RENAMED.get((table.name, column.name), column.name)
    portable = portable_type(column)
    if portable == column.sql_type:
        return f"t.{column.name} AS {name}"
    return f"TRY_CAST(t.{column.name} AS {portable}) AS {name}"


def portable_type(column: Column) -> str:
    """The type of a column in Parquet files, as DuckDB calls it."""
    return _WIDE if column.name == "seed" else _PORTABLE.get(column.sql_type, column.sql_type)


def _write(connection: DuckDBPyConnection, name: str, sql: str, draft: Path, batch: str) -> bool:
    """Write one table below the draft; whether there was anything to write."""
    connection.execute(
        f"COPY ({sql} JOIN place ON t.run_id = place.run_id) TO {quoted(str(draft / name))} (FORMAT parquet,"
        f" COMPRESSION zstd, PARTITION_BY ({', '.join(PARTITIONS)}), FILENAME_PATTERN 'part-{batch}-{{i}}')"
    )
    return (draft / name).is_dir() and any((draft / name).iterdir())


def _write_empty(connection: DuckDBPyConnection, name: str, sql: str, draft: Path) -> None:
    """Write a file without rows in the partition of one run: engines refuse a table that has no file."""
    (values,) = connection.execute(f"SELECT {', '.join(PARTITIONS)} FROM place LIMIT 1").fetchall()
    place = (draft / name).joinpath(*map("=".join, zip(PARTITIONS, values, strict=True)))
    place.mkdir(parents=True, exist_ok=True)
    connection.execute(
        f"COPY (SELECT * EXCLUDE ({', '.join(PARTITIONS)}) FROM ({sql} JOIN place ON t.run_id = place.run_id)"
        f" LIMIT 0) TO {quoted(str(place / 'part-0-0.parquet'))} (FORMAT parquet, COMPRESSION zstd)"
    )


def _write_dictionary(connection: DuckDBPyConnection, directory: Path, draft: Path) -> None:
    """What each column means, for whoever reads the files without this page."""
    rows = [
        (table.name, _RENAMED.get((table.name, c.name), c.name), portable_type(c), c.meaning)
        for table in RUN_TABLES
        for c in table.columns
    ]
    meanings = dict(_RATES.columns)
    described = connection.execute(f"DESCRIBE {_RATES.sql}").fetchall()
    rows += [
        (_RATES.name, name, _PORTABLE.get(kind, kind), meanings.get(name, ""))
        for name, kind, *_ in described
        if name not in PARTITIONS
    ]
    tables = dict.fromkeys(name for name, *_ in rows)
    rows += [(name, key, "VARCHAR", meaning) for name in tables for key, meaning in _OF_PARTITIONS.items()]
    (draft / "dictionary").mkdir()
    lists = [list(cells) for cells in zip(*rows, strict=True)]
    connection.execute(
        "COPY (SELECT unnest(?::VARCHAR[]) AS table_name, unnest(?::VARCHAR[]) AS column_name,"
        " unnest(?::VARCHAR[]) AS data_type, unnest(?::VARCHAR[]) AS meaning)"
        f" TO {quoted(str(draft / 'dictionary' / 'dictionary.parquet'))} (FORMAT parquet, COMPRESSION zstd)",
        lists,
    )
    (directory / "dictionary").mkdir(exist_ok=True)
    (draft / "dictionary" / "dictionary.parquet").replace(directory / "dictionary" / "dictionary.parquet")


_OF_PARTITIONS = {
    "date": "UTC day on which the run began; of the path",
    "gpu": "the first GPU of the box in lower case, or none; of the path",
    "profile": "the profile in lower case; of the path",
}


def _purge(connection: DuckDBPyConnection, directory: Path, name: str, draft: Path) -> None:
    """Take older rows of the runs in `part` out of the files of a table: of a run that had no end, or of an
    export that was interrupted."""
    if not _files_of(directory, name):
        return
    every = quoted(f"{directory}/{name}/**/*.parquet")
    wanted = "run_id IN (SELECT run_id::VARCHAR FROM part)"
    found = connection.execute(
        f"SELECT DISTINCT filename FROM read_parquet({every}, hive_partitioning = false, filename = true,"
        f" union_by_name = true) WHERE {wanted}"
    ).fetchall()
    for (text,) in found:
        path, left = Path(text), draft / "left.parquet"
        one = f"FROM read_parquet({quoted(text)}, hive_partitioning = false)"
        ((rows,),) = connection.execute(
            f"COPY ({one} WHERE NOT {wanted}) TO {quoted(str(left))} (FORMAT parquet, COMPRESSION zstd)"
        ).fetchall()
        if rows:
            left.replace(path)
        else:
            path.unlink()
            with suppress(OSError):
                path.parent.rmdir()


def _move(draft: Path, table: Path) -> None:
    for path in sorted(draft.glob("**/*.parquet")):
        target = table / path.relative_to(draft)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
