"""Bakeoffs over batch jobs: a stand-in for Slurm that executes them, behind this box and behind ssh."""

from __future__ import annotations

import os
import re
import signal
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from adversary import evil_archive
from command_line import (
    LONGEST_S,
    gputui,
    gputui_here,
    start_gputui,
    wait_until,
    write_long_profile,
    write_spin_profile,
)
from slurm import Cluster
from sshd import Servers, needs_sshd

from gputui.model.journal import Price
from gputui.store.reading import open_result

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster")


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": f"{cluster.bin}:{os.environ['PATH']}",
        "GPUTUI_STATE": str(tmp_path / "state"),
        "COLUMNS": "200",
    }


def lean(tmp_path: Path) -> str:
    """A Python without torch, which `spin` does not need and which takes seconds to import."""
    venv.create(tmp_path / "lean", symlinks=True)
    return str(tmp_path / "lean" / "bin" / "python")


def test_each_kind_of_node_gets_a_job_and_a_laptop_that_leaves_the_queue_brings_them_home_later(
    cluster: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    cluster.hold()
    profile, db = write_spin_profile(tmp_path / "spin.toml"), tmp_path / "a.db"
    slurm = ("--slurm", "main --account=us", "--price", "main/gpu:a100:8=20", "--dir", tmp_path / "there")
    words = ("bakeoff", profile, *slurm, "--db", db, "--yes", "--python", lean(tmp_path))
    viewer = start_gputui(*words, env=environment)
    assert viewer.stdout is not None
    said = ""
    while "job 42: PENDING (Resources)" not in said:
        said += viewer.stdout.readline()
    viewer.send_signal(signal.SIGQUIT)
    assert viewer.wait(LONGEST_S) == 0
    second, first = sorted(cluster.submitted(), key=lambda words: any("--gres" in word for word in words))
    assert {"--exclude=cpu01", "--gres=gpu:a100:8", "--exclusive", "--account=us"} <= {*first}
    assert "--exclude=gpu01,gpu02,gpu03" in second
    assert not any(word.startswith("--gres") for word in second)
    cluster.release()
    done = gputui("bakeoff", "--resume", env=environment)
    assert done.returncode == 0, done.stderr
    assert len(cluster.submitted()) == 2
    sides = re.findall(r"^[ab]  (\S+) \(\w+\)  ", done.stdout, re.MULTILINE)
    assert sides == ["main/gpu:a100:8", "main/128cpu"]
    with open_result(db) as file:
        stored = [file.run(summary.run_id) for summary in file.summaries()]
    assert [(run.summary.status, run.cases[0].outcome) for run in stored] == [("finished", "ok")] * 2
    assert [run.summary.price.usd_per_hour for run in stored if isinstance(run.summary.price, Price)] == [20]
    assert list((tmp_path / "there" / "runs").iterdir()) == []


@needs_sshd
def test_a_job_behind_a_login_node_is_ended_by_ctrl_c_with_what_is_finished(
    cluster: Cluster, environment: dict[str, str], tmp_path: Path, servers: Servers
) -> None:
    login = servers.start("login", environ={"PATH": environment["PATH"]})
    profile, db = write_long_profile(tmp_path / "long.toml"), tmp_path / "a.db"
    words = (
        "bakeoff",
        profile,
        "--slurm",
        "login:main -w cpu01",
        "--db",
        db,
        "--yes",
        "--python",
        lean(tmp_path),
    )
    viewer = start_gputui(*words, env=servers.environment)
    bakeoffs = Path(servers.environment["GPUTUI_STATE"]) / "bakeoffs"

    def ended_launches() -> int:
        return sum(path.read_bytes().count(b'"LaunchEnd"') for path in bakeoffs.glob("*/*/journal.jsonl"))

    wait_until(lambda: ended_launches() > 0, "a launch is here")
    viewer.send_signal(signal.SIGINT)
    said = viewer.communicate(timeout=LONGEST_S)[0]
    assert viewer.returncode == 130, said
    with open_result(db) as file:
        (summary,) = file.summaries()
    assert summary.status == "interrupted"
    assert len(cluster.submitted()) == 1
    assert list((login.home / ".gputui" / "runs").iterdir()) == []


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "servers")
    yield made
    made.end()


def test_what_a_cluster_refuses_is_its_line_and_a_partition_without_nodes_an_error(
    cluster: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    there = ("--db", tmp_path / "a.db", "--yes", "--dir", tmp_path / "there")
    nowhere = gputui_here("bakeoff", "--slurm", "nowhere", *there, env=environment)
    assert nowhere.returncode == 2
    assert "--slurm nowhere: no such nodes" in nowhere.stderr
    refused = gputui_here("bakeoff", "--slurm", "main --account=wrong -w cpu", *there, env=environment)
    assert refused.returncode == 6
    assert "main/128cpu" in refused.stderr
    assert "Batch job submission failed: Invalid account" in refused.stderr
    missing = gputui_here("bakeoff", "--slurm", "main", *there, env={**environment, "PATH": "/usr/bin:/bin"})
    assert "there is no sinfo on the path" in missing.stderr


def test_a_queued_job_that_is_cancelled_and_a_node_without_torch_say_so(
    cluster: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    words = (
        "bakeoff",
        "--slurm",
        "main -w cpu01",
        "--db",
        tmp_path / "a.db",
        "--yes",
        "--dir",
        tmp_path / "there",
    )
    done = gputui_here(*words, "--python", lean(tmp_path), env=environment)
    assert done.returncode == 6
    assert "profile quick needs torch: torch not installed" in done.stderr


def test_a_job_does_not_run_an_archive_that_was_swapped_while_it_was_queued(
    cluster: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    cluster.hold()
    profile, there, evidence = (
        write_spin_profile(tmp_path / "spin.toml"),
        tmp_path / "there",
        tmp_path / "ran",
    )
    words = (
        "bakeoff",
        profile,
        "--slurm",
        "main -w cpu01",
        "--dir",
        there,
        "--db",
        tmp_path / "a.db",
        "--yes",
    )
    viewer = start_gputui(*words, "--python", lean(tmp_path), env=environment)
    wait_until(lambda: bool(cluster.submitted()), "the job is queued")
    (archive,) = there.glob("gputui-*.zip")
    archive.write_bytes(evil_archive(evidence))
    cluster.release()
    said = viewer.communicate(timeout=LONGEST_S)[0]
    assert f"{archive} is not what was sent" in said
    assert viewer.returncode == 6
    assert not evidence.exists()
