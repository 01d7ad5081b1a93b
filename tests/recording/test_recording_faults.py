"""Workers that die, stall, lie or never start: the run continues, and reports what happened."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_case, make_plan, write_program
from nvml.standin import standin_environment
from supervised import Supervised, living_members, scripted_worker, start_supervisor

from gputui.model.absent import Missing
from gputui.model.journal import (
    NOTHING_MEASURED,
    STOPPED,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CaseWarm,
    Event,
    Figure,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    RunEnd,
    Stored,
    WorkerReady,
)
from gputui.model.plan import Plan
from gputui.model.telemetry import HOST
from gputui.recording.pacing import least_budget_s
from gputui.services.runs.process import recover_orphans
from gputui.services.support.paths import run_directories
from gputui.store.journal_reader import read_telemetry
from gputui.store.reading import open_result

WELL = "\nfor case_id in ids: measure(case_id)\nend()\n"
THREE = (make_case(), make_case(size="base"), make_case(threads="all"))
LAUNCH = f"launch 1 of {THREE[0].name}"
NO_SENSE = f"{LAUNCH}: a line of the worker made no sense"


def scripted(tmp_path: Path, behaviour: str, *launches: list[int], budget_s: float = 3600) -> Plan:
    """A plan of three cases with a scripted worker."""
    worker = scripted_worker(tmp_path / "worker.py", behaviour)
    return make_plan(*launches, cases=THREE, budget_s=budget_s, interpreter=worker)


def finished(tmp_path: Path, plan: Plan, *, is_empty: bool = False) -> Supervised:
    """A run to its end; `is_empty` if nothing is measured."""
    run = Supervised(tmp_path / "runs", plan)
    assert (run.end(), run.output()) == (int(is_empty), "")
    expected = ("failed", NOTHING_MEASURED) if is_empty else ("finished", "")
    assert [(end.status, end.reason) for end in run.lines(RunEnd)] == [expected]
    return run


def launches_of(run: Supervised) -> list[tuple[tuple[int, ...], str, str]]:
    starts = {start.launch_id: start for start in run.lines(LaunchStart)}
    return [(starts[e.launch_id].case_ids, e.outcome, e.reason) for e in run.lines(LaunchEnd)]


def case_ends(run: Supervised) -> list[tuple[int, int, str, str]]:
    return [(e.launch_id, e.case_id, e.outcome, e.reason) for e in run.lines(CaseEnd)]


@pytest.mark.slow
def test_a_run_goes_to_its_end_while_a_gpu_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in standin_environment("driver gpus 4\n1 hang * 1\n").items():
        monkeypatch.setenv(name, value)
    run = finished(tmp_path, scripted(tmp_path, WELL, [0], [1]))
    assert [outcome for _, outcome, _ in launches_of(run)] == ["ok", "ok"]
    assert [(e.level, e.message) for e in run.lines(Event)] == [
        ("warning", "nvml device 1: the driver has not answered for 5 s")
    ]
    assert {reading.device for reading in read_telemetry(run.run_dir)} == {HOST, 0, 2, 3}


def test_after_a_crash_each_case_is_run_alone_once_and_later_launches_follow(tmp_path: Path) -> None:
    run = finished(tmp_path, scripted(tmp_path, "\nif 0 in ids: die()" + WELL, [0, 1], [2]))
    killed = "the worker died of SIGKILL, as it does when memory runs out"
    assert launches_of(run) == [
        ((0, 1), "failed", killed),
        ((0,), "failed", killed),
        ((1,), "ok", ""),
        ((2,), "ok", ""),
    ]
    assert case_ends(run) == [(2, 0, "failed", killed), (3, 1, "ok", ""), (1, 2, "ok", "")]
    assert [e.message for e in run.lines(Event)] == [
        "spin mini cpu fp32 1 thread: will be run alone once",
        "spin base cpu fp32 1 thread: will be run alone once",
    ]


def test_a_crash_is_reported_also_when_no_time_is_left_to_run_its_cases_alone(tmp_path: Path) -> None:
    late = "\nsignal.signal(signal.SIGALRM, lambda *_: die())\nsignal.alarm(2)\nsignal.pause()"
    run = finished(tmp_path, scripted(tmp_path, late, [0, 1], budget_s=3.0), is_empty=True)
    reason = (
        "the worker died of SIGKILL, as it does when memory runs out;"
        " not run alone: too little was left of the 3 s"
    )
    assert case_ends(run) == [(1, 0, "failed", reason), (2, 1, "failed", reason)]


def test_a_case_that_ended_before_the_crash_is_not_run_again(tmp_path: Path) -> None:
    run = finished(tmp_path, scripted(tmp_path, "\nif 0 in ids:\n    measure(0)\n    die()" + WELL, [0, 1]))
    assert [cases for cases, _, _ in launches_of(run)] == [(0, 1), (1,)]
    assert len([block for block in run.lines(Block) if block.case_id == 0]) == 5


@pytest.mark.slow  # three workers become warm
def test_a_worker_that_is_killed_while_it_measures_is_reported_with_the_signal(tmp_path: Path) -> None:
    run = Supervised(tmp_path, make_plan([0, 1], cases=THREE[:2], most_blocks=15))
    run.wait_for(Block)
    # Its replacements are killed as soon as they are warm, so that the test does not wait for them.
    for launch_id in (0, 1, 2):
        run.wait_for(CaseWarm, of_launch=launch_id)
        os.kill(run.worker_pid(), signal.SIGKILL)
        run.wait_for(LaunchEnd, of_launch=launch_id)
    assert run.end() == 1
    assert [(cases, outcome) for cases, outcome, _ in launches_of(run)] == [
        ((0, 1), "failed"),
        ((0,), "failed"),
        ((1,), "failed"),
    ]
    assert {reason for _, _, _, reason in case_ends(run)} == {
        "the worker died of SIGKILL, as it does when memory runs out"
    }


LAST_WORDS = """
if 0 in ids:
    print('\\n' * 9000 + 'cannot read /home/alice/secret/weights.bin')
    sys.exit(3)
if 1 in ids:
    import ctypes, faulthandler
    faulthandler.enable()
    ctypes.string_at(0)
measure(2)
end()
print('teardown', flush=True)
die()
"""


def test_a_worker_that_ends_badly_is_reported_with_its_status_and_last_words_without_paths(
    tmp_path: Path,
) -> None:
    run = finished(tmp_path, scripted(tmp_path, LAST_WORDS, [0], [1], [2]))
    left, crashed, late = run.lines(LaunchEnd)
    assert (left.reason, left.exit_status) == ("the worker left early with status 3", 3)
    assert left.log_tail == "cannot read weights.bin"
    assert crashed.reason == "the worker died of SIGSEGV"
    assert "in string_at" in crashed.log_tail.split("\n")[0], "the innermost call"
    assert "Extension modules" not in crashed.log_tail
    assert (late.outcome, late.exit_status, late.log_tail) == ("ok", -signal.SIGKILL, "teardown")
    assert [outcome for _, _, outcome, _ in case_ends(run)] == ["failed", "failed", "ok"]


def test_a_case_that_ran_out_of_memory_beside_another_is_run_alone_once(tmp_path: Path) -> None:
    behaviour = (
        "\nif len(ids) > 1:\n    end_case(0, 'oom', 'no memory at /home/alice/x.py', 0)\n    ids.pop(0)"
    )
    run = finished(tmp_path, scripted(tmp_path, behaviour + WELL, [0, 1]))
    assert case_ends(run) == [(0, 0, "oom", "no memory at x.py"), (0, 1, "ok", ""), (1, 0, "ok", "")]


def test_late_passes_without_time_are_left_out_in_one_line_and_no_case_is_called_skipped(
    tmp_path: Path,
) -> None:
    plan = scripted(tmp_path, WELL, [0], [0], [0])
    budget_s = least_budget_s(plan) + 0.01  # the first launch takes longer than that
    run = finished(tmp_path, replace(plan, budget_s=budget_s))
    assert case_ends(run) == [(0, 0, "ok", "")]
    (left_out,) = run.lines(LaunchesLeftOut)
    assert left_out.launch_ids == (1, 2)
    assert left_out.message == "time was up after 1 of 3 launches of each case"


@pytest.mark.parametrize(
    ("outcomes", "is_empty"),
    [
        (["failed", "skipped"], True),
        (["unsupported", "failed"], False),
        (["oom"], False),
        (["skipped", "ok"], False),
    ],
)
def test_a_run_of_which_no_launch_found_anything_out_has_failed(
    tmp_path: Path, outcomes: list[str], is_empty: bool
) -> None:
    ends = "".join(f"\nend_case({number}, {outcome!r}, 'why', 0)" for number, outcome in enumerate(outcomes))
    run = finished(tmp_path, scripted(tmp_path, f"{ends}\nend()", [*range(len(outcomes))]), is_empty=is_empty)
    assert [end[2] for end in case_ends(run)] == outcomes
    assert len(run.lines(LaunchStart)) == 1, "what ran out of memory alone is not run again"


BLOCK: dict[str, object] = {
    "kind": "block",
    "case_id": 0,
    "index": 0,
    "steps": 1,
    "start_ns": 1,
    "wall_ns": 5,
    "device_ns": None,
    "cpu_ns": 1,
}
END = {"kind": "case_end", "case_id": 0, "outcome": "ok", "reason": "", "blocks": 0, "t_ns": 1}
NONSENSE = (
    b"not json",
    b"",
    b"[1, 2]",
    b"3",
    b"\xff\xfe",
    b"x" * 200_000,
    *(
        json.dumps(message).encode()
        for message in (
            {},
            {"kind": "unknown"},
            {"kind": ["block"]},
            {"kind": "block"},
            {**BLOCK, "wall_ns": -5},
            {**BLOCK, "wall_ns": "5"},
            {**BLOCK, "device_ns": float("nan")},
            {**BLOCK, "case_id": 2},
            {**BLOCK, "launch_id": 0},
            {"kind": "void", "case_id": 99, "reason": "x"},
            {"kind": "void", "case_id": 0},
            {"kind": "warm", "case_id": 0},
            {"kind": "ready"},
            {**END, "case_id": 2},
            {**END, "outcome": "fine"},
        )
    ),
)


FIGURE = "case_id=0, key='p99_s', title='p99', unit='s', better='less', combine='median', observations=7"


IMPOSSIBLE = (
    FIGURE + ", value=-1.0, reason=''",
    FIGURE + ", value=float('nan'), reason=''",
    FIGURE + ", value='much', reason=''",
    FIGURE + ", value=1.0",
    FIGURE.replace("case_id=0", "case_id=1") + ", value=1.0, reason=''",
    FIGURE.replace("unit='s'", "unit='ells'") + ", value=1.0, reason=''",
    FIGURE.replace("'less'", "'prettier'") + ", value=1.0, reason=''",
    FIGURE.replace("'median'", "'guess'") + ", value=1.0, reason=''",
)


SAYS = f"""
if 0 in ids:
    for line in {{nonsense!r}}: raw(line + b'\\n')
    {{impossible}}
if 1 in ids:
    for _ in range(40): raw(b'x' * 100_000)
    raw(b'\\n')
if 2 in ids:
    say('figure', {FIGURE.replace("=0", "=2")}, value=1, reason='')
    say('figure', {FIGURE.replace("=0", "=2").replace("p99_s", "p999_s")}, value=None,
        reason='7 requests, /home/ana/x says')
    say('void', case_id=2, reason='scale fell')
"""


def test_nonsense_is_reported_and_does_no_harm_whatever_is_printed_beside_it(tmp_path: Path) -> None:
    said = SAYS.format(
        nonsense=NONSENSE, impossible="; ".join(f"say('figure', {figure})" for figure in IMPOSSIBLE)
    )
    wrapper = write_program(
        tmp_path / "wrapper",
        f"#!/bin/sh\necho junk; head -c 3000000 /dev/zero; head -c 300000 /dev/urandom >&2\n"
        f'exec {sys.executable} -IS {tmp_path / "worker.py"} "$@"\n',
    )
    plan = scripted(tmp_path, said + WELL, [0], [1], [2])
    run = finished(tmp_path, replace(plan, interpreter=(str(wrapper),)))
    assert launches_of(run) == [((case_id,), "ok", "") for case_id in range(3)]
    assert case_ends(run) == [(case_id, case_id, "ok", "") for case_id in range(3)]
    messages = [event.message for event in run.lines(Event)]
    of_first = len(NONSENSE) + len(IMPOSSIBLE)
    assert messages[:of_first] == [NO_SENSE] * of_first
    endless = f"launch 2 of {THREE[1].name}: a line of the worker made no sense"
    assert set(messages[of_first:-1]) == {endless}, "a line without an end does not fill the memory"
    assert messages[-1] == f"{THREE[2].name}: block left out, scale fell"
    assert len(run.lines(Block)) == 3 * 5
    assert [(f.launch_id, f.case_id, f.key, f.value, f.observations) for f in run.lines(Figure)] == [
        (2, 2, "p99_s", 1.0, 7),
        (2, 2, "p999_s", Missing("7 requests, x says"), 7),
    ]


def test_an_interpreter_that_vanished_fails_its_cases_and_the_run_ends(tmp_path: Path) -> None:
    plan = make_plan([0, 1], [2], cases=THREE, interpreter=[str(tmp_path / "gone" / "python")])
    run = finished(tmp_path, plan, is_empty=True)
    why = "no worker could be started: No such file or directory"
    assert case_ends(run) == [(0, 0, "failed", why), (0, 1, "failed", why), (1, 2, "failed", why)]
    assert list(run.run_dir.glob("*.fifo")) == []


def test_a_worker_that_stalls_is_ended_at_the_hard_stop_and_what_was_dropped_is_listed(
    tmp_path: Path,
) -> None:
    stall = "\nif os.fork() == 0: signal.pause()\nwarm(0)\nblock(0)\nsignal.pause()"
    plan = scripted(tmp_path, stall, [0], [1, 2], budget_s=2.0)
    plan = replace(plan, launches=(plan.launches[0], replace(plan.launches[1], weight=0.01)))
    run = Supervised(tmp_path / "runs", plan)
    group = run.worker_pid()
    assert run.end() == 1
    assert case_ends(run) == [
        (0, 0, "interrupted", "hard stop at 1.2 times the budget"),
        (1, 1, "skipped", "too little was left of the 2 s"),
        (1, 2, "skipped", "too little was left of the 2 s"),
    ]
    started, ended = run.lines(LaunchStart)[0], run.lines(LaunchEnd)[0]
    assert (ended.t_ns - started.t_ns) / 1e9 >= 1.15 * 2.0
    assert living_members(group) == []


def test_a_signal_ends_a_worker_that_says_nothing_and_its_children(tmp_path: Path) -> None:
    run = Supervised(tmp_path / "runs", scripted(tmp_path, "\nos.fork()\nsignal.pause()", [0], [1]))
    run.wait_for(WorkerReady)
    group = run.worker_pid()
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 128 + signal.SIGINT
    assert case_ends(run) == [(0, 0, "interrupted", STOPPED[signal.SIGINT])]
    assert [(e.status, e.reason) for e in run.lines(RunEnd)] == [("interrupted", STOPPED[signal.SIGINT])]
    assert living_members(group) == []


@pytest.mark.slow  # a worker has 5 s to leave
def test_a_worker_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    behaviour = "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nblock(0)\nwhile True: signal.pause()"
    run = Supervised(tmp_path / "runs", scripted(tmp_path, behaviour, [0]))
    run.wait_for(Block)
    group = run.worker_pid()
    run.process.terminate()
    assert run.end() == 128 + signal.SIGTERM
    assert run.lines(LaunchEnd)[0].exit_status == -signal.SIGKILL
    assert living_members(group) == []


@pytest.mark.slow  # as above
def test_a_worker_that_stays_after_its_last_word_is_ended_and_its_results_count(tmp_path: Path) -> None:
    run = finished(tmp_path, scripted(tmp_path, WELL + "signal.pause()", [0]))
    assert launches_of(run) == [((0,), "ok", "")]
    assert run.lines(LaunchEnd)[0].exit_status == -signal.SIGTERM


def test_two_runs_alternate_launch_by_launch_and_each_journal_is_whole(tmp_path: Path) -> None:
    plan = scripted(tmp_path, WELL, [0], [1], [2])
    run = Supervised(tmp_path / "runs", plan, replace(plan, launches=plan.launches[:2]))
    assert run.end() == 0
    starts = [(start.t_ns, index) for index in (0, 1) for start in run.lines(LaunchStart, index)]
    assert [index for _, index in sorted(starts)] == [0, 1, 0, 1, 0]
    for index in (0, 1):
        assert {end.outcome for end in run.lines(CaseEnd, index)} == {"ok"}
        assert len(run.lines(RunEnd, index)) == 1
    first, second = ((d / TELEMETRY_NAME).read_bytes() for d in run.run_dirs)
    assert (first == second, len(first) > 100) == (True, True)


@pytest.mark.parametrize(
    ("on_end", "status", "expected"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('gputui: the disk is full')"], 1, "the disk is full"),
        (["/nowhere/gputui"], 4, "No such file or directory"),
    ],
)
def test_a_run_that_could_not_be_stored_says_so_in_its_last_line(
    tmp_path: Path, on_end: list[str], status: int, expected: str
) -> None:
    run = Supervised(tmp_path / "runs", scripted(tmp_path, WELL, [0]), on_end=on_end)
    assert run.end() == 1
    stored = run.lines(Stored)[-1]
    assert (stored.exit_status, expected in stored.message) == (status, True)


def test_a_directory_without_a_run_is_refused_in_words(tmp_path: Path) -> None:
    assert start_supervisor(tmp_path).wait(300) == 2
    output = (tmp_path / "supervisor.log").read_text()
    assert "spec.json: no spec of a run" in output
    assert "Traceback" not in output


def test_a_worker_that_hangs_is_ended_with_its_children_and_the_rest_is_measured(tmp_path: Path) -> None:
    """The first before its first message, the second in its case."""
    hang = "\nif {} in ids:\n    os.fork()\n    signal.pause()\n"
    worker = scripted_worker(tmp_path / "worker.py", hang.format(1) + WELL)
    script = (tmp_path / "worker.py").read_text()
    (tmp_path / "worker.py").write_text(script.replace('say("ready"', hang.format(0) + 'say("ready"'))
    plan = make_plan([0], [1], [2], cases=THREE, budget_s=30, interpreter=worker)
    light = (replace(launch, weight=0.1) for launch in plan.launches[:2])
    run = Supervised(tmp_path / "runs", replace(plan, launches=(*light, plan.launches[2])), is_impatient=True)
    pids = [run.worker_pid()]
    run.wait_for(LaunchStart, of_launch=1)
    pids.append(run.worker_pid())
    assert (run.end(), run.output()) == (0, "")
    assert [outcome for _, outcome, _ in launches_of(run)] == ["failed", "failed", "ok"]
    for _, _, reason in launches_of(run)[:2]:
        assert reason.startswith("the worker hung: no word for")
    assert [(case, end) for _, case, end, _ in case_ends(run)] == [(0, "failed"), (1, "failed"), (2, "ok")]
    assert [living_members(pid) for pid in pids] == [[], []]


def test_a_worker_that_is_silent_because_its_work_is_slow_is_not_taken_for_one_that_hangs(
    tmp_path: Path,
) -> None:
    slow = "\nwhile 0 in ids and time.process_time() < 3:\n    pass\n"
    worker = scripted_worker(tmp_path / "worker.py", slow + WELL)
    plan = make_plan([0], [2], cases=THREE, budget_s=60, interpreter=worker)
    plan = replace(plan, launches=(replace(plan.launches[0], weight=0.01), plan.launches[1]))
    run = Supervised(tmp_path / "runs", plan, is_impatient=True)
    assert run.end() == 0
    assert [outcome for _, outcome, _ in launches_of(run)] == ["ok", "ok"]


def test_a_log_that_grows_without_end_is_emptied_which_is_reported(tmp_path: Path) -> None:
    chatter = (
        "\nbefore = 0"
        "\nwhile before <= os.fstat(1).st_size <= 8 * 2**20:"
        "\n    before = os.fstat(1).st_size"
        "\n    print('x' * 65536, flush=True)"
        "\nwhile os.fstat(1).st_size > 4 * 2**20: time.sleep(0.01)"
    )
    run = finished(tmp_path, scripted(tmp_path, chatter + WELL, [0]))
    assert [e.message for e in run.lines(Event)] == [f"{LAUNCH}: its log was emptied, it grew too large"]
    assert sum(f.stat().st_size for f in (run.run_dir / "logs").iterdir()) < 2**20


def test_a_worker_that_hangs_while_its_supervisor_is_killed_is_ended_when_the_run_is_recovered(
    tmp_path: Path,
) -> None:
    worker = scripted_worker(tmp_path / "worker.py", "\nmeasure(0)\nos.fork()\nsignal.pause()\n")
    home = run_directories()
    run = Supervised(home, make_plan([0], cases=THREE, interpreter=worker))
    run.wait_for(CaseEnd)
    pid = run.worker_pid()
    run.process.kill()
    run.end()
    assert len(living_members(pid)) == 2
    holder = json.loads((run.run_dir / "lock").read_text())
    (run.run_dir / "lock").write_text(json.dumps({**holder, "target": str(tmp_path / "a.db")}))
    (said,) = recover_orphans()
    assert said.startswith(f"recovered run {run.run_dir.name[-8:]}: ")
    with open_result(tmp_path / "a.db") as file:
        (stored,) = (file.run(summary.run_id) for summary in file.summaries())
    assert sum(len(m.blocks) for case in stored.cases for m in case.measurements) == 5
    assert living_members(pid) == []
    assert recover_orphans() == ()
