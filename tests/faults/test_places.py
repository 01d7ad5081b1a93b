"""Full disks, files that vanish, directories without write permission, runs that are started twice."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from builders import make_plan, make_spec
from command_line import (
    WORDS,
    gputui_here,
    only_run_dir,
    start_gputui,
    wait_until,
    without_roots_privilege,
    write_long_profile,
    write_spin_profile,
)
from journals import RUN_ID, make_journal
from stored_runs import store
from supervised import start_supervisor

from gputui.errors import NotStored
from gputui.model.journal import (
    JOURNAL_NAME,
    LOCK_NAME,
    Block,
    CaseEnd,
    Event,
    LaunchEnd,
    LaunchStart,
    RunEnd,
    check_line,
)
from gputui.recording.run_directory import RESERVE_NAME, Holder, JournalWriter, read_holder
from gputui.services.runs.process import lay_out, recover_orphans
from gputui.services.support.paths import run_directories
from gputui.store.journal_reader import JournalTail, read_journal


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return write_spin_profile(tmp_path / "spin.toml", replicates=2)


def begun(profile: Path, db: Path, launches: int = 1) -> tuple[subprocess.Popen[str], Path]:
    """A viewer and the run directory of its run, after this many launches have begun."""
    viewer = start_gputui("run", profile, "--db", db)
    home = Path(os.environ["GPUTUI_STATE"]) / "runs"

    def is_there() -> bool:
        if not home.is_dir() or not any(home.iterdir()):
            return False
        lines = JournalTail(only_run_dir()).poll()
        return sum(isinstance(line, LaunchStart) for line in lines) >= launches

    wait_until(is_there, "the run does not begin")
    return viewer, only_run_dir()


def runs_in(db: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(gputui_here("runs", db, "--json").stdout)["runs"]
    return found


def limit_files(run_dir: Path, to_bytes: int) -> None:
    """Limit the size of the files of the supervisor and its future children."""
    holder = read_holder(run_dir)
    assert holder
    resource.prlimit(holder.pid, resource.RLIMIT_FSIZE, (to_bytes, to_bytes))


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_and_a_later_command_stores_what_was_finished(
    tmp_path: Path,
) -> None:
    profile = write_long_profile(tmp_path / "spin.toml")
    db = tmp_path / "a.db"
    viewer, run_dir = begun(profile, db, launches=2)
    limit_files(run_dir, (run_dir / JOURNAL_NAME).stat().st_size + 300)
    output = viewer.communicate(timeout=300)[0]
    assert "Traceback" not in output
    assert viewer.returncode in (1, 4), output
    if viewer.returncode == 4:
        assert "gputui import" in output
        assert "recovered run " in gputui_here("runs", db).stderr
    (run,) = runs_in(db)
    assert run["status"] == "interrupted"
    assert read_journal(run_dir).of(LaunchEnd)[0].outcome == "ok"


def test_the_last_words_of_a_run_find_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a full disk while the reserve exists, as on a disk of that size."""
    write, reserve = os.write, tmp_path / RESERVE_NAME

    left = 10

    def full(descriptor: int, data: bytes) -> int:
        nonlocal left
        if not reserve.exists():
            return write(descriptor, data)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fitted, left = data[:left], 0
        return write(descriptor, fitted)

    writer = JournalWriter(tmp_path)
    writer.append(Event("info", "room", 1))
    monkeypatch.setattr("gputui.recording.run_directory.os.write", full)
    writer.append(CaseEnd(0, 0, "ok", "", 5, 2))
    assert not reserve.exists()
    assert writer.failure == "the journal cannot be written: No space left on device"
    writer.append(RunEnd("failed", writer.failure, 3, 3))
    monkeypatch.undo()
    writer.close()
    kinds = [json.loads(line.split(b" ", 2)[2])["kind"] for line in _whole_lines(tmp_path)]
    assert kinds == ["Event", "CaseEnd", "RunEnd"]


def _whole_lines(run_dir: Path) -> list[bytes]:
    return [line for line in (run_dir / JOURNAL_NAME).read_bytes().split(b"\n") if check_line(line)]


@pytest.mark.slow
def test_a_file_that_is_deleted_during_a_run_is_created_again(tmp_path: Path, profile: Path) -> None:
    db = tmp_path / "a.db"
    store(db, 1, label="first")
    viewer, _ = begun(profile, db)
    db.unlink()
    viewer.communicate(timeout=300)
    assert viewer.returncode == 0
    assert [run["label"] for run in runs_in(db)] == [""]


@pytest.mark.slow
def test_a_file_that_is_replaced_in_mid_run_is_left_alone_and_the_journal_kept(
    tmp_path: Path, profile: Path
) -> None:
    db = tmp_path / "a.db"
    viewer, run_dir = begun(profile, db)
    db.write_text("somebody's notes")
    output = viewer.communicate(timeout=300)[0]
    assert viewer.returncode == 4
    assert "was measured but not stored" in output
    assert db.read_text() == "somebody's notes"
    message = re.search(r"gputui import (\S+) --db FILE", output)
    assert message
    other = tmp_path / "other.db"
    assert gputui_here("import", message.group(1), "--db", other).returncode == 0
    assert [run["status"] for run in runs_in(other)] == ["finished"]
    assert len(read_journal(run_dir).of(Block)) >= 5


def test_where_no_run_directory_can_be_made_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("GPUTUI_STATE", str(tmp_path / "state"))
    with pytest.raises(NotStored, match="cannot create a run directory") as refused:
        lay_out(make_spec(make_plan([0])))
    assert refused.value.exit_code == 4
    assert "set GPUTUI_STATE" in refused.value.hint


@pytest.mark.slow
def test_a_run_directory_that_becomes_read_only_costs_the_run_but_not_what_is_finished(
    tmp_path: Path, profile: Path
) -> None:
    db = tmp_path / "a.db"
    viewer = subprocess.Popen(
        [*WORDS, "run", str(profile), "--db", str(db)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=without_roots_privilege,
    )
    home = Path(os.environ["GPUTUI_STATE"]) / "runs"
    wait_until(lambda: home.is_dir() and any(home.iterdir()), "no run")
    run_dir = only_run_dir()
    wait_until(
        lambda: any(isinstance(line, LaunchEnd) for line in JournalTail(run_dir).poll()), "no launch ends"
    )
    run_dir.chmod(0o500)
    output = viewer.communicate(timeout=300)[0]
    run_dir.chmod(0o700)
    assert "Traceback" not in output
    assert viewer.returncode in (0, 1), output  # a case that another launch measured has not failed
    (run,) = runs_in(db)
    assert run["status"] in ("finished", "failed")
    assert read_journal(run_dir).of(LaunchEnd)[0].outcome == "ok"


@pytest.mark.slow
def test_a_run_is_executed_by_one_supervisor_and_stored_once(tmp_path: Path, profile: Path) -> None:
    db = tmp_path / "a.db"
    viewer, run_dir = begun(profile, db)
    holder = read_holder(run_dir)
    assert holder
    os.kill(holder.pid, signal.SIGSTOP)  # so that the run cannot end meanwhile
    second = start_supervisor(run_dir)
    assert second.wait(300) == 2
    refused = gputui_here("import", run_dir, "--db", db)
    assert refused.returncode == 2
    assert "this run is in progress" in refused.stderr
    assert not db.exists()
    os.kill(holder.pid, signal.SIGCONT)
    viewer.communicate(timeout=300)
    assert viewer.returncode == 0
    assert len(runs_in(db)) == 1
    third = start_supervisor(run_dir)
    assert third.wait(300) == 2
    assert "already there" in gputui_here("import", run_dir, "--db", db).stdout
    assert len(runs_in(db)) == 1


def test_a_run_of_another_host_is_not_taken_for_one_that_lost_its_supervisor(tmp_path: Path) -> None:
    """Its directory is on a disk shared by two hosts; this host cannot see whether the run is executing."""
    db = tmp_path / "a.db"
    run_dir = make_journal(run_directories() / RUN_ID)
    held = Holder.this_process(str(db), [run_dir])

    def recovered_with(holder: Holder) -> tuple[str, ...]:
        (run_dir / LOCK_NAME).write_text(json.dumps(asdict(holder)))
        return recover_orphans()

    assert recovered_with(replace(held, boot_id="another boot", host="another host")) == ()
    assert not db.exists()
    (said,) = recovered_with(replace(held, boot_id="an earlier boot"))
    assert said.startswith("recovered run ")
    assert len(runs_in(db)) == 1
