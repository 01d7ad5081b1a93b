"""`gputui check` in real processes, on made-up GPUs: of the stand-in driver, and of a torch like it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any  # JSON

import psutil
from command_line import gputui, gputui_together, start_gputui, wait_until
from cuda_standin import made_up_gpus
from json_schemas import PLACE
from jsonschema import validate
from nvml.standin import standin_environment

SOUND = "* name NVIDIA H200\n* sm_busy_pct 0\n* nvlinks 18\n"
PLANTED = {
    "error * 15": ("FAULT", "LOST", "restart the box, or take another"),
    "hang * 1": ("FAULT", "STALE", "restart the box, or take another"),
    "xid 48|xids 1": ("FAULT", "Xid 48", "--gpu-reset"),
    "xid 79|xids 1": ("FAULT", "Xid 79", "restart the box"),
    "xid 94|xids 2": ("FAULT", "Xid 94", "--gpu-reset"),
    "ecc_uncorrected 3": ("FAULT", "ECC errors 3", "--gpu-reset"),
    "remapped_rows 3|remapping_failed 1": ("FAULT", "ROW REMAP FAILED", "have the GPU replaced"),
    "remapped_rows 3|remapping_pending 1": ("FAULT", "ROW REMAP PENDING", "--gpu-reset"),
    "retired_pages_pending 1": ("FAULT", "a bad page of its memory", "--gpu-reset"),
    "event_reasons 0x40": ("FAULT", "THERMAL", "fans"),
    "temperature_c 95": ("FAULT", "95 °C", "cool"),
    "event_reasons 0x8": ("FAULT", "HW SLOWDOWN", "tell the provider"),
    "event_reasons 0x80": ("FAULT", "POWER BRAKE", "tell the provider"),
    "pcie_width 4": ("FAULT", "PCIe x4 of x16", "tell the provider"),
    "pcie_generation 1|sm_busy_pct 50": ("FAULT", "PCIe gen1 of 5", "tell the provider"),
    "nvlinks_down 2": ("FAULT", "2 of 18 NVLink connections are down", "restart the box"),
    "compute_mode 2": ("FAULT", "no program may use it", "-c 0"),
    "power_limit_mw 500000": ("CAN'T TELL", "power-capped at 500 of 700 W", "-pl 700"),
    "sm_clock_set_mhz 1200": ("CAN'T TELL", "clock set to 1200 of 1980 MHz", "-rac"),
    "sm_busy_pct 60": ("CAN'T TELL", "busy with other work (60 %)", "snapshot --processes"),
    "sm_busy_pct 100": ("CAN'T TELL", "GHOST UTILIZATION", "torch.zeros(1)"),
    "memory_used_mib 143000": ("CAN'T TELL", "99 % of its memory is taken", "snapshot --processes"),
    "mig 1": ("CAN'T TELL", "NVIDIA H200: MIG is on, but no instance is visible", "-mig 0"),
}
"""What is wrong with a GPU, as the stand-in says it; the word, how its reason begins, the next step."""
BROKEN_DRIVERS = {
    4: ("no permission", "--gpus all"),
    8: ("the GPU's external power cables", "connect them"),
    17: ("the operating system blocks", "restart the box"),
    18: ("NVIDIA driver and library have different versions", "restart the box"),
}


def found_by(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    validate(found, json.loads((PLACE / "check.json").read_text()))
    return found


def test_each_of_many_faults_on_one_box_is_named_with_its_next_step_within_seconds() -> None:
    lines = [f"{index} {line}" for index, fault in enumerate(PLANTED) for line in fault.split("|")]
    gpus = len(PLANTED) + 1
    env = standin_environment(f"driver gpus {gpus}\n{SOUND}" + "\n".join(lines))
    done = gputui("check", "--quick", "--json", env=env)
    found = found_by(done)
    assert (done.returncode, found["word"]) == (1, "FAULT")
    *wrong, sound = found["devices"]
    assert (sound["word"], sound["reason"]) == ("OK", "healthy; its speed was not measured")
    for one, (fault, (word, begins, step)) in zip(wrong, PLANTED.items(), strict=True):
        assert (one["word"], one["reason"][: len(begins)]) == (word, begins), fault
        assert step in f"{one['next_step']} {one['command']}", fault
    assert found["took_s"] < 15, "on a machine that does other things too"


def test_a_driver_that_nothing_can_use_is_a_fault_with_its_next_step() -> None:
    envs = [standin_environment(f"driver error nvmlInitWithFlags {code}\n") for code in BROKEN_DRIVERS]
    for done, (begins, step) in zip(
        gputui_together("check", "--quick", "--json", envs=envs), BROKEN_DRIVERS.values(), strict=True
    ):
        found = found_by(done)
        assert (done.returncode, found["word"]) == (1, "FAULT")
        assert found["devices"][0]["reason"].startswith(begins)
        assert step in found["devices"][0]["next_step"]


def test_all_gpus_are_measured_at_once_each_beside_its_neighbors_and_nothing_stays(tmp_path: Path) -> None:
    scenario = (
        f"driver gpus 3\n{SOUND}0 power_limit_mw 500000\n0 torch_amp 6.7e14\n1 pcie_width 4\n"
        "1 torch_h2d 1.4e10\n2 error * 15\n"
    )
    state = tmp_path / "state"
    env = {
        **made_up_gpus(tmp_path, scenario),
        "GPUTUI_STATE": str(state),
        "GPUTUI_DB": str(tmp_path / "a.db"),
    }
    done = gputui("check", env=env)
    first, second, *lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert first == (
        "FAULT  GPU 2: LOST: the GPU is lost. GPU 0: SLOW by 14 %: power-capped at 500 of 700 W."
        " GPU 1: SLOW by 75 %: PCIe x4 of x16"
    )
    assert second.startswith("2x H200, 1x unnamed GPU, driver 580.95.05 · ")
    row = next(" ".join(line.split()) for line in lines if line.startswith("GPU 1"))
    assert row == "GPU 1 780 TFLOP/s 4.30 TB/s 14.0 GB/s SLOW by 75 %: PCIe x4 of x16"
    assert "GPU 0: to lift the limit: sudo nvidia-smi -i 0 -pl 700" in lines
    text = " ".join(done.stdout.partition("text for the provider")[2].split())
    slow = "SLOW by 75 %: PCIe x4 of x16; from host 14.0 GB/s, its neighbors 55.0 GB/s"
    assert f"GPU 1 (0000:1c:00.0): {slow}" in text
    assert "GPU 0" not in text, "its limit is a setting of this box"
    assert not [path for path in tmp_path.rglob("*.db*") if path.is_file()]
    assert list((state / "runs").iterdir()) == []
    assert max(map(len, lines)) <= 80


def test_a_check_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    state = tmp_path / "state"
    env = {**made_up_gpus(tmp_path, f"driver gpus 2\n{SOUND}"), "GPUTUI_STATE": str(state)}
    viewer = start_gputui("check", env=env)
    wait_until(lambda: len(list(state.rglob("journal.jsonl"))) == 2, "two runs")
    children = psutil.Process(viewer.pid).children(recursive=True)
    assert children
    viewer.send_signal(signal.SIGTERM)
    assert viewer.wait(60) == 143
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert list((state / "runs").iterdir()) == []
