from __future__ import annotations

from pathlib import Path

import duckdb
from journals import GPU_MACHINE, RUN_ID, make_journal

from gputui.metrics import STORED
from gputui.store import schema
from gputui.store.describe import VIEWS, page
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

PAGE = Path(__file__).parents[2] / "docs" / "result-file.md"


def test_the_page_about_the_result_file_says_what_the_schema_is() -> None:
    assert PAGE.read_text() == page(), "python tests/makers/goldens.py makes it anew"


def test_a_new_file_has_the_tables_of_the_schema_the_views_and_nothing_else(tmp_path: Path) -> None:
    run_dir = make_journal(tmp_path / "run", machine=GPU_MACHINE)
    store_run(tmp_path / "a.db", read_journal(run_dir), read_telemetry(run_dir))

    with duckdb.connect(str(tmp_path / "a.db"), read_only=True) as connection:
        found = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns()"
            " JOIN duckdb_tables() USING (table_name) ORDER BY table_name, column_index"
        ).fetchall()
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        runs = connection.execute("SELECT run_id::VARCHAR FROM runs").fetchall()
    tables = sorted(schema.TABLES, key=lambda table: table.name)
    assert found == [(table.name, c.name, c.sql_type) for table in tables for c in table.columns]
    assert {name for (name,) in views} == {view.name for view in VIEWS}
    assert (meta["format"], meta["schema_version"]) == (schema.FORMAT_NAME, str(schema.SCHEMA_VERSION))
    assert runs == [(RUN_ID,)]


def test_every_metric_has_a_column() -> None:
    columns = {
        *schema.TABLE_BY_NAME["telemetry"].column_names,
        *schema.TABLE_BY_NAME["host_telemetry"].column_names,
    }
    assert {metric.stored.key for metric in STORED} <= columns


def test_migrations_lead_to_the_present_version_one_step_at_a_time() -> None:
    versions = [migration.version for migration in schema.MIGRATIONS]
    assert versions == list(range(1, schema.SCHEMA_VERSION + 1))
    assert schema.MIN_READER_SCHEMA <= schema.SCHEMA_VERSION
