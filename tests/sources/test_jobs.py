"""The batch job, pod or container of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.model.telemetry import NO_JOB
from gputui.sources.processes import job_of

DIGITS = "3f9c2a17b0de" + "0" * 52
POD = "0aa1b2c3-1234-4abc-8def-0123456789ab"


@pytest.mark.parametrize(
    ("group", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "slurm 4711"),
        ("5:cpuset:/slurm/uid_1000/job_12/step_batch", "slurm 12"),
        (f"0::/system.slice/docker-{DIGITS}.scope", "docker 3f9c2a17b0de"),
        (f"4:memory:/docker/{DIGITS}", "docker 3f9c2a17b0de"),
        (f"0::/user.slice/libpod-{DIGITS}.scope/container", "podman 3f9c2a17b0de"),
        (
            f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{DIGITS}.scope",
            "pod 0aa1b2c3",
        ),
        (f"3:cpu:/kubepods/besteffort/pod{POD}/{DIGITS}", "pod 0aa1b2c3"),
        ("0::/lxc.payload.web/init.scope", "lxc web"),
        ("0::/user.slice/user-1000.slice/session-3.scope", ""),
        ("0::/", ""),
    ],
)
def test_control_groups_name_jobs_pods_and_containers(group: str, job: str, tmp_path: Path) -> None:
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "cgroup").write_text(group + "\n")
    assert job_of(41, str(tmp_path)) == (job or NO_JOB)


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"SLURM_JOB_ID": "815"}, "slurm 815"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}, "pod train-0"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "x", "POD_NAME": "train-1"}, "pod train-1"),
    ],
)
def test_own_processes_name_theirs_in_their_environment(environment: dict[str, str], job: str) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            assert job_of(child.pid) == job
        finally:
            child.communicate(b"\n")


def test_the_environment_of_others_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "environ").write_bytes(b"SLURM_JOB_ID=7\0")
    assert job_of(41, str(tmp_path)) == "slurm 7"
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert job_of(41, str(tmp_path)) == NO_JOB


def test_a_process_that_is_gone_has_none(tmp_path: Path) -> None:
    assert job_of(41, str(tmp_path)) == NO_JOB
