"""The result file is frozen: files of each version are read, extended and merged; newer ones are refused."""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from journals import make_journal

from gputui.errors import EXIT_USAGE, GputuiError
from gputui.metrics import STORED
from gputui.store import schema
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.merging import merge_files
from gputui.store.reading import open_result, powers_of
from gputui.store.writing import store_run

FILES = sorted((Path(__file__).parent / "schema_files").glob("*/*.db.gz"))
"""By version and kind of run, made by `tests/makers/schema_files.py` when the version was frozen."""
FROZEN = Path(__file__).parent / "schema_1.txt"
NEW_RUN = "0194b5a0-0000-7000-8000-00000000aaaa"


def unpacked(packed: Path, directory: Path) -> Path:
    db = directory / packed.name.removesuffix(".gz")
    db.write_bytes(gzip.decompress(packed.read_bytes()))
    return db


def rows_by_table(db: Path) -> Counter[str]:
    with duckdb.connect(str(db), read_only=True) as connection:
        tables = [
            str(name) for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        ]
        counts = ((name, connection.execute(f"SELECT count(*) FROM {name}").fetchone()) for name in tables)
        return Counter({name: int(count[0]) for name, count in counts if count and count[0]})


def read_everything(db: Path) -> list[str]:
    """All that gputui reads of a file, as text: in values, what was not measured differs from itself."""
    found: list[object] = []
    with open_result(db) as file:
        for summary in file.summaries():
            run_id = summary.run_id
            found += [summary, file.run(run_id), file.profiled(run_id), file.events(run_id)]
            found += [file.failed_launches(run_id), file.telemetry_summary(run_id), file.conditions(run_id)]
            found += [powers_of([file], [(run_id,)]), file.telemetry_series(run_id, 50), file.serving(run_id)]
    return [repr(one) for one in found]


def store_one_more(db: Path, directory: Path) -> None:
    run_dir = make_journal(directory / "one more", run_id=NEW_RUN)
    store_run(db, read_journal(run_dir), read_telemetry(run_dir))


def id_of(packed: Path) -> str:
    return f"{packed.parent.name}-{packed.name.partition('.')[0]}"


def test_there_are_files_of_every_version_and_kind() -> None:
    kinds = {"cpu", "recording", "trace", "bakeoff", "serving"}
    versions = {str(version) for version in range(schema.SCHEMA_VERSION + 1)}
    assert {id_of(file) for file in FILES} == {f"{version}-{kind}" for version in versions for kind in kinds}


@pytest.mark.parametrize("packed", FILES, ids=id_of)
def test_a_file_of_an_earlier_day_is_read_in_full_takes_a_run_of_today_and_keeps_every_row_of_its_own(
    packed: Path, tmp_path: Path
) -> None:
    db = unpacked(packed, tmp_path)
    before = hashlib.sha256(db.read_bytes()).hexdigest()
    rows, read = rows_by_table(db), read_everything(db)
    assert len(read) == 10 * rows["runs"]
    assert hashlib.sha256(db.read_bytes()).hexdigest() == before, "reading changes no byte"
    assert sorted(path.name for path in tmp_path.iterdir()) == [db.name]

    store_one_more(db, tmp_path)
    after = rows_by_table(db)
    assert after["runs"] == rows["runs"] + 1
    assert not rows - after, "no table lost a row"
    with open_result(db) as file:
        newest_first = [summary.run_id for summary in file.summaries()]
    assert NEW_RUN in newest_first
    assert set(read) <= set(read_everything(db))
    with duckdb.connect(str(db), read_only=True) as connection:
        found = {
            (table, column)
            for table, column in connection.execute(
                "SELECT table_name, column_name FROM duckdb_columns()"
            ).fetchall()
        }
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    assert {(table.name, column.name) for table in schema.TABLES for column in table.columns} <= found
    assert version == (str(schema.SCHEMA_VERSION),)


def test_a_run_with_a_metric_that_older_runs_lack_changes_nothing_that_is_read_of_them(
    tmp_path: Path,
) -> None:
    (packed,) = [file for file in FILES if id_of(file) == f"{schema.SCHEMA_VERSION}-cpu"]
    db = unpacked(packed, tmp_path)
    with duckdb.connect(str(db)) as connection:
        connection.execute("ALTER TABLE host_telemetry DROP COLUMN cpu_clock_mhz")
    read = read_everything(db)
    assert "TelemetrySeries" in "".join(read)
    store_one_more(db, tmp_path)
    assert set(read) <= set(read_everything(db))


def test_files_of_all_versions_and_kinds_merge_into_one_and_each_once(tmp_path: Path) -> None:
    files = []
    for packed in FILES:
        (tmp_path / packed.parent.name).mkdir(exist_ok=True)
        files.append(unpacked(packed, tmp_path / packed.parent.name))
    merge_files(files, tmp_path / "all.db")
    with open_result(tmp_path / "all.db") as file:
        runs = {summary.run_id for summary in file.summaries()}
    expected = set()
    for file_ in files:
        with open_result(file_) as file:
            expected |= {summary.run_id for summary in file.summaries()}
    assert runs == expected
    assert sum(len(one.added) for one in merge_files(files, tmp_path / "all.db")) == 0


def test_no_table_or_column_of_schema_1_goes_away_changes_its_name_or_its_type() -> None:
    frozen = set(FROZEN.read_text().split("\n")) - {""}
    present = {
        f"{table.name}.{column.name} {column.sql_type}" for table in schema.TABLES for column in table.columns
    }
    assert len(frozen) > 290
    assert frozen - present == set(), "an older gputui reads these: leave them, and add another column"


def test_what_came_after_schema_1_may_be_missing_in_a_file() -> None:
    frozen_tables = {line.partition(".")[0] for line in FROZEN.read_text().splitlines()}
    added = [table for table in schema.TABLES if table.name not in frozen_tables]
    assert all(table.is_late for table in added), "a file of schema 1 does not have it: is_late"
    assert {metric.stored.key for metric in STORED} <= {
        column.name for table in schema.TABLES for column in table.columns
    }


def changed(db: Path, *statements: str) -> Path:
    with duckdb.connect(str(db)) as connection:
        for statement in statements:
            connection.execute(statement)
    return db


def test_a_newer_file_is_refused_for_reading_and_writing_with_what_to_do(tmp_path: Path) -> None:
    db = changed(
        unpacked(FILES[-1], tmp_path),
        f"UPDATE meta SET value = '{schema.SCHEMA_VERSION + 2}' WHERE key = 'schema_version'",
        f"UPDATE meta SET value = '{schema.SCHEMA_VERSION + 1}' WHERE key = 'min_reader_schema'",
        "UPDATE meta SET value = 'gputui 9.1, duckdb 3.0' WHERE key = 'created_by'",
    )
    for use in (read_everything, lambda db: store_one_more(db, tmp_path)):
        with pytest.raises(GputuiError) as caught:
            use(db)
        assert caught.value.message == (
            f"{db} was written by a newer gputui: it needs schema {schema.SCHEMA_VERSION + 1},"
            f" this one reads up to {schema.SCHEMA_VERSION}"
        )
        assert caught.value.hint.startswith("upgrade gputui here")
        assert "gputui 9.1" in caught.value.hint
    with pytest.raises(GputuiError) as caught:
        read_everything(db)
    assert caught.value.exit_code == EXIT_USAGE


def test_a_newer_file_that_only_has_more_is_read_and_takes_a_run(tmp_path: Path) -> None:
    db = unpacked(FILES[-1], tmp_path)
    read = read_everything(db)
    changed(
        db,
        f"UPDATE meta SET value = '{schema.SCHEMA_VERSION + 1}' WHERE key = 'schema_version'",
        "ALTER TABLE runs ADD COLUMN mood VARCHAR",
        "CREATE TABLE moods (run_id UUID, mood VARCHAR)",
        "INSERT INTO moods SELECT run_id, 'good' FROM runs",
    )
    assert read_everything(db) == read
    store_one_more(db, tmp_path)
    assert rows_by_table(db)["moods"] == 1
    with duckdb.connect(str(db), read_only=True) as connection:
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    assert version == (str(schema.SCHEMA_VERSION + 1),), "nothing takes it back"
