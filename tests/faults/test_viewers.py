"""Runs that are left, watched again by several viewers, and stopped: a run belongs to its supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import (
    LONGEST_S,
    Terminal,
    gputui,
    gputui_here,
    only_run_dir,
    start_gputui,
    until_there,
    wait_until,
    wait_until_ended,
    write_long_profile,
    write_program_profile,
    write_spin_profile,
)

from gputui.model.journal import Block, LaunchEnd, LaunchStart
from gputui.recording.run_directory import is_held, read_holder
from gputui.store.journal_reader import JournalTail, read_journal
from gputui.store.reading import open_result


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return write_spin_profile(tmp_path / "spin.toml", replicates=2, blocks=8)


def detached(profile: Path, db: Path, *words: str) -> str:
    """Start a run in the background; returns its short id."""
    done = gputui("run", profile, "--db", db, "--detach", *words)
    assert done.returncode == 0, done.stderr
    found = re.search(r"run ([0-9a-f]{8}) continues", done.stdout)
    assert found, done.stdout
    return found.group(1)


def wait_for_launch(run_dir: Path, number: int) -> None:
    wait_until(
        lambda: sum(isinstance(line, LaunchStart) for line in JournalTail(run_dir).poll()) >= number,
        f"no launch {number}",
    )


def statuses(db: Path) -> list[str]:
    with open_result(db) as file:
        return [run.status for run in file.summaries()]


@pytest.mark.slow
def test_a_detached_run_is_listed_watched_by_two_and_shown_to_both(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes_on"
    profile = write_program_profile(tmp_path / "waits.toml", until_there(goes_on), replicates=4)
    db = tmp_path / "a.db"
    name = detached(profile, db, "--label", "mine")
    assert f"in progress: {name} (mine) into {db}: gputui attach {name}" in gputui("runs", db).stderr
    viewers = [start_gputui("attach"), start_gputui("attach", "mine")]
    first = [viewer.stdout.readline() for viewer in viewers if viewer.stdout is not None]
    goes_on.touch()
    output = [
        line + viewer.communicate(timeout=LONGEST_S)[0] for line, viewer in zip(first, viewers, strict=True)
    ]
    assert [viewer.returncode for viewer in viewers] == [0, 0], output
    for text in output:
        assert len(re.findall(r"\d:\d\d (?:launch 1 of command:program|pass \d+ of 4)", text)) == 4
        assert f"stored as {name}" in text
    assert statuses(db) == ["finished"]


@pytest.mark.slow
def test_stop_keeps_what_is_finished_and_notifies_a_viewer(tmp_path: Path) -> None:
    stays = f"mkdir {tmp_path}/first || sleep 600"
    profile = write_program_profile(tmp_path / "stays.toml", stays, replicates=2)
    db = tmp_path / "a.db"
    name = detached(profile, db)
    viewer = start_gputui("attach")
    run_dir = only_run_dir()
    wait_for_launch(run_dir, 2)
    stopped = gputui("stop", name)
    assert stopped.returncode == 0, stopped.stderr
    assert f"stored as {name}" in stopped.stdout
    output = viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 128 + signal.SIGTERM
    assert "run interrupted: stopped on request" in output
    assert statuses(db) == ["interrupted"]
    *finished, last = [end.outcome for end in read_journal(run_dir).of(LaunchEnd)]
    assert (set(finished), last) == ({"ok"}, "interrupted")


@pytest.mark.slow
def test_of_several_runs_one_must_be_named(tmp_path: Path) -> None:
    profile = write_program_profile(tmp_path / "stays.toml", "sleep 600")
    names = [detached(profile, tmp_path / f"{n}.db") for n in "ab"]
    for command in ("attach", "stop"):
        unclear = gputui(command)
        assert unclear.returncode == 2
        assert "2 runs are in progress" in unclear.stderr
        assert all(name in unclear.stderr for name in names)
        unknown = gputui(command, "nothing")
        assert unknown.returncode == 2
        assert "'nothing'" in unknown.stderr
    assert [gputui("stop", name).returncode for name in names] == [0, 0]
    assert "no run is in progress" in gputui("stop").stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "attach"])
def test_a_viewer_whose_terminal_is_taken_away_leaves_the_run_going(tmp_path: Path, command: str) -> None:
    goes_on = tmp_path / "goes_on"
    profile = write_program_profile(tmp_path / "waits.toml", until_there(goes_on))
    db = tmp_path / "a.db"
    if command == "attach":
        detached(profile, db)
    viewer = Terminal("attach") if command == "attach" else Terminal("run", "--yes", profile, "--db", db)
    viewer.wait_for(b"running")
    if command == "run":
        viewer.wait_for(b"\r\x1b[K")  # with a terminal lines are rewritten in place
    viewer.close()
    assert viewer.end() == 129
    wait_until(lambda: is_held(only_run_dir()), "the run did not go on")
    goes_on.touch()
    wait_until_ended(only_run_dir())
    assert statuses(db) == ["finished"]


def test_no_end_of_a_viewer_ends_a_run_that_it_did_not_start(tmp_path: Path) -> None:
    """Ctrl-C, SIGINT and SIGTERM; then the viewer that started it leaves with Ctrl-\\, and `stop` ends it."""
    profile = write_program_profile(tmp_path / "stays.toml", "sleep 600")
    db = tmp_path / "a.db"
    owner = Terminal("run", "--yes", profile, "--db", db)
    owner.wait_for(b"running")
    name = only_run_dir().name[-8:]
    viewers = {number: start_gputui("attach", name) for number in (signal.SIGTERM, signal.SIGINT)}
    on_terminal = Terminal("attach")
    on_terminal.wait_for(b"running")
    on_terminal.type(b"\x03")
    assert on_terminal.end() == 128 + signal.SIGINT
    plain = re.sub(rb"\x1b\[[\d;]*m", b"", on_terminal.seen)
    assert f"Ctrl-C leaves it running; to end it: gputui stop {name}".encode() in plain
    assert on_terminal.seen.decode().splitlines()[-3:] == [
        f"run {name} continues; to see it, or to end it:",
        f"  gputui attach {name}",
        f"  gputui stop {name}",
    ]
    for number, viewer in viewers.items():
        assert_leaves(viewer, number, " command:program ")
    assert is_held(only_run_dir())
    owner.type(b"\x1c")
    assert owner.end() == 0
    assert b"gputui attach" in owner.seen
    assert is_held(only_run_dir())
    assert gputui("stop", name).returncode == 0
    assert statuses(db) == ["interrupted"]


def assert_leaves(viewer: subprocess.Popen[str], number: signal.Signals, first: str) -> None:
    """The signal ends the viewer, and not what it watches."""
    assert viewer.stdout is not None
    said = next(line for line in viewer.stdout if first in line)  # its signals are handled by now
    viewer.send_signal(number)
    said += viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 128 + number, said
    assert "continues; to see it, or to end it:\n  gputui attach" in said
    assert "ending the run" not in said


def test_a_viewer_of_a_recording_leaves_it_and_the_program_to_their_ends(tmp_path: Path) -> None:
    none = gputui_here("attach")
    assert (none.returncode, none.stdout) == (2, "")
    assert "gputui run" in none.stderr
    db, ends = tmp_path / "a.db", tmp_path / "ends"
    recording = start_gputui("record", "--db", db, "--", "sh", "-c", until_there(ends))
    wait_until(_has_run, "no recording")
    viewers = {number: start_gputui("attach") for number in (signal.SIGTERM, signal.SIGINT)}
    for number, viewer in viewers.items():
        assert_leaves(viewer, number, "")
    assert recording.poll() is None
    ends.touch()
    recording.communicate(timeout=LONGEST_S)
    assert recording.returncode == 0
    assert statuses(db) == ["finished"]


@pytest.mark.slow
def test_a_viewer_outlives_its_supervisor_and_stores_what_is_finished(tmp_path: Path) -> None:
    profile = write_long_profile(tmp_path / "spin.toml")
    db = tmp_path / "a.db"
    viewer = start_gputui("run", "--yes", profile, "--db", db)
    wait_until(lambda: (tmp_path / "spin.toml").exists() and _has_run(), "no run")
    run_dir = only_run_dir()
    wait_for_launch(run_dir, 2)
    holder = read_holder(run_dir)
    assert holder
    os.kill(holder.pid, signal.SIGKILL)
    output = viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 1
    assert re.search(r"recovered run \w+: \d+ finished launch(es)? (is|are) now in", output)
    assert statuses(db) == ["interrupted"]


@pytest.mark.slow
def test_a_supervisor_that_is_stopped_for_a_while_goes_on_where_it_was(tmp_path: Path, profile: Path) -> None:
    db = tmp_path / "a.db"
    detached(profile, db)
    run_dir = only_run_dir()
    wait_for_launch(run_dir, 1)
    holder = read_holder(run_dir)
    assert holder
    worker = int(json.loads((run_dir / "worker.json").read_text())[0])
    os.kill(holder.pid, signal.SIGSTOP)
    wait_until(lambda: _is_zombie(worker), "the worker does not end")
    os.kill(holder.pid, signal.SIGCONT)
    wait_until_ended(run_dir)
    journal = read_journal(run_dir)
    assert [end.outcome for end in journal.of(LaunchEnd)] == ["ok", "ok"]
    assert journal.damage == ()
    assert statuses(db) == ["finished"]


@pytest.mark.slow
def test_a_worker_that_is_stopped_for_a_while_goes_on_where_it_was(tmp_path: Path, profile: Path) -> None:
    db = tmp_path / "a.db"
    detached(profile, db)
    run_dir = only_run_dir()
    wait_until(lambda: any(isinstance(line, Block) for line in JournalTail(run_dir).poll()), "no block")
    worker = int(json.loads((run_dir / "worker.json").read_text())[0])
    os.kill(worker, signal.SIGSTOP)
    size = (run_dir / "telemetry.bin").stat().st_size
    wait_until(lambda: (run_dir / "telemetry.bin").stat().st_size >= size + 200, "no telemetry")
    os.kill(worker, signal.SIGCONT)
    wait_until_ended(run_dir)
    assert [end.outcome for end in read_journal(run_dir).of(LaunchEnd)] == ["ok", "ok"]
    assert statuses(db) == ["finished"]


@pytest.mark.slow
def test_a_clock_that_is_set_forward_in_mid_run_changes_no_duration(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import time\n"
        "_true, _begun = time.time_ns, time.monotonic()\n"
        "def _set_forward():\n"
        "    return _true() + (3_600_000_000_000 if time.monotonic() - _begun > 2 else 0)\n"
        "time.time_ns = _set_forward\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    db = tmp_path / "a.db"
    detached(profile, db)
    run_dir = only_run_dir()
    wait_until_ended(run_dir)
    journal = read_journal(run_dir)
    assert journal.end is not None
    took_us = journal.end.ended_utc_us - journal.start.started_utc_us
    assert took_us == (journal.end.t_ns - journal.start.started_ns) // 1000
    assert all(block.wall_ns < 60e9 for block in journal.of(Block))
    (run,) = json.loads(gputui("runs", db, "--json").stdout)["runs"]
    assert run["ended_utc_us"] - run["started_utc_us"] == took_us


def _has_run() -> bool:
    home = Path(os.environ["GPUTUI_STATE"]) / "runs"
    return home.is_dir() and any((d / "journal.jsonl").exists() for d in home.iterdir())


def _is_zombie(pid: int) -> bool:
    listed = subprocess.run(["cat", f"/proc/{pid}/stat"], capture_output=True, text=True, check=False)
    return listed.returncode != 0 or listed.stdout.rpartition(")")[2].split()[0] == "Z"
