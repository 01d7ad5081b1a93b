"""torch.compile as a mode: requirements, cost, and unchanged results."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_plan
from test_profiled_pass import Heard
from test_workloads import TINY, losses

from gputui.model.plan import Variant
from gputui.recording.worker_process import described_launch
from gputui.services.profiles.planner import case_of
from gputui.worker import steps
from gputui.worker.contract import Request, Step, Unsupported
from gputui.worker.launch import Launch
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
    if lacking := what_is_lacking("cpu"):
        with pytest.raises(Unsupported, match=re.escape(lacking)):
            built("gpt_train", "compile")
        return
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else processes are started that import torch
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")  # plain loops, which the compiler is done with sooner
    workload = workload_named("gpt_train")
    mini = workload.sizes["mini"]
    tiny = replace(mini, parameters={**mini.parameters, **TINY["gpt_train"]})
    modes = ("eager", "compile")
    cases = [case_of(workload, "mini", Variant("cpu", "fp32", mode, "1")) for mode in modes]
    plan = make_plan([0, 1], cases=cases, needs_torch=True)
    described = described_launch(plan, plan.launches[0], tmp_path, 1.0, 300.0)
    heard = Heard()
    named = {workload.name: replace(workload, sizes={"mini": tiny})}
    Launch(described, heard, time.monotonic_ns(), workload_named=named.__getitem__).run()  # type: ignore[arg-type]
    ends = [message for message in heard.messages if message["kind"] == "case_end"]
    assert sorted((end["case_id"], end["outcome"], end["reason"]) for end in ends) == [
        (0, "ok", ""),
        (1, "ok", ""),
    ]
    taken = [message for message in heard.messages if message.get("key") == "compile_s"]
    assert [message["case_id"] for message in taken] == [1]
    blocks = [m for m in heard.messages if m["kind"] == "block" and m["case_id"] == 1]
    assert taken[0]["value"] > 20e-9 * min(block["wall_ns"] / block["steps"] for block in blocks)
    assert losses(built("gpt_train", "compile"), 3) == pytest.approx(
        losses(built("gpt_train", "eager"), 3), rel=1e-4
    )
