"""Programs of all kinds under a real supervisor: what is timed, reported, and left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from builders import make_plan
from supervised import PATIENCE_S, Supervised, living_members

from gputui.model.journal import Block, CaseEnd, CaseWarm, LaunchEnd, LaunchStart
from gputui.model.plan import PlannedCommand, program_case
from gputui.store.journal_reader import read_journal

PYTHON = (sys.executable, "-IS", "-c")
TICKS = "import time\nfor i in range({}):\n    time.sleep(0.005)\n    print('step', i, flush=True)\n"
GARBAGE = r"""
import os, time
for i in range(8):
    os.write(1, os.urandom(100_000).replace(b"\n", b"") + b"\xff\n")
    os.write(2, b"step %d" % i + b"x" * 200_000 + b"\n")
    time.sleep(0.005)
"""
PROGRAMS: dict[str, tuple[tuple[str, ...], str]] = {
    "endless": ((*PYTHON, TICKS.format(10**9)), r"^step \d+"),
    "stubborn": (("sh", "-c", "trap '' TERM; while :; do sleep 1; done"), ""),
    "whole": ((*PYTHON, "sum(range(10**6))"), ""),
    "ticks": ((*PYTHON, TICKS.format(60)), r"^step \d+"),
    "fails": (("sh", "-c", "echo fine; echo /home/ada/secret/model.bin is bad >&2; exit 3"), ""),
    "fails late": ((*PYTHON, TICKS.format(20) + "raise SystemExit(5)"), "^step"),
    "dies": (("sh", "-c", "kill -KILL $$"), ""),
    "no match": (("echo", "nothing of the kind"), "^step"),
    "few": ((*PYTHON, TICKS.format(3)), "^step"),
    "one burst": (("sh", "-c", "printf 'step\\nstep\\nstep\\nstep\\nstep\\nstep\\nstep\\n'"), "^step"),
    "bar": (
        (*PYTHON, TICKS.format(40).replace("print('step', i,", "print('step', i, end='\\r',")),
        r"^step \d+$",
    ),
    "garbage": ((*PYTHON, GARBAGE), r"^step \dx+"),
    "chatter": (
        ("sh", "-c", "echo the first line; head -c 50000000 /dev/zero; echo; echo the last line"),
        "",
    ),
    "leaves a child": (("sh", "-c", "sleep 1000 & echo started"), ""),
    "threads": (("sh", "-c", 'test -z "$OMP_NUM_THREADS" && test -z "$CUDA_VISIBLE_DEVICES"'), ""),
}
NAMES = list(PROGRAMS)
ENDLESS = ("endless", "stubborn")


@dataclass(frozen=True)
class ProgramJournal:
    """The journal lines of one program."""

    end: CaseEnd
    warm: CaseWarm | None
    blocks: tuple[Block, ...]
    log: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """One run of all programs, in order; the endless ones get little of its time."""
    place = tmp_path_factory.mktemp("programs")
    cases = [
        program_case(
            f"command:{name.replace(' ', '-')}",
            1,
            is_whole=not pattern,
            device_class="cpu",
            unit="step" if pattern else "run",
            units=1,
        )
        for name, (_, pattern) in PROGRAMS.items()
    ]
    plan = make_plan(*([i] for i in range(len(NAMES))), cases=cases, budget_s=150)
    commands = (PlannedCommand(i, *PROGRAMS[name], str(place)) for i, name in enumerate(NAMES))
    launches = (
        replace(launch, weight=0.2 if NAMES[launch.case_ids[0]] in ENDLESS else 1.0)
        for launch in plan.launches
    )
    plan = replace(plan, replicates=1, commands=tuple(commands), launches=tuple(launches))
    supervised = Supervised(place, plan)
    supervised.process.wait(PATIENCE_S)
    yield supervised
    supervised.process.kill()


def journal_of(run: Supervised, name: str) -> ProgramJournal:
    case_id = NAMES.index(name)
    warm = [line for line in run.lines(CaseWarm) if line.case_id == case_id]
    return ProgramJournal(
        end=next(line for line in run.lines(CaseEnd) if line.case_id == case_id),
        warm=warm[0] if warm else None,
        blocks=tuple(line for line in run.lines(Block) if line.case_id == case_id),
        log=run.run_dir / "logs" / f"launch-{case_id:03d}.log",
    )


def assert_joined(blocks: tuple[Block, ...]) -> None:
    """Each block begins where the one before it ended."""
    assert [block.index for block in blocks] == list(range(len(blocks)))
    for before, after in pairwise(blocks):
        assert after.start_ns == before.start_ns + before.wall_ns


def test_the_time_between_matches_is_a_block_and_the_first_match_starts_the_clock(run: Supervised) -> None:
    ticks = journal_of(run, "ticks")
    assert (ticks.end.outcome, ticks.end.reason, ticks.end.blocks) == ("ok", "", len(ticks.blocks))
    assert 57 <= sum(block.steps for block in ticks.blocks) <= 59  # the next may arrive with the first
    assert_joined(ticks.blocks)
    assert ticks.warm is not None
    assert ticks.blocks[0].start_ns == ticks.warm.t_ns
    assert ticks.warm.stable is None
    assert {(block.cpu_ns, block.device_ns) for block in ticks.blocks} == {(None, None)}


def test_a_program_without_a_pattern_is_one_block_with_its_own_cpu_time(run: Supervised) -> None:
    whole = journal_of(run, "whole")
    (block,) = whole.blocks
    assert (whole.end.outcome, whole.warm) == ("ok", None)
    assert block.steps == 1
    assert block.cpu_ns is not None
    assert block.cpu_ns > 0
    assert block.wall_ns > 0


def test_an_endless_program_with_blocks_enough_counts_and_one_that_ignores_its_end_was_too_long(
    run: Supervised,
) -> None:
    endless, stubborn = journal_of(run, "endless"), journal_of(run, "stubborn")
    assert endless.end.outcome == "ok"
    assert len(endless.blocks) >= 5
    assert_joined(endless.blocks)
    assert (stubborn.end.outcome, stubborn.blocks) == ("skipped", ())
    assert stubborn.end.reason.startswith("too slow for its ")


def test_a_failing_program_is_reported_with_its_status_and_viewers_see_its_last_line_without_paths(
    run: Supervised,
) -> None:
    fails, late = journal_of(run, "fails"), journal_of(run, "fails late")
    assert (fails.end.outcome, fails.end.reason) == ("failed", "exited with status 3")
    (launch,) = [end for end in run.lines(LaunchEnd) if end.launch_id == fails.end.launch_id]
    assert launch.log_tail.endswith("model.bin is bad")
    assert b"/ada" not in run.journal_bytes()
    assert journal_of(run, "dies").end.reason == "it died of SIGKILL"
    assert (late.end.outcome, late.end.reason) == ("failed", "exited with status 5")
    assert (fails.blocks, bool(late.blocks)) == ((), True)


def test_too_few_matches_are_reported_with_their_number(run: Supervised) -> None:
    assert journal_of(run, "no match").end.outcome == "failed"
    assert journal_of(run, "no match").end.reason == "no line of its output matched the pattern"
    assert journal_of(run, "few").end.outcome == "skipped"
    assert journal_of(run, "few").end.reason.startswith("3 matches, ")
    burst = journal_of(run, "one burst")
    assert burst.end.outcome == "skipped"
    assert "7 matches" in burst.end.reason
    assert "buffered" in burst.end.reason


def test_lines_are_found_in_a_progress_bar_that_rewrites_its_own_and_between_garbage(run: Supervised) -> None:
    bar, garbage = journal_of(run, "bar"), journal_of(run, "garbage")
    assert (bar.end.outcome, garbage.end.outcome) == ("ok", "ok"), garbage.end.reason
    # the first starts the clock, and so do those that a busy box hands over together with it
    assert 30 <= sum(block.steps for block in bar.blocks) <= 39
    assert sum(block.steps for block in garbage.blocks) == 7


def test_of_fifty_megabytes_of_output_both_ends_are_kept(run: Supervised) -> None:
    chatter = journal_of(run, "chatter")
    assert chatter.end.outcome == "ok"
    text = chatter.log.read_bytes()
    assert len(text) < 2**21
    assert text.startswith(b"the first line\n")
    assert text.endswith(b"the last line\n")
    assert b" bytes left out]" in text


def test_a_program_decides_over_its_threads_and_a_child_that_it_leaves_is_ended(run: Supervised) -> None:
    assert journal_of(run, "threads").end.outcome == "ok", "it sees no GPU that it was not given"
    assert journal_of(run, "leaves a child").end.outcome == "ok", "and it is not waited for"
    assert living_members(run.process.pid) == []


def test_every_program_had_one_launch_and_the_journal_is_whole(run: Supervised) -> None:
    assert run.process.returncode == 0, run.output()
    assert [start.case_ids for start in run.lines(LaunchStart)] == [(i,) for i in range(len(NAMES))]
    assert read_journal(run.run_dir).damage == ()
    for name in NAMES:
        assert journal_of(run, name).end.blocks == len(journal_of(run, name).blocks)


def test_a_program_that_never_stops_matching_is_ended_at_the_cap(tmp_path: Path) -> None:
    driver = """
import json, sys, time
from gputui.worker.command import CommandLaunch
class Channel:
    def send(self, kind, **fields):
        print(json.dumps({"kind": kind, **fields}), file=sys.stderr)
command = {"argv": sys.argv[1:], "pattern": "^step", "directory": "."}
journal_of = {"allowance_s": 60, "cases": [{"case_id": 0, "command": command}]}
CommandLaunch(journal_of, Channel(), time.monotonic_ns(), max_blocks=7).run()
"""
    done = subprocess.run(
        [sys.executable, "-c", driver, *PYTHON, TICKS.format(10**9)],
        capture_output=True,
        text=True,
        start_new_session=True,  # it ends its whole group
        timeout=PATIENCE_S,
        check=True,
    )
    output = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["kind"] for line in output] == ["warm", *["block"] * 7, "case_end"]
    assert (output[-1]["outcome"], output[-1]["blocks"]) == ("ok", 7)
