"""The page about engines, on a real export: DuckDB, polars and Spark give the same answers."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from journals import GPU_MACHINE, STARTED_US, journal_lines, write_lines
from stored_runs import GPT, run_id_of, store

from gputui.store.journal_reader import read_journal
from gputui.store.parquet import export_runs
from gputui.store.writing import store_run

DOCS = Path(__file__).parents[2] / "docs"
PAGE, SQL_PAGE = ((DOCS / name).read_text(encoding="utf-8") for name in ("engines.md", "sql.md"))
OPENING, _, ANSWERED = PAGE.partition("## Open it")[2].partition("\n## ")
SQL = dict(re.findall(r"^## ([^\n]+)\n\n```sql\n(.+?)```", SQL_PAGE, re.MULTILINE | re.DOTALL))
ANSWERS = [
    (title, own or SQL[title], python)
    for title, own, python in re.findall(
        r"^(?:## )?([^\n]+\?)\n\n(?:```sql\n(.+?)```\n\n)?```python\n(.+?)```",
        ANSWERED,
        re.MULTILINE | re.DOTALL,
    )
]
"""Each with its SQL, which is that of the page about SQL where this one has none."""
TITLES = [title for title, _, _ in ANSWERS]
DUCKDB_VIEWS, LATEST = re.findall(r"```sql\n(.+?)```", OPENING, re.DOTALL)
SPARK_VIEWS, POLARS_FRAMES, POLARS_LATEST = re.findall(r"```python\n(.+?)```", OPENING, re.DOTALL)
Row = tuple[object, ...]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export `fleet` of two runs: GPU and CPU, a profiled pass, telemetry, fp32 and amp, prices."""
    place = tmp_path_factory.mktemp("engines")
    amp = replace(GPT, variant=replace(GPT.variant, precision="amp"))
    store(place / "a.db", 1, machine=GPU_MACHINE, on_gpu=True)
    lines = journal_lines(
        run_id=run_id_of(2),
        cases=(GPT, amp),
        launches=2,
        machine=GPU_MACHINE,
        started_utc_us=STARTED_US + 2 * 3_600_000_000,
    )
    store_run(place / "a.db", read_journal(write_lines(place / "journal", lines)), ())
    export_runs([place / "a.db"], place / "fleet")
    return place


@pytest.fixture(scope="module")
def connection(place: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with contextlib.chdir(place), duckdb.connect() as connection:
        connection.execute(DUCKDB_VIEWS)
        connection.execute(LATEST)
        yield connection


@pytest.fixture(autouse=True)
def _beside_the_export(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@pytest.fixture
def without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of an export `fleet` of one run on a CPU, without a profiled pass."""
    lines = journal_lines(run_id=run_id_of(1), cases=(GPT,))
    store_run(tmp_path / "a.db", read_journal(write_lines(tmp_path / "journal", lines)), ())
    export_runs([tmp_path / "a.db"], tmp_path / "fleet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_export_without_a_gpu_has_all_tables_and_no_rows_where_nothing_was_measured(
    without_a_gpu: Path,
) -> None:
    with duckdb.connect() as connection:
        connection.execute(DUCKDB_VIEWS + LATEST)
        rows = {title: connection.execute(sql).fetchall() for title, sql, _ in ANSWERS}
        assert connection.execute("SELECT count(*) FROM export('telemetry')").fetchall() == [(0,)]
    assert rows["Where does a step's time go?"] == []
    assert len(rows["How fast is each case, from the newest run?"]) == 1


def rounded(rows: Iterator[Row] | list[Row]) -> list[str]:
    """Rows in any order, with floats to seven digits and days as text."""
    return sorted(
        str(tuple(f"{cell:.7g}" if isinstance(cell, float) else str(cell) for cell in row)) for row in rows
    )


def test_the_page_holds_eight_answers() -> None:
    assert len(TITLES) == 8


@pytest.mark.parametrize(("title", "sql", "_"), ANSWERS, ids=TITLES)
def test_each_answer_in_duckdb_has_rows_without_a_column_that_is_all_null(
    title: str, sql: str, _: str, connection: duckdb.DuckDBPyConnection
) -> None:
    found = connection.execute(sql)
    assert found.description is not None
    names, rows = [column[0] for column in found.description], found.fetchall()
    assert rows, title
    empty = [name for name, cells in zip(names, zip(*rows, strict=True), strict=True) if set(cells) == {None}]
    assert set(empty) <= {"hottest_c", "relative_sd"}


@pytest.mark.slow
def test_polars_gives_the_answers_of_duckdb(connection: duckdb.DuckDBPyConnection, place: Path) -> None:
    pytest.importorskip("polars", reason="polars is not installed: pip install -e '.[dev]'")
    names: dict[str, Any] = {}
    exec(POLARS_FRAMES + POLARS_LATEST, names)
    for title, sql, python in ANSWERS:
        exec(_assigning(python), names)
        found = names["answer"].collect()
        assert rounded(found.rows()) == rounded(connection.execute(sql).fetchall()), title


def _assigning(python: str) -> str:
    """The code with its last expression assigned to `answer`."""
    import ast

    tree = ast.parse(python)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr)
    tree.body[-1] = ast.Assign([ast.Name("answer", ast.Store())], last.value)
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none here")
def test_spark_gives_the_answers_of_duckdb(
    connection: duckdb.DuckDBPyConnection, place: Path, tmp_path: Path
) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install pyspark")
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.sql.warehouse.dir", str(tmp_path)).getOrCreate()
    try:
        exec(SPARK_VIEWS, {"spark": spark})
        spark.sql(LATEST.rstrip().removesuffix(";"))
        portable = {title: sql for title, sql in SQL.items() if "duckdb_" not in sql and "ATTACH" not in sql}
        assert len(portable) == 10
        for title, statement in (portable | {title: sql for title, sql, _ in ANSWERS}).items():
            rows = [tuple(row) for row in spark.sql(statement.rstrip().removesuffix(";")).collect()]
            assert rounded(rows) == rounded(connection.execute(statement).fetchall()), title
    finally:
        spark.stop()
