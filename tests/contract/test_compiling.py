"""torch.compile as a mode: requirements, cost, and unchanged results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import gputui, gputui_here
from test_workloads import TINY, losses

from gputui.worker import steps
from gputui.worker.contract import Request, Step, Unsupported
from gputui.worker.steps import resolve, what_is_lacking
from gputui.worker.workloads import WORKLOADS, workload_named

COMPILED = [workload.name for workload in WORKLOADS if "compile" in workload.modes]


def built(name: str, mode: str) -> Step:
    workload = workload_named(name)
    parameters = next(iter(workload.sizes.values())).parameters
    small = {key: value for key, value in TINY[name].items() if key in parameters}
    return workload.build(Request(parameters | small, "cpu", resolve("fp32", "cpu"), 1, 1, mode=mode))


def test_without_a_compiler_or_triton_it_says_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    none = "torch.compile needs a C++ compiler on a CPU, and there is none on the path"
    assert what_is_lacking("cpu", lambda name: None) == none
    assert what_is_lacking("cpu", lambda name: "/usr/bin/g++") != none
    monkeypatch.setenv("CXX", "/opt/nonesuch -m64")
    assert what_is_lacking("cpu", lambda name: "/usr/bin/g++" if name == "g++" else None) == none


def test_on_a_gpu_too_it_needs_the_headers_of_this_python_which_triton_compiles_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # there is a triton
    assert what_is_lacking("cuda", lambda name: None) == "torch.compile needs a C compiler"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    lacking = "torch.compile needs Python.h of this interpreter, and it is not installed"
    assert what_is_lacking("cuda", lambda name: "/usr/bin/cc") == lacking
    (tmp_path / "Python.h").touch()
    assert what_is_lacking("cuda", lambda name: "/usr/bin/cc") == ""


@pytest.mark.parametrize("name", COMPILED)
def test_on_a_box_without_what_it_takes_a_compiled_case_is_unsupported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "what_is_lacking", lambda device: "there is no compiler")
    with pytest.raises(Unsupported, match="there is no compiler"):
        built(name, "compile")


@pytest.mark.slow
def test_compiled_training_has_the_losses_of_eager_training_and_compile_time_is_separate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else processes are started that import torch
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")  # plain loops, which the compiler is done with sooner
    profile = tmp_path / "compiled.toml"
    profile.write_text(
        """schema = 1
version = 1
title = "compiled"
question = "What does it bring?"
budget_s = 3600
replicates = 1
blocks = 5
[[case]]
workload = "infer_lat"
sizes = ["mini-text"]
devices = ["cpu"]
precisions = ["fp32"]
modes = ["eager", "compile"]
"""
    )
    run = gputui("run", profile, "--db", tmp_path / "r.db", "--json")
    (shown,) = json.loads(run.stdout)["runs"]
    eager, compiled = shown["cases"]
    assert (eager["mode"], compiled["mode"]) == ("eager", "compile")
    assert (eager["case"], compiled["case"]) == (
        "infer_lat mini-text cpu fp32 all cores",
        "infer_lat mini-text cpu fp32 compile all cores",
    )
    assert eager["outcome"] == "ok"
    assert "compile_s" not in {figure["key"] for figure in eager["figures"]}
    if lacking := what_is_lacking("cpu"):
        assert (compiled["outcome"], compiled["reason"]) == ("unsupported", lacking)
        return
    assert compiled["outcome"] == "ok"
    (taken,) = (figure["value"] for figure in compiled["figures"] if figure["key"] == "compile_s")
    assert taken > 20 / compiled["speed"]["units_per_s"]
    by_mode = gputui_here("compare", tmp_path / "r.db", "--by", "mode")
    assert "a  mode eager" in by_mode.stdout
    assert "b  mode compile" in by_mode.stdout
    assert losses(built("gpt_train", "compile"), 3) == pytest.approx(
        losses(built("gpt_train", "eager"), 3), rel=1e-4
    )
