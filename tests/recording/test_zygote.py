"""Workers that are forked from a process that has imported torch: what they find, and what ends with them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from builders import make_plan
from supervised import Supervised, ends_by_itself, living_members

from gputui.model.journal import CaseEnd, Event, LaunchEnd, LaunchStart
from gputui.model.plan import Case, Plan, Variant
from gputui.recording.worker_process import Zygote
from gputui.services.profiles.planner import case_of
from gputui.worker.contract import Size, Workload

PLACE = "GPUTUI_TEST_FACTS"
STEP = f"""
import ctypes, json, os, random, signal, sys, threading
from gputui_worker.contract import Size, Step, Workload

threading.Thread(target=threading.Event().wait, daemon=True).start()

def facts(numpy, torch):
    numbers = numpy.ones((512, 512))
    numbers @ numbers
    after_numpy = len(os.listdir("/proc/self/task"))
    fds = {{n: os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if int(n) < 3}}
    return {{
        "same": {{
            "environment": dict(os.environ),
            "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
            "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "group": os.getpgrp() == os.getpid() == os.getsid(0),
            "directory": os.getcwd(),
            "path": sys.path,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "input": fds["0"],
            "inheritable": [os.get_inheritable(n) for n in range(3)],
            "threads": [after_numpy, torch.get_num_threads(), torch.get_num_interop_threads()],
            "cpus": sorted(os.sched_getaffinity(0)),
            "cgroup": open("/proc/self/cgroup").read(),
            "has_cuda": torch.cuda.is_initialized(),
        }},
        "log": fds["1"],
        "parent": os.getppid(),
        "oom": int(open("/proc/self/oom_score_adj").read()),
        "random": [random.random(), numpy.random.random(), float(torch.rand(1))],
    }}

def build(request):
    import numpy, torch
    way = request.parameters["way"]
    if way == "facts":
        with open(os.path.join(os.environ["{PLACE}"], str(os.getpid())), "w") as file:
            json.dump(facts(numpy, torch), file)
    elif way == "segfault":
        ctypes.string_at(0)
    elif way == "hang":
        signal.pause()
    return Step(lambda: torch.ones(8).add(1))

WORKLOAD = Workload(
    name="odd", version=1, title="odd", question="What does a fork find?", workload_class="host", unit="B",
    sizes={{way: Size({{"way": way}}, 1.0, None, None, 2**20) for way in ("facts", "segfault", "hang")}},
    precisions=("fp32",), device_classes=("cpu",), needs_torch=True, build=build,
)
"""


def odd_plan(place: Path, *ways: str, budget_s: float = 60.0) -> Plan:
    """One launch for each of these, all forked; `exec` is `facts` in a process of its own."""
    step = place / "odd.py"
    step.write_text(STEP)
    names = ("facts", "segfault", "hang")
    sizes = {way: Size({"way": way}, 1.0, None, None, 2**20) for way in names}
    odd = Workload(
        "step:odd", 1, "odd", "?", "host", "B", sizes, ("fp32",), ("cpu",), True, lambda request: None  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    cases: list[Case] = [case_of(odd, way, Variant("cpu", "fp32", "eager", "all")) for way in names]
    launched = [[names.index("facts" if way == "exec" else way)] for way in ways]
    plan = make_plan(*launched, cases=cases, budget_s=budget_s, most_blocks=5, needs_torch=True)
    launches = tuple(
        replace(one, threads=2, needs_torch=way != "exec")
        for one, way in zip(plan.launches, ways, strict=True)
    )
    return replace(plan, launches=launches, step_file=str(step))


def zygotes_of(supervisor: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [p for p in psutil.Process(supervisor).children() if p.cmdline()[-1:] == ["zygote"]]
    return []


FORKER = """
import json, socket
lines = socket.socket(fileno=0).makefile("rw")
for answer in ({"ready": True}, {"pid": 7}, {"status": 3}, {"ready": True}):
    if "pid" in answer:
        lines.readline()
    print(json.dumps(answer), file=lines, flush=True)
lines.readline()
"""


def test_one_that_is_ready_stays_so_until_it_forks_and_one_that_ended_says_so(tmp_path: Path) -> None:
    def started(code: str) -> Zygote:
        words = sys.executable, "-c", code
        return Zygote(words, tmp_path / "start.py", dict(os.environ), tmp_path / "log")

    zygote = started(FORKER)
    assert [zygote.is_ready(60), zygote.is_ready(0)] == [True, True]
    zygote.fork(["run"], tmp_path / "log")
    assert zygote.pid == 7
    zygote.wait(60)
    assert (zygote.poll(), zygote.is_ready(60), zygote.is_alive()) == (3, True, True)
    assert zygote.close() == -signal.SIGKILL
    refusing = started("raise SystemExit(5)")
    with pytest.raises(EOFError):
        refusing.is_ready(60)
    assert refusing.close() == 5


def test_forks_find_what_a_process_of_its_own_finds_and_end_with_their_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))
    run = Supervised(tmp_path / "runs", odd_plan(tmp_path, "facts", "facts", "exec"))
    run.wait_for(LaunchStart)
    run.end()
    assert (run.process.returncode, run.output(), run.lines(Event)) == (0, "", ())
    assert [line.is_fork for line in run.lines(LaunchStart)] == [True, True, False]
    assert [(end.outcome, end.exit_status) for end in run.lines(LaunchEnd)] == [("ok", 0)] * 3
    files = sorted((file for file in tmp_path.iterdir() if file.name.isdigit()), key=os.path.getmtime)
    first, second, alone = (json.loads(file.read_text()) for file in files)
    assert (first["parent"], alone["parent"]) == (second["parent"], run.process.pid)
    assert first["same"] == second["same"] == alone["same"]
    assert Path(second["log"]).name == "launch-001.log"
    assert all(one != other for one, other in zip(first["random"], second["random"], strict=True))
    assert first["oom"] == 1000, "the system ends a fork first where memory is short"
    assert not psutil.pid_exists(first["parent"])


@pytest.mark.slow
def test_a_fork_that_crashes_or_hangs_costs_its_case_and_the_next_is_forked_from_the_same_process(
    tmp_path: Path,
) -> None:
    plan = odd_plan(tmp_path, "segfault", "hang", "segfault", budget_s=20)
    run = Supervised(tmp_path / "runs", plan, is_impatient=True)
    run.wait_for(LaunchStart)
    (first,) = zygotes_of(run.process.pid)
    group = run.worker_pid()
    run.wait_for(LaunchStart, of_launch=2)
    assert zygotes_of(run.process.pid) in ([first], [])
    run.end()
    died = "the worker died of SIGSEGV"
    reasons = [end.reason for end in run.lines(CaseEnd)]
    assert (reasons[0], reasons[2]) == (died, died)
    assert reasons[1].startswith("the worker hung: no word for")
    assert living_members(group) == []


@pytest.mark.slow
def test_a_process_that_is_killed_takes_its_fork_along_and_is_replaced(tmp_path: Path) -> None:
    run = Supervised(tmp_path / "runs", odd_plan(tmp_path, "hang", "segfault"))
    run.wait_for(LaunchStart)
    worker, (zygote,) = run.worker_pid(), zygotes_of(run.process.pid)
    assert ends_by_itself(worker, zygote.kill)
    run.end()
    assert [(end.outcome, end.exit_status) for end in run.lines(LaunchEnd)] == [
        ("failed", -signal.SIGKILL),
        ("failed", -signal.SIGSEGV),
    ]
    assert [line.is_fork for line in run.lines(LaunchStart)] == [True, True]


@pytest.mark.slow
def test_a_killed_supervisor_takes_the_forks_that_hang_along(tmp_path: Path) -> None:
    run = Supervised(tmp_path / "runs", odd_plan(tmp_path, "hang"))
    run.wait_for(LaunchStart)
    worker, (zygote,) = run.worker_pid(), zygotes_of(run.process.pid)
    assert ends_by_itself(worker, run.process.kill)
    zygote.wait(60)
    run.process.wait(60)
