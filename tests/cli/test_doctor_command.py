"""`gputui doctor` in real processes, against the stand-in driver."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any  # JSON

from command_line import gputui, gputui_here
from nvml.standin import standin_environment

ONE = """
driver gpus 1
* name NVIDIA H200
* sm_busy_pct 0
"""


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
    hangs = "2 hang * 1\n3 hang nvmlDeviceGetPowerManagementDefaultLimit 1\n"
    env = standin_environment(f"driver gpus 4\n* sm_busy_pct 0\n{hangs}")
    status, found = found_by(gputui("doctor", "--json", env=env))
    assert status == 1
    assert [found[f"GPU {index}"]["state"] for index in range(4)] == ["ok", "ok", "problem", "problem"]
    for gpu in ("GPU 2", "GPU 3"):
        assert "the driver has not answered for " in found[gpu]["found"]
        assert found[gpu]["next_step"]
    assert "2x NVIDIA H200, 2x unnamed GPU" in found["driver"]["found"]


def test_mig_instances_are_named_in_one_note() -> None:
    slices = "".join(
        f"{n} mig 1\n{n} mig_slices 2\n{n}:0 profile 1g.18gb\n{n}:1 profile 3g.71gb\n" for n in (0, 2)
    )
    scenario = f"driver gpus 3\n* sm_busy_pct 0\n{slices}1 mig 1\n2 hang nvmlDeviceGetTemperatureV 2\n"
    _, found = found_by(gputui("doctor", "--json", env=standin_environment(scenario)))
    assert found["GPU 0"]["state"] == "ok"
    assert "(0:0 1g.18gb, 0:1 3g.71gb)" in found["GPU 0 MIG"]["found"]
    assert "no instance is visible" in found["GPU 1 MIG"]["found"]
    assert found["GPU 2"]["state"] == "problem"
    assert not [topic for topic in found if re.match(r"GPU \d:", topic)]
