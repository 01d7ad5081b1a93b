"""Runs as Parquet files: nothing is lost on the way there and back, and nothing is there twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from journals import GPU_MACHINE, journal_lines, write_lines
from stored_runs import GPT, run_id_of, store

import gputui
from gputui.cli.files import export as export_command
from gputui.cli.show import command as show_command
from gputui.errors import GputuiError, NotStored
from gputui.model.journal import RunEnd, RunStart
from gputui.services.results.selectors import chosen_files, result_file_of, select_all
from gputui.store import parquet
from gputui.store.journal_reader import read_journal
from gputui.store.opening import MARKER, is_export
from gputui.store.parquet import export_runs, import_export
from gputui.store.schema import RUN_TABLES
from gputui.store.writing import store_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files, not to be modified: a box with GPUs, priced and labelled, and one without."""
    place = tmp_path_factory.mktemp("files")
    a, b = place / "a.db", place / "it's b.db"
    store(a, 1, label="one", machine=GPU_MACHINE, on_gpu=True)
    store(b, 2, label="two")
    return [a, b]


@pytest.fixture(scope="module")
def exported(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exported") / "fleet"
    export_runs(files, place)
    return place


@pytest.fixture
def fleet(exported: Path, tmp_path: Path) -> Path:
    """An export of both files."""
    return Path(shutil.copytree(exported, tmp_path / "fleet"))


def rows_of(db: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every run, by table."""
    with duckdb.connect(str(db), read_only=True) as connection:
        return {
            table.name: sorted(
                connection.execute(f"SELECT {', '.join(table.column_names)} FROM {table.name}").fetchall(),
                key=repr,
            )
            for table in RUN_TABLES
        }


def counted(directory: Path, table: str) -> int:
    sql = f"SELECT count(*) FROM read_parquet('{directory}/{table}/**/*.parquet', union_by_name = true)"
    ((count,),) = duckdb.execute(sql).fetchall()
    return int(count)


def test_an_export_read_back_is_what_was_exported(files: list[Path], fleet: Path, tmp_path: Path) -> None:
    import_export(fleet, tmp_path / "back.db")

    here = [rows_of(file) for file in files]
    assert rows_of(tmp_path / "back.db") == {
        table.name: sorted((row for rows in here for row in rows[table.name]), key=repr)
        for table in RUN_TABLES
    }


def test_exporting_again_adds_only_what_is_new(files: list[Path], tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    first = export_runs(files[:1], fleet)
    second = export_runs(files, fleet)
    third = export_runs([*files, *files], fleet)

    assert [len(one.added) for one in (first, second, third)] == [1, 1, 0]
    assert (second.already_there, third.already_there) == (1, 2)
    assert counted(fleet, "runs") == 2
    assert counted(fleet, "blocks") == 2 * 36
    assert {path.parent.relative_to(fleet) for path in fleet.glob("runs/**/*.parquet")} == {
        Path("runs/date=2026-11-18/gpu=nvidia-h200/profile=quick"),
        Path("runs/date=2026-11-18/gpu=none/profile=quick"),
    }


def test_a_run_without_its_end_is_replaced_by_the_same_run_with_it(tmp_path: Path) -> None:
    lines = journal_lines(run_id=run_id_of(7), cases=(GPT,))
    cut = [line for line in lines if not isinstance(line, RunEnd)]
    for name, some in (("cut", cut), ("whole", lines)):
        store_run(tmp_path / f"{name}.db", read_journal(write_lines(tmp_path / name, some)), ())
    store(tmp_path / "cut.db", 8)
    fleet = tmp_path / "fleet"
    export_runs([tmp_path / "cut.db"], fleet)

    assert export_runs([tmp_path / "whole.db"], fleet).added == (run_id_of(7),)

    import_export(fleet, tmp_path / "back.db")
    whole = {name: row for name, row in rows_of(tmp_path / "whole.db").items() if name != "runs"}
    back = rows_of(tmp_path / "back.db")
    assert all(row in back[name] for name, rows in whole.items() for row in rows)
    assert counted(fleet, "runs") == 2
    assert counted(fleet, "blocks") == len(back["blocks"])


def test_an_interrupted_export_is_repaired_by_the_next(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, moved = tmp_path / "fleet", parquet._move

    def move(draft: Path, table: Path) -> None:
        if table.name == "cases":
            raise OSError(28, "No space left on device")
        moved(draft, table)

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "_move", move)
        with pytest.raises(NotStored, match="No space left"):
            export_runs(files, fleet)
    assert not list(fleet.glob("runs/**/*.parquet"))
    (fleet / ".exporting-left").mkdir()

    export_runs(files, fleet)

    assert counted(fleet, "runs") == 2
    assert counted(fleet, "rates") == 4
    assert not list(fleet.glob(".exporting-*"))


def test_a_directory_is_read_wherever_a_file_is(files: list[Path], fleet: Path) -> None:
    (whole,) = select_all([str(fleet)])
    (one,) = select_all([f"{fleet}@two"])
    (merged,) = select_all([str(files[0])])

    assert {run.summary.label for run in whole.runs} == {"one", "two"}
    assert [run.summary.label for run in one.runs] == ["two"]
    (same,) = [run for run in whole.runs if run.summary.label == "one"]
    assert same.cases == merged.runs[0].cases
    assert len(gputui.load(str(fleet)).runs) == 2
    assert chosen_files([str(fleet)])[0] == [result_file_of(fleet)]


def test_the_copy_of_an_export_is_made_anew_only_when_it_has_changed(
    files: list[Path], tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet"
    export_runs(files[:1], fleet)
    before = result_file_of(fleet)
    at_ns = before.stat().st_ino
    assert result_file_of(fleet).stat().st_ino == at_ns

    export_runs(files, fleet)

    assert result_file_of(fleet) != before
    assert result_file_of(files[0]) == files[0]


def test_a_run_that_two_directories_copied_together_hold_counts_once(
    files: list[Path], fleet: Path, tmp_path: Path
) -> None:
    export_runs(files[:1], tmp_path / "b")
    shutil.copytree(tmp_path / "b", fleet, dirs_exist_ok=True)

    import_export(fleet, tmp_path / "back.db")

    assert [len(rows_of(tmp_path / "back.db")[name]) for name in ("runs", "blocks")] == [2, 72]


def test_a_column_that_older_files_lack_is_null_in_them(fleet: Path, tmp_path: Path) -> None:
    for path in fleet.glob("blocks/**/*.parquet"):
        table = duckdb.from_parquet(str(path), hive_partitioning=False).project("* EXCLUDE (waited_ns)")
        table.write_parquet(f"{path}.new")
        Path(f"{path}.new").replace(path)

    import_export(fleet, tmp_path / "back.db")

    assert {row[-1] for row in rows_of(tmp_path / "back.db")["blocks"]} == {None}


def test_other_directories_and_newer_exports_are_refused(
    files: list[Path], fleet: Path, tmp_path: Path
) -> None:
    with pytest.raises(GputuiError, match="other files"):
        export_runs(files, tmp_path)
    assert not is_export(tmp_path)
    marker = fleet / MARKER
    marker.write_text(marker.read_text().replace('"schema": 1', '"schema": 2'))
    for action in (lambda: export_runs(files, fleet), lambda: result_file_of(fleet)):
        with pytest.raises(GputuiError, match="export schema 2"):
            action()


def test_damaged_files_are_an_error_that_names_the_directory(fleet: Path) -> None:
    for path in fleet.glob("cases/**/*.parquet"):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GputuiError, match="cannot be read"):
        result_file_of(fleet)


def names_in(directory: Path) -> Iterator[str]:
    files = f"'{directory}/runs/**/*.parquet'"
    sql = f"SELECT DISTINCT gpu, profile FROM read_parquet({files}, hive_partitioning = true)"
    for cells in duckdb.execute(sql).fetchall():
        yield "/".join(map(str, cells))


def test_odd_names_make_plain_paths_and_stay_as_they_are_in_columns(tmp_path: Path) -> None:
    odd = "../Ünï/%20 ='x'"
    lines = [
        replace(line, profile=odd) if isinstance(line, RunStart) else line
        for line in journal_lines(cases=(GPT,))
    ]
    store_run(tmp_path / "a.db", read_journal(write_lines(tmp_path / "journal", lines)), ())
    fleet = tmp_path / "fleet"
    export_runs([tmp_path / "a.db"], fleet)

    assert list(names_in(fleet)) == ["none/..-n-20-x"]
    (found,) = select_all([str(fleet)])
    assert found.runs[0].summary.profile == odd


def test_the_command_counts_runs_and_takes_single_ones(files: list[Path], tmp_path: Path) -> None:
    fleet, file = str(tmp_path / "fleet"), tmp_path / "a.db"
    shutil.copy(files[0], file)
    store(file, 3, label="three")
    first = CliRunner().invoke(export_command, [f"{file}@one", "--parquet", fleet])
    second = CliRunner().invoke(export_command, [str(file), "--parquet", fleet])
    assert first.output.startswith("1 run of 1 file added to")
    assert "1 run of 1 file added to" in second.output
    assert "1 run already there" in second.output
    shown = CliRunner().invoke(show_command, [fleet])
    steps = shown.output.partition("next: ")[2].splitlines()
    assert steps != []
    assert all(line.split()[:2] in (["gputui", "show"], ["gputui", "compare"]) for line in steps)
    assert all(fleet in line for line in steps)
