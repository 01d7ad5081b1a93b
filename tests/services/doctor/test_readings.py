"""What the checks of doctor looked at, in words."""

from __future__ import annotations

from dataclasses import replace

from test_checks import GIB, make_box

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.telemetry import Value
from gputui.services.doctor.checks import SystemState
from gputui.services.doctor.readings import readings


def told(box: SystemState) -> dict[str, str]:
    return {reading.topic: reading.found for reading in readings(box)}


def test_each_gpu_has_its_readings_with_their_units() -> None:
    box = make_box(2)
    values: dict[str, Value] = {
        "name": "NVIDIA H200",
        "sm_busy_pct": 98.0,
        "memory_used_bytes": 71 * GIB,
        "memory_total_bytes": 141 * GIB,
        "power_w": 512.3,
        "power_limit_w": 700.0,
        "temperature_c": 61,
        "sm_clock_mhz": 1830,
        "pcie_width": 16,
    }
    gpus = (replace(box.sample.gpus[0], values=values), replace(box.sample.gpus[1], values={}))
    found = told(replace(box, sample=replace(box.sample, gpus=gpus)))
    assert found["GPU 0"] == (
        "NVIDIA H200, power 512 of 700 W, clock 1.83 GHz, temperature 61 °C,"
        " memory 71.0 of 141.0 GiB, busy 98 %, PCIe x16"
    )
    assert "GPU 1" not in found, "a GPU of which nothing was read is among the checks"


def test_what_could_not_be_read_is_left_out_and_hostile_names_cannot_act() -> None:
    box = make_box(0)
    cpu = replace(box.machine.cpu, model="Xeon\x1b]0;owned\x07", last_level_cache_bytes=Missing("not there"))
    machine = replace(box.machine, cpu=cpu, kernel=Missing("not there"))
    failed = replace(box, machine=machine, interpreter=GputuiError("no Python", "install one"))
    found = told(failed)
    assert found["CPU"].startswith("Xeon")
    assert "\x1b" not in "".join(found.values())
    assert "cache" not in found["CPU"]
    assert "kernel" not in found["system"]
    assert not {"torch", "Python"} & found.keys()
    assert found["now"].startswith("load 0.10, CPU ")
    assert found["disk"].startswith("100 GiB free in ")
