"""Data parallel training: the ranks train one model together, and none of them outlives its launcher."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any  # torch's

import psutil
import pytest
import torch
from builders import make_case, make_plan
from supervised import Supervised, ends_by_itself

from gputui.model.absent import Missing
from gputui.model.journal import Block, CaseEnd, Figure, RunEnd
from gputui.worker.contract import Parameter, Request
from gputui.worker.ranks import RankGroup, RankLost
from gputui.worker.steps import resolve
from gputui.worker.timing import cpu_stopwatch
from gputui.worker.workloads.ddp import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVE_TITLES,
    SENDRECV,
    built,
    bus_bytes_per_s,
    expected,
    start_ranks,
    time_in_a_row,
)

TINY: dict[str, Parameter] = {
    "layers": 2,
    "heads": 2,
    "width": 32,
    "context": 16,
    "vocabulary": 64,
    "ranks": 2,
    "batch": 4,
    "reduce_bytes": 2**16,
}
START = f"""
import sys
from gputui.worker.contract import Request
from gputui.worker.steps import resolve
from gputui.worker.timing import cpu_stopwatch
from gputui.worker.workloads.ddp import start_ranks
ranks = start_ranks(Request({TINY!r}, "cpu", resolve("fp32", "cpu"), 2, 1))
print(ranks.pid, flush=True)
sys.stdin.read()
"""


def tiny() -> Request:
    return Request(TINY, "cpu", resolve("fp32", "cpu"), 2, seed=1)


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankGroup]:
    started = start_ranks(tiny())
    yield started
    started.close()


@pytest.fixture(scope="module")
def sharded() -> Iterator[RankGroup]:
    parameters = {**TINY, "ranks": 4, "sharding": "full"}
    started = start_ranks(replace(tiny(), parameters=parameters))
    yield started
    started.close()


def processes_below(pid: int) -> list[psutil.Process]:
    """A launcher and its ranks."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def rank_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        if any("workloads.ddp" in word for word in process.cmdline()):
            return str(process.environ().get("RANK", ""))
    return ""


@pytest.mark.slow
def test_two_ranks_train_as_one_process_does_with_both_batches(ranks: RankGroup) -> None:
    found = []
    for _ in range(3):
        ranks.ask_all(do="time", steps=1)
        answers = ranks.ask_all(do="digest")
        assert answers[0]["digest"] == answers[1]["digest"]
        assert answers[0]["loss"] != answers[1]["loss"]
        found.append(mean(float(answer["loss"]) for answer in answers))
    assert found == pytest.approx(losses_of_one_process(3), rel=1e-4)


def losses_of_one_process(count: int) -> list[float]:
    """Of one model that sees the tokens of both ranks in each step."""
    import torch

    request = tiny()
    model, _ = built(request, request.seed, is_parallel=False)
    batches = []
    for rank in range(2):
        generator = torch.Generator().manual_seed(request.seed + rank)
        batches.append(torch.randint(64, (4, 17), generator=generator))
    tokens = torch.cat(batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        scores = model(tokens[:, :-1]).reshape(-1, 64)
        loss = torch.nn.functional.cross_entropy(scores, tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.slow
def test_sharded_ranks_train_the_same_weights_and_each_holds_a_part(sharded: RankGroup) -> None:
    losses = []
    for _ in range(4):
        sharded.ask_all(do="time", steps=2)
        answers = sharded.ask_all(do="digest")
        assert len({answer["digest"] for answer in answers}) == 1
        losses.append(mean(float(answer["loss"]) for answer in answers))
    assert losses[-1] < losses[0]
    assert sharded.ask(0, do="alone", steps=1)["wall_ns"]
    width, context, vocabulary, layers = 32, 16, 64, 2
    weights = (vocabulary + context + 2) * width + layers * (12 * width**2 + 13 * width)
    for answer in sharded.ask_all(do="held"):
        assert answer["numbers"] == pytest.approx(weights / 4, rel=0.01)


@pytest.mark.slow
def test_every_number_of_a_collective_of_four_ranks_arrives(sharded: RankGroup) -> None:
    for kind in COLLECTIVE_TITLES:
        for answer in sharded.ask_all(do="collective", kind=kind, size_bytes=2**16, times=3):
            assert answer["is_right"] is True, kind
            assert float(answer["seconds"]) > 0


@pytest.mark.parametrize("place", [None, *range(0, 1024, 103)])
@pytest.mark.parametrize("kind", COLLECTIVE_TITLES)
def test_one_wrong_number_is_noticed_wherever_it_is(
    kind: str, place: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 of 4, whose peers send what they should but for one number."""

    def arrives(got: torch.Tensor, *_: object) -> None:
        got.copy_(expected(kind, 4096 // 4 // (4 if kind == ALL_GATHER else 1), 1, 4, "cpu"))
        if place is not None:
            got[place] += 1

    def exchanged(both: list[Any]) -> list[Any]:
        arrives(both[1])
        return []

    for name, does in {
        "get_rank": lambda: 1,
        "get_world_size": lambda: 4,
        "barrier": lambda: None,
        "all_reduce": arrives,
        "all_gather_into_tensor": arrives,
        "P2POp": lambda does, tensor, peer: tensor,
        "batch_isend_irecv": exchanged,
    }.items():
        monkeypatch.setattr(torch.distributed, name, does)
    _, is_right = time_in_a_row(kind, 4096, 2, "cpu", cpu_stopwatch)
    assert is_right == (place is None)


@pytest.mark.slow
def test_what_a_rank_cannot_do_is_reported_and_it_goes_on(ranks: RankGroup) -> None:
    with pytest.raises(RuntimeError, match="lay eggs"):
        ranks.ask(1, do="lay eggs")
    assert ranks.ask(1, do="alone", steps=1)["wall_ns"]


def test_the_bus_carries_what_the_formula_of_nccl_tests_says() -> None:
    for kind, ranks, rate in (
        (ALL_REDUCE, 2, 1e10),
        (ALL_REDUCE, 8, 1.75e10),
        (ALL_GATHER, 2, 5e9),
        (ALL_GATHER, 8, 8.75e9),
        (SENDRECV, 8, 1e10),
    ):
        assert bus_bytes_per_s(kind, 10**9, 0.1, ranks) == pytest.approx(rate)


@pytest.mark.parametrize("name", ["short", "long" * 30])
def test_a_launcher_that_starts_nothing_is_reported_at_once_and_leaves_nothing_behind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a temporary directory whose path leaves no room for the name of a socket."""
    place = tmp_path / name
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    leaves = "import tempfile; tempfile.mkdtemp(); raise SystemExit(3)"
    with pytest.raises(RankLost, match="the launcher ended with status 3"):
        RankGroup("workloads.ddp", 2, launcher=(sys.executable, "-c", leaves))
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_when_the_worker_is_killed_the_launcher_and_its_ranks_end_by_themselves() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    launcher = int(worker.stdout.readline())
    below = processes_below(launcher)
    assert {rank_of(process) for process in below} == {"", "0", "1"}
    assert len({os.getsid(process.pid) for process in below}) > 1, "torchrun no longer makes sessions"
    watched = [process for process in below if process.is_running()]
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    _, living = psutil.wait_procs(watched, timeout=300)
    assert living == []


@pytest.mark.slow
def test_a_run_of_two_ranks_has_blocks_and_figures_and_the_death_of_one_takes_the_other_along(
    tmp_path: Path,
) -> None:
    cases = [make_case("ddp", "mini", threads=threads) for threads in ("1", "all")]
    run = Supervised(tmp_path, make_plan([0], [1], cases=cases))
    run.wait_for(Block, of_launch=1)
    worker = run.worker_pid()
    below = processes_below(worker)
    (victim,) = [process for process in below if rank_of(process) == "1"]
    assert ends_by_itself(worker, lambda: victim.send_signal(signal.SIGKILL))
    assert run.end() == 0, "the other case was measured"
    assert psutil.wait_procs(below, timeout=300)[1] == []
    assert [(end.outcome, end.reason) for end in run.lines(CaseEnd)] == [
        ("ok", ""),
        ("failed", "rank 1 ended before its work was done"),
    ]
    assert [line.status for line in run.lines(RunEnd)] == ["finished"]
    assert len([line for line in run.lines(Block) if line.launch_id == 0]) >= 5
    figures = {figure.key: figure.value for figure in run.lines(Figure) if figure.launch_id == 0}
    assert all(not isinstance(value, Missing) and value > 0 for value in figures.values())
    assert len(figures) == 2 + 2 * len(COLLECTIVE_TITLES), (
        "efficiency, a step alone, and each collective at two sizes"
    )
