"""Workloads on a device that computes later, without hardware: what is timed or read too early, fails.

One process does everything, since a process can name one such device and cannot forget it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_workloads import TINY
from torch.utils import backend_registration

HERE = Path(__file__).parent
CASES = (
    "gemm fp32",
    "membw fp32",
    "gpt_train fp32",
    "gpt_train amp",
    "decode fp32",
    "infer_lat fp32",
)
PROFILED = ("gemm fp32", "gpt_train fp32")
"""Reading a trace takes a second or more."""
GRAPHS = (("decode", "mini"), ("decode", "mini-b8"), ("infer_lat", "mini-text"))
PLACES = (
    "start of the stopwatch",
    "end of the stopwatch",
    "answer of a request",
    "memory of a step",
    "warm-up of the profiled pass",
)
PER_S = 1e7
"""FLOPs and bytes."""
ELEMENTS = 3 * 2**15
SMALL = {name: parameters | {"layers": 1, "elements": ELEMENTS} for name, parameters in TINY.items()}
HAS_HOOK = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
pytestmark = [
    pytest.mark.skipif(
        not HAS_HOOK or torch.__version__ < "2.13",
        reason=f"torch {torch.__version__}: devices in Python were tried with 2.13",
    ),
    pytest.mark.skipif(
        sys.platform != "linux", reason="torch's libraries are called by their names on Linux"
    ),
]


def shown(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What the process printed."""
    done = subprocess.run(
        [sys.executable, HERE / "async_launches.py", json.dumps(asked)],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def found(of_all_processes: Path) -> list[dict[str, Any]]:
    """What the device, small cases and planted mistakes showed; one process asks, since it takes long."""
    with (of_all_processes / "async-device.json").open("a+") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        if not kept.seek(0, os.SEEK_END):
            asked = {"cases": CASES, "small": SMALL, "profiled": PROFILED, "per_s": PER_S, "graphs": GRAPHS}
            json.dump(shown(asked), kept)
            kept.flush()
        kept.seek(0)
        answers: list[dict[str, Any]] = json.load(kept)
        return answers


@pytest.fixture(scope="module")
def fact(found: list[dict[str, Any]]) -> Callable[[str], Any]:
    """What the device alone showed."""
    facts = {one["fact"]: one["found"] for one in found if "fact" in one}
    return facts.__getitem__


def assert_measured(one: dict[str, Any]) -> None:
    assert one["end"]["outcome"] == "ok", one["end"]
    assert len(one["blocks"]) == 5
    for block in one["blocks"]:
        assert block["device_ns"] == pytest.approx(block["steps"] * one["step_ns"], rel=0.001)
        assert block["device_ns"] <= block["wall_ns"] <= 1.001 * block["device_ns"]
        assert block["cpu_ns"] < 0.01 * block["wall_ns"]
    assert bool(one["waits"]) == one["case"].startswith("infer_lat"), one["waits"]


@pytest.mark.parametrize("case", CASES)
def test_a_workload_is_timed_as_long_as_its_kernels_take(case: str, found: list[dict[str, Any]]) -> None:
    (one,) = (one for one in found if one.get("case") == case)
    assert_measured(one)
    assert one["output"] == pytest.approx(one["output_on_cpu"], rel=1e-2 if case.endswith("amp") else 1e-4)


@pytest.mark.parametrize("case", PROFILED)
def test_a_profiled_pass_says_that_it_cannot_watch_the_device(case: str, found: list[dict[str, Any]]) -> None:
    (one,) = (one for one in found if one.get("case") == case)
    (profiled,) = one["profiled"]
    assert profiled["reason"] == "the trace holds no work of the queued device"


def test_a_product_takes_its_flops_and_a_copy_its_bytes(found: list[dict[str, Any]]) -> None:
    step_ns = {one["case"]: one["step_ns"] for one in found if "case" in one}
    assert step_ns["gemm fp32"] == 2 * 96 * 64 * 80 / PER_S * 1e9
    assert step_ns["membw fp32"] == 2 * 4 * ELEMENTS / PER_S * 1e9


def test_a_request_takes_at_least_as_long_as_the_device(found: list[dict[str, Any]]) -> None:
    (one,) = (one for one in found if one.get("case") == "infer_lat fp32")
    assert one["figures"]["p50_s"] * 1e9 == pytest.approx(one["step_ns"], rel=0.01)


def test_memory_by_part_is_that_of_the_same_step_on_a_cpu(found: list[dict[str, Any]]) -> None:
    (one,) = (one for one in found if one.get("case") == "gpt_train fp32")
    points = {point["point"]: point for point in one["profiled"][0]["memory"]}
    assert set(points) == set(one["memory_on_cpu"])
    for name, on_cpu in one["memory_on_cpu"].items():
        here = {part: points[name][f"{part}_bytes"] for part in on_cpu}
        for part in ("weights", "gradients"):
            assert here[part] == on_cpu[part]
        assert here["optimizer"] == pytest.approx(on_cpu["optimizer"], rel=0.01)  # numbers of its steps
        assert here["activations"] == pytest.approx(on_cpu["activations"], rel=0.1)  # another attention
    assert points["peak"]["activations_bytes"] > 0


@pytest.mark.parametrize("place", PLACES)
def test_a_missing_wait_is_noticed(place: str, found: list[dict[str, Any]]) -> None:
    (one,) = (one for one in found if one.get("place") == place)
    assert (one["sound"], one["planted"]) == (True, False)


@pytest.mark.parametrize("name", ["gemm", "decode"])
def test_device_and_host_time_of_a_step_are_told_apart(name: str, found: list[dict[str, Any]]) -> None:
    times = {one["apart"]: one for one in found if "apart" in one}
    for one in (times[f"{name} quickly"], times[f"{name} slowly"]):
        assert one["device_s"] == pytest.approx(one["work_s"], rel=0.001)
        assert one["host_s"] == pytest.approx(one["launches_s"], rel=0.001)
    slow = times[f"{name} slowly"]
    if slow["host_s"] > slow["device_s"]:  # the device has to wait
        assert slow["step_s"] >= slow["host_s"]


def test_a_step_that_waits_by_itself_has_no_times_apart(found: list[dict[str, Any]]) -> None:
    for one in found:
        if one.get("apart", "").startswith("infer_lat"):
            assert (one["device_s"], one["host_s"]) == (None, None)


@pytest.mark.parametrize("case", GRAPHS, ids=" ".join)
def test_a_graph_gives_what_its_operators_do_and_takes_one_launch(
    case: tuple[str, str], fact: Callable[[str], Any]
) -> None:
    same, launches = fact(" ".join(case))
    copies = 2 if case[0] == "infer_lat" else 0  # of the request and its answer
    assert (same, launches) == (True, 1 + copies)


def test_a_probe_names_a_device_of_a_kind_that_gputui_does_not_know(fact: Callable[[str], Any]) -> None:
    assert (fact("kinds"), fact("is open")) == (["queued"], True)
    cpu, other = fact("devices")
    assert (cpu["torch_device"], other["torch_device"]) == ("cpu", "queued")
    assert (other["name"], other["memory_bytes"]) == ("a queue without hardware", 8 * 2**30)
    assert (other["bf16"], other["runs_here"]) == (True, True)


def test_a_case_that_does_not_fit_leaves_the_memory_to_the_next(found: list[dict[str, Any]]) -> None:
    (one,) = (one for one in found if one.get("fact") == "crowded")
    assert one["found"] == ["oom", "ok"]
    assert one["left_bytes"] == 0


def test_a_graph_repeats_its_kernels_in_one_launch_and_cannot_wait(fact: Callable[[str], Any]) -> None:
    assert fact("graph") == [14, 6, 3]
    assert fact("wait in a graph") == "nothing can wait while a graph is captured"
