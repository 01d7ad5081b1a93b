"""The only way to open a result file: a foreign file can neither run code here nor read our files.

Source of the order (attach, then lock down) and of the settings: DuckDB's securing guide, and trials with
hostile files on 1.4, 1.5 and 2.0.
"""

from __future__ import annotations

import difflib
import os
import random
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from sys import getsizeof
from typing import TYPE_CHECKING, Any, TypeVar  # Any: cells of a query

from gputui.errors import GputuiError, NoFile, clean_text
from gputui.model.units import counted
from gputui.store.locking import WAIT_S, Locked, let_writers_pass
from gputui.store.schema import FORMAT_NAME, META, SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SUFFIXES = (".db", ".duckdb")
"""Of result files."""
_LISTED = 8
"""Files that an error names."""
MARKER = "gputui-export.json"
"""The file that makes a directory an export of Parquet files."""
CATALOG = "d0"
"""The name of an attached file inside a connection: ours, never derived from the file's name."""
READ_LIMIT_S = 30.0
"""How long a file may be read by a command, or else from its opening on."""
MOST_BYTES = 64 * 2**20
"""Of a query, as Python holds them."""
CELL_BYTES = 24
"""What a cell counts for; a text also with what it takes in Python."""
TEXT_MOST_BYTES = 64 * 2**10
"""Of one value."""
TEXTS_AT_A_TIME = 256
"""Rows that are fetched before they are counted."""
NUMBERS_AT_A_TIME = 2048
"""The same where no text is long."""
_MEMORY_TO_READ = "256MB"
"""Of DuckDB, its cache included; telemetry of a day with 8 GPUs takes less."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.1
_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "max_temp_directory_size": "0B",
}
_ENDINGS = ("", ".wal", ".wal.recovery", ".wal.checkpoint")
"""Of files that DuckDB looks for when it opens one."""
_SQLITE_MAGIC = b"SQLite format 3\x00"
T = TypeVar("T")
Columns = Mapping[tuple[str, str], str]
"""Type of each table and column of a file."""


def expanded(path: Path) -> Path:
    """The path with `~` replaced by the home directory; unchanged if there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def has_working_directory() -> bool:
    """Whether the working directory of this process still exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def is_export(path: Path) -> bool:
    """Whether a path is a directory of exported Parquet files."""
    try:
        return (path / MARKER).is_file()
    except OSError:
        return False


def connect(threads: int = 2, memory: str = "1GB") -> DuckDBPyConnection:
    """An in-memory connection that loads and downloads no extension; takes about 15 ms."""
    import duckdb  # takes 0.1 s, and few callers open a file

    if not has_working_directory():  # removed during a run; DuckDB opens nothing without one
        os.chdir("/")
    return duckdb.connect(":memory:", config={**_CONFIG, "threads": str(threads), "memory_limit": memory})


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def name_for_duckdb(db: Path) -> str:
    """The path in UTF-8, which DuckDB uses as the bytes of the name in every locale. Raises GputuiError."""
    try:
        return os.fsencode(db).decode()
    except UnicodeDecodeError as error:
        raise GputuiError(
            f"{db}: its path is not UTF-8, and DuckDB opens no such file", "rename it, or name another file"
        ) from error


def check_place(db: Path) -> None:
    """Check that the path is a regular file, without opening it. Raises GputuiError."""
    name_for_duckdb(db)
    try:
        found = db.stat()
    except FileNotFoundError:
        raise NoFile(db, f"there is no result file {db}", _nearest(db)) from None
    except OSError as error:
        raise GputuiError(
            f"{db} cannot be read: {error.strerror}", "check the path and its rights"
        ) from error
    if stat.S_ISDIR(found.st_mode):
        raise GputuiError(f"{db} is a directory, not a result file", _nearest(db / "results.db"))
    if not stat.S_ISREG(found.st_mode):
        raise GputuiError(f"{db} is not a regular file", "name a result file made by gputui")
    if found.st_size == 0:
        raise GputuiError(f"{db} is empty, not a gputui result file", "name another file, or remove this one")
    if not os.access(db, os.R_OK):
        raise GputuiError(f"{db} may not be read by this user", f"ask its owner, or: chmod u+r {db}")


def attach(connection: DuckDBPyConnection, db: Path, options: str, name: str = CATALOG) -> None:
    """Attach a file. Raises Locked if another process holds it, else GputuiError."""
    import duckdb

    try:
        connection.execute(f"ATTACH {quoted(name_for_duckdb(db))} AS {name} (TYPE duckdb{options})")
    except duckdb.Error as error:
        text = str(error)
        if "Could not set lock" in text or "Conflicting lock" in text:
            pid = re.search(r"PID (\d+)", text)
            raise Locked(f"process {pid.group(1)}" if pid else "another process") from error
        if "Unique file handle conflict" in text or "different configuration" in text:
            raise Locked(f"this process ({os.getpid()})") from error
        raise explained(db, text) from error


def retrying(action: Callable[[], T]) -> T:
    """Repeat the action for WAIT_S, with growing and random pauses, while the file is held; then raise
    Locked."""
    deadline = time.monotonic() + WAIT_S
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return action()
        except Locked:
            if time.monotonic() >= deadline:
                raise
        time.sleep(pause_s * random.uniform(0.5, 1.5))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class TooLarge(GputuiError):
    """A file holds more than is read of one, or takes longer; the message names the file at fault."""


def too_large(db: Path, what: str, size: str, most: str) -> TooLarge:
    """The error for a table or column of a file that holds more than its limit."""
    return TooLarge(
        f"{db} holds {size} in {what}, and at most {most} of it is read",
        "do not trust this file; if it is yours, name one run of it: FILE@RUN",
    )


_of_command: dict[Path, float] | None = None
"""What is read by one deadline, and the seconds that this took."""


@contextmanager
def one_deadline() -> Iterator[None]:
    """All files that are opened in here, together or one after the other, are read by one deadline."""
    global _of_command
    _of_command = {}
    try:
        yield
    finally:
        _of_command = None


class Deadline:
    """How long some files that were opened together, and others of the same command, may be read.

    READ_LIMIT_S, and a second for each file after the first.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = tuple(files)
        self.spent_s = {} if _of_command is None else _of_command
        """Of all that is read by this deadline, in the order in which it was first opened."""
        for file in self.files:
            self.spent_s.setdefault(file, 0.0)
        self._counted_at = time.monotonic()

    def left_s(self) -> float:
        """How long they may still be read. Raises TooLarge if that is over."""
        now = time.monotonic()
        self.spent_s[self.files[0]] += now - self._counted_at
        self._counted_at = now
        first, *others = self.spent_s
        limit_s = READ_LIMIT_S + len(others)
        left_s = limit_s - sum(self.spent_s.values())
        if left_s > 0:
            return left_s
        more = f" and {counted(len(others), 'other file')} read with it" if others else ""
        raise TooLarge(f"{first}{more} took longer than {limit_s:.0f} s to read", "do not trust such files")


def whole_texts(sql: str, table: str, columns: Sequence[str], place: str = "0") -> str:
    """SQL for the same rows that fails if a text in these columns has more than TEXT_MOST_BYTES, unfetched.

    `place` is SQL for the number of the file that holds it.
    """
    if not columns:
        return sql
    # DuckDB takes longer to plan a condition for each column than to read a small table
    sizes = ", ".join(f'strlen("{column}")' for column in columns)
    told = f"'{_TOO_LONG}{table} {','.join(columns)} ' || {place} || ' ' || text_sizes::VARCHAR"
    return f"""SELECT * EXCLUDE (text_sizes) FROM (SELECT *, [{sizes}] AS text_sizes FROM ({sql}))
        WHERE CASE WHEN list_max(text_sizes) > {TEXT_MOST_BYTES} THEN error({told}) ELSE true END"""


_TOO_LONG = "too long: "


@contextmanager
def limited(connection: DuckDBPyConnection, deadline: Deadline, what: str) -> Iterator[None]:
    """Errors of DuckDB about the files in the user's words, of which `what` was read in the time left.

    DuckDB has no query timeout: a thread interrupts the connection. It holds the connection, so it ends here:
    while it lives at exit, DuckDB's bindings report the connection as leaked, and a late interrupt would hit
    the next query. Raises TooLarge if it takes too much time, GputuiError for damage or too much memory.
    """
    import duckdb

    timer = threading.Timer(deadline.left_s(), connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
        deadline.left_s()
    except duckdb.InterruptException:
        deadline.left_s()
        raise  # by somebody else
    except duckdb.Error as error:
        deadline.left_s()
        text = str(error)
        if found := re.search(rf"{_TOO_LONG}(\w+) (\S+) (\d+) \[(.+?)\]", text):
            table, columns, place, sizes = found.groups()
            by_column = zip(sizes.split(", "), columns.split(","), strict=True)
            size, column = max((int(size), column) for size, column in by_column if size != "NULL")
            where, most = f"{table}.{column}", f"{TEXT_MOST_BYTES:,}"
            raise too_large(deadline.files[int(place)], where, f"a text of {size:,} bytes", most) from None
        raise explained(deadline.files[0], text, what) from error
    finally:
        timer.cancel()
        timer.join()


def rows_of(
    connection: DuckDBPyConnection,
    db: Path | Deadline,
    sql: str,
    parameters: tuple[object, ...] = (),
    *,
    what: str = "",
    most: int = MOST_BYTES // CELL_BYTES,
    at_a_time: int = TEXTS_AT_A_TIME,
) -> list[tuple[Any, ...]]:
    """All rows of a query about one file or several.

    `what` is what errors name; by default the tables that it reads. Raises as `limited`, and GputuiError for
    more than `most` rows or MOST_BYTES: of several files one is too large, which reading them alone tells.
    """
    deadline = db if isinstance(db, Deadline) else Deadline([db])
    what = what or " and ".join(dict.fromkeys(re.findall(r"\.main\.(\w+)", sql)))
    rows: list[tuple[Any, ...]] = []
    left = MOST_BYTES * len(deadline.files)
    with limited(connection, deadline, what):
        connection.execute(f"{sql} LIMIT {most + 1}", list(parameters))
        described = connection.description or ()
        texts = [place for place, column in enumerate(described) if str(column[1]) == "VARCHAR"]
        while some := connection.fetchmany(at_a_time):
            deadline.left_s()
            left -= CELL_BYTES * len(some[0]) * len(some)
            left -= sum(sum(map(getsizeof, map(itemgetter(place), some))) for place in texts)
            rows += some
            if left < 0 or len(rows) > most:
                too_much = f"{MOST_BYTES // 2**20} MiB" if left < 0 else f"{most:,} rows"
                raise GputuiError(
                    f"{deadline.files[0]} holds more than {too_much} in {what}, which are not read",
                    "do not trust this file",
                )
    return rows


@dataclass(frozen=True, slots=True)
class Checked:
    """An attached file that was verified to be a gputui result file."""

    connection: DuckDBPyConnection
    db: Path
    catalog: str
    """Its name inside the connection."""
    schema_version: int
    columns: Columns
    statements: Mapping[str, str]
    """By table, the statement that creates it, which defines all of its columns and their order."""
    sizes: Mapping[str, int]
    """Rows by table, deleted ones that were not yet removed included."""
    deadline: Deadline
    """Of it and of the files that were opened together with it."""

    @property
    def empty(self) -> frozenset[str]:
        """Tables without rows."""
        return frozenset(table for table, rows in self.sizes.items() if rows == 0)


def open_read_only(db: Path, trust: bool = False) -> Checked:
    """As `open_together` for one file; waits up to WAIT_S for writers."""
    with explaining_lock(db):
        return retrying(lambda: open_together([db], trust))[0]


def open_together(files: Sequence[Path], trust: bool = False) -> list[Checked]:
    """Several different files on one locked-down connection, attached read-only, with their tables verified.

    No file can refer to another: nothing in them is executed. Does not wait for a writer while it holds other
    files: raises Locked if one of them is held, GputuiError if one is not a readable result file.
    """
    connection = connect(memory=_MEMORY_TO_READ)
    try:
        attached = attach_to_read(connection, files)
        close_the_doors(connection)
        return check_are_ours(connection, attached, trust)
    except BaseException:
        connection.close()
        raise


def connect_for(files: Sequence[Path]) -> DuckDBPyConnection:
    """A connection on which these files can be opened, some after others, and nothing else.

    It takes as long to make as to open ten files. Only simple queries are fast: it does not optimize.
    """
    connection = connect(threads=1, memory=_MEMORY_TO_READ)
    connection.execute("PRAGMA disable_optimizer")
    close_the_doors(connection, files=files)
    return connection


def attach_to_read(connection: DuckDBPyConnection, files: Sequence[Path]) -> dict[str, Path]:
    """Attach these files read-only; returns them by catalog. Raises Locked, GputuiError."""
    for db in files:
        check_place(db)
        let_writers_pass(db)
    attached = {f"d{number}": db for number, db in enumerate(files)}
    for name, db in attached.items():
        attach(connection, db, ", READ_ONLY", name)
    return attached


@contextmanager
def explaining_lock(db: Path) -> Iterator[None]:
    """Locked in the user's words."""
    try:
        yield
    except Locked as error:
        raise GputuiError(
            f"{db} is being written by {error.holder}", "try again when it has ended"
        ) from error


def close_the_doors(
    connection: DuckDBPyConnection, but_for: Sequence[Path] = (), files: Sequence[Path] = ()
) -> None:
    """Cut the connection off from files, the network and settings.

    `but_for`: not from these directories; `files`: not from these result files.
    """
    with_logs = [db.with_name(db.name + ending) for db in files for ending in _ENDINGS]
    for setting, paths in (("allowed_directories", but_for), ("allowed_paths", with_logs)):
        if paths:
            listed = ", ".join(quoted(name_for_duckdb(path)) for path in paths)
            connection.execute(f"SET {setting}=[{listed}]")
    connection.execute("SET enable_external_access=false")
    connection.execute("SET lock_configuration=true")


def check_are_ours(
    connection: DuckDBPyConnection, attached: Mapping[str, Path], trust: bool = False
) -> list[Checked]:
    """Verify that the files attached under these names are gputui result files whose tables hold no code.

    Raises GputuiError. Views are ignored. `trust` accepts macros, triggers and generated columns, which are
    not used.
    """
    deadline = Deadline(attached.values())
    statements: dict[str, dict[str, str]] = {catalog: {} for catalog in attached}
    sizes: dict[str, dict[str, int]] = {catalog: {} for catalog in attached}
    listed = "SELECT database_name, left(table_name, 200), sql, estimated_size FROM duckdb_tables()"
    for catalog, table, sql, rows in rows_of(
        connection,
        deadline,
        whole_texts(f"{listed} WHERE {_among(attached)} AND schema_name = 'main'", "duckdb_tables", ["sql"]),
        what="its list of tables",
        most=_MOST_TABLES * len(attached),
    ):
        statements[catalog][table] = sql
        sizes[catalog][table] = rows
    columns = _columns_of(connection, deadline, statements)
    for catalog, db in attached.items():
        if any(columns[catalog].get(("meta", c.name)) != c.sql_type for c in META.columns):
            raise _not_ours(db)
    if not trust:
        _refuse_code(connection, attached, statements, deadline)
    metas = _metas(connection, attached, deadline)
    found = []
    for catalog, db in attached.items():
        version = _checked_version(db, metas[catalog])
        _check_tables(db, statements[catalog], columns[catalog])
        of_file = columns[catalog], statements[catalog], sizes[catalog]
        found.append(Checked(connection, db, catalog, version, *of_file, deadline))
    return found


def _checked_version(db: Path, meta: Mapping[str, str]) -> int:
    """The schema version of a file. Raises GputuiError if this gputui cannot read it."""
    if meta.get("format") != FORMAT_NAME:
        raise _not_ours(db)
    version, needed = (_number(db, meta, key) for key in ("schema_version", "min_reader_schema"))
    if needed > SCHEMA_VERSION:
        made_by = clean_text(meta.get("created_by", ""))[:40]
        raise GputuiError(
            f"{db} was written by a newer gputui: it needs schema {needed}, this one reads up to"
            f" {SCHEMA_VERSION}",
            f"upgrade gputui here{made_by and f', where the file was made by {made_by}'}",
        )
    return version


def _check_tables(db: Path, there: Collection[str], columns: Columns) -> None:
    for table in TABLES:
        if not table.is_late and table.name not in there:
            raise GputuiError(f"{db} has no table {table.name}: it is damaged", "use a copy made before")
        for column in table.columns:
            found = columns.get((table.name, column.name), column.sql_type)
            if found != column.sql_type:
                raise GputuiError(
                    f"{db} has {table.name}.{column.name} as {clean_text(found)[:40]} where"
                    f" {column.sql_type} belongs",
                    "it was not written by gputui; do not trust it",
                )


def _metas(
    connection: DuckDBPyConnection, attached: Mapping[str, Path], deadline: Deadline
) -> dict[str, dict[str, str]]:
    """Key and value of each file's table `meta`."""
    found: dict[str, dict[str, str]] = {catalog: {} for catalog in attached}
    each = (f"SELECT '{catalog}' AS file, key, value FROM {catalog}.main.meta" for catalog in attached)
    sql = whole_texts(" UNION ALL ".join(each), "meta", ["key", "value"])
    for catalog, key, value in rows_of(connection, deadline, sql, most=1000 * len(attached)):
        found[catalog][str(key)] = str(value)
    return found


_known_columns: dict[frozenset[tuple[str, str]], Columns] = {}
"""By table and its CREATE statement, which names each column with its type: if these are equal, so are the
columns. Querying the columns of fifty files takes DuckDB as long as opening ten."""
_MOST_LAYOUTS = 64
_MOST_TABLES, _MOST_COLUMNS = 1000, 20_000
"""Of a file: ours, and those of its owner."""


def _columns_of(
    connection: DuckDBPyConnection, deadline: Deadline, statements: Mapping[str, Mapping[str, str]]
) -> dict[str, Columns]:
    """The columns of each catalog's tables; a view may have the name of a late one."""
    keys = {catalog: frozenset(tables.items()) for catalog, tables in statements.items()}
    found = {key: _known_columns[key] for key in set(keys.values()) if key in _known_columns}
    unknown = {key: catalog for catalog, key in keys.items() if key not in found}
    if unknown:
        sql = (
            "SELECT database_name, left(table_name, 200), left(column_name, 200), left(data_type, 200)"
            f" FROM duckdb_columns() WHERE {_among(unknown.values())} AND schema_name = 'main'"
        )
        most = _MOST_COLUMNS * len(unknown)
        rows = rows_of(connection, deadline, sql, what="its list of columns", most=most)
        for key, catalog in unknown.items():
            found[key] = {
                (table, column): kind
                for place, table, column, kind in rows
                if place == catalog and table in statements[catalog]
            }
    if len(_known_columns) > _MOST_LAYOUTS:
        _known_columns.clear()
    _known_columns.update(found)
    return {catalog: found[key] for catalog, key in keys.items()}


def _among(catalogs: Iterable[str]) -> str:
    return f"database_name IN ({', '.join(repr(catalog) for catalog in catalogs)})"


def explained(db: Path, text: str, what: str = "") -> GputuiError:
    """DuckDB's error about a file, in the user's words; `what` was read of it."""
    if "Out of Memory" in text or "could not allocate" in text:
        return GputuiError(
            f"{db} takes more than {_MEMORY_TO_READ[:-2]} MB of memory to read{f' {what}' if what else ''}",
            "do not trust this file",
        )
    if "version number" in text and "we can only read" in text:
        return GputuiError(
            f"{db} was made by a newer DuckDB than the one installed here",
            "upgrade duckdb: pip install -U duckdb",
        )
    if "not a valid DuckDB database file" in text:
        kind = _kind_of_file(db)
        return GputuiError(
            f"{db} is not a gputui result file: it is {kind}",
            f"if it is a trace of torch.profiler: gputui import {db}"
            if db.name.endswith((".json", ".json.gz"))
            else "name a file made by gputui",
        )
    if "Permission denied" in text:
        return GputuiError(f"{db} may not be opened by this user", "check its rights and its directory's")
    if "replaying WAL" in text or "WAL does not match" in text:
        return GputuiError(
            f"{db}.wal does not belong to {db}",
            f"copy both again from where they came, or move {db}.wal away to read what {db} alone holds",
        )
    first_line = clean_text(text.splitlines()[0] if text else "")[:200]
    return GputuiError(
        f"{db} is damaged (DuckDB: {first_line})",
        "copy it again when nothing writes to it; what is lost may still be in the run directory",
    )


def _kind_of_file(db: Path) -> str:
    """Only called after DuckDB has rejected the file: closing a file that it holds would drop its lock."""
    try:
        with db.open("rb") as file:
            start = file.read(16)
    except OSError:
        return "not a DuckDB database"
    return "a SQLite database" if start == _SQLITE_MAGIC else "not a DuckDB database"


def _not_ours(db: Path) -> GputuiError:
    return GputuiError(
        f"{db} is a DuckDB database, but not a gputui result file",
        "name a file made by gputui; this one is left alone",
    )


def _number(db: Path, meta: Mapping[str, str], key: str) -> int:
    text = meta.get(key, "")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise GputuiError(f"{db} has no readable {key}: it is damaged", "use a copy made before")
    return int(text)


def _refuse_code(
    connection: DuckDBPyConnection,
    attached: Mapping[str, Path],
    statements: Mapping[str, Mapping[str, str]],
    deadline: Deadline,
) -> None:
    import duckdb

    here = f"WHERE {_among(attached)}"
    # views are not among them: what is read by name is a table, see `_columns_of`
    macros = "SELECT database_name, 'macro', left(function_name, 200) FROM duckdb_functions()"
    asked = [f"{macros} {here} AND NOT internal"]
    if not duckdb.__version__.startswith("1."):  # which has neither triggers nor a function that lists them
        triggers = "SELECT database_name, 'trigger', left(trigger_name, 200) FROM duckdb_triggers()"
        asked.append(f"{triggers} {here}")
    found = {
        catalog: [f"generated column in {name}" for name, sql in tables.items() if is_generated(sql)]
        for catalog, tables in statements.items()
    }
    for sql in asked:
        for catalog, kind, name in rows_of(
            connection, deadline, sql, what="its list of functions", most=1000
        ):
            found[catalog].append(f"{kind} {name}")
    for catalog, db in attached.items():
        if found[catalog]:
            names = clean_text(", ".join(sorted(found[catalog])))[:200]
            raise GputuiError(
                f"{db} holds more than tables and views ({names}): gputui writes none of these",
                "do not trust this file; --trust reads its tables all the same",
            )


def is_generated(statement: str) -> bool:
    """Whether the table that this statement creates has columns that are computed."""
    return "GENERATED" in statement.upper()


def _nearest(db: Path) -> str:
    try:
        names = [entry.name for entry in db.parent.iterdir() if entry.suffix in SUFFIXES]
    except OSError:
        return f"there is no directory {db.parent} either" if not db.parent.exists() else "check the path"
    if not names:
        return f"no .db file is in {db.parent}; gputui run --db a.db makes one"
    close = difflib.get_close_matches(db.stem, {Path(name).stem for name in names}, n=3)
    near = [name for stem in close for name in sorted(names) if Path(name).stem == stem]
    shown = near or sorted(names)[:_LISTED]
    rest = "" if near or len(names) <= _LISTED else f" and {len(names) - _LISTED} more"
    there = f"did you mean {', '.join(near)}?" if near else f"{db.parent} holds {', '.join(shown)}{rest}"
    return there if db.suffix else f"{there}; a run or label is named with its file: {shown[0]}@{db.name}"
