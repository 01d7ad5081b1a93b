"""A run from its first line to its last: a real supervisor, a real worker, no torch."""

from __future__ import annotations

import json
import signal
import stat
import statistics
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from builders import make_case, make_plan
from supervised import Supervised, ends_by_itself, living_members, scripted_worker, start_supervisor

from gputui.model.journal import (
    LOCK_NAME,
    SPEC_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchStart,
    Line,
    RunEnd,
    RunStart,
    RuntimeFound,
    Stored,
    check_line,
)
from gputui.model.plan import PlannedCase
from gputui.model.telemetry import HOST
from gputui.recording.run_directory import Spec, is_held, read_holder
from gputui.recording.worker_process import log_of
from gputui.store.journal_reader import read_journal, read_telemetry

COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
SKIPPED = PlannedCase(1, make_case("gemm"), "skipped", "torch not installed")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Supervised:
    """Two launches of one case, and a case that is only listed."""
    home = tmp_path_factory.mktemp("finished")
    plan = make_plan([0], [0], budget_s=20.0, most_blocks=6)
    plan = replace(plan, cases=(*plan.cases, SKIPPED))
    journal, copy = home / "run-0" / "journal.jsonl", home / "stored"
    run = Supervised(home, plan, on_end=(sys.executable, "-c", COPY, str(journal), str(copy)))
    run.end()
    return run


def test_a_run_that_went_well_ends_with_zero_says_nothing_and_leaves_no_channel(finished: Supervised) -> None:
    assert (finished.process.returncode, finished.output()) == (0, "")
    assert list(finished.run_dir.glob("*.fifo")) == []


def test_a_journal_records_the_run_in_order_without_a_gap_a_place_or_the_key(finished: Supervised) -> None:
    raw = finished.journal_bytes()
    bodies = [json.loads(check_line(line) or b"") for line in raw.removesuffix(b"\n").split(b"\n")]
    assert [body["n"] for body in bodies] == list(range(len(bodies)))
    kinds = [body["kind"] for body in bodies]
    launch = ["LaunchStart", "WorkerReady", "CaseWarm", "Block", "CaseEnd", "LaunchEnd"]
    assert [kind for i, kind in enumerate(kinds) if kind != "Block" or kinds[i - 1] != "Block"] == [
        "RunStart", "MachineFound", "RuntimeFound", "CasePlanned", "CasePlanned", *launch, *launch,
        "RunEnd", "Stored",
    ]  # fmt: skip
    for secret in (str(finished.run_dir.parent), sys.executable, "results.db", "6b" * 32):
        assert secret.encode() not in raw


def test_every_launch_ended_well_and_each_case_has_its_least_of_blocks(finished: Supervised) -> None:
    assert [(end.launch_id, end.outcome, end.exit_status) for end in finished.lines(LaunchEnd)] == [
        (0, "ok", 0),
        (1, "ok", 0),
    ]
    ends = {end.launch_id: end for end in finished.lines(CaseEnd)}
    for launch_id in (0, 1):
        blocks = [block for block in finished.lines(Block) if block.launch_id == launch_id]
        assert [block.index for block in blocks] == list(range(len(blocks)))
        assert (ends[launch_id].outcome, ends[launch_id].blocks) == ("ok", len(blocks))
        assert len(blocks) >= 5
        assert all(block.wall_ns > 0 for block in blocks)


def test_instants_are_of_one_clock_and_follow_each_other_within_the_budget(finished: Supervised) -> None:
    start, end = finished.lines(RunStart)[0], finished.lines(RunEnd)[0]
    instants = [start.started_ns]
    for launch, launch_end in zip(finished.lines(LaunchStart), finished.lines(LaunchEnd), strict=True):
        assert launch.allowance_s is not None
        assert 2.0 <= launch.allowance_s <= 20.0
        blocks = [b for b in finished.lines(Block) if b.launch_id == launch.launch_id]
        instants += [launch.t_ns, *(t for b in blocks for t in (b.start_ns, b.start_ns + b.wall_ns))]
        instants.append(launch_end.t_ns)
    instants.append(end.t_ns)
    assert instants == sorted(instants)
    lasted_ns = end.t_ns - start.started_ns
    assert (end.ended_utc_us - start.started_utc_us) * 1000 == pytest.approx(lasted_ns, abs=50e6)
    assert lasted_ns / 1e9 < 20.0 * 1.2


@pytest.mark.parametrize(("step_file", "seen"), [("", "None"), ("mine.py", "1")])
def test_a_variable_that_falsifies_rows_is_recorded_and_only_the_users_own_step_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_file: str, seen: str
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    read = 'os.environ.get("CUDA_LAUNCH_BLOCKING"), os.environ["NCCL_ALGO"]'
    worker = scripted_worker(tmp_path / "worker.py", f"measure(0)\nprint({read})\nend()\n")
    run = Supervised(tmp_path, replace(make_plan([0]), interpreter=worker, step_file=step_file))
    assert run.end() == 0
    cleared, done = (
        ("", "left as it is") if step_file else (" (cleared)", "cleared for gputui's own workloads")
    )
    assert [line.runtime.variables for line in run.lines(RuntimeFound)] == [
        f"CUDA_LAUNCH_BLOCKING=1{cleared} NCCL_ALGO=Ring"
    ]
    assert [line.message for line in run.lines(Event)] == [
        f"CUDA_LAUNCH_BLOCKING=1 is {done}: the host waits for each kernel"
    ]
    assert log_of(run.run_dir, 0).read_text() == f"{seen} Ring\n"


def test_the_plan_is_in_the_journal_with_what_will_not_be_run(finished: Supervised) -> None:
    planned = finished.lines(CasePlanned)
    assert [(p.planned.outcome, p.planned.reason, p.device_name) for p in planned] == [
        (None, "", "Test CPU"),
        ("skipped", "torch not installed", ""),
    ]
    planned_for = Spec.read(finished.run_dir).runtime
    assert [line.runtime for line in finished.lines(RuntimeFound)] == [replace(planned_for, variables="")]


def test_the_host_is_read_about_once_a_second(finished: Supervised) -> None:
    instants = [r.t_ns / 1e9 for r in read_telemetry(finished.run_dir) if r.device == HOST]
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert len(instants) >= 4
    assert statistics.median(gaps) == pytest.approx(1.0, abs=0.1)


def test_the_storing_command_sees_the_whole_run_and_its_success_is_the_last_line(
    finished: Supervised,
) -> None:
    whole = finished.journal_bytes()
    seen = (finished.run_dir.parent / "stored").read_bytes()
    assert whole.startswith(seen)
    assert (b'"RunEnd"' in seen.splitlines()[-1], len(whole[len(seen) :].splitlines())) == (True, 1)
    assert [(s.exit_status, s.message) for s in finished.lines(Stored)] == [(0, "")]
    assert finished.lines(RunEnd)[0].status == "finished"


def test_what_a_run_directory_holds_is_its_owners_alone(finished: Supervised) -> None:
    for name in (SPEC_NAME, "journal.jsonl", LOCK_NAME):
        assert stat.S_IMODE((finished.run_dir / name).stat().st_mode) == 0o600


def test_the_lock_says_who_holds_it_and_is_free_afterwards(finished: Supervised) -> None:
    holder = read_holder(finished.run_dir)
    assert holder is not None
    assert (holder.pid, holder.target) == (finished.process.pid, "results.db")
    assert holder.run_dirs == (str(finished.run_dir),)
    assert holder.is_of_this_host()
    assert not holder.lives_here()
    assert not is_held(finished.run_dir)


def test_a_run_that_was_begun_is_not_begun_again(finished: Supervised) -> None:
    before = finished.journal_bytes()
    again = start_supervisor(finished.run_dir)
    assert again.wait(300) == 2
    assert "this run was begun before\nstart a new run" in finished.output()
    assert finished.journal_bytes() == before
    (finished.run_dir / "supervisor.log").write_text("")


def test_a_run_goes_on_after_a_hang_up_has_one_supervisor_and_keeps_what_is_finished_when_terminated(
    tmp_path: Path,
) -> None:
    run = Supervised(tmp_path, make_plan([0], [0], [0], most_blocks=6))
    run.wait_for(Block)
    run.process.send_signal(signal.SIGHUP)
    assert start_supervisor(run.run_dir).wait(300) == 2
    run.wait_for(Block, of_launch=1)
    worker = run.worker_pid()
    run.process.terminate()
    assert run.end() == 128 + signal.SIGTERM
    assert "another supervisor executes this run" in run.output()
    assert [(e.launch_id, e.outcome, e.reason) for e in run.lines(LaunchEnd)] == [
        (0, "ok", ""),
        (1, "interrupted", "stopped on request"),
    ]
    assert [(e.launch_id, e.outcome) for e in run.lines(CaseEnd)] == [(0, "ok"), (1, "interrupted")]
    assert [(e.status, e.reason) for e in run.lines(RunEnd)] == [("interrupted", "stopped on request")]
    assert len(run.lines(Stored)) == 1
    assert living_members(worker) == []


def test_a_run_that_is_interrupted_in_its_first_launch_keeps_its_blocks(tmp_path: Path) -> None:
    run = Supervised(tmp_path, make_plan([0], most_blocks=60))
    run.wait_for(Block)
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 128 + signal.SIGINT
    assert run.lines(RunEnd)[0].status == "interrupted"
    assert len(run.lines(Block)) >= 1


def test_a_killed_supervisor_leaves_a_whole_journal_and_no_worker(tmp_path: Path) -> None:
    run = Supervised(tmp_path, make_plan([0], most_blocks=60))
    run.wait_for(CaseWarm)
    assert ends_by_itself(run.worker_pid(), run.process.kill)
    run.end()
    lines: tuple[Line, ...] = read_journal(run.run_dir).lines
    assert [type(line) for line in lines if isinstance(line, (CaseWarm, RunEnd, Event))] == [CaseWarm]
    assert not is_held(run.run_dir)
