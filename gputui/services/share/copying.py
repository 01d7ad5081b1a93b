"""Copies runs into a new result file in which only known texts are left."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.model.plan import Work
from gputui.model.result import RunSummary
from gputui.services.share.rules import Names, TextRule, rules_of
from gputui.services.support.uuid7 import uuid7
from gputui.store.opening import CATALOG, rows_of
from gputui.store.schema import RUN_TABLES, Table
from gputui.store.writing import explaining, opened_for_writing
from gputui.worker.foreign_json import read_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ID_BITS = 80
COUNTED = {
    "run": "runs",
    "measured case": "cases WHERE outcome = 'ok'",
    "timed block": "blocks",
    "request": "requests",
    "sample": "telemetry",
    "row": "operators",
    "event": "events",
}
"""What is counted of a copy, and the rows that are that."""
Picked = Mapping[Path, Sequence[RunSummary]]
"""The runs to copy of each file."""


def shared_copy(
    picked: Picked, columns: Mapping[Path, frozenset[tuple[str, str]]], out: Path, names: Names
) -> Counter[str]:
    """Copy runs into `out`, which is new; `columns` are the tables and columns that each file has.

    Returns how many rows of each kind of COUNTED are in it.

    The caller has read these runs, so that what they hold is valid. Every text goes through its rule. Clocks
    and counters of the box begin at 0, and its time zone is UTC: they would tell its uptime and place.
    Raises NotStored.
    """
    catalogs = {f"d{number}": path for number, path in enumerate(picked, 1)}
    rules = rules_of(names)
    with opened_for_writing(out, catalogs) as connection, explaining(out):
        connection.execute("CREATE TEMP TABLE new_runs (old_id UUID, new_id UUID, started_ns BIGINT)")
        connection.execute("CREATE TEMP TABLE new_texts (place VARCHAR, old VARCHAR, new VARCHAR)")
        connection.execute("BEGIN")
        for catalog, path in catalogs.items():
            _note_runs(connection, catalog, path, picked[path], names)
            for table in RUN_TABLES:
                if table.name in rules and (table.name, "run_id") in columns[path]:
                    if table.name == "prices" and not names.keep.price:
                        runs = f"SELECT run_id::VARCHAR FROM {catalog}.main.prices"
                        sql = f"{runs} SEMI JOIN new_runs ON run_id = old_id"
                        names.replaced["price"].update(str(run) for (run,) in rows_of(connection, path, sql))
                        continue
                    _copy(connection, catalog, path, table, columns[path], rules[table.name], names)
        rekey(connection, out)
        connection.execute(f"DELETE FROM {CATALOG}.main.events WHERE message IS NULL")
        counts = ", ".join(f"(SELECT count(*) FROM {CATALOG}.main.{rows})" for rows in COUNTED.values())
        (row,) = connection.execute(f"SELECT {counts}").fetchall()
        connection.execute("COMMIT")
    return Counter(dict(zip(COUNTED, row, strict=True)))


def _note_runs(
    connection: DuckDBPyConnection, catalog: str, path: Path, picked: Sequence[RunSummary], names: Names
) -> None:
    connection.execute("DELETE FROM new_runs")
    sql = f"SELECT run_id::VARCHAR, started_ns FROM {catalog}.main.runs"
    clocks = {str(run_id): started_ns for run_id, started_ns in rows_of(connection, path, sql)}
    for run in picked:
        new = run.run_id
        if not names.keep.ids:
            new = uuid7(run.started_utc_us // 1000, secrets.randbits(_ID_BITS))
            names.replaced["id"].add(run.run_id)
        connection.execute(
            "INSERT INTO new_runs VALUES (?::UUID, ?::UUID, ?)",
            [run.run_id, new, clocks.get(run.run_id) or 0],
        )


def _copy(
    connection: DuckDBPyConnection,
    catalog: str,
    path: Path,
    table: Table,
    there: frozenset[tuple[str, str]],
    rules: Mapping[str, TextRule],
    names: Names,
) -> None:
    """Copy one table; a text column without a rule, and one that the file lacks, is NULL."""
    source = f"{catalog}.main.{table.name}"
    texts = [c.name for c in table.columns if c.name in rules and (table.name, c.name) in there]
    _note_texts(connection, path, source, texts, rules, names)
    cells, joins = [], []
    for column in table.columns:
        name = column.name
        if name == "run_id":
            cells.append("r.new_id")
        elif name in texts:
            joins.append(
                f"LEFT JOIN new_texts AS t_{name} ON t_{name}.place = '{name}' AND t_{name}.old = s.{name}"
            )
            cells.append(f"t_{name}.new")
        elif column.sql_type == "VARCHAR" or (table.name, name) not in there:
            cells.append(f"NULL::{column.sql_type}")
        else:
            cells.append(SHIFTED.get((table.name, name), "s.{0}").format(name))
    if ("telemetry", "energy_mj") in there and table.name == "telemetry":
        least = f"SELECT run_id, device_index, min(energy_mj) AS energy_mj FROM {source} GROUP BY ALL"
        joins.append(
            f"LEFT JOIN ({least}) AS least ON least.run_id = s.run_id AND least.device_index = s.device_index"
        )
    in_order = " ORDER BY s.rowid" if joins and texts else ""
    connection.execute(
        f"INSERT INTO {CATALOG}.main.{table.name} ({', '.join(table.column_names)}) SELECT {', '.join(cells)}"
        f" FROM {source} AS s JOIN new_runs AS r ON s.run_id = r.old_id {' '.join(joins)}{in_order}"
    )


def _note_texts(
    connection: DuckDBPyConnection,
    path: Path,
    source: str,
    columns: Sequence[str],
    rules: Mapping[str, TextRule],
    names: Names,
) -> None:
    """Note what becomes of every text of these columns of a table."""
    connection.execute("DELETE FROM new_texts")
    if not columns:
        return
    each = " UNION ALL ".join(
        f"SELECT '{name}' AS place, {name} AS old FROM {source} SEMI JOIN new_runs ON run_id = old_id"
        for name in columns
    )
    sql = f"SELECT DISTINCT place, old FROM ({each}) WHERE old IS NOT NULL ORDER BY place, old"
    found = [(str(place), str(old)) for place, old in rows_of(connection, path, sql, what=source)]
    new = [rules[place].shared(names, old) for place, old in found]
    connection.execute(
        "INSERT INTO new_texts SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
        [[place for place, _ in found], [old for _, old in found], new],
    )


SHIFTED = {
    ("runs", "started_ns"): "0",
    ("runs", "utc_offset_min"): "0",
    ("runs", "stored_us"): "epoch_us(get_current_timestamp())",
    **{
        (table, column): f"if(s.{column} IS NULL, NULL, greatest(s.{column} - r.started_ns, 0))"
        for table, columns in (
            ("blocks", ("start_ns",)),
            ("servers", ("t_ns",)),
            ("load_steps", ("window_start_ns", "window_end_ns")),
            ("requests", ("due_ns", "sent_ns", "first_ns", "last_ns", "ended_ns")),
        )
        for column in columns
    },
    ("telemetry", "energy_mj"): "s.energy_mj - least.energy_mj",
}
"""Numbers that would tell how long the box was up, or where it stands."""


def rekey(connection: DuckDBPyConnection, out: Path) -> None:
    """Work keys of what the works are called now, so that they are equal if and only if the work is."""
    sql = (
        "SELECT DISTINCT workload, workload_version, size, form, parameters_json"
        f" FROM {CATALOG}.main.cases WHERE workload IS NOT NULL"
    )
    for workload, version, size, form, parameters in rows_of(connection, out, sql):
        pairs = tuple((name, value) for name, value in read_json(str(parameters)))
        key = Work(str(workload), int(str(version)), str(size), str(form), pairs).key
        connection.execute(
            f"UPDATE {CATALOG}.main.cases SET work_key = ? WHERE workload = ? AND workload_version = ?"
            " AND size = ? AND form = ? AND parameters_json = ?",
            [key, workload, version, size, form, parameters],
        )
