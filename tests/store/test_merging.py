"""Merging files of several boxes: everything once, nothing from a file that cannot be trusted."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from journals import RUN_ID, make_journal, make_telemetry

from gputui.errors import GputuiError, NotStored
from gputui.model.journal import RunEnd
from gputui.model.result import Run
from gputui.services.results.frames import load
from gputui.store import schema
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.merging import merge_files
from gputui.store.reading import open_result
from gputui.store.writing import label_run, remove_run, store_run

A, B, C = (f"0194b5a0-0000-7000-8000-0000bbbb000{n}" for n in range(1, 4))


_made: dict[tuple[str, ...], bytes] = {}
"""The file of these runs: copying it takes a hundredth of the time of storing them."""


def make_file(place: Path, name: str, *run_ids: str) -> Path:
    db = place / name
    if run_ids in _made:
        db.write_bytes(_made[run_ids])
        return db
    for run_id in run_ids:
        run_dir = make_journal(place / f"{name}-{run_id[-4:]}", run_id=run_id)
        store_run(db, read_journal(run_dir), read_telemetry(run_dir))
    _made[run_ids] = db.read_bytes()
    return db


def runs_of(db: Path) -> dict[str, Run]:
    with open_result(db) as file:
        return {summary.run_id: file.run(summary.run_id) for summary in file.summaries()}


def rows_of(db: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables about runs, independent of who wrote them and when."""
    with duckdb.connect(str(db), read_only=True) as connection:
        return {
            table.name: sorted(connection.execute(f"FROM {table.name}").fetchall(), key=repr)
            for table in schema.RUN_TABLES
        }


def cut_short(run_dir: Path) -> Path:
    """The same journal without its last line."""
    journal = run_dir / "journal.jsonl"
    kept = [line for line in journal.read_bytes().split(b"\n") if b'"kind":"RunEnd"' not in line]
    journal.write_bytes(b"\n".join(kept))
    assert not read_journal(run_dir).of(RunEnd)
    return run_dir


def test_every_run_of_every_file_is_in_the_new_one_as_it_was(tmp_path: Path) -> None:
    one, two = make_file(tmp_path, "one.db", A, B), make_file(tmp_path, "two.db", C)
    merged = merge_files([one, two], tmp_path / "out.db")
    assert [(m.source.name, set(m.added), m.already_there) for m in merged] == [
        ("one.db", {A, B}, 0),
        ("two.db", {C}, 0),
    ]
    assert runs_of(tmp_path / "out.db") == runs_of(one) | runs_of(two)
    ours, theirs = rows_of(tmp_path / "out.db"), (rows_of(one), rows_of(two))
    for name, rows in ours.items():
        assert rows == sorted(theirs[0][name] + theirs[1][name], key=repr)
    assert len(ours["host_telemetry"]) == 3 * len(make_telemetry())


def test_merging_twice_adds_nothing_and_a_file_may_be_added_to(tmp_path: Path) -> None:
    one, two = make_file(tmp_path, "one.db", A, B), make_file(tmp_path, "two.db", B, C)
    out = make_file(tmp_path, "out.db", A)
    first = merge_files([one, two], out)
    assert [(set(m.added), m.already_there) for m in first] == [({B}, 1), ({C}, 1)]
    before = rows_of(out)
    again = merge_files([one, two, one], out)
    assert [(m.added, m.already_there) for m in again] == [((), 2), ((), 2)]
    assert rows_of(out) == before


@pytest.mark.parametrize("way", ["merged", "stored"])
def test_a_run_that_was_stored_without_its_end_is_completed(tmp_path: Path, way: str) -> None:
    run_dir = make_journal(tmp_path / "whole")
    whole = tmp_path / "whole.db"
    store_run(whole, read_journal(run_dir), read_telemetry(run_dir))
    part_dir = cut_short(make_journal(tmp_path / "part"))
    out = tmp_path / "out.db"
    store_run(out, read_journal(part_dir), ())
    assert [run.summary.status for run in runs_of(out).values()] == ["interrupted"]
    if way == "merged":
        assert merge_files([whole], out)[0].added == (RUN_ID,)
    else:
        assert not store_run(out, read_journal(run_dir), read_telemetry(run_dir)).already_there
    assert runs_of(out) == runs_of(whole)
    assert merge_files([make_file(tmp_path, "again.db", RUN_ID)], out)[0].added == ()
    assert store_run(out, read_journal(part_dir), ()).already_there, "and its part does not replace it"
    assert runs_of(out) == runs_of(whole)


def test_a_file_is_not_merged_into_itself_by_any_name(tmp_path: Path) -> None:
    one = make_file(tmp_path, "one.db", A)
    (tmp_path / "link.db").symlink_to(one)
    os.link(one, tmp_path / "hard.db")
    before = one.read_bytes()
    for name in ("one.db", "link.db", "hard.db"):
        with pytest.raises(GputuiError, match="cannot be merged into itself"):
            merge_files([tmp_path / name], one)
    assert one.read_bytes() == before


def test_a_value_that_cannot_be_keeps_the_whole_file_out(tmp_path: Path) -> None:
    good, bad = make_file(tmp_path, "good.db", A), make_file(tmp_path, "bad.db", B)
    with duckdb.connect(str(bad)) as connection:
        connection.execute("UPDATE blocks SET wall_ns = -1 WHERE block_index = 2")
    with pytest.raises(GputuiError, match=r"bad\.db holds what cannot be"):
        merge_files([good, bad], tmp_path / "out.db")
    assert not (tmp_path / "out.db").exists()
    out = make_file(tmp_path, "there.db", C)
    before = out.read_bytes()
    with pytest.raises(GputuiError):
        merge_files([good, bad], out)
    assert out.read_bytes() == before


def test_views_of_the_user_are_ignored_and_stay_where_they_are(tmp_path: Path) -> None:
    source = make_file(tmp_path, "source.db", A)
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE VIEW mine AS SELECT label FROM runs")
        connection.execute("DROP TABLE figures")
        connection.execute("CREATE VIEW figures AS SELECT run_id, error('read') AS key FROM runs")
    out = make_file(tmp_path, "out.db", B)
    with duckdb.connect(str(out)) as connection:
        connection.execute("CREATE VIEW mine AS SELECT label FROM runs")
    assert merge_files([source], out)[0].added == (A,)
    label_run(out, A, "mine")
    with duckdb.connect(str(out)) as connection:
        assert ("mine",) in connection.execute("SELECT label FROM mine").fetchall()


def test_a_run_is_removed_with_all_its_rows_and_no_others(tmp_path: Path) -> None:
    db = make_file(tmp_path, "a.db", A, B)
    kept = rows_of(make_file(tmp_path, "b.db", B))
    remove_run(db, A)
    rows = rows_of(db)
    assert {name: len(found) for name, found in rows.items()} == {n: len(f) for n, f in kept.items()}
    assert list(runs_of(db)) == [B]
    with pytest.raises(NotStored, match="is no longer in"):
        remove_run(db, A)


def test_a_label_is_changed_and_taken_away(tmp_path: Path) -> None:
    db = make_file(tmp_path, "a.db", A, B)
    label_run(db, A, "new")
    assert {run_id: run.summary.label for run_id, run in runs_of(db).items()} == {A: "new", B: "box a"}
    label_run(db, A, "")
    assert runs_of(db)[A].summary.label == ""


def test_after_each_change_the_file_alone_is_whole(tmp_path: Path) -> None:
    db = make_file(tmp_path, "a.db", A, B)
    changes: list[Callable[[], None]] = [lambda: label_run(db, A, "x"), lambda: remove_run(db, B)]
    for change in changes:
        change()
        assert not db.with_name("a.db.wal").exists()
        copy = tmp_path / "copy.db"
        copy.write_bytes(db.read_bytes())
        assert runs_of(copy) == runs_of(db)


def test_a_full_disk_is_reported_as_such_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        reason = (
            f'IO Error: Could not write file "{tmp_path}/.out.db.gputui-new": {os.strerror(errno.ENOSPC)}'
        )
        raise GputuiError("damaged") from RuntimeError(reason)

    one = make_file(tmp_path, "one.db", A)
    monkeypatch.setattr("gputui.store.writing.attach", full)
    with pytest.raises(NotStored, match=r"stored in \S+/out\.db: the disk is full"):
        merge_files([one], tmp_path / "out.db")


def test_a_file_from_before_a_table_or_a_column_came_is_read_merged_and_written_to(tmp_path: Path) -> None:
    old, new = make_file(tmp_path, "old.db", A), make_file(tmp_path, "new.db", B)
    late = [table.name for table in schema.TABLES if table.is_late]
    assert late
    with duckdb.connect(str(old)) as connection:
        for name in late:
            connection.execute(f"DROP TABLE {name}")
        connection.execute("ALTER TABLE telemetry DROP COLUMN compute_process_count")
        connection.execute("ALTER TABLE host_telemetry DROP COLUMN cpu_clock_mhz")
        connection.execute("ALTER TABLE devices DROP COLUMN temperature_limit_c")
        connection.execute("ALTER TABLE blocks DROP COLUMN waited_ns")
    assert list(runs_of(old)) == [A]
    frames = load(old)
    assert all(len(getattr(frames, name, ())) == 0 for name in late)
    assert merge_files([old], tmp_path / "out.db")[0].added == (A,)
    (run,) = runs_of(tmp_path / "out.db").values()
    blocks = [block for case in run.cases for one in case.measurements for block in one.blocks]
    assert [block.waited_ns for block in blocks] == [None] * 12
    assert merge_files([new], old)[0].added == (B,)
    assert set(runs_of(old)) == {A, B}
    assert set(late) <= set(rows_of(old))
    assert "compute_process_count" in load(old).telemetry
    assert "cpu_clock_mhz" in load(old).host_telemetry
    with duckdb.connect(str(old)) as connection:
        connection.execute("SELECT temperature_limit_c FROM devices")


def test_many_files_are_merged_some_at_a_time_and_one_more_adds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.store.merging._AT_ONCE", 2)
    run_ids = [f"0194b5a0-0000-7000-8000-0000cccc00{n:02}" for n in range(4)]
    files = [make_file(tmp_path, f"{n}.db", run_id) for n, run_id in enumerate(run_ids)]
    out, seen = tmp_path / "out.db", list[int]()

    assert [m.added for m in merge_files(files[:3], out, seen.append)] == [(run,) for run in run_ids[:3]]
    assert seen == [2, 3]
    assert [len(m.added) for m in merge_files(files, out)] == [0, 0, 0, 1]
    assert runs_of(out) == {run: one for file in files for run, one in runs_of(file).items()}
    assert [path.name for path in tmp_path.iterdir() if "gputui-merge" in path.name] == []


def test_a_run_that_two_of_the_files_hold_is_stored_once_and_with_its_end(tmp_path: Path) -> None:
    whole = make_file(tmp_path, "whole.db", RUN_ID)
    cut = tmp_path / "cut.db"
    run_dir = cut_short(make_journal(tmp_path / "cut-run", run_id=RUN_ID))
    store_run(cut, read_journal(run_dir), read_telemetry(run_dir))
    for order in ([cut, whole], [whole, cut]):
        out = tmp_path / f"{order[0].stem}.out.db"
        merge_files(order, out)
        (run,) = runs_of(out).values()
        assert run.summary.ended_utc_us is not None
