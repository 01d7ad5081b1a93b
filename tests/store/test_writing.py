from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pytest
from journals import (
    CASES,
    CPU_MACHINE,
    GPU_MACHINE,
    PRICE,
    RUN_ID,
    RUNTIME,
    journal_lines,
    make_case,
    make_journal,
    make_telemetry,
    write_lines,
)
from many import holding

from gputui.errors import EXIT_NOT_STORED, NotStored
from gputui.model.absent import Missing
from gputui.model.journal import Block, CaseEnd, Event, LaunchEnd, LaunchStart, RunEnd, RuntimeFound
from gputui.model.result import Run
from gputui.store import schema, writing
from gputui.store.journal_reader import JournalContents, read_journal, read_telemetry
from gputui.store.opening import TEXT_MOST_BYTES
from gputui.store.reading import open_result
from gputui.store.writing import StoredRun, check_writable, store_run

OTHER_RUN_ID = "0194b5a0-0000-7000-8000-00000000beef"
STORE = """
import sys
from pathlib import Path
from gputui.errors import GputuiError
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run
run, db = Path(sys.argv[1]), Path(sys.argv[2])
contents = read_journal(run)
BEFORE
try:
    print(store_run(db, contents, read_telemetry(run)).already_there)
except GputuiError as error:
    print(error.message)
    sys.exit(error.exit_code)
"""
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))"


def store(run_dir: Path, db: Path) -> StoredRun:
    return store_run(db, read_journal(run_dir), read_telemetry(run_dir))


def start_store(run_dir: Path, db: Path, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STORE.replace("BEFORE", before), str(run_dir), str(db)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(db: Path, sql: str) -> list[tuple[object, ...]]:
    """Straight from the database, without gputui's code."""
    with duckdb.connect(str(db), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def read_run(db: Path, run_id: str = RUN_ID) -> Run:
    with open_result(db) as result:
        return result.run(run_id)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run and of one more, and the file of the first."""
    place = tmp_path_factory.mktemp("made")
    make_journal(place / "other", run_id=OTHER_RUN_ID)
    store(make_journal(place / "run"), place / "a.db")
    return place


@pytest.fixture
def db(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made / "a.db", tmp_path / "a.db"))


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_every_block_of_the_journal_is_in_the_file_with_the_same_integers(tmp_path: Path) -> None:
    cases = (make_case(), make_case("conv_train"), make_case(device_class="gpu"))
    run_dir = make_journal(tmp_path / "run", launches=3, cases=cases, machine=GPU_MACHINE)
    store(run_dir, tmp_path / "a.db")

    written = [
        json.loads(line.split(b" ", 2)[2]) for line in (run_dir / "journal.jsonl").read_bytes().splitlines()
    ]
    keys = ("launch_id", "case_id", "index", "steps", "start_ns", "wall_ns", "device_ns", "cpu_ns")
    expected = [tuple(plain[key] for key in keys) for plain in written if plain["kind"] == "Block"]
    columns = "launch_id, case_id, block_index, steps, start_ns, wall_ns, device_ns, cpu_ns"
    assert rows(tmp_path / "a.db", f"SELECT {columns} FROM blocks ORDER BY start_ns") == expected
    assert len(expected) == 3 * 3 * 6
    run = read_run(tmp_path / "a.db")
    stored = [block for case in run.cases for launch in case.measurements for block in launch.blocks]
    assert sorted(stored, key=lambda block: block.start_ns) == list(read_journal(run_dir).of(Block))


def test_machine_runtime_and_price_come_back_with_the_reasons_for_what_is_missing(tmp_path: Path) -> None:
    store(make_journal(tmp_path / "run"), tmp_path / "a.db")
    other = make_journal(tmp_path / "other", run_id=OTHER_RUN_ID, machine=GPU_MACHINE, price=None)
    store(other, tmp_path / "a.db")

    first = read_run(tmp_path / "a.db").summary
    second = read_run(tmp_path / "a.db", OTHER_RUN_ID).summary

    assert (first.machine, first.runtime, first.price) == (CPU_MACHINE, RUNTIME, PRICE)
    assert (second.machine, second.runtime) == (GPU_MACHINE, RUNTIME)
    assert isinstance(second.price, Missing)


def test_what_was_reported_about_the_run_comes_back(tmp_path: Path) -> None:
    run_dir = make_journal(tmp_path / "run", label="büro", launches=2)
    store(run_dir, tmp_path / "a.db")

    run = read_run(tmp_path / "a.db")

    start, end = read_journal(run_dir).start, read_journal(run_dir).end
    assert end is not None
    summary = run.summary
    assert (summary.label, summary.seed, summary.replicates) == ("büro", start.seed, 2)
    assert (summary.started_utc_us, summary.ended_utc_us) == (start.started_utc_us, end.ended_utc_us)
    assert (summary.status, summary.budget_s, summary.utc_offset_min) == ("finished", 90.0, 60)
    assert [case.outcome for case in run.cases] == ["ok", "ok", "skipped"]
    assert run.cases[2].reason == "no GPU in this machine"
    measurement = run.cases[0].measurements[1]
    assert (measurement.replicate, measurement.is_fork, measurement.stable) == (1, False, True)
    assert (measurement.precision_used, measurement.warmup_blocks) == ("fp32", 4)


def test_storing_twice_adds_nothing_and_says_so_and_the_file_alone_is_whole(tmp_path: Path) -> None:
    run_dir = make_journal(tmp_path / "run")

    first, second = store(run_dir, tmp_path / "a.db"), store(run_dir, tmp_path / "a.db")

    assert (first.already_there, second.already_there) == (False, True)
    assert (first.blocks, second.blocks) == (12, 0)
    for table, count in (("runs", 1), ("machines", 1), ("blocks", 12), ("host_telemetry", 40)):
        assert rows(tmp_path / "a.db", f"SELECT count(*) FROM {table}") == [(count,)]
    assert names_in(tmp_path) == {"run", "a.db", "a.db.lock"}
    shutil.copy(tmp_path / "a.db", tmp_path / "copy.db")
    assert len(read_run(tmp_path / "copy.db").cases) == 3


def test_the_file_has_the_format_that_older_releases_read(made: Path) -> None:
    sql = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'a'"
    assert str(rows(made / "a.db", sql)[0][0]).startswith("v1.4.0")
    assert rows(made / "a.db", "SELECT block_size FROM pragma_database_size()") == [(65536,)]


def test_a_run_without_its_last_line_is_interrupted_and_keeps_what_was_finished(tmp_path: Path) -> None:
    lines = journal_lines(launches=2)
    second_launch = [i for i, line in enumerate(lines) if isinstance(line, LaunchStart)][1]
    in_its_blocks = next(i for i in range(second_launch, len(lines)) if isinstance(lines[i], Block)) + 2
    run_dir = write_lines(tmp_path / "run", lines[:in_its_blocks])

    assert store(run_dir, tmp_path / "a.db").status == "interrupted"

    run = read_run(tmp_path / "a.db")
    assert (run.summary.status, run.summary.ended_utc_us) == ("interrupted", None)
    assert [case.outcome for case in run.cases] == ["ok", "interrupted", "skipped"]
    assert len(run.cases[0].measurements[0].blocks) == 6
    assert run.cases[1].measurements[0].outcome == "interrupted"
    assert run.cases[1].measurements[0].blocks == ()


def test_a_run_that_died_before_the_box_was_known_can_be_stored_and_read(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path / "run", journal_lines()[:1])
    store(run_dir, tmp_path / "a.db")

    run = read_run(tmp_path / "a.db")
    assert run.summary.status == "interrupted"
    assert isinstance(run.summary.runtime.torch_version, Missing)
    assert run.cases == ()


def test_a_case_is_ok_if_any_launch_measured_it_else_the_last_word_counts(tmp_path: Path) -> None:
    lines = journal_lines(launches=2)
    ends = [i for i, line in enumerate(lines) if isinstance(line, CaseEnd)]
    for number, outcome in ((ends[2], "oom"), (ends[1], "failed"), (ends[3], "oom")):
        end = lines[number]
        assert isinstance(end, CaseEnd)
        lines[number] = CaseEnd(
            end.launch_id, end.case_id, outcome, f"it was {outcome}", end.blocks, end.t_ns
        )
    store(write_lines(tmp_path / "run", lines), tmp_path / "a.db")

    first, second, _ = read_run(tmp_path / "a.db").cases

    assert (first.outcome, [m.outcome for m in first.measurements]) == ("ok", ["ok", "oom"])
    assert (second.outcome, second.reason) == ("oom", "it was oom")


def test_a_case_that_never_got_a_launch_keeps_the_reason_it_was_dropped_for(tmp_path: Path) -> None:
    lines = journal_lines(launches=1)
    second = next(i for i, line in enumerate(lines) if isinstance(line, LaunchStart) and line.launch_id == 1)
    kept = [*lines[:second], CaseEnd(1, 1, "skipped", "the budget is spent", 0, 10**10), *lines[-1:]]
    store(write_lines(tmp_path / "run", kept), tmp_path / "a.db")

    case = read_run(tmp_path / "a.db").cases[1]
    assert (case.outcome, case.reason, case.measurements) == ("skipped", "the budget is spent", ())


def test_what_was_left_out_of_a_damaged_journal_is_reported_and_stored(tmp_path: Path) -> None:
    run_dir = make_journal(tmp_path / "run")
    path = run_dir / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"stable"', b'"stAble"', 1))

    stored = store(run_dir, tmp_path / "a.db")

    assert stored.left_out
    with open_result(tmp_path / "a.db") as result:
        messages = [event.message for event in result.events(RUN_ID) if event.level == "warning"]
    assert messages == [f"left out of the journal: {what}" for what in stored.left_out]


def test_telemetry_is_stored_with_absent_values_as_null(tmp_path: Path) -> None:
    store(make_journal(tmp_path / "run", machine=GPU_MACHINE), tmp_path / "a.db")

    sql = "SELECT count(*), count(power_w), count(memory_clock_mhz), max(energy_mj) FROM telemetry"
    energies = [r.values["energy_mj"] for r in make_telemetry(gpus=2) if "energy_mj" in r.values]
    assert rows(tmp_path / "a.db", sql) == [(80, 80, 0, max(energies))]


def test_processes_that_store_into_one_new_file_at_once_all_succeed_and_each_run_is_there_once(
    made: Path, tmp_path: Path
) -> None:
    children = [start_store(made / name, tmp_path / "a.db") for name in ("run", "other", "run")]
    ended = [(*child.communicate(timeout=300), child.returncode) for child in children]

    assert sorted(ended) == [("False\n", "", 0), ("False\n", "", 0), ("True\n", "", 0)]
    with open_result(tmp_path / "a.db") as result:
        assert {summary.run_id for summary in result.summaries()} == {RUN_ID, OTHER_RUN_ID}
    assert rows(tmp_path / "a.db", "SELECT count(*) FROM blocks") == [(2 * 12,)]


@pytest.mark.slow
@pytest.mark.parametrize("exists", [False, True])
def test_killed_at_any_moment_and_stored_again_the_run_is_there_exactly_once(
    tmp_path: Path, exists: bool
) -> None:
    run_dir = make_journal(tmp_path / "run", launches=40)
    other = make_journal(tmp_path / "other", run_id=OTHER_RUN_ID)
    begun = time.monotonic()
    store(run_dir, tmp_path / "whole.db")
    whole_s = time.monotonic() - begun
    for trial in range(5):
        db = tmp_path / f"{trial}.db"
        if exists:
            store(other, db)
        child = start_store(run_dir, db, before="print('begins', flush=True)")
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n"
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=whole_s * trial / 4)
        child.send_signal(signal.SIGKILL)
        child.communicate()

        store(run_dir, db)

        assert rows(db, f"SELECT count(*) FROM runs WHERE run_id = '{RUN_ID}'") == [(1,)]
        assert rows(db, f"SELECT count(*) FROM blocks WHERE run_id = '{RUN_ID}'") == [(40 * 12,)]
        if exists:
            assert len(read_run(db, OTHER_RUN_ID).cases) == 3
        assert not db.with_name(db.name + ".wal").exists()
        assert not db.with_name(f".{db.name}.gputui-new").exists()


def test_who_holds_the_file_is_named_by_its_pid(
    made: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.store.opening.WAIT_S", 0.2)
    with open_result(db) as result:
        with pytest.raises(NotStored, match=f"this process \\({os.getpid()}\\)"):
            store(made / "other", db)
        assert len(result.summaries()) == 1
    holder = holding(db)
    try:
        with pytest.raises(NotStored, match=f"process {holder.pid}") as caught:
            store(made / "other", db)
        assert caught.value.exit_code == EXIT_NOT_STORED
    finally:
        holder.communicate(b"\n")

    assert not store(made / "other", db).already_there


def make_foreign(kind: str, db: Path) -> None:
    if kind == "directory":
        db.mkdir()
    elif kind == "fifo":
        os.mkfifo(db)
    elif kind == "sqlite":
        with closing(sqlite3.connect(db)) as sqlite:
            sqlite.execute("CREATE TABLE runs (run_id)")
    elif kind == "duckdb":
        with duckdb.connect(str(db)) as connection:
            connection.execute("CREATE TABLE runs (run_id UUID)")
    elif kind == "duckdb with a log":
        with duckdb.connect(str(db)) as connection:
            connection.execute("CREATE TABLE meta (key VARCHAR, value VARCHAR)")
        code = (
            "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
            "c.execute('CREATE TABLE mine (a INT)'); os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", code, str(db)], check=True)
        assert db.with_name(db.name + ".wal").exists()
    else:
        db.write_bytes({"empty": b"", "text": b"hello\n" * 5000, "zeros": bytes(70_000)}[kind])


@pytest.mark.parametrize("check", ["store", "check_writable"])
@pytest.mark.parametrize(
    "kind", ["directory", "fifo", "sqlite", "duckdb", "duckdb with a log", "empty", "text", "zeros"]
)
def test_what_is_no_result_file_is_refused_and_left_as_it_was(
    made: Path, tmp_path: Path, kind: str, check: str
) -> None:
    db = tmp_path / "theirs" / "a.db"
    db.parent.mkdir()
    make_foreign(kind, db)

    def state() -> dict[str, bytes | int]:
        return {
            path.name: path.read_bytes() if path.is_file() else path.stat().st_mtime_ns
            for path in db.parent.iterdir()
            if path.suffix != ".lock"
        }

    before = state()
    attempt = partial(store, made / "run") if check == "store" else check_writable
    with pytest.raises(NotStored, match=r"a\.db") as caught:
        attempt(db)
    assert caught.value.hint
    assert state() == before


def test_a_trigger_planted_in_our_file_is_never_fired(made: Path, db: Path) -> None:
    if duckdb.__version__.startswith("1."):  # has no triggers
        return
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{db}' AS d (STORAGE_VERSION 'v2.0.0')")
        connection.execute("USE d")
        connection.execute("CREATE TABLE loot (text VARCHAR)")
        connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON runs FOR EACH STATEMENT INSERT INTO loot SELECT 'taken'"
        )

    with pytest.raises(NotStored, match="trigger t"):
        store(made / "other", db)
    assert rows(db, "SELECT count(*) FROM loot") == [(0,)]


def test_a_full_disk_is_reported_and_the_file_stays_as_it_was(db: Path, tmp_path: Path) -> None:
    other = make_journal(tmp_path / "other", run_id=OTHER_RUN_ID, launches=400)
    (tmp_path / "out").mkdir()
    children = [start_store(other, file, before=NO_ROOM) for file in (db, tmp_path / "out" / "new.db")]
    for child in children:
        output, complaints = child.communicate(timeout=300)
        assert (child.returncode, complaints) == (EXIT_NOT_STORED, "")
        assert "the file may not grow further" in output
    assert len(read_run(db).cases) == 3
    assert not store(other, db).already_there
    assert names_in(tmp_path / "out") == {"new.db.lock"}


def test_a_missing_directory_is_reported_with_the_command_that_makes_it(tmp_path: Path) -> None:
    db = tmp_path / "nowhere" / "a.db"
    for attempt in (lambda: check_writable(db), lambda: store(make_journal(tmp_path / "run"), db)):
        with pytest.raises(NotStored, match="there is no directory") as caught:
            attempt()
        assert caught.value.hint == f"mkdir -p {db.parent}"


def test_a_directory_or_file_this_user_may_not_write_to_is_reported_before_anything_is_measured(
    made: Path,
) -> None:
    code = """
import fcntl, os, random, sys, tempfile, duckdb
from pathlib import Path
from gputui.errors import NotStored
from gputui.store.writing import check_writable
if os.getuid() == 0:  # may write everything
    os.setuid(65534)
for path in sys.argv[1:]:
    try:
        check_writable(Path(path))
        print("can be written")
    except NotStored as error:
        print(error.message)
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        closed, opened = Path(directory) / "closed", Path(directory) / "opened"
        for place in (closed, opened):
            place.mkdir()
            shutil.copy(made / "a.db", place / "a.db")
            (place / "a.db").chmod(0o666)
        (opened / "a.db").chmod(0o444)
        opened.chmod(0o777)
        closed.chmod(0o555)
        Path(directory).chmod(0o755)
        places = [str(closed / "a.db"), str(closed / "new.db"), str(opened / "a.db"), str(opened / "new.db")]
        done = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True)
        closed.chmod(0o755)

    assert done.stderr == ""
    reported = done.stdout.splitlines()
    assert ["may not" in line for line in reported] == [True, True, True, False]
    assert reported[3] == "can be written"


def test_whether_a_new_file_can_be_made_is_found_out_without_a_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "a.db")
    assert names_in(tmp_path) == set()


def test_whether_an_existing_file_can_be_written_is_found_out_without_a_change(
    db: Path, tmp_path: Path
) -> None:
    before = rows(db, "FROM meta ORDER BY key")
    check_writable(db)

    assert rows(db, "FROM meta ORDER BY key") == before
    assert names_in(tmp_path) == {"a.db", "a.db.lock"}


def test_a_link_to_the_file_has_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "a.db")
    store(make_journal(tmp_path / "run"), tmp_path / "link.db")

    assert names_in(tmp_path / "data") == {"a.db", "a.db.lock"}
    assert len(read_run(tmp_path / "link.db").cases) == 3


def test_an_older_file_is_brought_up_to_date_before_it_is_written_to(
    made: Path, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = ("ALTER TABLE {catalog}.main.runs ADD COLUMN mood VARCHAR",)
    next_version = schema.SCHEMA_VERSION + 1
    migration = schema.Migration(next_version, "runs have a mood", statements)
    real = writing._migrate
    monkeypatch.setattr(
        writing, "_migrate", lambda connection, path, version: real(connection, path, version, (migration,))
    )
    store(made / "other", db)
    store(make_journal(tmp_path / "third", run_id=OTHER_RUN_ID.replace("beef", "feed")), db)

    assert rows(db, "SELECT version, note FROM migrations ORDER BY version") == [
        (schema.SCHEMA_VERSION, "made"),
        (next_version, "runs have a mood"),
    ]
    assert rows(db, "SELECT value FROM meta WHERE key = 'schema_version'") == [(str(next_version),)]
    with open_result(db) as result:
        assert len(result.summaries()) == 3


def test_lists_do_what_the_appender_does_for_a_duckdb_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = make_journal(tmp_path / "run", machine=GPU_MACHINE)
    store(run_dir, tmp_path / "appender.db")
    monkeypatch.setattr(writing, "_has_appender", lambda connection: False)
    store(run_dir, tmp_path / "lists.db")

    for table in schema.TABLES:
        if table.name not in ("meta", "migrations"):
            names = ", ".join(name for name in table.column_names if name != "stored_us")
            sql = f"SELECT {names} FROM {table.name} ORDER BY ALL"
            assert rows(tmp_path / "lists.db", sql) == rows(tmp_path / "appender.db", sql)


def test_contents_with_a_status_of_their_own_keep_it(tmp_path: Path) -> None:
    lines = journal_lines(status="failed")
    contents = read_journal(write_lines(tmp_path / "run", lines))
    assert isinstance(contents, JournalContents)
    assert isinstance(lines[-1], RunEnd)

    assert store_run(tmp_path / "a.db", contents, ()).status == "failed"
    assert isinstance(read_run(tmp_path / "a.db").summary.price, type(PRICE))
    assert rows(tmp_path / "a.db", "SELECT count(*) FROM launches") == [
        (sum(isinstance(line, LaunchEnd) for line in lines),)
    ]


def test_texts_longer_than_reading_accepts_are_cut_and_say_so(tmp_path: Path) -> None:
    long = "ä" * 100_000  # 200 kB
    lines = [
        replace(line, outcome="failed", reason=long) if isinstance(line, LaunchEnd | CaseEnd) else line
        for line in journal_lines()
    ]
    runtime = replace(RUNTIME, torch_version=Missing(long))
    lines = [replace(line, runtime=runtime) if isinstance(line, RuntimeFound) else line for line in lines]
    lines.insert(-1, Event(t_ns=lines[-2].t_ns, level="warning", message=long))  # type: ignore[union-attr]
    write_lines(tmp_path / "run", lines)
    store(tmp_path / "run", tmp_path / "a.db")
    with open_result(tmp_path / "a.db") as result:
        messages = [event.message for event in result.events(RUN_ID)]
        reasons = [launch.reason for launch in result.failed_launches(RUN_ID)]
        (run,) = result.summaries()
    for texts in (messages, reasons):
        assert any(text.startswith("ää") and text.endswith("ä... (cut)") for text in texts)
        assert all(len(text.encode()) <= TEXT_MOST_BYTES for text in texts)
    assert isinstance(run.runtime.torch_version, Missing)


def test_parameters_longer_than_reading_accepts_are_not_stored(tmp_path: Path) -> None:
    case = CASES[0]
    work = replace(case.work, parameters=tuple((f"p{n}", n) for n in range(10_000)))
    run_dir = make_journal(tmp_path / "run", cases=(replace(case, work=work),))
    with pytest.raises(NotStored, match=r"bytes in cases\.parameters_json, and at most 65,536 are read"):
        store(run_dir, tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()
