"""The live source for NVIDIA GPUs, with the real pynvml on the stand-in library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any  # JSON printed by a subprocess

import pytest
from nvml_forks import answer

from gputui.model.telemetry import device_label
from nvml.standin import c_compiler, moving_gpus, standin_environment

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler to build the stand-in with")

REPOSITORY = Path(__file__).parents[2]
MIB = 2**20
Step = Sequence[object]
OPEN: Step = ["open"]
SAMPLE: Step = ["sample", 0]
UNREPORTED = {"missing": "this GPU does not report it"}


PROGRAM = "from nvml_live_child import main; main({})"


def run(steps: Sequence[Step], environment: dict[str, str]) -> list[Any]:
    """The result of each step."""
    results: list[Any] = answer(PROGRAM.format(steps), {"ROOT": "/nowhere", **environment})
    return results


def run_anew(steps: Sequence[Step], environment: dict[str, str]) -> list[Any]:
    """The same in a process that finds libraries and modules in other places."""
    paths = [environment.pop("PYTHONPATH", ""), str(REPOSITORY), str(REPOSITORY / "tests" / "makers")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(steps)],
        env={**os.environ, "ROOT": "/nowhere", **environment, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results


def take(scenario: str, *steps: Step, root: Path | None = None) -> list[Any]:
    """The results of the steps, after the source was opened."""
    environment = standin_environment(scenario) | ({} if root is None else {"ROOT": str(root)})
    opened, *results = run([OPEN, *steps], environment)
    assert opened is None
    return results


def values(scenario: str, *, device: int = 0) -> dict[str, Any]:
    """Of a second sample, a second after the first."""
    found = take(scenario, ["sample", device], ["later", 1], ["sample", device])[-1][0]
    assert found["problem"] is None
    return dict(found["values"])


# Values

FULL = """
0 name NVIDIA H200
0 sm_busy_pct 97
0 memory_busy_pct 44
0 memory_used_mib 4096
0 temperature_c 61
0 sm_clock_mhz 1620
0 memory_clock_mhz 3200
0 event_reasons 0x4
0 pstate 2
0 encoder_pct 5
0 decoder_pct 6
0 power_limit_mw 600000
0 pcie_generation 4
0 pcie_width 8
0 fan_pct 38
0 ecc_uncorrected 2
0 field 186 345500
0 energy_mj 5000000000
0 field 74 100
0 field 271 20
0 field 269 3
0 field 270 4
0 field 75 9999
0 field 76 1
0 field 77 2
0 field 79 5
0 gpm 2 88.5
0 gpm 3 31.25
0 gpm 5 44
0 gpm 10 52
0 gpm 11 0
0 gpm 12 7
0 gpm 13 100.4
0 remapped_rows 3
0 xid 31
0 xids 1
"""


def test_everything_that_a_gpu_reports_is_read_correctly() -> None:
    found = values(FULL)
    rates = {key: found.pop(key) for key in list(found) if key.endswith("_per_s")}
    assert found == {
        "name": "NVIDIA H200",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "driver": "580.95.05",
        "pci_address": "0000:1b:00.0",
        "pstate": 2,
        "mig_mode": 0,
        "is_memory_shared": 0,
        "sm_busy_pct": 97.0,
        "memory_busy_pct": 44.0,
        "encoder_pct": 5.0,
        "decoder_pct": 6.0,
        "power_w": 345.5,
        "power_limit_w": 600.0,
        "power_limit_default_w": 700.0,
        "temperature_c": 61.0,
        "temperature_limit_c": 87.0,
        "sm_clock_mhz": 1620.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_mhz": 3200.0,
        "memory_clock_max_mhz": 3201.0,
        "memory_used_bytes": 4096 * MIB,
        "memory_reserved_bytes": 600 * MIB,
        "memory_total_bytes": 143771 * MIB,
        "energy_mj": 5000000000,
        "throttle_bits": 4,
        "throttled_power_ns": 120,
        "throttled_thermal_ns": 7,
        "throttled_other_ns": 8,
        "fan_pct": 38.0,
        "pcie_generation": 4,
        "pcie_generation_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "ecc_uncorrected_count": 2,
        "remapped_rows_count": 3,
        "remapped_rows_pending": 0,
        "remapped_rows_failed": 0,
        "xid_count": 1,
        "xid_last": 31,
        "gpm_sm_active_pct": 88.5,
        "gpm_occupancy_pct": 31.25,
        "gpm_tensor_pct": 44.0,
        "gpm_dram_pct": 52.0,
        "gpm_fp64_pct": 0.0,
        "gpm_fp32_pct": 7.0,
        "gpm_fp16_pct": 100.0,
    }
    assert rates.keys() == {
        "pcie_rx_bytes_per_s",
        "pcie_tx_bytes_per_s",
        "nvlink_rx_bytes_per_s",
        "nvlink_tx_bytes_per_s",
    }


WIDE = 2**32
COUNTERS = f"0 field 138 1000\n0 field 139 2000\n0 field 197 {WIDE + 3000}\n0 field 198 {WIDE + 4000}\n"


def test_errors_and_remapped_rows_are_counted_and_none_is_made_up() -> None:
    found = values("driver gpus 1\n0 xid 79\n0 xids 2\n0 remapped_rows 3\n0 remapping_pending 1\n")
    assert (found["xid_count"], found["xid_last"]) == (2, 79)
    assert (found["remapped_rows_count"], found["remapped_rows_pending"]) == (3, 1)
    assert found["remapped_rows_failed"] == 0
    quiet = values("driver gpus 1\n")
    assert (quiet["xid_count"], quiet["remapped_rows_count"]) == (0, UNREPORTED)
    assert "since the monitor was opened" in quiet["xid_last"]["missing"]


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("0 compute_capability 90\n0 gpm_supported 0\n", "its driver refuses here"),
        ("0 compute_capability 90\n0 error nvmlGpmSampleGet 3\n", "its driver refuses here"),
        ("0 compute_capability 80\n0 gpm_supported 0\n", "only Hopper GPUs and newer measure it"),
    ],
)
def test_a_driver_that_refuses_gpm_is_not_taken_for_an_older_gpu(scenario: str, reason: str) -> None:
    assert reason in values(f"driver gpus 1\n{scenario}")["gpm_sm_active_pct"]["missing"]


def test_rates_are_known_after_the_second_reading_and_stay_where_the_third_comes_soon() -> None:
    then = f"0 field 138 2000\n0 field 139 4000\n0 field 197 {WIDE + 13000}\n0 field 198 {WIDE + 4000}\n"
    asked: Step = ["calls", "nvmlGpmMetricsGet"]
    soon = ["append", "0 field 138 9000\n0 gpm 5 99"], ["later", 0.05], SAMPLE, asked
    steps = SAMPLE, ["append", then], ["later", 2], SAMPLE, asked, *soon
    first, _, _, second, calls, _, _, third, calls_later = take(COUNTERS + "0 gpm 5 44\n", *steps)
    for key in ("pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "gpm_tensor_pct"):
        assert first[0]["values"][key] == {"missing": "known after the second reading"}
    for found in (second[0]["values"], third[0]["values"]):
        assert found["nvlink_tx_bytes_per_s"] == 500 * 1024
        assert found["nvlink_rx_bytes_per_s"] == 1000 * 1024
        assert found["pcie_tx_bytes_per_s"] == 5000
        assert found["pcie_rx_bytes_per_s"] == 0
        assert found["gpm_tensor_pct"] == 44
    assert calls == calls_later == 1


def test_a_counter_that_begins_again_is_no_rate() -> None:
    then: list[Step] = [
        ["append", "0 field 138 100"],
        ["later", 1],
        SAMPLE,
        ["append", "0 field 138 600"],
        ["later", 1],
    ]
    *_, after, _, _, later = take(COUNTERS, SAMPLE, *then, SAMPLE)
    assert "began again" in after[0]["values"]["nvlink_tx_bytes_per_s"]["missing"]
    assert later[0]["values"]["nvlink_tx_bytes_per_s"] == 500 * 1024


@pytest.mark.parametrize("counters", ["", f"0 field 197 {WIDE - 10}\n0 field 198 5\n"])
def test_link_rates_come_from_gpm_where_no_counter_is_there_or_it_may_have_gone_round(counters: str) -> None:
    scenario = f"{counters}0 gpm 20 10\n0 gpm 21 20\n0 gpm 60 30\n0 gpm 61 40\n"
    then: Step = ["append", "0 field 197 500" if counters else ""]
    found = take(scenario, SAMPLE, then, ["later", 1], SAMPLE)[-1][0]["values"]
    for rate, mib in {"pcie_tx": 10, "pcie_rx": 20, "nvlink_rx": 30, "nvlink_tx": 40}.items():
        assert found[f"{rate}_bytes_per_s"] == mib * MIB


THROUGHPUT = "nvmlDeviceGetPcieThroughput"


def test_the_slow_pcie_call_is_made_seldom_and_beside_the_samples() -> None:
    scenario = "0 compute_capability 89\n0 pcie_tx_kib_per_s 7\n0 pcie_rx_kib_per_s 9\n"
    results = take(
        scenario,
        SAMPLE,
        ["wait_for_pcie", 0],
        ["calls", THROUGHPUT],
        ["later", 9],
        SAMPLE,
        ["calls", THROUGHPUT],
        ["later", 2],
        SAMPLE,
        ["wait_for_calls", THROUGHPUT, 4],
    )
    assert "first time" in results[0][0]["values"]["pcie_tx_bytes_per_s"]["missing"]
    found = results[1][0]["values"]
    assert (found["pcie_tx_bytes_per_s"], found["pcie_rx_bytes_per_s"]) == (7000, 9000)
    assert found["nvlink_tx_bytes_per_s"] == UNREPORTED
    assert "Hopper" in found["gpm_sm_active_pct"]["missing"]
    assert results[2] == results[5] == 2


SELDOM = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    THROUGHPUT,
)


def test_a_sample_makes_few_calls_and_none_that_is_slow() -> None:
    slow = [["calls", name] for name in SELDOM]
    results = take(moving_gpus(1, 3), SAMPLE, ["later", 1], ["calls"], *slow, SAMPLE, ["calls"], *slow)
    calls, after = results[2], results[3 + len(slow) + 1]
    assert after - calls == 9
    assert results[3 : 3 + len(slow)] == results[-len(slow) :]


def test_what_the_first_screen_does_not_show_is_asked_in_every_second_reading() -> None:
    second = [["later", 1], SAMPLE, ["calls"]]
    results = take(moving_gpus(1, 3), SAMPLE, ["calls"], *second, *second, *second, *second)
    counts = [count for count in results if isinstance(count, int)]
    assert [after - before for before, after in pairwise(counts)] == [9, 14, 9, 14]


def test_what_hardly_changes_is_read_again_after_some_seconds_and_names_never() -> None:
    steps = [SAMPLE, ["append", "0 pcie_width 4\n0 name Other"], ["later", 7], SAMPLE, ["later", 2], SAMPLE]
    found = [result[0]["values"] for result in take("", *steps) if result]
    assert [values["pcie_width"] for values in found] == [16, 16, 4]
    assert found[-1]["name"] == "NVIDIA H200"


def test_eight_busy_gpus_report_everything_and_their_processes() -> None:
    steps = [["sample", n] for n in range(8)] + [["later", 1]]
    pids = [4001, 4002]
    results = take(
        moving_gpus(8, 40, pids), ["devices"], *steps, *steps, *[["processes", n] for n in range(8)]
    )
    assert results[0] == list(range(8))
    for sample in results[10:18]:
        absent = [key for key, value in sample[0]["values"].items() if isinstance(value, dict)]
        assert [key for key in absent if not key.startswith(("remapped_rows", "xid_last"))] == ["fan_pct"]
        assert sample[0]["problem"] is None
    uses = [use for device in results[-8:] for use in device]
    assert len(uses) == 40
    assert {4001, 4002} < {use["pid"] for use in uses}


@pytest.mark.parametrize(
    ("faults", "key", "value"),
    [
        ("0 error nvmlDeviceGetCurrentClocksEventReasons 13\n0 event_reasons 8", "throttle_bits", 8),
        ("0 error nvmlDeviceGetTemperatureV 13", "temperature_c", 40),
        ("0 error nvmlDeviceGetMemoryInfo_v2 13", "memory_used_bytes", 600 * MIB),
        (
            "0 error nvmlDeviceGetMemoryInfo_v2 13",
            "memory_reserved_bytes",
            {"missing": "this NVIDIA driver counts it as used"},
        ),
        ("0 error nvmlDeviceGetFieldValues 13\n0 power_mw 99000", "power_w", 99),
        ("0 power_mw 99000", "power_w", 99),
        ("0 field 75 11", "throttled_thermal_ns", 11),
        ("driver version 580.65.06\n0 field 251 3\n0 field 252 4\n0 field 269 90", "throttled_thermal_ns", 7),
        ("driver version 570.86.10\n0 field 75 5\n0 field 251 3\n0 field 269 90", "throttled_thermal_ns", 5),
        ("driver version 575.51\n0 field 74 5\n0 field 253 3\n0 field 271 90", "throttled_power_ns", 8),
        ("0 error nvmlDeviceGetEnforcedPowerLimit 3\n0 power_limit_mw 5000", "power_limit_w", 5),
        (
            "0 error nvmlDeviceGetTemperatureThreshold 3\n0 field 194 -2\n0 margin_c 45\n0 temperature_c 40",
            "temperature_limit_c",
            87,
        ),
    ],
)
def test_older_and_newer_drivers_are_queried_through_their_own_calls(
    faults: str, key: str, value: object
) -> None:
    assert values(faults)[key] == value


def test_memory_that_is_the_host_s_is_not_shown_as_the_gpu_s(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {122_000 * 1024} kB\nMemFree: 1 kB\n")
    shared, own = take(
        "driver gpus 2\n0 memory_total_mib 122000\n", SAMPLE, ["sample", 1], root=tmp_path
    )  # fmt: skip
    assert shared[0]["values"]["is_memory_shared"] == 1
    for key in ("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"):
        assert "uses the host's memory" in shared[0]["values"][key]["missing"]
    assert own[0]["values"]["is_memory_shared"] == 0


# Processes

PROCESSES = """
0 process 30 G 64 -
0 process 10 C 2048 55
0 process 20 CG 1024 991
0 process 40 C - 3
"""


def test_processes_on_a_gpu_are_reported_with_memory_and_share_until_they_end() -> None:
    steps = ["processes", 0], ["append", "0 process 10 -"], ["processes", 0]
    uses, _, later = take(PROCESSES, *steps)
    assert [(use["device"], use["pid"], use["kind"]) for use in uses] == [
        (0, 10, "C"),
        (0, 20, "CG"),
        (0, 30, "G"),
        (0, 40, "C"),
    ]
    assert [use["memory_bytes"] for use in uses[:3]] == [2048 * MIB, 1024 * MIB, 64 * MIB]
    assert "does not tell" in uses[3]["memory_bytes"]["missing"]
    assert [use["sm_pct"] for use in uses] == [55, {"missing": "the driver answered 991 %"}, 0, 3]
    assert [use["pid"] for use in later] == [20, 30, 40]


@pytest.mark.parametrize(
    "driver",
    # before the third version of the lists, with it, with its wide entries, without it, with it
    ["470.256.02", "530.41.03", "535.43.02", "535.54.03", "535.86.10", "535.98", "535.104.05", "580.95.05"],
)
def test_every_driver_names_the_same_processes(driver: str) -> None:
    pids = [1184, 1185, 1186, 1187]
    told = "".join(f"0 process {pid} CG {pid} 1\n" for pid in pids) + "0 process 1188 C - 1\n"
    (uses,) = take(f"driver version {driver}\n{told}", ["processes", 0])
    assert [(use["pid"], use["memory_bytes"]) for use in uses[:4]] == [(pid, pid * MIB) for pid in pids]
    assert (len(uses), uses[4]["pid"]) == (5, 1188)
    assert "does not tell" in uses[4]["memory_bytes"]["missing"]
    (none,) = take(f"driver version {driver}\n", ["processes", 0])
    assert none == []


SHARES = "nvmlDeviceGetProcessesUtilizationInfo"


@pytest.mark.parametrize(
    ("faults", "share"),
    [
        (f"0 error {SHARES} 13", 55),
        (f"0 error {SHARES} 6", 0),  # no process used it lately
        (f"0 error {SHARES} 3\n0 error nvmlDeviceGetProcessUtilization 3", UNREPORTED),
        (f"0 error {SHARES} 4", {"missing": "no permission to ask the NVIDIA driver"}),
    ],
)
def test_an_unreported_share_has_a_reason(faults: str, share: object) -> None:
    (uses,) = take(f"0 process 10 C 2048 55\n{faults}\n", ["processes", 0])
    assert [use["sm_pct"] for use in uses] == [share]


def test_processes_that_may_not_be_listed_are_not_shown_as_none() -> None:
    refused, _, allowed = take(
        "0 process 1 C 1 1\n0 error nvmlDeviceGetComputeRunningProcesses_v3 4\n",
        ["processes", 0],
        ["append", "0 error nvmlDeviceGetComputeRunningProcesses_v3 0"],
        ["processes", 0],
    )
    assert "no permission" in refused["missing"]
    assert len(allowed) == 1


# MIG

MIG = """
driver gpus 2
1 mig 1
1 mig_slices 2
1:0 memory_total_mib 18000
1:0 memory_used_mib 500
1:1 profile 3g.71gb
1:1 gpu_instance 2
1:1 memory_total_mib 72000
1:1 memory_used_mib 600
1 gpm 2 66
1:1 gpm 2 97
1 process 11 C 300 - 0
1 process 12 C 200 - 1
"""


def test_mig_instances_follow_their_gpu_with_what_is_reported_about_them() -> None:
    *_, sample, uses = take(MIG, ["sample", 1], ["later", 1], ["sample", 1], ["processes", 1])
    gpu, first, second = sample
    assert (gpu["device"], gpu["parent"], gpu["values"]["mig_mode"]) == (1, None, 1)
    assert (first["parent"], second["parent"]) == (1, 1)
    assert len({each["device"] for each in sample}) == 3
    found = second["values"]
    assert found["name"] == "NVIDIA H200 MIG 3g.71gb"
    assert (found["mig_index"], found["mig_profile"]) == (1, "3g.71gb")
    assert (found["gpu_instance_id"], found["compute_instance_id"]) == (2, 0)
    assert found["uuid"].startswith("MIG-")
    assert found["memory_total_bytes"] == 72000 * MIB
    assert found["memory_used_bytes"] == 600 * MIB
    assert found["gpm_sm_active_pct"] == 97
    assert first["values"]["gpm_sm_active_pct"] == 66
    assert "MIG instance" in found["sm_busy_pct"]["missing"]
    assert "while MIG is on" in gpu["values"]["sm_busy_pct"]["missing"]
    assert [device_label(each["device"]) for each in sample] == ["1", "1:0", "1:1"]
    assert [(use["device"], use["pid"]) for use in uses] == [(first["device"], 11), (second["device"], 12)]
    assert [use["mig_profile"] for use in uses] == ["1g.18gb", "3g.71gb"]
    assert "MIG instance" in uses[0]["sm_pct"]["missing"]


@pytest.mark.parametrize("driver", ["535.54.03", "580.95.05"])
def test_each_mig_instance_names_its_processes_with_every_driver(driver: str) -> None:
    *_, uses = take(f"driver version {driver}\n{MIG}", ["sample", 1], ["processes", 1])
    assert [(use["pid"], use["memory_bytes"]) for use in uses] == [(11, 300 * MIB), (12, 200 * MIB)]


def test_an_instance_keeps_its_index_where_one_before_it_is_gone() -> None:
    samples, uses = take(f"{MIG}1:0 gone 1\n", ["sample", 1], ["processes", 1])
    assert [device_label(each["device"]) for each in samples] == ["1", "1:1"]
    assert [use["pid"] for use in uses] == [12]


def test_a_gpu_instance_that_is_divided_again_is_named_with_both() -> None:
    lines = "1:0 profile 1c.2g.35gb\n1:1 profile 1c.2g.35gb\n1:0 gpu_instance 3\n1:1 gpu_instance 3\n"
    (samples,) = take(f"{MIG}{lines}1:1 compute_instance 1\n", ["sample", 1])
    found = [each["values"] for each in samples[1:]]
    assert [each["mig_profile"] for each in found] == ["1c.2g.35gb"] * 2
    assert [(each["gpu_instance_id"], each["compute_instance_id"]) for each in found] == [(3, 0), (3, 1)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1:0 name NVIDIA H200", "the driver's name of the instance does not end in its profile"),
        ("1:0 error nvmlDeviceGetName 999", "the NVIDIA driver answered with error 999"),
    ],
)
def test_an_unreported_profile_is_absent_with_the_reason(line: str, reason: str) -> None:
    (samples,) = take(f"{MIG}{line}\n", ["sample", 1])
    assert samples[1]["values"]["mig_profile"] == {"missing": reason}
    assert samples[2]["values"]["mig_profile"] == "3g.71gb"


def test_an_instance_that_does_not_report_its_processes_hides_no_others() -> None:
    fails = "error nvmlDeviceGetComputeRunningProcesses_v3 4"
    _, some = take(f"{MIG}1:0 {fails}\n", ["sample", 1], ["processes", 1])
    assert [use["pid"] for use in some] == [12]
    _, none = take(f"{MIG}1:0 {fails}\n1:1 {fails}\n", ["sample", 1], ["processes", 1])
    assert set(none) == {"missing"}


def test_mig_instances_that_are_made_changed_and_removed_are_found_and_stay_while_none_are_told() -> None:
    def then(lines: str) -> list[Step]:
        return [["append", lines], ["later", 9], ["sample", 1]]

    other = then("1:1 profile 1g.35gb\n1:1 gpu_instance 5")
    fails = then("1 error nvmlDeviceGetMigMode 999")
    more = then("1 error nvmlDeviceGetMigMode 0\n1 mig_slices 3")
    found = take(MIG, ["sample", 1], *other, *fails, *more, *then("1 mig 0"))
    before, changed, untold, added, none = (samples for samples in found if samples)
    assert [len(samples) for samples in (before, changed, untold, added, none)] == [3, 3, 3, 4, 1]
    devices = [each["device"] for each in before]
    for samples in (changed, untold, added[:3]):
        assert [each["device"] for each in samples] == devices
    assert changed[2]["values"]["mig_profile"] == "1g.35gb"
    assert changed[2]["values"]["gpu_instance_id"] == 5


# Implausible values


@pytest.mark.parametrize(
    ("scenario", "key", "reason"),
    [
        ("0 sm_busy_pct 250", "sm_busy_pct", "the driver answered 250 %"),
        ("0 memory_total_mib 0", "memory_total_bytes", "the driver answered 0 bytes"),
        ("0 memory_total_mib 0", "memory_used_bytes", "the driver answered 0 bytes"),
        ("0 memory_used_mib 999999", "memory_used_bytes", "the driver answered more than there is"),
        ("0 field 186 4294967295", "power_w", "the driver answered 4.29497e+06 W"),
        ("0 power_limit_mw 0", "power_limit_w", "the driver answered 0 W"),
        ("0 pstate 32", "pstate", "the driver answered 32"),
        ("0 gpm 2 nan", "gpm_sm_active_pct", "the driver answered nan %"),
        ("0 gpm 20 -5", "pcie_tx_bytes_per_s", "the driver answered -5 MiB/s"),
    ],
)
def test_a_value_that_cannot_be_is_not_shown(scenario: str, key: str, reason: str) -> None:
    assert values(scenario)[key] == {"missing": reason}


def test_names_of_any_bytes_are_text_and_a_uuid_of_any_bytes_hides_no_gpu() -> None:
    found = values(rf"0 name a\xff\xfe\x1b[31m\nb\xe2\x80\xae[red]{'x' * 60}" + "\n" + r"0 uuid \xff\xfe")
    assert found["name"].startswith("a\ufffd\ufffd\x1b[31m\nb\u202e[red]xxx")
    assert len(values(f"0 name {'x' * 200}")["name"]) == 95


# Faults

HANDLE = "nvmlDeviceGetHandleByIndex_v2"
BUSY = "nvmlDeviceGetUtilizationRates"


def test_an_unsupported_metric_is_not_queried_again() -> None:
    results = take(f"0 error {BUSY} 3\n", SAMPLE, ["calls", BUSY], SAMPLE, ["calls", BUSY])
    found = results[2][0]["values"]
    assert found["sm_busy_pct"] == found["memory_busy_pct"] == UNREPORTED
    assert found["temperature_c"] == 40
    assert results[1] == results[3] == 1


def test_a_gpu_that_supports_nothing_has_a_problem_and_a_place() -> None:
    devices, sample, again = take(
        f"driver gpus 2\n1 error * 3\n1 error {HANDLE} 0\n", ["devices"], ["sample", 1], ["sample", 1]
    )
    assert devices == [0, 1]
    assert sample[0]["problem"] == {"missing": "nothing can be read: this GPU does not report it"}
    assert again[0]["values"]["sm_busy_pct"] == UNREPORTED


def test_a_gpu_that_denies_permission_is_queried_again() -> None:
    forbidden = f"0 error * 4\n0 error {HANDLE} 0\n"
    refused, _, _, allowed = take(forbidden, SAMPLE, ["append", "0 error * 0"], ["later", 9], SAMPLE)
    assert "no permission" in refused[0]["problem"]["missing"]
    assert allowed[0]["problem"] is None
    assert allowed[0]["values"]["name"] == "NVIDIA H200"


def test_a_gpu_that_may_not_be_reached_is_tried_again() -> None:
    steps = [SAMPLE, ["append", f"0 error {HANDLE} 0"], SAMPLE, ["later", 11], SAMPLE]
    refused, _, soon, _, allowed = take(f"0 error {HANDLE} 4\n", *steps)
    assert "no permission" in refused[0]["problem"]["missing"]
    assert refused == soon
    assert allowed[0]["problem"] is None


def test_one_call_without_permission_leaves_the_rest() -> None:
    found = values("0 error nvmlGpmQueryDeviceSupport 4\n0 error nvmlDeviceGetTotalEccErrors 4\n")
    assert "no permission" in found["gpm_sm_active_pct"]["missing"]
    assert "no permission" in found["ecc_uncorrected_count"]["missing"]
    assert found["temperature_c"] == 40


def test_a_gpu_that_begins_to_fail_has_a_problem_at_once_and_keeps_what_is_known_of_it() -> None:
    well, _, failing = take("", SAMPLE, ["append", f"0 error * 999\n0 error {HANDLE} 0"], SAMPLE)
    assert well[0]["problem"] is None
    assert failing[0]["problem"] == {
        "missing": "nothing can be read: the NVIDIA driver answered with error 999"
    }
    assert failing[0]["values"]["power_limit_w"] == 700
    assert "999" in failing[0]["values"]["power_w"]["missing"]


def test_a_gpu_lost_from_the_start_keeps_its_number_and_may_come_back() -> None:
    lost = "driver gpus 3\n1 error nvmlDeviceGetHandleByIndex_v2 15\n2 sm_busy_pct 7\n"
    back = ["append", "1 error nvmlDeviceGetHandleByIndex_v2 0"]
    results = take(
        lost, ["devices"], ["sample", 1], ["sample", 2], back, ["later", 11], ["devices"], ["sample", 1]
    )
    assert results[0] == results[5] == [0, 1, 2]
    assert results[1][0]["problem"]["missing"].startswith("the GPU is lost")
    assert results[2][0]["values"]["sm_busy_pct"] == 7
    assert results[6][0]["problem"] is None


def test_a_gpu_lost_while_it_is_watched_is_left_alone_for_a_while() -> None:
    alone = SAMPLE, ["sample", 1], ["calls"], SAMPLE, ["processes", 0], ["calls"]
    back = ["append", "0 error * 0"], ["later", 9], SAMPLE, ["processes", 0]
    scenario = "driver gpus 2\n0 process 7 C 1 1\n"
    results = take(scenario, SAMPLE, ["append", "0 error * 15"], *alone, *back)
    lost, other, calls, _, processes, calls_later = results[2:8]
    assert lost[0]["problem"]["missing"].startswith("the GPU is lost")
    assert lost[0]["values"].keys() == {"name", "uuid", "driver", "pci_address"}
    assert other[0]["problem"] is None
    assert processes["missing"].startswith("the GPU is lost")
    assert calls == calls_later
    assert results[-2][0]["problem"] is None
    assert len(results[-1]) == 1


def test_an_error_that_heals_leaves_no_trace() -> None:
    heals: Step = ["append", "0 error nvmlDeviceGetFieldValues 0"]
    failing = "0 error nvmlDeviceGetFieldValues 999\n0 field 186 50000\n"
    broken, _, healed = take(failing, SAMPLE, heals, SAMPLE)
    assert broken[0]["values"]["power_w"] == {"missing": "the NVIDIA driver answered with error 999"}
    assert broken[0]["values"]["sm_busy_pct"] == 0
    assert healed[0]["values"]["power_w"] == 50


def test_every_third_call_of_all_failing_leaves_the_gpus_in_place() -> None:
    steps = [step for _ in range(5) for step in (["later", 9], SAMPLE, ["processes", 0], ["devices"])]
    results = take("0 process 7 C 1 1\n* every * 3 999\n", *steps)
    assert results[3::4] == [[0]] * 5
    assert all(sample[0]["problem"] is None for sample in results[1::4])


@pytest.mark.parametrize("call", [BUSY, HANDLE])
def test_a_call_that_blocks_holds_up_no_other_gpu(call: str) -> None:
    steps = ["begin", 0], ["wait_for_calls", call, 1], ["devices"], ["sample", 1], ["is_running"]
    *_, devices, sample, is_running = take(f"driver gpus 2\n0 hang {call} 1\n", *steps)
    assert devices == [0, 1]
    assert sample[0]["problem"] is None
    assert is_running is True


def test_a_driver_that_was_unloaded_says_what_to_do_with_every_reading_from_then_on() -> None:
    gone: Step = ["append", "driver loaded 0"]
    results = take(
        "driver gpus 2\n", SAMPLE, gone, SAMPLE, ["append", "driver loaded 2"], SAMPLE, ["processes", 1]
    )
    assert results[2][0]["values"]["name"] == "NVIDIA H200"
    for reading in (results[2][0]["problem"], results[4][0]["problem"], results[5]):
        assert "unloaded; then start gputui again" in reading["missing"]


# Opening


@pytest.mark.parametrize(
    ("scenario", "cause", "cure"),
    [
        ("driver error nvmlInitWithFlags 9", "not loaded", "modprobe nvidia"),
        ("driver error nvmlInitWithFlags 18", "different versions", "reboot"),
        ("driver error nvmlInitWithFlags 4", "no permission", "/dev/nvidiactl"),
        ("driver gpus 0", "sees no GPU", ""),
        ("driver error nvmlDeviceGetCount_v2 999", "error 999", ""),
    ],
)
def test_a_driver_that_cannot_be_used_is_named_with_its_cure_and_tried_again(
    scenario: str, cause: str, cure: str
) -> None:
    cured = "driver error nvmlInitWithFlags 0\ndriver error nvmlDeviceGetCount_v2 0\ndriver gpus 1"
    steps = [OPEN, ["devices"], ["append", cured], OPEN, ["later", 11], OPEN, ["devices"], SAMPLE]
    results = run(steps, standin_environment(scenario))
    assert cause in results[0]["missing"]
    assert cure in results[0]["missing"]
    assert results[1] == []
    assert results[3] == results[0]  # too soon
    assert results[5] is None
    assert results[6] == [0]
    assert results[7][0]["problem"] is None


def test_a_box_without_the_library_says_so(tmp_path: Path) -> None:
    # An invalid library shadows a real driver's, if this box has one.
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    opened, devices = run_anew([OPEN, ["devices"]], {"LD_LIBRARY_PATH": str(tmp_path)})
    assert "libnvidia-ml.so.1 was not found" in opened["missing"]
    assert devices == []


def test_a_python_without_pynvml_says_so(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    (opened,) = run_anew([OPEN], standin_environment("") | {"PYTHONPATH": str(tmp_path)})
    assert "pip install nvidia-ml-py" in opened["missing"]
