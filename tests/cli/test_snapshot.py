"""`gputui snapshot` in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import Terminal, gputui, gputui_together
from nvml.standin import standin_environment

from gputui.errors import EXIT_MACHINE_LACKS

HEAVY = {"textual", "duckdb", "numpy", "pandas", "torch", "rich", "msgspec", "psutil", "asyncio"}
AFTER_SNAPSHOT = """
import json, sys
from gputui.cli import main
try:
    main(["snapshot", "--processes"])
except SystemExit as ended:
    status = ended.code
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def snapshot(*words: str, env: Mapping[str, str] | None = None) -> Any:  # Any: JSON
    done = gputui("snapshot", "--json", *words, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_nothing_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_SNAPSHOT], capture_output=True, text=True, check=True, timeout=300
    )
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0
    assert set(modules) & HEAVY == set()


def test_json_has_the_host_with_units_in_its_names() -> None:
    found = snapshot()
    assert found["schema"] == 1
    assert found["processes"] == {"missing": "not asked for"}
    host = found["host"]
    assert (host["source"], host["problem"]) == ("host", None)
    assert host["values"]["memory_total_bytes"] > 0
    assert host["values"]["cpu_busy_pct"] >= 0
    assert 0 <= host["age_s"] < 60


# GPUs, by the real pynvml on the stand-in library

EIGHT = """
driver gpus 8
* name NVIDIA H200
* sm_busy_pct 97
* power_limit_mw 700000
* memory_used_mib 4096
"""


def gpu_lines(scenario: str, *words: str) -> list[str]:
    done = gputui("snapshot", *words, env=standin_environment(scenario))
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if not line.startswith("host  ")]


def gpus(scenario: str, *words: str) -> Any:  # Any: JSON
    return snapshot(*words, env=standin_environment(scenario))["gpus"]


def test_each_gpu_has_a_line_and_one_that_is_lost_says_so_in_its_place() -> None:
    lines = gpu_lines(EIGHT + "5 error * 15\n7 name \\x1b]0;owned\\x07\\nGPU 9\n")
    assert lines[7].isprintable()
    assert [line.partition("  ")[0] for line in lines] == [f"GPU {n}" for n in range(8)]
    assert lines[0].startswith("GPU 0  NVIDIA H200  power 120 of 700 W  ")
    assert lines[0].endswith("  memory 4.0 of 140.4 GiB  busy 97 %")
    assert "LOST: the GPU is lost: it fell off the bus" in lines[5]


def test_what_ails_a_gpu_stands_on_its_line() -> None:
    ill = "* event_reasons 0x4\n* pcie_width 4\n* pcie_width_max 16\n"
    (found,) = gpus(EIGHT + "driver gpus 1\n* field 186 690000\n0 gpm 2 88\n0 gpm_supported 1\n" + ill)
    second = {"missing": "known after the second reading"}
    assert second not in found["values"].values(), "everything is read twice"
    assert [finding["word"] for finding in found["health"]] == ["POWER-CAPPED at 700 W", "PCIe x4 of x16"]
    assert all(finding["severity"] == "warn" and finding["why"] for finding in found["health"])
    (far_below,) = gpus(EIGHT + "driver gpus 1\n* event_reasons 0x4\n")
    assert [finding["severity"] for finding in far_below["health"]] == ["note"]


def test_processes_are_joined_with_the_host_and_on_a_terminal_cut_to_their_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [sys.executable, "-c", "input()", "x" * 60 + "\x1b[31mred\n"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as running:
        scenario = f"driver gpus 2\n1 process {running.pid} C 2048 55\n"
        in_lines = gpu_lines(scenario, "--processes")[2:]
        found = snapshot("--processes", env=standin_environment(scenario))["processes"]
        for name, value in standin_environment(scenario).items():
            monkeypatch.setenv(name, value)
        terminal = Terminal("snapshot", "--processes")
        assert terminal.end() == 0
        running.communicate("\n")
    (on_terminal,) = (one for one in terminal.seen.decode().splitlines() if one.startswith("PID "))
    assert len(on_terminal.rstrip()) <= 80
    assert on_terminal.rstrip().endswith("…")
    (line,) = in_lines
    assert line.startswith(f"PID {running.pid}  GPU 1  C  2.00 GiB  ")
    assert line.endswith("[31mred ")
    assert "\x1b" not in line
    (process,) = found
    use = {"device": 1, "label": "1", "mig_profile": None}
    assert process["uses"] == [use | {"kind": "C", "memory_bytes": 2**31, "sm_pct": 55.0}]
    assert process["command"].endswith("\x1b[31mred\n")


def test_on_a_terminal_lines_break_at_words_and_in_a_pipe_they_stay_whole() -> None:
    terminal = Terminal("snapshot")
    assert terminal.end() == 0
    lines = terminal.seen.decode().replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    first, *others = gputui("snapshot").stdout.splitlines()
    assert first.startswith("host  ")
    for part in ("CPU ", "memory ", "load ", "network in ", "disk read "):
        assert part in first
    whole = next(line for line in others if line.startswith("no GPU"))
    assert len(whole) > 80
    assert whole in " ".join(line.strip() for line in lines)


H100_SLICES = """
driver gpus 2
* name NVIDIA H100 80GB HBM3
1 mig 1
1 mig_slices 3
1:0 profile 1g.10gb
1:1 gone 1
1:2 profile 3g.40gb
1:2 gpu_instance 1
1:2 memory_total_mib 40448
1:2 memory_used_mib 39936
1 gpm 2 97
"""


def test_instances_are_named_by_gpu_index_and_profile() -> None:
    env = standin_environment(f"{H100_SLICES}1 process {os.getpid()} C 512 - 2\n")
    lines = gputui("snapshot", "--processes", env=env).stdout.splitlines()
    assert [line[:16] for line in lines[1:]][:4] == [
        "GPU 0  NVIDIA H1",
        "GPU 1  NVIDIA H1",
        "GPU 1:0  1g.10gb",
        "GPU 1:2  3g.40gb",
    ]
    assert lines[2].startswith("GPU 1  NVIDIA H100 80GB HBM3  2 MIG instances  power ")
    assert lines[4] == "GPU 1:2  3g.40gb  sm 97 %  memory 39.0 of 39.5 GiB"
    assert lines[5].startswith(f"PID {os.getpid()}  GPU 1:2 3g.40gb  C  512 MiB  ")
    assert len(lines) == 6

    found = snapshot("--processes", env=env)
    keys = ("label", "device", "parent", "mig_index", "mig_profile")
    assert [tuple(gpu[key] for key in keys) for gpu in found["gpus"]] == [
        ("0", 0, None, None, None),
        ("1", 1, None, None, None),
        ("1:0", 1, 1, 0, "1g.10gb"),
        ("1:2", 1, 1, 2, "3g.40gb"),
    ]
    values = found["gpus"][3]["values"]
    assert values["name"] == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert "missing" in values["sm_busy_pct"]
    (process,) = found["processes"]
    (use,) = process["uses"]
    assert (use["label"], use["device"], use["mig_profile"]) == ("1:2", 1, "3g.40gb")


@pytest.mark.parametrize(
    ("code", "cause"), [(9, "the NVIDIA driver is not loaded"), (18, "different versions: reboot")]
)
def test_a_driver_that_cannot_be_opened_is_reported_with_its_cure(code: int, cause: str) -> None:
    env = standin_environment(f"driver error nvmlInitWithFlags {code}\n")
    required = gputui("snapshot", "--require-gpu", env=env)
    assert required.returncode == EXIT_MACHINE_LACKS
    assert cause in required.stdout.splitlines()[1]
    assert cause in required.stderr
    one_of_two = standin_environment("driver gpus 2\n0 error * 15\n")
    assert gputui("snapshot", "--require-gpu", env=one_of_two).returncode == 0


def test_a_library_that_is_not_there_is_reported(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()
    done = gputui("snapshot", "--require-gpu", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.returncode == EXIT_MACHINE_LACKS
    assert "libnvidia-ml.so.1 was not found" in done.stderr


_HANGS = {
    "from the first reading": "3 hang nvmlDeviceGetUtilizationRates 1",
    "from the second reading": "3 hang nvmlDeviceGetUtilizationRates 2",
    "when processes are listed": "3 hang nvmlDeviceGetComputeRunningProcesses_v3 1",
    "from its handle on": "3 hang * 1",
    "when it is named": "3 hang nvmlDeviceGetUUID 1",
}
_IN_LINES = ("from the first reading", "when processes are listed")


def test_of_several_gpus_only_the_one_that_hangs_is_stale() -> None:
    used = f"driver gpus 4\n* sm_busy_pct 40\n1 process {os.getpid()} C 512 7\n"
    read = gputui_together(
        *("snapshot", "--json", "--processes"),
        envs=[standin_environment(f"{used}{hang}\n") for hang in _HANGS.values()],
    )
    for when, done in zip(_HANGS, read, strict=True):
        assert (done.returncode, done.stderr) == (0, ""), when
        found = json.loads(done.stdout)
        gpus = found["gpus"]
        assert [gpu["device"] for gpu in gpus] == [0, 1, 2, 3], when
        for gpu in gpus[:3]:
            assert (gpu["problem"], gpu["health"]) == (None, []), when
            assert gpu["age_s"] < 3, when
            assert gpu["values"]["sm_busy_pct"] == 40, when
        assert gpus[3]["age_s"] >= 3, when
        seconds = int(gpus[3]["problem"].split()[-2])
        assert gpus[3]["problem"] == f"the driver has not answered for {seconds} s", when
        assert [finding["word"].split()[0] for finding in gpus[3]["health"]] == ["STALE"], when
        assert [process["uses"][0]["device"] for process in found["processes"]] == [1], when


def test_a_gpu_that_hangs_is_stale_in_lines_unless_only_its_processes_hang() -> None:
    read = gputui_together(
        "snapshot", envs=[standin_environment(f"driver gpus 4\n{_HANGS[when]}\n") for when in _IN_LINES]
    )
    for when, done in zip(_IN_LINES, read, strict=True):
        is_stale = when != "when processes are listed"  # lines without processes need no process list
        shown = ["STALE" in line for line in done.stdout.splitlines()[1:]]
        assert shown == [False, False, False, is_stale], when
