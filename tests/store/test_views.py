"""What DuckDB alone shows of a result file: comments and views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from journals import GPU_MACHINE
from stored_runs import run_id_of, store

from gputui.model.absent import Missing
from gputui.model.machine import Identity
from gputui.services.results.browser import list_runs
from gputui.services.results.frames import load
from gputui.services.results.throughput import speed_of
from gputui.store.describe import VIEWS
from gputui.store.merging import merge_files
from gputui.store.parquet import export_runs
from gputui.store.reading import open_result
from gputui.store.schema import TABLES
from gputui.store.writing import label_run


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one machine and one of another, each with two cases."""
    db = tmp_path_factory.mktemp("views") / "a.db"
    store(db, 1)
    store(db, 2, gpt_ms=80.0, launches=2)
    store(db, 3, machine=GPU_MACHINE, on_gpu=True)
    return db


@pytest.fixture
def db(stored: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "a.db"
    copy.write_bytes(stored.read_bytes())
    return copy


def asked(db: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(db), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def run(db: Path, statements: Iterable[str]) -> None:
    with duckdb.connect(str(db)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_every_table_and_every_column_with_a_meaning_has_a_comment(stored: Path) -> None:
    found = asked(stored, "SELECT table_name, comment FROM duckdb_tables()")
    tables = {str(name): comment for name, comment in found}
    assert tables == {table.name: table.meaning for table in TABLES}
    columns = {
        (table, column): comment
        for table, column, comment in asked(
            stored, "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL"
        )
    }
    expected = {(t.name, c.name): c.meaning for t in TABLES for c in t.columns if c.meaning}
    expected |= {(view.name, name): meaning for view in VIEWS for name, meaning in view.columns}
    assert columns == expected


def test_rates_are_those_of_show(stored: Path) -> None:
    found = asked(stored, "SELECT run_id::VARCHAR, case_id, rate, seconds, launches, blocks FROM rates")
    rates = {(str(run_id), case_id): rest for run_id, case_id, *rest in found}
    with open_result(stored) as file:
        for number in (1, 2, 3):
            for case in file.run(run_id_of(number)).cases:
                speed = speed_of(case)
                if isinstance(speed, Missing):
                    assert (run_id_of(number), case.case_id) not in rates
                    continue
                rate, seconds, launches, blocks = rates.pop((run_id_of(number), case.case_id))
                assert rate == pytest.approx(speed.units_per_s, rel=1e-12)
                assert seconds == pytest.approx(case.case.units_per_step / speed.units_per_s, rel=1e-12)
                assert (launches, blocks) == (speed.launches, speed.blocks)
    assert rates == {}


def test_a_launch_of_thousands_of_blocks_is_read_within_a_thousandth(db: Path) -> None:
    launch = f"(SELECT min(launch_id) FROM measurements WHERE run_id = '{run_id_of(1)}' AND case_id = 1)"
    which = f"'{run_id_of(1)}', 1, {launch}"
    wall_ns = "round(1e8 * exp(2 * ((i * 7919) % 5000) / 5000))::BIGINT"
    run(
        db,
        [
            f"DELETE FROM blocks WHERE run_id = '{run_id_of(1)}' AND case_id = 1",
            f"INSERT INTO blocks SELECT {which}, i, 1, i, i, {wall_ns}, NULL, 1, 0 FROM range(5000) t(i)",
        ],
    )
    ((rate, blocks),) = asked(
        db, f"SELECT rate, blocks FROM rates WHERE run_id = '{run_id_of(1)}' AND case_id = 1"
    )
    with open_result(db) as file:
        speed = speed_of(file.run(run_id_of(1)).cases[1])
    assert not isinstance(speed, Missing)
    assert rate == pytest.approx(speed.units_per_s, rel=1e-3)
    assert blocks == speed.blocks == 5000


def test_the_latest_cases_are_the_newest_of_each_machine(stored: Path) -> None:
    found = asked(stored, "SELECT run, workload FROM latest_cases ORDER BY ALL")
    assert found == [(f"cccc000{n}", workload) for n in (2, 3) for workload in ("gemm", "gpt_train")]


def test_views_work_under_any_name_of_the_database_and_can_be_read_by_duckdb_1(stored: Path) -> None:
    """DuckDB 2 stores `if(...)` as a function, which DuckDB 1 has only as syntax."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{stored}' AS mine (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM mine.latest_cases").fetchall() == [(4,)]
    found = asked(stored, "SELECT sql FROM duckdb_views() WHERE NOT internal")
    assert found
    assert not [sql for (sql,) in found if '"if"(' in str(sql)]


def test_a_file_of_before_is_read_as_it_is_and_gets_columns_and_views_when_it_is_written(db: Path) -> None:
    without = [f"DROP VIEW {view.name}" for view in reversed(VIEWS)]
    run(
        db,
        [
            *without,
            "COMMENT ON TABLE runs IS NULL",
            "ALTER TABLE blocks DROP COLUMN device_ns",
            "DELETE FROM meta WHERE key = 'explained'",
        ],
    )
    before = db.read_bytes()
    with open_result(db) as file:
        assert len(file.summaries()) == 3
    assert db.read_bytes() == before
    label_run(db, run_id_of(1), "mine")
    assert asked(db, "SELECT label FROM rates WHERE label <> ''") == [("mine",), ("mine",)]
    assert asked(db, "SELECT comment FROM duckdb_tables() WHERE table_name = 'runs'")[0][0]
    assert asked(db, "SELECT count(*) FROM duckdb_views() WHERE NOT internal") == [(len(VIEWS),)]
    assert asked(db, "SELECT DISTINCT device_ns FROM blocks") == [(None,)]


def test_views_of_a_newer_version_replace_ours(db: Path) -> None:
    old = "CREATE OR REPLACE VIEW latest_cases AS SELECT 1 AS old"
    run(
        db,
        [
            old,
            "COMMENT ON VIEW latest_cases IS 'gputui: of before'",
            "DELETE FROM meta WHERE key = 'explained'",
        ],
    )
    label_run(db, run_id_of(3), "mine")
    assert asked(db, "SELECT DISTINCT label FROM latest_cases ORDER BY ALL") == [("",), ("mine",)]


@pytest.mark.parametrize("kind", ["VIEW", "TABLE"])
def test_a_view_or_table_of_the_user_of_the_same_name_stays(db: Path, kind: str) -> None:
    run(
        db,
        [
            "DROP VIEW rates",
            f"CREATE {kind} rates AS SELECT 2 AS mine",
            "DELETE FROM meta WHERE key = 'explained'",
        ],
    )
    label_run(db, run_id_of(1), "mine")
    assert asked(db, "SELECT * FROM rates") == [(2,)]


def test_runs_of_two_accounts_on_one_box_have_one_machine_in_views_frames_and_lists(tmp_path: Path) -> None:
    accounts = [
        replace(
            GPU_MACHINE,
            machine_id=name,
            identities=(*surest, Identity("account", name), Identity("boot", "b00t")),
        )
        for name, surest in (("acc0unt1", ()), ("acc0unt2", (Identity("machine-id", "machine1"),)))
    ]
    first, second, both = (tmp_path / name for name in ("a.db", "b.db", "ab.db"))
    store(first, 1, machine=accounts[0])
    store(second, 2, machine=accounts[1])
    merge_files([first, second], both)
    one = {("machine1",)}
    for view in ("rates", "latest_cases"):
        assert set(asked(both, f"SELECT machine_id FROM {view}")) == one
    stored = asked(both, "SELECT machine_id, box_id FROM machines ORDER BY 1")
    assert stored == [("acc0unt1", "machine1"), ("acc0unt2", "machine1")]
    with open_result(both) as file:
        assert {summary.machine.machine_id for summary in file.summaries()} == {"machine1"}
        assert file.run(run_id_of(1)).summary.machine.machine_id == "machine1"
    frames = load(first, second)
    for frame in (frames.runs, frames.rates):
        assert set(frame["machine_id"]) == {"machine1"}
    listed = list_runs([first.absolute(), second.absolute()])
    assert {found.summary.machine.machine_id for found in listed} == {"machine1"}
    export_runs([first, second], tmp_path / "export")
    with duckdb.connect() as connection:
        rates = f"read_parquet('{tmp_path}/export/rates/**/*.parquet')"
        assert set(connection.execute(f"SELECT machine_id FROM {rates}").fetchall()) == one
