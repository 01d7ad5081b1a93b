"""`gputui record`: a program runs as usual, and the telemetry of the box is in the file afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from command_line import LONGEST_S, WORDS, Terminal, gputui, gputui_here, only_run_dir, printed, wait_until
from nvml.standin import standin_environment

from gputui.model.journal import JOURNAL_NAME, SPEC_NAME, Event, LaunchStart
from gputui.model.telemetry import HOST
from gputui.store.journal_reader import JournalTail, read_journal, read_telemetry

PYTHON = (sys.executable, "-IS", "-c")


def start_record(*words: str | Path) -> subprocess.Popen[bytes]:
    """A recorder in its own session, with pipes for stdin and stdout."""
    return subprocess.Popen(
        [*WORDS, "record", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def rows(db: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(db), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def wait_until_begun() -> Path:
    """The run directory of a recording whose program runs."""
    home = Path(os.environ["GPUTUI_STATE"]) / "runs"
    wait_until(lambda: home.is_dir() and any(home.glob(f"*/{JOURNAL_NAME}")), "no journal")
    tail = JournalTail(only_run_dir())
    wait_until(lambda: any(isinstance(line, LaunchStart) for line in tail.poll()), "no launch")
    return only_run_dir()


def test_input_output_and_process_group_are_the_programs_own(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getpgrp() == os.getpgid(os.getppid()), sys.argv[1:], sys.stdin.read())"
    recorder = start_record("--db", tmp_path / "a.db", "--", *PYTHON, code, "--debug", "--label", "-x")
    output, errors = recorder.communicate(b"a line", LONGEST_S)
    assert output == b"True ['--debug', '--label', '-x'] a line\n"
    assert recorder.returncode == 0
    said, shown = errors.decode().splitlines()
    found = re.fullmatch(
        r"gputui: recorded as ([0-9a-f]{8}) in \S+: [0-9.]+ m?s; [0-9.]+ [mµ]?s of CPU.*", said
    )
    assert found, said
    assert shown == f"  gputui show {found[1]} {tmp_path / 'a.db'}"


@pytest.mark.parametrize(
    ("program", "code", "outcome", "reason"),
    [
        (("sh", "-c", "exit 3"), 3, "failed", "exited with status 3"),
        (("sh", "-c", "kill -KILL $$"), 137, "failed", "it died of SIGKILL"),
        (("sh", "-c", "kill -INT $$"), 130, "interrupted", "stopped by SIGINT"),
    ],
)
def test_the_exit_code_of_the_program_is_passed_on(
    tmp_path: Path, program: Sequence[str], code: int, outcome: str, reason: str
) -> None:
    db = tmp_path / "a.db"
    done = gputui_here("record", "--db", db, "--", *program)
    assert done.returncode == code
    assert re.search(rf"s{', ' if reason else ''}{reason}; [0-9.]+ [mµ]?s of CPU", done.stderr), done.stderr
    assert rows(db, "SELECT outcome, reason FROM cases") == [(outcome, reason)]
    assert rows(db, "SELECT count(*) FROM blocks WHERE wall_ns > 0 AND cpu_ns IS NOT NULL") == [(1,)]


def test_a_program_that_cannot_be_started_or_whose_file_cannot_be_written_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "text").write_text("no program")
    done = gputui_here("record", "--db", tmp_path / "text", "--", "touch", tmp_path / "ran")
    assert (done.returncode, (tmp_path / "ran").exists()) == (125, False)
    for program, code in (("no-such-program", 127), (tmp_path / "text", 126), (tmp_path, 126)):
        done = gputui_here("record", "--db", tmp_path / "a.db", "--", program)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(f"gputui: {program}: cannot be started: ")
    assert not (tmp_path / "a.db").exists()
    assert list((Path(os.environ["GPUTUI_STATE"]) / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        *((("--interval", x), "--interval") for x in ("nan", "inf", "-1", "0", "0.09", "60.1", "1e308", "x")),
        *((("--for", x), "--for") for x in ("nan", "inf", "-1", "0", "1e12", "x")),
        (("--for", "1", "--", "true"), "--for 1"),
        (("--label", "x" * 81, "--", "true"), "is not a label"),
        (("--label", "a\nb", "--", "true"), "is not a label"),
        (("--price", "nan", "--", "true"), "--price"),
        (("--intervall", "1", "--", "true"), "--intervall"),
        (("true",), "before --"),
        (("--",), "follows --"),
    ],
)
def test_our_own_errors_are_125_and_nothing_is_begun(
    words: Sequence[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = printed(capsys, "record", "--db", tmp_path / "a.db", *words)
    assert (status, out, expected in err) == (125, "", True)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_stored_in_the_end_is_reported_with_its_journal_and_can_be_stored_later(
    tmp_path: Path,
) -> None:
    (tmp_path / "there").mkdir()
    done = gputui_here("record", "--db", tmp_path / "there" / "a.db", "--", "rm", "-r", tmp_path / "there")
    assert done.returncode == 125
    assert "recorded but not stored: " in done.stderr
    assert f"gputui import {only_run_dir()} --db FILE" in done.stderr
    stored = gputui_here("import", only_run_dir(), "--db", tmp_path / "b.db")
    assert stored.returncode == 0, stored.stderr
    assert rows(tmp_path / "b.db", "SELECT outcome FROM cases") == [("ok",)]


def test_what_the_program_got_of_the_box_is_in_its_answer(tmp_path: Path) -> None:
    db, code = tmp_path / "a.db", "import time\nwhile time.process_time() < 0.3: pass"
    done = gputui_here("record", "--db", db, "--", *PYTHON, code)
    assert (done.returncode, rows(db, "SELECT outcome, reason FROM cases")) == (0, [("ok", "")])
    (said,) = re.findall(r"; (.+ of CPU.*)\n", done.stderr)
    assert f"It got {said}." in " ".join(gputui_here("show", "latest", db).stdout.split())
    found = json.loads(gputui_here("show", "latest", db, "--json").stdout)["recorded"]
    assert found["cpu_s"] >= 0.3
    assert found["waited_share"] < 1


@pytest.mark.slow
def test_recordings_pair_by_their_label_and_without_one_with_nothing(tmp_path: Path) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    secret = "--of-ada-lovelace"
    for db, seconds in ((a, "0.6"), (b, "0.01")):
        code = f"import time; time.sleep({seconds})"
        for label in (("--label", "the sweep"), ()):
            done = gputui_here("record", "--db", db, "--price", "3.6", *label, "--", *PYTHON, code, secret)
            assert done.returncode == 0, done.stderr
    compared = gputui_here("compare", a, b, "--format", "json")
    assert compared.returncode == 0, compared.stderr
    (comparison,) = json.loads(compared.stdout)["comparisons"]
    paired = [row for row in comparison["rows"] if row["ratio"]]
    assert [row["case"] for row in paired] == ["record:the sweep"]
    assert paired[0]["a"]["cost"]["usd_per_million"] >= 0.6 * 3.6 / 3600
    alone = [row for row in comparison["rows"] if not row["ratio"]]
    assert [(row["case"], row["verdict"]) for row in alone] == [("record", "not comparable")] * 2
    text = gputui_here("compare", a, b)
    assert "record:the sweep" in text.stdout
    assert secret.encode() not in b"".join(db.read_bytes() for db in (a, b))
    home = Path(os.environ["GPUTUI_STATE"]) / "runs"
    kept = [run_dir / name for run_dir in home.iterdir() for name in (SPEC_NAME, JOURNAL_NAME)]
    assert not any(secret in path.read_text() for path in kept)
    for (table,) in rows(a, "SELECT table_name FROM duckdb_tables()"):
        assert not any(secret in str(row) for row in rows(a, f"FROM {table}"))
    listed = gputui_here("runs", a).stdout
    assert ("the sweep" in listed, listed.count(" record ")) == (True, 2)


def test_without_a_program_the_box_is_recorded_for_the_given_time(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    done = gputui_here("record", "--db", db, "--interval", "0.1", "--for", "0.4", "--label", "idle")
    assert (done.returncode, done.stdout) == (0, "")
    assert "recording every 0.1 s for 400 ms" in done.stderr
    assert rows(db, "SELECT status, label FROM runs") == [("finished", "idle")]
    assert rows(db, "SELECT count(*) >= 3 FROM host_telemetry") == [(True,)]
    shown = gputui_here("show", "idle", db, "--verbose")
    assert shown.returncode == 0, shown.stderr
    assert "host: CPU " in shown.stdout
    assert "normal" not in shown.stdout


def test_ctrl_c_on_a_terminal_is_the_normal_end_of_a_recording_without_a_program(tmp_path: Path) -> None:
    recorder = Terminal("record", "--db", tmp_path / "a.db")
    recorder.wait_for(b"until Ctrl-C")
    recorder.type(b"\x03")
    assert recorder.end() == 0, recorder.seen
    assert rows(tmp_path / "a.db", "SELECT status FROM runs") == [("finished",)]


def test_ctrl_c_on_a_terminal_reaches_the_program_once_and_its_answer_counts(tmp_path: Path) -> None:
    code = """
import signal, sys, time
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
print("ready", sys.stdin.isatty(), flush=True)
while not caught:
    time.sleep(0.01)
print("caught", len(caught), input(), flush=True)
sys.exit(7)
"""
    recorder = Terminal("record", "--db", tmp_path / "a.db", "--", *PYTHON, code)
    recorder.wait_for(b"ready True")
    recorder.type(b"\x03")
    recorder.type(b"an answer\n")
    recorder.wait_for(b"caught 1 an answer")
    assert recorder.end() == 7
    assert rows(tmp_path / "a.db", "SELECT status, outcome FROM runs, cases") == [("finished", "failed")]


def test_a_program_that_outlives_its_terminal_is_recorded_to_its_end(tmp_path: Path) -> None:
    code = f"""
import pathlib, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
print("ready", flush=True)
while not pathlib.Path({str(tmp_path / "go")!r}).exists():
    time.sleep(0.01)
"""
    recorder = Terminal("record", "--db", tmp_path / "a.db", "--", *PYTHON, code)
    recorder.wait_for(b"ready")
    recorder.close()
    (tmp_path / "go").touch()
    assert recorder.end() == 129
    assert rows(tmp_path / "a.db", "SELECT status, outcome FROM runs, cases") == [("finished", "ok")]


def test_a_signal_that_no_terminal_sent_is_passed_on_and_leads_to_what_was_recorded(tmp_path: Path) -> None:
    db, code = tmp_path / "a.db", "import signal; print('ready', flush=True); signal.pause()"
    recorder = start_record("--db", db, "--", *PYTHON, code)
    assert recorder.stdout is not None
    assert recorder.stdout.readline() == b"ready\n"
    recorder.terminate()
    _, errors = recorder.communicate(timeout=LONGEST_S)
    assert recorder.returncode == 128 + signal.SIGTERM
    named = re.search(rb"recorded as ([0-9a-f]{8}) in ", errors)
    assert named, errors  # after what the program itself may say of its end
    run = named[1].decode()
    shown = gputui_here("show", "latest", db).stdout
    assert re.match(r"Recorded [0-9.]+ m?s until it was stopped by SIGTERM\.\n", shown)
    assert shown.rstrip().endswith(f"next: gputui results {db}@{run}  # its telemetry over time")
    assert not any(text in shown for text in ("gputui rm", "nothing was measured", "did not finish"))
    assert rows(db, "SELECT count(*) > 0 FROM host_telemetry") == [(True,)]


def test_a_living_recorder_is_left_alone_and_what_a_killed_one_leaves_is_stored(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    recorder = start_record("--db", db, "--label", "cut", "--interval", "0.1", "--", *PYTHON, "input()")
    run_dir = wait_until_begun()
    early = gputui_here("import", run_dir, "--db", db)
    assert (early.returncode, "in progress" in early.stderr) == (2, True)
    recorder.kill()
    recorder.wait(LONGEST_S)
    stored = gputui_here("import", run_dir, "--db", db)
    recorder.communicate(timeout=LONGEST_S)  # closes the program's input, which ends it
    assert stored.returncode == 0, stored.stderr
    assert rows(db, "SELECT status, label FROM runs") == [("interrupted", "cut")]
    assert rows(db, "SELECT outcome FROM cases") == [("interrupted",)]
    assert rows(db, "SELECT count(*) > 0 FROM host_telemetry") == [(True,)]
    assert gputui_here("import", run_dir, "--db", db).stdout.count("already there") == 1


_HANGS = {"from the first call on": "1 hang * 1", "while it is read": "1 hang nvmlDeviceGetPowerUsage 4"}


@pytest.mark.slow
@pytest.mark.parametrize("hang", _HANGS.values(), ids=_HANGS)
def test_a_gpu_that_hangs_costs_its_own_rows_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hang: str
) -> None:
    scenario = standin_environment(f"driver gpus 4\n{hang}\n")
    for name, value in scenario.items():
        monkeypatch.setenv(name, value)
    recorder = start_record("--db", tmp_path / "a.db", "--", *PYTHON, "input()")
    run_dir = wait_until_begun()

    def counts() -> Counter[int]:
        return Counter(reading.device for reading in read_telemetry(run_dir))

    wait_until(lambda: bool(read_journal(run_dir).of(Event)), "no event")
    before = counts()
    wait_until(lambda: all(counts()[device] >= before[device] + 2 for device in (HOST, 0, 2, 3)), "no rows")
    assert counts()[1] == before[1]
    with Path(scenario["GPUTUI_NVML_SCENARIO"]).open("a") as file:
        file.write(f"{hang.rpartition(' ')[0]} 0\n")
    wait_until(lambda: counts()[1] >= before[1] + 2, "no rows of GPU 1")
    assert recorder.communicate(b"\n", LONGEST_S)[1].startswith(b"gputui: recorded as ")
    assert recorder.returncode == 0
    assert rows(tmp_path / "a.db", "SELECT level, message FROM events") == [
        ("warning", "nvml device 1: the driver has not answered for 5 s")
    ]


@pytest.mark.slow
def test_a_recording_ends_while_a_gpu_hangs(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    scenario = standin_environment("driver gpus 4\n1 hang * 1\n")
    done = gputui("record", "--db", db, "--", "true", env=scenario)
    assert (done.returncode, done.stderr.startswith("gputui: recorded as ")) == (0, True)
    assert rows(db, "SELECT outcome FROM cases") == [("ok",)]
    assert rows(db, "SELECT DISTINCT device_index FROM telemetry ORDER BY 1") == [(0,), (2,), (3,)]
    assert rows(db, "SELECT message FROM events") == [("nvml device 1: the driver has not answered for 5 s",)]
