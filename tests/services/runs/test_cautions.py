"""What a user is told before a run: no GPU for its question, too little shared memory for its cases."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import H200, make_interpreter, make_machine
from sshd import may_unshare

from gputui.model.absent import Missing
from gputui.model.plan import Plan
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.runs.start import LEAST_SHM_BYTES, cautions, unanswered
from gputui.store.reading import open_result
from gputui.worker.workloads import workload_named

MIB = 1 << 20
CPU = make_interpreter(cuda=None)
LOADER = find_profile("pipeline")
PROFILE = """schema = 1
version = 1
title = "loader"
question = "How many?"
budget_s = 600
replicates = 1
blocks = 5
[[case]]
workload = "loader"
sizes = ["mini-w4"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["all"]
"""


def said(plan: Plan, shm_bytes: int | Missing) -> list[str]:
    machine = make_machine()
    machine = replace(machine, memory=replace(machine.memory, shm_bytes=shm_bytes))
    return list(cautions(plan, CPU, machine))


def test_a_comparison_of_cpu_and_gpu_says_that_a_box_without_a_gpu_cannot_answer_it() -> None:
    compares, quick, sees = find_profile("cpu-vs-gpu"), find_profile("quick"), make_interpreter(H200)
    here, with_gpu = make_machine(), make_machine("NVIDIA H200")

    (line,) = unanswered(compares, resolve_plan(compares, CPU, here))
    assert compares.question in line
    assert line.endswith(": gputui doctor")
    assert list(unanswered(compares, resolve_plan(compares, sees, with_gpu))) == []
    assert list(unanswered(compares, resolve_plan(compares, CPU, here, Choices(device="cpu")))) == []
    own = replace(compares, own=workload_named("spin"), own_file="step.py")
    assert list(unanswered(own, resolve_plan(compares, CPU, here))) == [], (
        "of a user's step the CPU's rate is"
    )
    assert list(unanswered(quick, resolve_plan(quick, CPU, here, Choices(only=("gemm",))))) == []


def test_dockers_64_mib_are_too_little_for_the_loaders_that_need_more_and_for_no_other() -> None:
    sees = make_interpreter(H200)
    plan = resolve_plan(LOADER, sees, make_machine("NVIDIA H200"), Choices(device="gpu"))
    sizes = {plan.cases[i].case.work.size for launch in plan.launches for i in launch.case_ids}
    assert {"base-w0", "base-w2", "base-w4", "base-w16"} <= sizes
    (line,) = said(plan, 64 * MIB)
    assert line == (
        "/dev/shm has 64.0 MiB, too little for loader:base-w4, loader:base-w8, loader:base-w16: start the"
        " container with --shm-size=8g (or --ipc=host)"
    ), "two workers keep 39 MB in flight, and none keep nothing there"
    assert said(plan, 8 << 30) == []
    assert said(plan, Missing("there is no /dev/shm")) == []
    without = resolve_plan(find_profile("quick"), CPU, make_machine(), Choices(device="cpu"))
    assert said(without, 64 * MIB) == []


def test_several_gpus_at_once_need_what_nvidia_advises_for_nccl() -> None:
    two = make_interpreter(H200, replace(H200, index=1, uuid="GPU-b"))
    machine = make_machine("NVIDIA H200", "NVIDIA H200")
    plan = resolve_plan(find_profile("scaling"), two, machine, Choices(device="gpu"))
    assert any("," in launch.device.visible for launch in plan.launches)
    (line,) = said(plan, LEAST_SHM_BYTES - 1)
    assert "ddp:" in line
    assert said(plan, LEAST_SHM_BYTES) == []


@pytest.mark.slow
@pytest.mark.skipif(
    not may_unshare() or shutil.which("unshare") is None, reason="no namespaces here: they need root"
)
def test_a_loader_that_runs_out_of_a_real_tmpfs_is_told_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "loader.toml").write_text(PROFILE)
    run = (sys.executable, "-m", "gputui", "run", "loader.toml", "--db", "a.db", "--yes")
    mount = 'mount -t tmpfs -o size=512k tmpfs /dev/shm && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", *run]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    before = "/dev/shm has 512 KiB, too little for loader:mini-w4: start the container with --shm-size=8g"
    assert before in done.stderr
    with open_result(tmp_path / "a.db") as file:
        (case,) = file.run(file.summaries()[0].run_id).cases
    assert case.outcome == "failed"
    assert case.reason == (
        "RuntimeError (the shared memory is too small, 0.5 MiB: start the container with --shm-size=8g"
        " (or --ipc=host)); its message is in the worker's log"
    )
