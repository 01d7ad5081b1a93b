"""The output of gputui about GPUs when the real pynvml loads the stand-in library."""

from __future__ import annotations

import json
from typing import Any  # JSON printed by a subprocess

import nvml_forks
import pytest

from nvml.standin import c_compiler, standin_environment

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler to build the stand-in with")

DESCRIBE = """
import json
from gputui.machine.describing import describe_machine
from gputui.machine.gpus import gpu_addresses
from gputui.model.absent import to_plain
from dataclasses import asdict
print(json.dumps({
    "machine": to_plain(describe_machine()),
    "addresses": [asdict(a) for a in gpu_addresses()],
}))
"""

HANDLE = "nvmlDeviceGetHandleByIndex_v2"
READ = """
import json, os
from gputui.model.absent import Missing
from gputui.sources.nvml import NvmlGpus
gpus = NvmlGpus().open()
def all_of(full):
    found = {gpu.number: gpu.read(full=full) for gpu in gpus}
    return {n: {"problem": one.reason} if isinstance(one, Missing) else one for n, one in found.items()}
first = {"full": all_of(True), "quick": all_of(False)}
with open(os.environ["GPUTUI_NVML_SCENARIO"], "a") as scenario:
    scenario.write(os.environ["THEN"])
print(json.dumps({"first": first, "second": all_of(True)}))
"""


def answer(program: str, scenario: str, then: str = "") -> Any:
    return nvml_forks.answer(program, standin_environment(scenario) | {"THEN": then})


TWO = """
driver gpus 2
0 name NVIDIA H200
1 name NVIDIA L4
1 memory_total_mib 23034
1 compute_capability 89
1 power_limit_mw 60000
1 power_default_limit_mw 72000
1 pcie_width 4
1 ecc 0
1 error nvmlDeviceGetTemperatureThreshold 3
1 field 194 -2
1 margin_c 45
1 temperature_c 40
"""


def test_two_gpus_are_described_and_their_identity_is_in_their_addresses_alone() -> None:
    found = answer(DESCRIBE, TWO)
    first, second = found["machine"]["gpus"]
    assert (first["index"], first["name"], first["compute_capability"]) == (0, "NVIDIA H200", "9.0")
    assert (first["memory_bytes"], first["pcie_width"]) == (143771 * 2**20, 16)
    assert (second["name"], second["memory_bytes"]) == ("NVIDIA L4", 23034 * 2**20)
    assert (second["power_limit_w"], second["power_default_limit_w"]) == (60.0, 72.0)
    assert (second["pcie_width"], second["pcie_width_max"]) == (4, 16)
    assert (second["ecc_enabled"], second["mig_enabled"]) == (False, False)
    assert (first["temperature_limit_c"], second["temperature_limit_c"]) == (87.0, 87.0)
    assert first["gpu_id"] != second["gpu_id"]
    assert found["machine"]["gpus_absent"] == ""
    assert found["machine"]["driver_version"] == "580.95.05"
    assert found["machine"]["cuda_driver_version"] == "13.0"
    assert [a["pci_address"] for a in found["addresses"]] == ["0000:1b:00.0", "0000:1c:00.0"]
    text = json.dumps(found["machine"])
    for address in found["addresses"]:
        assert address["uuid"].startswith("GPU-")
        assert address["uuid"] not in text
        assert address["pci_address"] not in text


def test_the_machine_is_known_by_its_gpus_in_any_order() -> None:
    one = answer(DESCRIBE, "driver gpus 2\n0 uuid GPU-a\n1 uuid GPU-b\n")["machine"]["machine_id"]
    other = answer(DESCRIBE, "driver gpus 2\n0 uuid GPU-b\n1 uuid GPU-a\n")["machine"]["machine_id"]
    third = answer(DESCRIBE, "driver gpus 2\n0 uuid GPU-c\n1 uuid GPU-a\n")["machine"]["machine_id"]
    assert one == other != third


def test_slices_are_listed_with_their_gpu() -> None:
    found = answer(DESCRIBE, "0 mig 1\n0 mig_slices 2\n")
    assert found["machine"]["gpus"][0]["mig_enabled"] is True
    assert [uuid[:4] for uuid in found["addresses"][0]["mig_uuids"]] == ["MIG-", "MIG-"]


def test_a_field_that_is_not_supported_leaves_the_others() -> None:
    gpu = answer(DESCRIBE, "0 error nvmlDeviceGetEccMode 3\n0 error nvmlDeviceGetMemoryInfo_v2 13\n")
    found = gpu["machine"]["gpus"][0]
    assert found["ecc_enabled"] == {"missing": "this GPU does not report it"}
    assert found["memory_bytes"] == 143771 * 2**20
    assert found["name"] == "NVIDIA H200"


def test_a_lost_gpu_keeps_its_place_in_the_description() -> None:
    scenario = "driver gpus 3\n1 error nvmlDeviceGetHandleByIndex_v2 15\n2 name NVIDIA L4\n"
    found = answer(DESCRIBE, scenario)
    gpus = found["machine"]["gpus"]
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2]
    assert gpus[2]["name"] == "NVIDIA L4"
    assert "lost" in gpus[1]["memory_bytes"]["missing"]
    assert found["addresses"][1]["uuid"] == ""


def test_a_driver_that_cannot_be_used_is_described_by_the_cause() -> None:
    machine = answer(DESCRIBE, "driver error nvmlInitWithFlags 18\n")["machine"]
    assert machine["gpus"] == []
    assert "different versions" in machine["gpus_absent"]


def test_every_metric_of_several_gpus_is_read() -> None:
    found = answer(
        READ,
        "driver gpus 3\n* power_mw 100000\n1 field 186 345500\n1 sm_busy_pct 98\n1 memory_busy_pct 44\n"
        "1 memory_used_mib 4096\n1 temperature_c 71\n1 event_reasons 0x4\n1 energy_mj 5000000000\n"
        "1 sm_clock_mhz 1620\n1 memory_clock_mhz 3200\n2 absent_field_code 2\n",
    )["first"]
    quick = {"sm_clock_mhz": 1620.0, "memory_clock_mhz": 3200.0, "throttle_bits": 4, "power_w": 345.5}
    assert found["full"]["1"] == {
        **quick,
        "sm_busy_pct": 98.0,
        "memory_busy_pct": 44.0,
        "memory_used_mib": 4096.0,
        "temperature_c": 71.0,
        "energy_mj": 5000000000,
        "compute_process_count": 0.0,
    }
    for gpu in ("0", "2"):  # no instant value, or a driver that knows of none: its average
        assert found["full"][gpu]["power_w"] == 100.0
    assert found["quick"]["1"] == quick


SELDOM = """
import json
from gputui.sources.nvml import NvmlGpus
now_s = [100.0]
gpus = NvmlGpus(clock=lambda: round(now_s[0] * 1e9)).open()
counts = []
for after_s in (0, 1, 3.9, 0.2, 1):
    now_s[0] += after_s
    counts.append([gpu.read(full=True).get("compute_process_count") for gpu in gpus])
print(json.dumps(counts))
"""


def test_processes_that_compute_are_counted_once_in_five_seconds() -> None:
    scenario = "driver gpus 2\n1 process 4711 C 2048 55\n1 process 4712 C 10 -\n1 process 4713 G 10 -\n"
    assert answer(SELDOM, scenario) == [[0, 2], [None, None], [None, None], [0, 2], [None, None]]


@pytest.mark.parametrize("driver", ["470.256.02", "535.54.03", "535.98", "580.95.05"])
def test_every_driver_counts_the_processes_that_compute(driver: str) -> None:
    told = "".join(f"0 process {pid} C 2048 55\n" for pid in range(1184, 1190))
    assert answer(SELDOM, f"driver version {driver}\n{told}")[0] == [6]


FIRST_VERSIONS = """
import ctypes, json
class Info(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
gpu, room, infos = ctypes.c_void_p(), ctypes.c_uint(1), (Info * 2)()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(gpu))
listed = nvml.nvmlDeviceGetComputeRunningProcesses
codes = [listed(gpu, ctypes.byref(room), infos), listed(gpu, ctypes.byref(room), infos)]
print(json.dumps([codes, [[info.pid, info.memory >> 20] for info in infos]]))
"""


def test_the_first_versions_of_the_process_lists_that_nvtop_needs_are_there() -> None:
    scenario = "driver gpus 2\n1 process 4711 C 2048 55\n1 process 4712 C 10 -\n1 process 4713 G 10 -\n"
    assert answer(FIRST_VERSIONS, scenario) == [[7, 0], [[4711, 2048], [4712, 10]]]


def test_a_metric_that_fails_once_comes_back_and_a_gpu_that_is_lost_leaves_the_others() -> None:
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    scenario = f"driver gpus 4\n0 error {energy} 999\n2 sm_clock_mhz 1234\n3 error {HANDLE} 15\n"
    found = answer(READ, scenario, f"0 error {energy} 0\n1 error * 15\n")
    first, second = found["first"]["full"], found["second"]
    assert second.keys() == {"0", "1", "2", "3"}
    assert ("energy_mj" in first["0"], "energy_mj" in second["0"]) == (False, True)
    assert "problem" not in first["1"]
    assert "lost" in second["1"]["problem"]
    assert first["2"]["sm_clock_mhz"] == second["2"]["sm_clock_mhz"] == 1234.0
    assert "lost" in first["3"]["problem"], "from the start"
