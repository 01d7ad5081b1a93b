"""A place with processes, files and a machine id of its own, entered as by `docker exec -i`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import make_plan, make_spec
from command_line import gputui, wait_until, write_spin_profile
from sshd import may_unshare

from gputui.model.journal import JOURNAL_NAME
from gputui.store.reading import open_result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not may_unshare() or shutil.which("nsenter") is None,
        reason="no namespaces here: they need root, or a kernel that lends them",
    ),
]


@pytest.fixture
def entered(tmp_path: Path) -> Iterator[str]:
    """The command that runs a program in a container that lives while the test does."""
    home = tmp_path / "inside"
    home.mkdir()
    (tmp_path / "machine-id").write_text("c" * 32 + "\n")
    script = (
        f"mount -t tmpfs tmpfs {home} && mount --bind {tmp_path / 'machine-id'} /etc/machine-id"
        f" && touch {home}/up && exec sleep 600"
    )
    unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]
    container = subprocess.Popen([*unshare, "sh", "-c", script])
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    wait_until(lambda: bool(children.read_text().split()), "the container has a process")
    inside = children.read_text().split()[0]
    enter = ["nsenter", "--target", inside, "--mount", "--uts", "--ipc", "--pid", "--wdns=/"]
    wait_until(
        lambda: subprocess.run([*enter, "test", "-e", f"{home}/up"], check=False).returncode == 0, "it is up"
    )
    yield " ".join([*enter, "env", "-i", f"PATH={os.environ['PATH']}", f"HOME={home}"])
    container.kill()
    container.wait()


def test_a_container_is_measured_through_the_command_that_enters_it_and_is_one_box_with_its_host(
    entered: str, tmp_path: Path
) -> None:
    venv.create(tmp_path / "lean", symlinks=True)
    lean, db = str(tmp_path / "lean" / "bin" / "python"), tmp_path / "a.db"
    environment = {"GPUTUI_STATE": str(tmp_path / "state"), "HOME": str(tmp_path / "outside")}
    (tmp_path / "outside").mkdir()
    profile = write_spin_profile(tmp_path / "spin.toml")
    words = ("bakeoff", profile, "--local", "--via", entered, "--python", lean, "--db", db, "--yes")
    done = gputui(*words, env=environment)
    assert done.returncode == 0, done.stderr
    assert "are one box: measured one after the other" in done.stderr
    with open_result(db) as file:
        stored = file.summaries()
    assert [summary.status for summary in stored] == ["finished"] * 2
    assert len({summary.machine.machine_id for summary in stored}) == 1
    assert not (tmp_path / "inside" / ".gputui").exists(), "it was written in the container, not beside it"
    assert (tmp_path / "outside" / ".gputui").exists()
    again = gputui("bakeoff", "--via", entered, "--clean", "--yes", env=environment)
    assert (again.returncode, "is removed" in again.stdout) == (0, True)


def test_another_gputui_that_measures_there_is_named_before_the_start(entered: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "other"
    run_dir.mkdir()
    make_spec(make_plan([0], most_blocks=10_000)).write(run_dir)
    other = subprocess.Popen([*entered.split(), sys.executable, "-m", "gputui.recording", str(run_dir)])
    try:
        wait_until((run_dir / JOURNAL_NAME).exists, "the other one measures")
        lean = tmp_path / "lean"
        venv.create(lean, symlinks=True)
        profile = write_spin_profile(tmp_path / "spin.toml")
        words = ("bakeoff", profile, "--via", entered, "--db", tmp_path / "a.db")
        state = {"GPUTUI_STATE": str(tmp_path / "state")}
        asked = gputui(*words, "--python", lean / "bin" / "python", env=state)
        assert "no terminal to ask on" in asked.stderr
        assert "gputui measures there already (PID " in asked.stderr
    finally:
        other.terminate()
        other.wait()
