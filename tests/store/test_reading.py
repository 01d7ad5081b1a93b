from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import GPU_MACHINE, RUN_ID, STARTED_US, journal_lines, make_case, make_journal, write_lines
from many import holding

from gputui.errors import EXIT_USAGE, GputuiError, clean_text
from gputui.model.absent import Missing
from gputui.model.journal import MachineFound, RunStart
from gputui.model.plan import LEAST_UNITS
from gputui.model.result import Run, RunSummary
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.opening import explained
from gputui.store.reading import open_result
from gputui.store.selecting import find_run
from gputui.store.writing import store_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one run; to be copied, not modified."""
    directory = tmp_path_factory.mktemp("made")
    store(make_journal(directory / "run", machine=GPU_MACHINE), directory / "made.db")
    return directory / "made.db"


@pytest.fixture
def db(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "a.db"))


def store(run_dir: Path, db: Path) -> None:
    store_run(db, read_journal(run_dir), read_telemetry(run_dir))


def spoil(db: Path, *statements: str) -> None:
    """Modify the file as a stranger might have."""
    with duckdb.connect(str(db)) as connection:
        for statement in statements:
            connection.execute(statement)


def read_all(db: Path) -> None:
    with open_result(db) as result:
        for summary in result.summaries():
            result.run(summary.run_id)
            result.telemetry_summary(summary.run_id)
            result.events(summary.run_id)


def run_or_error(db: Path) -> Run | GputuiError:
    try:
        with open_result(db) as result:
            return result.run(RUN_ID)
    except GputuiError as error:
        return error


def refusal(db: Path) -> GputuiError:
    with pytest.raises(GputuiError) as caught:
        read_all(db)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint
    assert str(db) in caught.value.message
    return caught.value


def summary_called(label: str, run_id: str, summaries: list[RunSummary]) -> None:
    summaries.append(replace(summaries[0], label=label, run_id=run_id))


def test_a_missing_file_is_reported_with_the_nearest_names(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"x")
    (tmp_path / "h200.db").write_bytes(b"x")

    error = refusal(tmp_path / "h100.db")
    assert "there is no result file" in error.message
    assert error.hint == "did you mean h200.db?"
    (tmp_path / "h200.db").unlink()
    for number in range(10):
        (tmp_path / f"{number}.db").write_bytes(b"x")
    listed = ", ".join(f"{number}.db" for number in range(8))
    assert refusal(tmp_path / "elsewhere.db").hint == f"{tmp_path} holds {listed} and 2 more"
    assert "there is no directory" in refusal(tmp_path / "nowhere" / "a.db").hint


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"hello\n" * 5000, "not a DuckDB database"),
        (b"\x1f\x8b" + bytes(40_000), "not a DuckDB database"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not a DuckDB database"),
        ("CREATE TABLE runs (run_id UUID)", "not a gputui result file"),
        ("CREATE TABLE meta (key VARCHAR, value VARCHAR)", "not a gputui result file"),
        (
            "CREATE VIEW meta AS SELECT 'format' AS key, 'gputui result file' AS value",
            "not a gputui result file",
        ),
    ],
)
def test_a_file_that_is_no_result_file_is_reported_as_what_it_is(
    tmp_path: Path, content: bytes | str, expected: str
) -> None:
    if isinstance(content, bytes):
        (tmp_path / "a.db").write_bytes(content)
    else:
        spoil(tmp_path / "a.db", content)
    assert expected in refusal(tmp_path / "a.db").message


def test_a_directory_a_pipe_and_a_sqlite_file_are_reported_as_such(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    with closing(sqlite3.connect(tmp_path / "lite.db")) as connection:
        connection.execute("CREATE TABLE runs (run_id)")

    assert "is a directory" in refusal(tmp_path).message
    assert "not a regular file" in refusal(tmp_path / "pipe.db").message
    assert "is a SQLite database" in refusal(tmp_path / "lite.db").message
    trace = tmp_path / "t.json"
    trace.write_text("{}" * 9000)
    assert refusal(trace).hint == f"if it is a trace of torch.profiler: gputui import {trace}"


def test_a_column_that_an_older_file_lacks_is_read_as_absent(db: Path) -> None:
    spoil(db, "ALTER TABLE machines DROP COLUMN libc", "ALTER TABLE measurements DROP COLUMN stable")
    with open_result(db) as result:
        run = result.run(RUN_ID)

    assert run.summary.machine.libc == Missing("not stored")
    assert run.cases[0].measurements[0].stable is None


def test_a_storage_version_that_this_duckdb_cannot_read_asks_for_an_upgrade(tmp_path: Path) -> None:
    text = (
        "IO Error: Trying to read a database file with version number 69, but we can only read versions"
        " between 64 and 68.\nThe database file was created with a newer version of DuckDB."
    )
    error = explained(tmp_path / "a.db", text)
    assert "made by a newer DuckDB" in error.message
    assert "upgrade duckdb" in error.hint


SECRET = "the-secret-of-this-box"


@contextmanager
def secret_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "secret"
        path.write_text(SECRET)
        yield path


def test_a_view_in_the_place_of_a_table_cannot_read_a_file_of_ours(db: Path) -> None:
    with secret_file() as secret:
        spoil(
            db,
            "ALTER TABLE runs RENAME TO real_runs",
            "CREATE VIEW runs AS SELECT * REPLACE"
            f" ((SELECT content FROM read_text('{secret}')) AS label) FROM real_runs",
        )
        error = refusal(db)
        assert "has no table runs" in error.message
        assert SECRET not in error.message


def test_a_view_of_ones_own_is_ignored_and_so_is_one_in_the_place_of_a_table_that_may_be_missing(
    db: Path,
) -> None:
    spoil(db, "CREATE VIEW mine AS SELECT * FROM runs", "DROP TABLE figures")
    spoil(db, "CREATE VIEW figures AS SELECT error('read') AS run_id, 'x' AS key")
    spoil(db, "CREATE SCHEMA other; CREATE VIEW other.extra AS SELECT 1")

    with open_result(db) as result:
        assert len(result.run(RUN_ID).cases) == 3


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE MACRO median(x) AS 666", "macro median"),
        ("CREATE MACRO peek() AS TABLE SELECT * FROM glob('/etc/*')", "macro peek"),
        (
            "CREATE TABLE slow (a INT, b VARCHAR GENERATED ALWAYS AS (repeat('x', a)))",
            "generated column in slow",
        ),
    ],
)
def test_what_could_run_is_refused_and_read_past_only_when_trusted(
    db: Path, statement: str, named: str
) -> None:
    spoil(db, statement)

    assert named in refusal(db).message
    with open_result(db, trust=True) as result:
        assert result.telemetry_summary(RUN_ID).devices[0].power_median_w == 603.5
        assert len(result.run(RUN_ID).cases) == 3


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "ALTER TABLE blocks ALTER COLUMN wall_ns TYPE DOUBLE",
            "has blocks.wall_ns as DOUBLE where BIGINT belongs",
        ),
        ("DROP TABLE blocks", "has no table blocks"),
    ],
)
def test_a_lost_table_and_a_column_of_another_type_are_reported(
    db: Path, statement: str, expected: str
) -> None:
    spoil(db, statement)
    assert expected in refusal(db).message


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE blocks SET wall_ns = -1",
        "UPDATE blocks SET wall_ns = NULL",
        "UPDATE blocks SET steps = 0",
        "UPDATE cases SET units_per_step = 'nan'::DOUBLE",
        "UPDATE cases SET units_per_step = NULL",
        "UPDATE cases SET units_per_step = 0",
        "UPDATE cases SET units_per_step = 1e300",
        "UPDATE cases SET units_per_step = 5e-324",
        "UPDATE cases SET parameters_json = 'nonsense'",
        "UPDATE cases SET parameters_json = '[[1]]'",
        "UPDATE machines SET absent_json = '{\"libc\": 5}'",
        "UPDATE machines SET cpu_usable_cores = NULL",
        "UPDATE prices SET usd_per_hour = 'inf'::DOUBLE",
        "UPDATE runs SET layers_json = '7'",
        "UPDATE runs SET started_us = -5",
        "UPDATE telemetry SET power_w = 'inf'::FLOAT",
    ],
)
def test_a_value_that_cannot_be_is_an_error_and_never_a_number(db: Path, statement: str) -> None:
    spoil(db, statement)
    assert "holds what cannot be" in refusal(db).message


def test_the_connection_reaches_no_other_file_and_no_setting(db: Path) -> None:
    with secret_file() as secret, open_result(db) as result:
        connection = result.opened.connection
        for statement in (
            f"SELECT * FROM read_text('{secret}')",
            f"SELECT * FROM '{secret}'",
            f"ATTACH '{secret}' AS other",
            f"COPY (SELECT 1) TO '{secret}'",
            "INSTALL httpfs",
            "SET enable_external_access=true",
            "RESET lock_configuration",
            "DELETE FROM d0.main.runs",
            "CREATE TABLE d0.main.mine (a INT)",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)
        assert secret.read_text() == SECRET


def test_escape_sequences_in_a_file_reach_no_terminal(db: Path) -> None:
    spoil(
        db,
        "UPDATE runs SET label = 'a' || chr(27) || '[2J' || chr(7) || chr(8238) || 'b'",
        "UPDATE cases SET reason = 'two' || chr(10) || 'lines', parameters_json = '[[\"k\\u001b[2J\", 1]]'",
        'UPDATE machines SET absent_json = \'{"instance_type": "\\u001b]0;title\\u0007"}\'',
        "UPDATE events SET message = chr(27) || 'c' || chr(155) || 'hello'",
    )
    with open_result(db) as result:
        summary = result.summaries()[0]
        case = result.run(RUN_ID).cases[0]
        event = result.events(RUN_ID)[0]
    with open_result(db, as_stored=True) as result:
        assert result.summaries()[0].label == "a\x1b[2J\x07\u202eb", "JSON escapes it itself"

    assert summary.label == r"a\x1b[2J\x07\u202eb"
    assert summary.machine.instance_type == Missing(r"\x1b]0;title\x07")
    assert case.reason == "two lines"
    assert case.case.work.parameters == ((r"k\x1b[2J", 1),)
    assert event.message == r"\x1bc\x9bhello"


@given(text=st.text())
def test_cleaned_text_is_printable_and_plain_text_stays_as_it_is(text: str) -> None:
    assert clean_text(text).isprintable()
    if text.isprintable():
        assert clean_text(text) == text


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_gives_all_of_its_numbers_or_an_error(db: Path, made: Path, cut: float) -> None:
    with open_result(made) as result:
        expected = result.run(RUN_ID)
    os.truncate(db, int(db.stat().st_size * cut))
    found = run_or_error(db)
    assert found == expected or "damaged" in str(found)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_an_error_or_changes_nothing(
    made: Path, tmp_path_factory: pytest.TempPathFactory, where: float, bit: int
) -> None:
    with open_result(made) as result:
        expected = result.run(RUN_ID)
    raw = bytearray(made.read_bytes())
    raw[int(len(raw) * where)] ^= 1 << bit
    db = tmp_path_factory.mktemp("flipped") / "a.db"
    db.write_bytes(raw)
    found = run_or_error(db)
    assert found == expected or (isinstance(found, GputuiError) and str(db) in found.message)


def test_a_log_beside_the_file_is_warned_of_and_one_of_another_file_refused(db: Path, tmp_path: Path) -> None:
    code = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
        "c.execute(\"UPDATE runs SET label = 'from the log'\"); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(db)], check=True)
    with open_result(db) as result:
        assert [summary.label for summary in result.summaries()] == ["from the log"]
        assert len(result.warnings) == 1
        assert "a.db.wal" in result.warnings[0]

    make_journal(tmp_path / "other", label="other")
    store(tmp_path / "other", tmp_path / "b.db")
    shutil.copy(tmp_path / "a.db.wal", tmp_path / "b.db.wal")
    assert "does not belong to" in refusal(tmp_path / "b.db").message


def test_a_reader_waits_for_a_writer_to_end(db: Path) -> None:
    holder = holding(db)
    assert holder.stdin is not None
    threading.Timer(0.3, holder.stdin.close).start()
    with open_result(db) as result:
        assert len(result.summaries()) == 1
    holder.wait(timeout=300)


def test_a_file_that_stays_held_is_reported_with_the_holders_pid(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = holding(db)
    monkeypatch.setattr("gputui.store.opening.WAIT_S", 0.1)
    try:
        assert f"is being written by process {holder.pid}" in refusal(db).message
    finally:
        holder.communicate(b"\n")


def test_one_file_can_be_open_twice_whatever_its_name(made: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copy(made, tmp_path / 'it\'s a "b".db'))
    with open_result(odd) as first, open_result(odd) as second:
        assert first.summaries() == second.summaries()
        assert first.warnings == ()


def test_a_file_this_user_may_not_read_is_reported_as_such() -> None:
    code = """
import os, sys, duckdb
from pathlib import Path
from gputui.errors import GputuiError
from gputui.store.selecting import find_run
from gputui.store.reading import open_result
if os.getuid() == 0:  # may read everything
    os.setuid(65534)
try:
    with open_result(Path(sys.argv[1])):
        pass
except GputuiError as error:
    print(error.message)
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        db = Path(directory) / "a.db"
        db.write_bytes(b"x")
        db.chmod(0)
        done = subprocess.run([sys.executable, "-c", code, str(db)], capture_output=True, text=True)
    assert done.stderr == ""
    assert "may not be read by this user" in done.stdout


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for number, day in enumerate((2, 0, 1)):
        run_id = f"0194b5a0-0000-7000-8000-{number:012x}"
        started = STARTED_US + day * 86_400_000_000
        run_dir = make_journal(
            tmp_path / str(number), run_id=run_id, label=f"day {day}", started_utc_us=started
        )
        store(run_dir, tmp_path / "a.db")

    with open_result(tmp_path / "a.db") as result:
        assert [summary.label for summary in result.summaries()] == ["day 2", "day 1", "day 0"]


def test_a_run_that_the_file_does_not_contain_is_reported(db: Path) -> None:
    with open_result(db) as result:
        for run_id in ("0194b5a0-0000-7000-8000-0000deadbeef", "nonsense", "'; DROP TABLE runs"):
            with pytest.raises(GputuiError, match="has no run"):
                result.run(run_id)


def test_the_telemetry_of_a_run_is_summed_up(db: Path) -> None:
    with open_result(db) as result:
        summary = result.telemetry_summary(RUN_ID)

    assert [device.device_index for device in summary.devices] == [0, 1]
    device = summary.devices[0]
    assert (device.samples, device.power_median_w, device.power_max_w) == (40, 603.5, 607.0)
    assert (device.temperature_median_c, device.temperature_max_c) == (61.5, 63.0)
    assert (device.sm_clock_min_mhz, device.sm_clock_median_mhz) == (1870.0, 1885.0)
    assert (device.slowed_share, device.power_capped_share) == (0.25, 0.5)
    assert (summary.cpu_steal_mean_pct, summary.cpu_busy_mean_pct) == (2.0, 150.0)


def test_telemetry_that_was_not_taken_is_missing_and_not_zero(tmp_path: Path) -> None:
    store(make_journal(tmp_path / "run", telemetry=False), tmp_path / "a.db")
    with open_result(tmp_path / "a.db") as result:
        summary = result.telemetry_summary(RUN_ID)

    assert summary.devices == ()
    assert (summary.host_samples, summary.cpu_busy_mean_pct) == (0, Missing("not measured"))


def test_layers_of_one_kind_share_their_column_and_come_back_apart(tmp_path: Path) -> None:
    lines = journal_lines()
    found = lines[1]
    assert isinstance(found, MachineFound)
    layer = found.machine.layers[1]
    layers = (*found.machine.layers, replace(layer, name="kubernetes"))
    lines[1] = MachineFound(replace(found.machine, layers=layers))
    store(write_lines(tmp_path / "run", lines), tmp_path / "a.db")

    with duckdb.connect(str(tmp_path / "a.db"), read_only=True) as connection:
        assert connection.execute("SELECT container_layer FROM runs").fetchall() == [("docker+kubernetes",)]
    with open_result(tmp_path / "a.db") as result:
        assert result.summaries()[0].machine.layers == layers


def test_numbers_at_the_edge_of_their_type_come_back_exactly(tmp_path: Path) -> None:
    case = replace(make_case(), flops_per_step=2**63 - 1, bytes_per_step=0, units_per_step=LEAST_UNITS)
    lines = journal_lines(cases=(case,))
    start = lines[0]
    assert isinstance(start, RunStart)
    lines[0] = replace(start, seed=2**64 - 1, utc_offset_min=-570)
    store(write_lines(tmp_path / "run", lines), tmp_path / "a.db")

    with open_result(tmp_path / "a.db") as result:
        run = result.run(RUN_ID)
    assert run.cases[0].case == case
    assert run.cases[0].case.work.key == case.work.key
    assert (run.summary.seed, run.summary.utc_offset_min) == (2**64 - 1, -570)


@pytest.fixture(scope="module")
def summaries(made: Path) -> list[RunSummary]:
    """Newest first: two with the label `b`, one without."""
    with open_result(made) as result:
        found = [replace(result.summaries()[0], label="a", run_id="0194b5a0-0000-7000-8000-0000aaaa1111")]
    summary_called("b", "0194b5a0-0000-7000-8000-0000aaaa2222", found)
    summary_called("b", "0194b5a0-0000-7000-8000-0000bbbb3333", found)
    summary_called("", "0194b5a0-0000-7000-8000-0000cccc4444", found)
    summary_called("cccc4444", "0194b5a0-0000-7000-8000-0000dddd5555", found)
    return found


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        ("latest", 0),
        ("latest~0", 0),
        ("latest~3", 3),
        ("aaaa2222", 1),
        ("AAAA2222", 1),
        ("bbbb", 2),
        ("bbb", 2),
        ("0194b5a0-0000-7000-8000-0000bbbb3333", 2),
        ("a", 0),
        ("cccc4444", 3),
    ],
)
def test_a_run_is_found_by_id_label_or_age(summaries: list[RunSummary], selector: str, index: int) -> None:
    assert find_run(summaries, selector) == summaries[index]


@pytest.mark.parametrize(
    ("selector", "listed"), [("b", "aaaa2222 (b), bbbb3333 (b)"), ("aaaa", "aaaa1111 (a), aaaa2222 (b)")]
)
def test_a_selector_of_several_runs_lists_them(
    summaries: list[RunSummary], selector: str, listed: str
) -> None:
    with pytest.raises(GputuiError, match="means 2 runs") as caught:
        find_run(summaries, selector)
    assert listed in caught.value.message


@pytest.mark.parametrize(
    "selector", ["bbbb3334", "", "latest~9", "latest~", "ffff", "%", "latest~99999999999"]
)
def test_a_selector_of_no_run_says_what_there_is(summaries: list[RunSummary], selector: str) -> None:
    with pytest.raises(GputuiError, match="there is no run") as caught:
        find_run(summaries, selector)
    assert caught.value.hint
    if selector == "bbbb3334":
        assert "bbbb3333" in caught.value.hint
    with pytest.raises(GputuiError, match="no run is stored yet") as caught:
        find_run([], selector)
    assert "gputui run" in caught.value.hint


_IN_THREADS = """
import sys, threading
from dataclasses import make_dataclass
from gputui.store.strict import converted

sys.setswitchinterval(1e-6)
plain = {"parts": [{name: 1 for name in "abcdefgh"}], **{name: 1 for name in "abcdefgh"}}
for _ in range(100):
    numbers = [(name, int) for name in "abcdefgh"]
    part = make_dataclass("Part", numbers)
    kind = make_dataclass("Kind", [*numbers, ("parts", list[part])])
    barrier, made = threading.Barrier(4), []

    def convert():
        barrier.wait()
        made.append(converted(plain, kind))

    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(made) != 4:
        sys.exit(1)
"""


def test_threads_that_meet_a_type_together_convert_it() -> None:
    """In a process of its own, since it would crash."""
    assert subprocess.run([sys.executable, "-c", _IN_THREADS], check=False).returncode == 0
