"""A box with a GPU that its torch cannot use: every way to measure says why, what to install, and stops.

The driver's library is the stand-in, and torch a package that sees the GPU as CUDA 13 does, from driver 580.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import gputui, write_spin_profile
from nvml.standin import standin_environment
from torch_standin import first_on_the_path, stand_in, write_torch

from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_MACHINE_LACKS, GputuiError
from gputui.services.runs.options import run as run_in_python
from gputui.store.reading import open_result

GEMM = '[[case]]\nworkload = "gemm"\nsizes = ["mini"]\ndevices = ["gpu"]\nprecisions = ["fp32"]\n'


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    both = write_spin_profile(tmp_path / "both.toml")
    both.write_text(f"{both.read_text()}{GEMM}")
    return both


def test_a_driver_that_is_too_old_for_the_torch_stops_the_run_with_the_wheel_that_it_runs(
    tmp_path: Path, profile: Path
) -> None:
    box = stand_in(tmp_path / "box", "535.54.03")
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--yes", "--json", env=box)
    assert (done.returncode, done.stdout) == (EXIT_MACHINE_LACKS, ""), done.stderr
    first, hint = (line for line in done.stderr.splitlines() if not line.startswith("checking "))
    assert first == (
        "gputui: torch 2.13.0+cu130 cannot use NVIDIA A100-SXM4-80GB: it was built for CUDA 13.0,"
        " driver 535.54.03 goes up to 12.2"
    )
    command = re.escape(f"{sys.executable} -m pip install torch==")
    assert re.fullmatch(rf".*--device cpu.*: {command}[\d.]+\+cu126 --extra-index-url \S+/whl/cu126", hint), (
        hint
    )
    assert not (tmp_path / "a.db").exists()


@pytest.mark.slow
def test_a_driver_that_is_new_enough_gets_no_complaint(tmp_path: Path, profile: Path) -> None:
    box = stand_in(tmp_path / "box", "580.95.05")
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--yes", env=box)
    assert done.returncode == EXIT_CASE_FAILED, "this torch cannot compute, but its GPU was tried"
    assert "pip install" not in done.stderr
    assert "cannot use" not in done.stderr
    with open_result(tmp_path / "a.db") as file:
        run = file.run(file.summaries()[0].run_id)
    assert {one.case.work.workload: one.outcome for one in run.cases} == {"spin": "ok", "gemm": "failed"}


@pytest.mark.slow
def test_the_cpu_is_measured_on_the_same_box_if_it_is_asked_for(tmp_path: Path, profile: Path) -> None:
    box = stand_in(tmp_path / "box", "535.54.03")
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--device", "cpu", "--yes", env=box)
    assert done.returncode == EXIT_DONE, done.stderr
    with open_result(tmp_path / "a.db") as file:
        assert len(file.summaries()) == 1


@pytest.mark.slow
def test_a_gpu_that_the_user_hides_is_left_out_with_a_remark_before_the_run(
    tmp_path: Path, profile: Path
) -> None:
    hidden = stand_in(tmp_path / "box", "580.95.05") | {"CUDA_VISIBLE_DEVICES": ""}
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--yes", env=hidden)
    assert done.returncode == EXIT_DONE, done.stderr
    remark = "CUDA_VISIBLE_DEVICES hides NVIDIA A100-SXM4-80GB from torch: its cases are left out"
    assert remark in " ".join(done.stderr.split())
    assert "pip install" not in done.stderr


def test_a_number_that_names_no_gpu_is_a_mistake_and_not_a_wish(tmp_path: Path, profile: Path) -> None:
    wrong = stand_in(tmp_path / "box", "580.95.05") | {"CUDA_VISIBLE_DEVICES": "7"}
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--yes", env=wrong)
    assert done.returncode == EXIT_MACHINE_LACKS
    assert "CUDA_VISIBLE_DEVICES begins with 7, which no GPU of this box has" in done.stderr
    assert "to use the GPU: unset CUDA_VISIBLE_DEVICES" in done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.slow
def test_a_cpu_build_on_a_gpu_box_stops_every_way_to_measure(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in stand_in(tmp_path / "box", "535.54.03", "cpu").items():
        monkeypatch.setenv(name, value)
    why = "torch 2.13.0+cpu cannot use NVIDIA A100-SXM4-80GB: it is a build without CUDA"
    wheel = f"{sys.executable} -m pip install torch==2.13.0+cu126 --extra-index-url"

    over_link = gputui("bakeoff", profile, "--local", "--db", tmp_path / "a.db", "--yes")
    assert over_link.returncode == EXIT_MACHINE_LACKS
    assert f"this box: {why}" in over_link.stderr
    assert wheel in over_link.stderr

    with pytest.raises(GputuiError):
        run_in_python(profile, db=tmp_path / "a.db", yes=True)
    printed = capsys.readouterr().out
    assert f"gputui: {why}\n" in printed
    assert wheel in printed

    asked = gputui("run", profile, "--device", "gpu", "--db", tmp_path / "a.db")
    assert asked.returncode == EXIT_MACHINE_LACKS
    assert f"--device gpu: {why}" in asked.stderr
    assert wheel in asked.stderr

    doctor = gputui("doctor", "--json")
    assert doctor.returncode == EXIT_CASE_FAILED
    (check,) = (one for one in json.loads(doctor.stdout)["checks"] if one["topic"] == "torch")
    assert check["command"].startswith(wheel)

    listed = gputui("profiles", profile)
    assert listed.returncode == EXIT_DONE, "what would run can still be looked up"
    assert why in " ".join(listed.stdout.split())
    assert not (tmp_path / "a.db").exists()


GPU_UUID = "5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
OF_DRIVER = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
BEFORE_R470 = f"MIG-GPU-{GPU_UUID}/7/0"
BY_TORCH = f"MIG-{GPU_UUID}"
"""What its UUID becomes, if that is the whole GPU's."""
MIG_BOX = f"""
driver version 580.95.05
0 name NVIDIA A100-SXM4-80GB
0 uuid GPU-{GPU_UUID}
0 mig 1
0 mig_slices 1
0:0 uuid"""
PROBE = (
    "import json, sys\n"
    "from gputui.recording.probing import probe_interpreter\n"
    "print(json.dumps(probe_interpreter([sys.executable])['devices'][1]))\n"
)


def mig_box(place: Path, listed: str, *names: str | None) -> tuple[dict[str, str], Path]:
    """A box with one instance, by this name of the driver's, that CUDA opens under these names."""
    named = write_torch(
        place,
        "cu130",
        names,
        name="NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        uuid=GPU_UUID,
        pci_domain_id=0,
        pci_bus_id=0x1B,
        pci_device_id=0,
    )
    scenario = f"{MIG_BOX} {listed}\n"
    return {**standin_environment(scenario), "PYTHONPATH": first_on_the_path(place)}, named


@pytest.mark.parametrize(
    ("allowed", "listed", "opens", "uuid", "tried"),
    [
        (None, OF_DRIVER, BY_TORCH, BY_TORCH, [BY_TORCH]),
        (None, OF_DRIVER, "0", "", [BY_TORCH, "0"]),
        (OF_DRIVER, OF_DRIVER, OF_DRIVER, "", [BY_TORCH, OF_DRIVER]),
        (None, OF_DRIVER, OF_DRIVER, OF_DRIVER, [BY_TORCH, "0", OF_DRIVER]),
        (None, BEFORE_R470, BEFORE_R470, BEFORE_R470, [BY_TORCH, "0", BEFORE_R470]),
    ],
)
def test_a_mig_instance_is_measured_under_the_name_by_which_another_process_opened_it(
    allowed: str | None, listed: str, opens: str, uuid: str, tried: list[str], tmp_path: Path
) -> None:
    box, named = mig_box(tmp_path, listed, allowed, opens)
    env = {**os.environ, **box, **({"CUDA_VISIBLE_DEVICES": allowed} if allowed else {})}
    done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True)
    device = json.loads(done.stdout)
    assert (device["uuid"], device["runs_here"]) == (uuid, True)
    assert named.read_text().split() == [str(allowed), *tried]


def test_a_mig_instance_that_opens_under_no_name_stops_the_run_with_what_was_tried(
    tmp_path: Path, profile: Path
) -> None:
    box, _ = mig_box(tmp_path / "box", OF_DRIVER, None)
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--yes", env=box)
    assert (done.returncode, done.stdout) == (EXIT_MACHINE_LACKS, ""), done.stderr
    said = " ".join(done.stderr.split())
    assert "CUDA opens this MIG instance by none of its names (tried: MIG- and the UUID" in said
    assert "as nvidia-smi -L does: CUDA_VISIBLE_DEVICES=MIG-... gputui run" in said
    assert "pip install" not in said
    assert GPU_UUID not in said
    assert not (tmp_path / "a.db").exists()

    doctor = gputui("doctor", "--json", env=box)
    (check,) = (one for one in json.loads(doctor.stdout)["checks"] if one["topic"] == "torch cuda:0")
    assert check["state"] == "problem"
    assert check["next_step"].startswith("name it yourself, as nvidia-smi -L does")
