"""Bakeoffs over real ssh servers on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import (
    LONGEST_S,
    gputui,
    start_gputui,
    wait_until,
    write_spin_profile,
)
from own_steps import ALONE
from sshd import Servers, may_unshare, needs_sshd, write_script

from gputui.model.journal import Price
from gputui.recording.run_directory import read_holder
from gputui.store.reading import open_result

pytestmark = [needs_sshd, pytest.mark.slow]

SAME_BOX = () if may_unshare() else ("--same-box-parallel",)


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without torch, which `spin` does not need and which takes seconds to import."""
    directory = tmp_path_factory.mktemp("lean")
    venv.create(directory, symlinks=True)
    return str(directory / "bin" / "python")


def write_idle_step(path: Path) -> Path:
    """A workload that leaves the CPU to the test: a step waits for 10 ms."""
    hashes = "[hashlib.sha256(data).digest() for _ in range(8)]"
    path.write_text(ALONE.replace(hashes, "time.sleep(0.01)").replace("import hashlib", "import time"))
    return path


LONG = ("--launches", "100", "--blocks", "5", "--budget", "3600")
"""Options of a run that takes minutes unless it is ended."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "servers")
    yield made
    made.end()


def test_two_hosts_are_measured_at_once_and_compared_and_nothing_stays_there_but_the_zip(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    hosts = [servers.start(name) for name in ("one", "two")]
    profile, db = write_spin_profile(tmp_path / "spin.toml"), tmp_path / "a.db"
    words = ("bakeoff", profile, "--host", "one", "--host", "two", "--db", db, "--yes", *SAME_BOX)
    done = gputui(*words, "--python", lean, "--price", "one=2.5", env=servers.environment)
    assert done.returncode == 0, done.stderr
    with open_result(db) as file:
        stored = [file.run(summary.run_id) for summary in file.summaries()]
    assert [run.cases[0].outcome for run in stored] == ["ok", "ok"]
    assert sorted(
        run.summary.price.usd_per_hour for run in stored if isinstance(run.summary.price, Price)
    ) == [2.5]
    listed = re.findall(r"^([ab])  (one|two) \((\w+)\)  ", done.stdout, re.MULTILINE)
    assert [words[:2] for words in listed] == [("a", "one"), ("b", "two")]
    assert {words[2] for words in listed} == {run.summary.short_id for run in stored}
    assert all(run.summary.label == "" for run in stored)  # names of hosts are not stored
    for host in hosts:
        left = {str(p.relative_to(host.home)) for p in host.home.rglob("*") if p.is_file()}
        assert {Path(name).parent.name for name in left} == {".gputui"}
        assert sum((host.home / name).stat().st_size for name in left) < 1_000_000


def test_a_link_that_is_cut_and_a_laptop_that_dies_lose_nothing(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    host = servers.start("one")
    step, db = write_idle_step(tmp_path / "idle.py"), tmp_path / "a.db"
    asked = ("--launches", "6", "--blocks", "6", "--budget", "3600", "--python", lean)
    viewer = start_gputui(
        "bakeoff", step, "--host", "one", "--db", db, "--yes", *asked, env=servers.environment
    )
    bakeoffs = Path(servers.environment["GPUTUI_STATE"]) / "bakeoffs"
    wait_until(lambda: blocks_here(bakeoffs) >= 2, "a block came home")
    host.cut()
    seen = blocks_here(bakeoffs)
    wait_until(lambda: blocks_here(bakeoffs) > seen + 2, "blocks come home over a new link")
    viewer.kill()
    said = viewer.communicate()[0]
    assert "link lost" in said
    host.cut()
    done = gputui("bakeoff", "--resume", env=servers.environment)
    assert done.returncode == 0, done.stderr
    with open_result(db) as file:
        (summary,) = file.summaries()
        run = file.run(summary.run_id)
    assert summary.status == "finished"
    assert [len(m.blocks) for m in run.cases[0].measurements] == [6] * 6
    assert list((host.home / ".gputui" / "runs").iterdir()) == []
    again = gputui("bakeoff", "--resume", env=servers.environment)
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_a_supervisor_that_is_killed_there_leaves_what_was_finished_and_the_other_host_goes_on(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    hosts = {name: servers.start(name) for name in ("one", "two")}
    step, db = write_idle_step(tmp_path / "idle.py"), tmp_path / "a.db"
    asked = ("--launches", "3", "--blocks", "6", "--budget", "3600", "--python", lean)
    words = ("bakeoff", step, "--host", "one", "--host", "two", "--db", db, "--yes", *asked)
    viewer = start_gputui(*words, *SAME_BOX, env=servers.environment)
    home = hosts["one"].home
    runs = home / ".gputui" / "runs"
    wait_until(lambda: runs.is_dir() and any(ended_launches(d) for d in runs.iterdir()), "a launch has ended")
    (run_dir,) = runs.iterdir()
    holder = read_holder(run_dir)
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    said = viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 1
    assert "its supervisor was killed: what was finished is stored" in said
    with open_result(db) as file:
        stored = {summary.short_id: summary.status for summary in file.summaries()}
    assert sorted(stored.values()) == ["finished", "interrupted"]
    assert stored[run_dir.name[-8:]] == "interrupted"


def test_ctrl_c_ends_the_runs_on_all_hosts_and_keeps_what_is_finished(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    host = servers.start("one")
    step, db = write_idle_step(tmp_path / "idle.py"), tmp_path / "a.db"
    words = ("bakeoff", step, "--host", "one", "--db", db, "--yes", "--python", lean)
    viewer = start_gputui(*words, *LONG, env=servers.environment)
    bakeoffs = Path(servers.environment["GPUTUI_STATE"]) / "bakeoffs"
    wait_until(lambda: any(ended_launches(d) for d in bakeoffs.glob("*/*")), "a launch is here")
    viewer.send_signal(signal.SIGINT)
    said = viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 130, said
    with open_result(db) as file:
        (summary,) = file.summaries()
    assert summary.status == "interrupted"
    assert list((host.home / ".gputui" / "runs").iterdir()) == []
    assert "stopped on request: what was finished is stored" in said
    assert f"what was finished is kept (one is {summary.short_id})" in said
    again = gputui("bakeoff", "--resume", env=servers.environment)
    assert again.returncode == 1
    assert "is complete: nothing is left to bring home" in again.stderr
    assert "one did not finish" in again.stderr


def test_a_viewer_of_a_bakeoff_leaves_the_runs_on_their_hosts_and_stop_ends_them(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    servers.start("one")
    step, db = write_idle_step(tmp_path / "idle.py"), tmp_path / "a.db"
    words = ("bakeoff", step, "--host", "one", "--db", db, "--yes", "--python", lean)
    owner = start_gputui(*words, *LONG, env=servers.environment)
    bakeoffs = Path(servers.environment["GPUTUI_STATE"]) / "bakeoffs"
    wait_until(lambda: blocks_here(bakeoffs) > 0, "a block is here")
    owner.send_signal(signal.SIGQUIT)
    assert (
        "the runs go on; to come back, or to end them:\n  gputui attach"
        in owner.communicate(timeout=LONGEST_S)[0]
    )
    (name,) = (place.name for place in bakeoffs.iterdir())
    for number in (signal.SIGTERM, signal.SIGINT):
        before = blocks_here(bakeoffs)
        viewer = start_gputui("attach", name, env=servers.environment)
        wait_until(lambda before=before: blocks_here(bakeoffs) > before, "the run goes on")  # type: ignore[misc]
        viewer.send_signal(number)
        said = viewer.communicate(timeout=LONGEST_S)[0]
        assert viewer.returncode == 128 + number, said
        assert f"to come back, or to end them:\n  gputui attach {name}\n  gputui stop {name}\n" in said
        assert "ending the runs" not in said
    assert not db.exists() or not statuses_in(db)
    stopped = gputui("stop", name, env=servers.environment)
    assert stopped.returncode == 0, stopped.stderr
    assert "what was finished is kept (one is " in stopped.stderr
    assert statuses_in(db) == ["interrupted"]


def test_a_bakeoff_in_which_no_host_measured_anything_exits_with_6(tmp_path: Path, lean: str) -> None:
    profile, db = write_spin_profile(tmp_path / "spin.toml"), tmp_path / "a.db"
    vias = ("--via", "env A=1 GPUTUI_SPIN_WORK=100000", "--via", "env A=2 GPUTUI_SPIN_WORK=100000")
    words = ("bakeoff", profile, *vias, "--dir", tmp_path / "there", "--db", db, "--yes", "--budget", "2")
    done = gputui(*words, "--python", lean)
    assert done.returncode == 6, done.stderr
    assert "gputui: nothing was measured on any host" in done.stderr
    assert statuses_in(db) == ["failed", "failed"]


def statuses_in(db: Path) -> list[str]:
    with open_result(db) as file:
        return [summary.status for summary in file.summaries()]


def blocks_here(bakeoffs: Path) -> int:
    return sum(path.read_bytes().count(b'"Block"') for path in bakeoffs.glob("*/*/journal.jsonl"))


def ended_launches(run_dir: Path) -> int:
    try:
        return (run_dir / "journal.jsonl").read_bytes().count(b'"LaunchEnd"')
    except OSError:
        return 0


def test_two_names_of_one_box_are_measured_in_turn_and_a_workload_of_ones_own_travels(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    """Over commands other than ssh, and with this box too: one kernel, three names."""
    step, db = tmp_path / "mine.py", tmp_path / "a.db"
    step.write_text(ALONE)
    log = tmp_path / "log"
    srun = write_script(tmp_path / "srun", f'echo "$*" | cut -c1-40 >>{log}; shift 2; exec "$@"')
    vias = ("--via", f"{srun} -w node7", "--via", "env INSIDE=1")
    words = ("bakeoff", step, *vias, "--dir", tmp_path / "there", "--db", db, "--yes", "--blocks", "5")
    done = gputui(*words, "--python", lean, env=servers.environment)
    assert done.returncode == 0, done.stderr
    assert "are one box: measured one after the other" in done.stderr
    assert log.read_text().startswith("-w node7 sh -c")
    with open_result(db) as file:
        first, second = sorted(file.summaries(), key=lambda summary: summary.started_utc_us)
        assert {first.profile, second.profile} == {"mine"}
        assert second.started_utc_us > (first.ended_utc_us or 0)
        assert file.run(first.run_id).cases[0].outcome == "ok"


@pytest.mark.skipif(not may_unshare(), reason="no file systems of one's own here")
def test_a_disk_that_fills_up_there_ends_that_run_and_keeps_what_is_finished(
    servers: Servers, tmp_path: Path, lean: str
) -> None:
    host = servers.start("small", home_options="size=3m")
    filler = write_script(tmp_path / "fill", 'cat /dev/zero >"$HOME/.gputui/fill"')
    step, db = write_idle_step(tmp_path / "idle.py"), tmp_path / "a.db"
    words = ("bakeoff", step, "--host", "small", "--python", lean, "--db", db, "--yes")
    viewer = start_gputui(*words, *LONG, env=servers.environment)
    bakeoffs = Path(servers.environment["GPUTUI_STATE"]) / "bakeoffs"
    wait_until(lambda: any(ended_launches(d) for d in bakeoffs.glob("*/*")), "a launch is here")
    ssh = servers.environment["GPUTUI_SSH"].split()
    subprocess.run([*ssh, "small", str(filler)], capture_output=True, check=False, timeout=60)
    said = viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 1, said
    assert "No space left on device" in said
    with open_result(db) as file:
        (summary,) = file.summaries()
        launches = file.run(summary.run_id).cases[0].measurements
    assert summary.status == "interrupted"
    assert launches[0].outcome == "ok"
    assert host.process.poll() is None
