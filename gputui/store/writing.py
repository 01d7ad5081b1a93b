"""Writes, labels and removes runs of a result file: completely or not at all, whatever happens meanwhile.

A rented box may vanish at any instant, and what it measured cost money.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, NotStored
from gputui.model.machine import Identity
from gputui.model.telemetry import Reading
from gputui.store import schema
from gputui.store.describe import explain
from gputui.store.journal_reader import JournalContents, Telemetry
from gputui.store.locking import WAIT_S, Locked, cleared, log_of, new_draft, sweep, write_lock
from gputui.store.opening import (
    CATALOG,
    TEXT_MOST_BYTES,
    attach,
    check_are_ours,
    check_place,
    close_the_doors,
    connect,
    expanded,
    explaining_lock,
    name_for_duckdb,
    open_read_only,
    retrying,
    rows_of,
)
from gputui.store.rows import Cell, Row, damage_rows, run_rows, telemetry_tuples
from gputui.store.selecting import common_ids, known_by_ids
from gputui.version import version

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROWS_AT_A_TIME = 10_000
_PROBE_BYTES = 2**20
_CUT = "... (cut)"
"""The end of a text that was too long."""
_REASONS = (
    ("No space left on device", "the disk is full", "make space there or name another file"),
    ("File too large", "the file may not grow further", "raise the limit (ulimit -f)"),
    ("Read-only file system", "the file system is read-only", "name a file elsewhere"),
    ("Permission denied", "this user may not write there", "name a file that you may write"),
    ("Disk quota exceeded", "the disk quota is used up", "make space there"),
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The result of storing a run."""

    db: Path
    run_id: str
    status: str
    already_there: bool
    """The file already had this run, as far as it goes; nothing was added."""
    cases: int
    blocks: int
    left_out: tuple[str, ...]
    """What could not be read of the journal and its telemetry, one sentence each."""


def store_run(
    db: Path, contents: JournalContents, telemetry: Iterable[Reading], *, imported_from: str = ""
) -> StoredRun:
    """Write one run into a result file, creating it if necessary; its directory must exist.

    One transaction, then checkpoint and close: a copy of the file alone is complete. Storing a run twice adds
    nothing; one that was stored from a journal without an end is replaced by the same run with its end. Waits
    up to WAIT_S for other writers and readers. Raises NotStored, and changes nothing then.
    """
    db = real_path(db)
    rows = run_rows(contents, imported_from, time.time_ns() // 1000)
    run_id = contents.start.run_id
    status = str(rows["runs"][0]["status"])
    with opened_for_writing(db) as connection, explaining(db):
        connection.execute("BEGIN")
        there = connection.execute(
            f"SELECT ended_us FROM {CATALOG}.main.runs WHERE run_id = ?::UUID", [run_id]
        ).fetchall()
        if there and (there[0][0] is not None or contents.end is None):
            connection.execute("ROLLBACK")
            return StoredRun(db, run_id, status, True, 0, 0, contents.damage)
        if there:
            delete_runs(connection, [run_id])
        for name, table_rows in rows.items():
            _insert(connection, name, _tuples(name, run_id, table_rows))
        _insert_telemetry(connection, run_id, telemetry_tuples(contents, telemetry))
        left_out = contents.damage
        if isinstance(telemetry, Telemetry):  # complete only now, after it was read
            level = "warning" if telemetry.is_readable else "error"
            events = damage_rows(telemetry.damage, level)
            _insert(connection, "events", _tuples("events", run_id, events))
            left_out += telemetry.damage
        connection.execute("COMMIT")
    return StoredRun(db, run_id, status, False, len(rows["cases"]), len(rows["blocks"]), left_out)


def delete_runs(connection: DuckDBPyConnection, runs: Sequence[str]) -> None:
    """Delete all rows of these runs, within the open transaction."""
    for table in schema.RUN_TABLES:
        connection.execute(
            f"DELETE FROM {CATALOG}.main.{table.name} WHERE run_id IN (SELECT unnest(?::UUID[]))", [runs]
        )


def remove_run(db: Path, run_id: str) -> None:
    """Remove one run with all its rows. Raises NotStored, and changes nothing then."""
    with _changing(db, run_id) as connection:
        delete_runs(connection, [run_id])


def label_run(db: Path, run_id: str, label: str) -> None:
    """Set the label of a run; an empty one removes it. Raises NotStored, and changes nothing then."""
    with _changing(db, run_id) as connection:
        connection.execute(
            f"UPDATE {CATALOG}.main.runs SET label = ? WHERE run_id = ?::UUID", [label, run_id]
        )


@contextmanager
def _changing(db: Path, run_id: str) -> Iterator[DuckDBPyConnection]:
    """One transaction on a file that contains this run."""
    db = real_path(db)
    with opened_for_writing(db) as connection, explaining(db):
        connection.execute("BEGIN")
        there = connection.execute(
            f"SELECT count(*) FROM {CATALOG}.main.runs WHERE run_id = ?::UUID", [run_id]
        ).fetchall()
        if not there[0][0]:
            raise NotStored(f"run {run_id[-8:]} is no longer in {db}", "somebody removed it: gputui runs")
        yield connection
        connection.execute("COMMIT")


def check_writable(db: Path) -> None:
    """Check, before anything is measured, that a run can be stored in this file later.

    An existing file gets a real commit that changes no value; for a new one, a file is created next to it and
    removed. Raises NotStored.
    """
    db = real_path(db)
    if db.exists():
        with opened_for_writing(db) as connection, explaining(db):
            connection.execute(f"UPDATE {CATALOG}.main.meta SET value = value WHERE key = 'created_by'")
        return
    _check_parent(db)
    try:
        with tempfile.TemporaryFile(dir=db.parent, prefix=".gputui-probe-") as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise _not_stored(db, str(error.strerror or error)) from error


def real_path(db: Path) -> Path:
    """The canonical path of a file, so that a link to it has the same lock. Raises GputuiError, NotStored."""
    try:
        resolved = expanded(db).resolve()
        resolved.exists()  # a name may be too long for the system
    except (OSError, RuntimeError) as error:
        raise NotStored(f"{db} is not a usable path: {error}", "name another file") from error
    name_for_duckdb(resolved)
    return resolved


def _check_parent(db: Path) -> None:
    if not db.parent.is_dir():
        raise NotStored(f"there is no directory {db.parent}", f"mkdir -p {db.parent}")


@contextmanager
def opened_for_writing(
    db: Path, beside: Mapping[str, Path] | None = None, reads: Sequence[Path] = ()
) -> Iterator[DuckDBPyConnection]:
    """The file attached as CATALOG for writing, checked and migrated; checkpointed and closed at the end.

    A new file is written under a temporary name and renamed when it is complete. `beside`: files to attach as
    well, read-only, under these names; the caller has verified that they are result files. `reads`: other
    directories that statements may read. `db` is a `real_path`. Raises NotStored, and changes nothing then.
    """
    beside = beside or {}
    _check_parent(db)
    try:
        if db.exists():  # verify a foreign file before writing to it, or next to it
            open_read_only(db).connection.close()
        with write_lock(db):
            sweep(db.parent)
            if db.exists():
                check_place(db)
                with _attached(db, "", db, beside, reads) as connection:
                    (checked,) = check_are_ours(connection, {CATALOG: db})
                    _migrate(connection, db, checked.schema_version)
                    _add_what_came_late(connection, db, checked.columns)
                    with explaining(db):
                        explain(connection, CATALOG)
                    yield connection
                    _name_boxes(connection, db)
            else:
                options = f", STORAGE_VERSION '{schema.STORAGE_VERSION}', BLOCK_SIZE {schema.BLOCK_BYTES}"
                draft = new_draft(db)
                with cleared(draft, log_of(draft)):
                    with _attached(draft, options, db, beside, reads) as connection:
                        _create(connection)
                        yield connection
                        _name_boxes(connection, db)
                    draft.rename(db)
    except NotStored:
        raise
    except GputuiError as error:
        raise NotStored(error.message, error.hint) from error
    except Locked as error:
        raise NotStored(
            f"{db} is held by {error.holder} since more than {WAIT_S:.0f} s", "store again when it has ended"
        ) from error
    except OSError as error:
        raise _not_stored(db, str(error.strerror or error)) from error


@contextmanager
def _attached(
    path: Path, options: str, db: Path, beside: Mapping[str, Path], reads: Sequence[Path]
) -> Iterator[DuckDBPyConnection]:
    """Attach the file at `path`, which is `db` or its draft."""
    connection = connect()
    try:
        with explaining(db):
            try:
                retrying(lambda: attach(connection, path, options))
                for name, other in beside.items():
                    with explaining_lock(other):
                        retrying(partial(attach, connection, other, ", READ_ONLY", name))
            except GputuiError as error:  # report a full disk as such, not as damage
                raise _in_short(db, str(error.__cause__)) or error from error
            close_the_doors(connection, reads)
        yield connection
        with explaining(db):
            connection.execute(f"CHECKPOINT {CATALOG}")
            connection.execute(f"DETACH {CATALOG}")
    finally:
        connection.close()


@contextmanager
def explaining(db: Path) -> Iterator[None]:
    """Turn errors of DuckDB into NotStored, in the user's words."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise _not_stored(db, str(error)) from error


def _not_stored(db: Path, text: str) -> NotStored:
    first_line = text.splitlines()[0] if text else ""
    return _in_short(db, text) or NotStored(f"nothing could be stored in {db}: {first_line}", "store again")


def _in_short(db: Path, text: str) -> NotStored | None:
    """The error, if it is one of those that do not depend on the file's content."""
    for sign, what, hint in _REASONS:
        if sign in text:
            return NotStored(f"nothing could be stored in {db}: {what}", f"{hint}, then try again")
    return None


def _create(connection: DuckDBPyConnection) -> None:
    import duckdb

    connection.execute("BEGIN")
    for table in schema.TABLES:
        connection.execute(table.create_sql(CATALOG))
    meta = {
        "format": schema.FORMAT_NAME,
        "schema_version": str(schema.SCHEMA_VERSION),
        "min_reader_schema": str(schema.MIN_READER_SCHEMA),
        "created_by": f"gputui {version()}, duckdb {duckdb.__version__}",
    }
    for key, value in meta.items():
        connection.execute(f"INSERT INTO {CATALOG}.main.meta VALUES (?, ?)", [key, value])
    _note_migration(connection, schema.SCHEMA_VERSION, "made")
    connection.execute("COMMIT")
    explain(connection, CATALOG)


def _name_boxes(connection: DuckDBPyConnection, db: Path) -> None:
    """Store which runs are of one box, for those who read the file with SQL."""
    of_run = f"FROM {CATALOG}.main.{{}} AS t WHERE t.run_id = m.run_id"
    identity = "[coalesce(kind, ''), coalesce(id, '')]"
    rows = rows_of(
        connection,
        db,
        f"""
        SELECT run_id::VARCHAR, coalesce(machine_id, ''), box_id,
            (SELECT coalesce(list({identity} ORDER BY t.rowid), []) {of_run.format("identities")}),
            (SELECT coalesce(list(gpu_id ORDER BY device_index), []) {of_run.format("devices")})
        FROM {CATALOG}.main.machines AS m""",
        what="machines",
    )
    known = {
        run_id: known_by_ids(machine_id, tuple(Identity(*one) for one in identities), gpu_ids)
        for run_id, machine_id, _, identities, gpu_ids in rows
    }
    ids = common_ids({known[run_id]: machine_id for run_id, machine_id, *_ in rows})
    changed = [
        (run_id, ids[known[run_id]].id) for run_id, _, box_id, *_ in rows if ids[known[run_id]].id != box_id
    ]
    if changed:
        with explaining(db):
            connection.execute(
                f"UPDATE {CATALOG}.main.machines SET box_id = c.id FROM (SELECT unnest(?::UUID[]) AS run_id,"
                " unnest(?::VARCHAR[]) AS id) AS c WHERE machines.run_id = c.run_id",
                [list(column) for column in zip(*changed, strict=True)],
            )


def _migrate(
    connection: DuckDBPyConnection,
    db: Path,
    version: int,
    migrations: Sequence[schema.Migration] = schema.MIGRATIONS,
) -> None:
    """Migrate an older file to this schema, one transaction per step."""
    with explaining(db):
        for migration in (one for one in migrations if one.version > version):
            connection.execute("BEGIN")
            for statement in migration.statements:
                connection.execute(statement.format(catalog=CATALOG))
            connection.execute(
                f"UPDATE {CATALOG}.main.meta SET value = ? WHERE key = 'schema_version'",
                [str(migration.version)],
            )
            _note_migration(connection, migration.version, migration.note)
            connection.execute("COMMIT")


def _add_what_came_late(connection: DuckDBPyConnection, db: Path, there: Collection[tuple[str, str]]) -> None:
    """Create the tables and columns that were added after the file was made."""
    tables = {table for table, _ in there}
    with explaining(db):
        for table in schema.TABLES:
            if table.name not in tables:
                connection.execute(table.create_sql(CATALOG))
                continue
            for column in table.columns:
                if (table.name, column.name) not in there:
                    added = f"ADD COLUMN {column.name} {column.sql_type}"
                    connection.execute(f"ALTER TABLE {CATALOG}.main.{table.name} {added}")


def _note_migration(connection: DuckDBPyConnection, schema_version: int, note: str) -> None:
    import duckdb

    connection.execute(
        f"INSERT INTO {CATALOG}.main.migrations VALUES (?, ?, ?, ?, ?)",
        [schema_version, time.time_ns() // 1000, version(), duckdb.__version__, note],
    )


def _tuples(name: str, run_id: str, rows: list[Row]) -> list[tuple[Cell, ...]]:
    """Rows in the order of their table's columns, with texts that can be read again."""
    names = schema.TABLE_BY_NAME[name].column_names[1:]
    texts = [c.name for c in schema.TABLE_BY_NAME[name].columns if c.sql_type == "VARCHAR"]
    for row in rows:
        if row.keys() != set(names):
            raise ValueError(f"row of {name} does not match its table: {sorted(row.keys() ^ set(names))}")
        for column in texts:
            row[column] = _readable(name, column, row[column])
    return [(run_id, *(row[column] for column in names)) for row in rows]


def _readable(table: str, column: str, cell: Cell) -> Cell:
    """A text that `whole_texts` accepts. Raises NotStored for JSON, which cannot be cut."""
    if not isinstance(cell, str) or len(cell) <= TEXT_MOST_BYTES // 4:
        return cell
    encoded = cell.encode(errors="replace")
    if len(encoded) <= TEXT_MOST_BYTES:
        return cell
    if column.endswith("_json"):
        raise NotStored(
            f"the run has {len(encoded):,} bytes in {table}.{column}, and at most"
            f" {TEXT_MOST_BYTES:,} are read",
            "its run directory was not written by gputui, or is damaged",
        )
    return encoded[: TEXT_MOST_BYTES - len(_CUT)].decode(errors="ignore") + _CUT


def _insert_telemetry(
    connection: DuckDBPyConnection, run_id: str, rows: Iterable[tuple[str, tuple[Cell, ...]]]
) -> None:
    waiting: dict[str, list[tuple[Cell, ...]]] = {"telemetry": [], "host_telemetry": []}
    for name, cells in rows:
        waiting[name].append((run_id, *cells))
        if len(waiting[name]) >= _ROWS_AT_A_TIME:
            _insert(connection, name, waiting[name])
            waiting[name] = []
    for name, rest in waiting.items():
        _insert(connection, name, rest)


def _insert(connection: DuckDBPyConnection, name: str, rows: list[tuple[Cell, ...]]) -> None:
    """Many rows at once: the appender of DuckDB 2, or one list per column before it."""
    if not rows:
        return
    table = schema.TABLE_BY_NAME[name]
    where = f"{CATALOG}.main.{name}"
    if _has_appender(connection):
        with connection.appender(where, columns=list(table.column_names)) as appender:
            appender.append_rows(rows)
        return
    lists = ", ".join(f"unnest(?::{column.sql_type}[])" for column in table.columns)
    columns = ", ".join(table.column_names)
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = rows[start : start + _ROWS_AT_A_TIME]
        parameters = [list(cells) for cells in zip(*part, strict=True)]
        connection.execute(f"INSERT INTO {where} ({columns}) SELECT {lists}", parameters)


def _has_appender(connection: DuckDBPyConnection) -> bool:
    return hasattr(connection, "appender")  # since DuckDB 2.0
