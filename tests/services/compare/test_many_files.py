"""Files that are opened and read together, as those of one comparison are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest
from journals import GPU_MACHINE, STARTED_US, make_case, make_journal
from many import holding

from gputui.errors import GputuiError
from gputui.services.results import selectors as selecting
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import select_all
from gputui.store import locking, opening
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import (
    ResultFile,
    conditions_of,
    open_result,
    open_results,
    powers_of,
    read_each,
    summaries_of,
)
from gputui.store.writing import store_run

CASES = make_case("gemm", device_class="gpu"), make_case("conv_train")


def run_id(number: int) -> str:
    return f"0194b5a0-0000-7000-8000-{number:012x}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Three files with two runs each; to be copied, not modified."""
    place = tmp_path_factory.mktemp("made")
    for number in range(6):
        run_dir = make_journal(
            place / str(number),
            run_id=run_id(number),
            seed=number,
            launches=1 + number % 2,
            cases=CASES[::-1] if number // 2 == 1 else CASES,
            machine=GPU_MACHINE,
            label=f"run {number}",
            started_utc_us=STARTED_US + number * 3_600_000_000,
        )
        store_run(place / f"{number // 2}.db", read_journal(run_dir), read_telemetry(run_dir))
    return tuple(place / f"{number}.db" for number in range(3))


@pytest.fixture
def files(made: tuple[Path, ...], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(file, tmp_path / f"file {file.name}")) for file in made]


def spoil(db: Path, *statements: str) -> None:
    with duckdb.connect(str(db)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_files_read_together_hold_what_each_holds_alone(files: list[Path]) -> None:
    """Also one that lacks a late table and a column."""
    spoil(files[1], "DROP TABLE figures", "ALTER TABLE blocks DROP COLUMN waited_ns")
    texts = [str(files[0]), f"{files[1]}@latest~1", f"{files[2]}@run 5", str(files[1])]
    for with_passes in (False, True):
        assert select_all(texts, with_passes=with_passes) == [
            select_all([text], with_passes=with_passes)[0] for text in texts
        ]


def test_a_file_under_several_names_is_read_for_each_in_order_however_few_may_be_open(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selecting, "_TOGETHER", 2)
    link, hard = tmp_path / "link.db", tmp_path / "hard.db"
    link.symlink_to(files[0])
    hard.hardlink_to(files[0])
    texts = [str(files[0]), f"{files[0]}@latest", str(link), str(files[1]), str(hard)]

    found = select_all(texts)

    assert [selection.text for selection in found] == texts
    assert [len(selection.runs) for selection in found] == [2, 1, 2, 2, 2]
    assert found[2].runs == found[4].runs == found[0].runs


@pytest.mark.parametrize(
    ("spoiled", "expected"),
    [
        (lambda db: db.write_bytes(b"not a database" * 999), "is not a DuckDB database"),
        (lambda db: db.unlink(), "there is no result file"),
        (lambda db: spoil(db, "CREATE MACRO median(x) AS 666"), "macro median"),
        (lambda db: spoil(db, "ALTER TABLE blocks ALTER wall_ns TYPE DOUBLE"), "as DOUBLE where BIGINT"),
        (lambda db: spoil(db, "UPDATE blocks SET wall_ns = -1"), "holds what cannot be"),
        (lambda db: spoil(db, "DELETE FROM runs"), "no run to compare"),
    ],
)
def test_the_first_file_at_fault_is_named_and_told_as_if_it_were_alone(
    files: list[Path], spoiled: Callable[[Path], object], expected: str
) -> None:
    spoiled(files[1])
    files[2].write_bytes(b"")
    with pytest.raises(GputuiError) as alone:
        select_all([str(files[1])])
    with pytest.raises(GputuiError) as among:
        select_all([str(file) for file in files])

    assert expected in among.value.message
    assert str(files[1]) in among.value.message
    assert (among.value.message, among.value.hint) == (alone.value.message, alone.value.hint)


def test_a_file_with_code_is_read_beside_others_when_trusted_and_no_view_in_the_place_of_a_table(
    files: list[Path],
) -> None:
    before = select_all([str(file) for file in files])
    spoil(files[0], "CREATE MACRO max(x) AS 666", "CREATE VIEW extra AS SELECT 1")

    assert select_all([str(file) for file in files], trust=True) == before
    spoil(files[0], "ALTER TABLE runs RENAME TO mine", "CREATE VIEW runs AS SELECT * FROM mine")
    with pytest.raises(GputuiError, match="has no table runs"):
        select_all([str(file) for file in files], trust=True)


def test_a_file_that_is_held_is_reported_with_the_holder(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = holding(files[1])
    monkeypatch.setattr(opening, "WAIT_S", 0.1)
    monkeypatch.setattr(locking, "WAIT_S", 0.1)
    try:
        with pytest.raises(GputuiError, match=f"{files[1].name} is being written by process {holder.pid}"):
            select_all([str(file) for file in files])
    finally:
        holder.communicate(b"\n")
    assert len(select_all([str(file) for file in files])) == 3


def test_files_opened_in_turn_reach_nothing_else_and_one_that_fails_does_not_hinder_the_next(
    files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    quoted = files[2].rename(tmp_path / "box's.db")
    (tmp_path / "text.db").write_text("no database" * 1000)
    spoil(files[1], "ALTER TABLE runs ADD COLUMN place INTEGER DEFAULT 7")
    together: list[int] = []
    runs: list[int] = []

    def read(opened: Sequence[ResultFile]) -> None:
        together.append(len(opened))
        for statement in (
            f"SELECT * FROM read_text('{tmp_path}/secret')",
            f"ATTACH '{tmp_path}/other.db' AS other",
            f"COPY (SELECT 1) TO '{tmp_path}/secret'",
            "SET enable_external_access=true",
            "RESET lock_configuration",
            "DELETE FROM d1.main.runs",
            "CREATE TABLE d1.main.mine (a INT)",
        ):
            with pytest.raises(duckdb.Error):
                opened[0].opened.connection.execute(statement)
        runs.extend(len(found) for found in summaries_of(opened))

    read_each([*files[:2], files[1], quoted], read, at_a_time=2)
    assert runs == [2, 2, 2, 2]
    with pytest.raises(GputuiError, match=r"text\.db is not a gputui result file"):
        read_each([files[0], tmp_path / "text.db"], read)
    assert together == [2, 2, 1]
    assert (tmp_path / "secret").read_text() == "secret"
    with pytest.raises(duckdb.Error), open_results(files[:2]) as opened:
        opened[0].opened.connection.execute(f"ATTACH '{tmp_path}/other.db' AS other")
    with duckdb.connect(str(files[0])):  # nothing holds it any more
        pass


def test_a_layout_that_was_seen_before_does_not_pass_for_another(files: list[Path]) -> None:
    with open_results(files):
        pass
    spoil(
        files[2], "ALTER TABLE runs RENAME COLUMN label TO word", "ALTER TABLE runs ADD COLUMN label INTEGER"
    )

    with pytest.raises(GputuiError, match=r"runs\.label as INTEGER where VARCHAR"), open_results(files):
        pass


def test_rows_that_are_not_yet_in_the_file_itself_count(files: list[Path], tmp_path: Path) -> None:
    """A killed writer leaves them in the log next to it, where the number of rows is not that of the file."""
    code = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
        "c.execute(\"SET wal_autocheckpoint='1TB'\");"
        "c.execute('INSERT INTO prices SELECT * REPLACE (9.5 AS usd_per_hour) FROM kept');"
        "os._exit(1)"
    )
    spoil(files[0], "CREATE TABLE kept AS FROM prices", "DELETE FROM prices")
    spoil(files[0], "CREATE OR REPLACE TABLE prices AS FROM kept LIMIT 0", "CHECKPOINT")
    subprocess.run([sys.executable, "-c", code, files[0]], check=False)
    assert files[0].with_name(files[0].name + ".wal").exists()

    selection = select_all([str(file) for file in files])[0]

    prices = [run.summary.price for run in selection.runs]
    assert [getattr(price, "usd_per_hour", None) for price in prices] == [9.5, 9.5]
    assert "belongs to" in selection.warnings[0]
    timed = select_all([str(file) for file in files], only_rates=True)[0]
    assert [run.summary for run in timed.runs] == [run.summary for run in selection.runs]
    assert all(len(run.cases) == 2 for run in timed.runs)


def test_conditions_and_powers_of_many_are_those_of_each(files: list[Path]) -> None:
    ids = [[run_id(2 * number), run_id(2 * number + 1)] for number in range(3)]
    with open_results(files) as opened:
        conditions, powers = conditions_of(opened, ids), powers_of(opened, ids)
    for file, of_file in zip(files, ids, strict=True):
        with open_result(file) as alone:
            for one in of_file:
                assert conditions.get(one, {}) == alone.conditions(one)
                assert powers.get(one, {}) == powers_of([alone], [(one,)]).get(one, {})
    assert set(conditions[run_id(0)]) == set(conditions[run_id(2)]) == {0}, "of a GPU, and of the CPU"
    assert set(powers) == {run_id(n) for n in (0, 1, 4, 5)}


def test_files_that_cannot_be_read_together_are_reported_when_they_are_needed(files: list[Path]) -> None:
    evidence = Evidence(select_all([str(file) for file in files]))
    files[1].unlink()
    evidence.read_conditions(run_id(number) for number in range(6))

    assert evidence.conditions(run_id(0), 0) != evidence.conditions(run_id(0), 99)
    with pytest.raises(GputuiError, match="there is no result file"):
        evidence.conditions(run_id(2), 0)
