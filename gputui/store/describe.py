"""Describes a result file to whoever opens it with DuckDB: comments and views in it, and the page about it,
which `python -m gputui.store.describe` prints.

Nothing of gputui reads the comments and views: a stranger's file may hold others under the same names."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputui.store.opening import quoted
from gputui.store.schema import (
    BLOCK_BYTES,
    MIN_READER_SCHEMA,
    SCHEMA_VERSION,
    STORAGE_VERSION,
    TABLES,
    as_markdown,
)
from gputui.worker import MIN_BLOCKS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_MOST_PAIRED = 500
"""Blocks of a launch of which all pairs are taken; of more, so many at equal ranks."""


@dataclass(frozen=True, slots=True)
class View:
    """A view that every result file has."""

    name: str
    meaning: str
    columns: tuple[tuple[str, str], ...]
    """Name and meaning."""
    sql: str
    """Without a catalog, so that the file can be attached under any name."""


_RATES_SQL = f"""
WITH timed AS (
    SELECT run_id, case_id, launch_id,
        ln(coalesce(device_ns, wall_ns) * 1e-9 / (steps * units_per_step)) AS log_s,
        row_number() OVER (PARTITION BY run_id, case_id, launch_id ORDER BY log_s) AS place,
        count(*) OVER (PARTITION BY run_id, case_id, launch_id) AS many,
        many // {2 * _MOST_PAIRED} AS middle
    FROM blocks
    JOIN measurements USING (run_id, case_id, launch_id)
    JOIN cases USING (run_id, case_id)
    WHERE measurements.outcome = 'ok'
    QUALIFY many >= CASE WHEN cases."precision" = 'own' AND cases.size = 'whole' THEN 1 ELSE {MIN_BLOCKS} END
), few AS (
    SELECT *
    FROM timed
    WHERE many <= {_MOST_PAIRED}
        OR (place + middle) * {_MOST_PAIRED} // many > (place + middle - 1) * {_MOST_PAIRED} // many
), launch AS (
    SELECT a.run_id, a.case_id, a.launch_id, any_value(a.many) AS blocks,
        median((a.log_s + b.log_s) / 2) AS log_s
    FROM few AS a
    JOIN few AS b
        ON a.run_id = b.run_id AND a.case_id = b.case_id AND a.launch_id = b.launch_id AND a.place <= b.place
    GROUP BY a.run_id, a.case_id, a.launch_id
), measured AS (
    SELECT run_id, case_id, exp(-avg(log_s)) AS rate, count(*) AS launches, sum(blocks)::BIGINT AS blocks
    FROM launch
    GROUP BY run_id, case_id
)
SELECT run_id, case_id, right(run_id::VARCHAR, 8) AS run, label, make_timestamp(started_us) AS started,
    profile, coalesce(box_id, machine_id) AS machine_id, cpu_model, device_name, torch_version,
    cuda_version, driver_version,
    workload, size, form, device_class AS device, device_index, "precision", mode, threads, work_key,
    rate, unit || '/s' AS unit, units_per_step / rate AS seconds, launches, blocks, usd_per_hour, gpu_count
FROM measured
JOIN cases USING (run_id, case_id)
JOIN runs USING (run_id)
LEFT JOIN machines USING (run_id)
LEFT JOIN prices USING (run_id)"""

_LATEST_SQL = """
SELECT *
FROM rates
QUALIFY row_number() OVER (
    PARTITION BY machine_id, work_key, device, device_name, "precision", mode, threads
    ORDER BY started DESC, run DESC) = 1"""

_RATE_COLUMNS = (
    ("run", "the end of run_id, as gputui names runs"),
    ("machine_id", "of the box: runs of one box have the same"),
    ("started", "UTC"),
    ("device", "cpu or gpu; host for a recording"),
    ("rate", "units of work per second; gputui show gives its interval"),
    ("unit", "tok/s, img/s, flop/s, B/s and so on"),
    ("seconds", "of a step"),
    ("launches", "worker processes that measured it"),
    ("blocks", "timed blocks of all of them"),
    ("gpu_count", "GPUs that usd_per_hour buys"),
)

VIEWS: tuple[View, ...] = (
    View(
        "rates",
        "The rate of each case that was measured: of each launch the Hodges-Lehmann estimate of its blocks,"
        " of several launches their geometric mean.",
        _RATE_COLUMNS,
        _RATES_SQL,
    ),
    View("latest_cases", "Of each case on each machine the newest rate.", _RATE_COLUMNS, _LATEST_SQL),
)
"""In the order of their creation: one may use those before it."""


def explain(connection: DuckDBPyConnection, catalog: str) -> None:
    """Write the comments and views into a file attached for writing, unless it has these already.

    A user's table or view of such a name stays, and then the file gets no views.
    """
    known = connection.execute(f"SELECT value FROM {catalog}.main.meta WHERE key = '{_KEY}'").fetchall()
    if known == [(_VERSION,)]:
        return
    listed = connection.execute(
        f"SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = '{catalog}'"
    ).fetchall()
    connection.execute("BEGIN")
    connection.execute("; ".join(_comments(catalog, {(str(table), str(name)) for table, name in listed})))
    connection.execute("COMMIT")  # DuckDB 1.4 cannot change a table's comment and its rows at once
    _create_views(connection, catalog)
    connection.execute(f"INSERT OR REPLACE INTO {catalog}.main.meta VALUES ('{_KEY}', '{_VERSION}')")


def _create_views(connection: DuckDBPyConnection, catalog: str) -> None:
    import duckdb

    names = ", ".join(f"'{view.name}'" for view in VIEWS)
    others = connection.execute(
        f"SELECT view_name FROM duckdb_views() WHERE database_name = '{catalog}' AND view_name IN ({names})"
        f" AND NOT starts_with(coalesce(comment, ''), '{_OURS}')"
    ).fetchall()
    if others:
        return
    connection.execute("BEGIN")
    try:
        connection.execute("; ".join(_creation(catalog, view) for view in VIEWS))
    except (duckdb.BinderException, duckdb.CatalogException):
        connection.execute("ROLLBACK")  # an old file that lacks a column, or a table of the user
        return
    connection.execute("COMMIT")


_OURS = "gputui: "
"""How the comment of a view begins that gputui may replace."""


def _comments(catalog: str, there: Collection[tuple[str, str]]) -> Iterator[str]:
    for table in TABLES:
        yield f"COMMENT ON TABLE {catalog}.main.{table.name} IS {quoted(table.meaning)}"
        for column in table.columns:
            if column.meaning and (table.name, column.name) in there:
                where = f"{catalog}.main.{table.name}.{column.name}"
                yield f"COMMENT ON COLUMN {where} IS {quoted(column.meaning)}"


def _creation(catalog: str, view: View) -> str:
    where = f"{catalog}.main.{view.name}"
    return "; ".join(
        (
            f"CREATE OR REPLACE VIEW {where} AS {view.sql}",
            f"COMMENT ON VIEW {where} IS {quoted(_OURS + view.meaning)}",
            *(f"COMMENT ON COLUMN {where}.{name} IS {quoted(text)}" for name, text in view.columns),
        )
    )


_KEY = "explained"
_VERSION = hashlib.sha256(repr((TABLES, VIEWS)).encode()).hexdigest()[:16]
"""Changes with any comment or view; kept in `meta`, so that a file is explained once."""

_PAGE = """# The result file: tables and columns

One result file holds any number of runs. It is a DuckDB database of storage version {storage} with {block}
KiB blocks, which DuckDB 1.4 and later read: `duckdb -readonly results.db`, if you made it; [twelve answers in
SQL](sql.md). Its schema is version {version}, which is frozen: tables and columns keep their names, types and
meaning. Readers of schema {reader} and later read it.

- NULL means *not measured* or *could not be had*, never 0. `absent_json` has reasons, by column.
- Instants end in `_us` and are UTC in microseconds since 1970. Durations end in `_ns`. Other units are in the
  names, too.
- Views of your own may stay in a result file: gputui reads tables alone. [Macros and
  triggers](housekeeping.md#a-file-from-somebody-else) may not.
- A run is written in one transaction, then the file is checkpointed and closed: a copy of the file alone is
  whole. `FILE.wal` beside it means that a writer was killed: copy both, or open the file once with gputui.
- `FILE.lock` is held while something is written. You may remove it when nothing writes.
- Later versions only add tables and columns, which are NULL for older files. Reading never changes a file:
  what is new comes when a run is stored in it or merged into it. A newer file is read as far as this gputui
  knows it, and refused if its `meta.min_reader_schema` is above {version}.
- In Python, open a stranger's file with `gputui.store.reading.open_result`, several with `open_results`,
  never with `duckdb.connect`.

## Views

{views}
## Tables

Every table but `meta` and `migrations` begins with `run_id` (UUID), the UUIDv7 of the run. A column without a
type is BIGINT.

{tables}"""


def page() -> str:
    """The whole page, as in `docs/result-file.md`."""
    return _PAGE.format(
        storage=STORAGE_VERSION,
        block=BLOCK_BYTES // 1024,
        version=SCHEMA_VERSION,
        reader=MIN_READER_SCHEMA,
        tables=as_markdown(),
        views="".join(f"- `{view.name}`: {view.meaning}\n" for view in VIEWS),
    )


if __name__ == "__main__":
    print(page(), end="")
