"""`gputui doctor` in real processes, against the stand-in driver."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any  # JSON

from command_line import gputui, gputui_here, gputui_together
from nvml.standin import standin_environment

ONE = """
driver gpus 1
* name NVIDIA H200
* sm_busy_pct 0
"""


def checks_together(scenarios: Iterable[str]) -> list[tuple[int, dict[str, Any]]]:
    envs = map(standin_environment, scenarios)
    return [found_by(done) for done in gputui_together("doctor", "--json", envs=envs)]


def found_by(done: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, Any]]:
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    return done.returncode, {check["topic"]: check for check in found["checks"]}


def test_a_crippled_link_and_a_cpu_build_of_torch_are_problems_and_the_exit_code_says_so(
    tmp_path: Path,
) -> None:
    env = standin_environment(ONE + "* pcie_width 4\n* pcie_width_max 16\n")
    status, found = found_by(gputui("doctor", "--json", "--db", tmp_path / "a.db", env=env))
    assert status == 1
    assert found["GPU 0"]["state"] == "problem"
    assert found["GPU 0"]["found"].startswith("PCIe x4 of x16")
    assert found["GPU 0"]["next_step"]
    assert "sees no GPU: it is a build without CUDA" in found["torch"]["found"]
    assert list(tmp_path.iterdir()) == [], "doctor writes nothing"


def test_the_answer_is_the_first_line_the_worst_follows_and_lines_fit_80_columns_but_for_paths(
    tmp_path: Path,
) -> None:
    db = tmp_path / "my-own-results" / ("long-" * 30 + "name") / "a.db"
    db.parent.mkdir(parents=True)
    done = gputui("doctor", "--db", db, env=standin_environment("driver error nvmlInitWithFlags 9\n"))
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    wide = [line.split()[-1] for line in lines if len(line) > 80]
    assert str(db) in wide, "a path is kept whole, so that it can be copied"
    assert all(word.startswith("/") for word in wide)
    assert re.fullmatch(
        r"(Ready to measure on|Not now: other programs use) the CPU; no GPU found\. \d cautions?\.", lines[0]
    )
    assert lines[1].startswith("caution  ")
    order = ["FAULT", "caution", "unknown", "ok"]
    states = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert states == sorted(states, key=order.index)


def test_a_python_that_is_none_is_refused() -> None:
    done = gputui_here("doctor", "--python", "/nowhere/python")
    assert done.returncode == 2
    assert "--python /nowhere/python: is not an executable file" in done.stderr


def test_a_gpu_that_hangs_is_a_problem_and_leaves_the_others_well() -> None:
    of_calls = ("*", "nvmlDeviceGetPowerManagementDefaultLimit")
    scenarios = [f"driver gpus 3\n* sm_busy_pct 0\n2 hang {calls} 1\n" for calls in of_calls]
    for calls, (status, found) in zip(of_calls, checks_together(scenarios), strict=True):
        assert status == 1, calls
        assert [found[f"GPU {index}"]["state"] for index in range(3)] == ["ok", "ok", "problem"], calls
        assert "the driver has not answered for " in found["GPU 2"]["found"], calls
        assert found["GPU 2"]["next_step"], calls
        assert "2x NVIDIA H200, 1x unnamed GPU" in found["driver"]["found"]


def test_mig_instances_are_named_in_one_note() -> None:
    scenario = ONE + "0 mig 1\n0 mig_slices 2\n0:0 profile 1g.18gb\n0:1 profile 3g.71gb\n"
    scenarios = (scenario, ONE + "0 mig 1\n", scenario + "0 hang nvmlDeviceGetTemperatureV 2\n")
    (_, found), (_, empty), (_, hangs) = checks_together(scenarios)
    assert found["GPU 0"]["state"] == "ok"
    assert "(0:0 1g.18gb, 0:1 3g.71gb)" in found["GPU 0 MIG"]["found"]
    assert [topic for topic in found if topic.startswith("GPU 0:")] == []
    assert "no instance is visible" in empty["GPU 0 MIG"]["found"]
    assert hangs["GPU 0"]["state"] == "problem"
    assert [topic for topic in hangs if topic.startswith("GPU 0:")] == []
