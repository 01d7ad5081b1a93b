"""Which rank holds up the others, at which collective, and what it did before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chrome_traces import event, op, span, training_step, write_trace

from gputui.services.traces.imported import TraceRun, read_run
from gputui.services.traces.ranks import rank_lines


def reduced(start_us: float, end_us: float, **message: object) -> dict[str, Any]:
    return event(
        "kernel", "ncclDevKernel_AllReduce", start_us, end_us, device=0, correlation=9, stream=9, **message
    )


def rank_run(place: Path, rank: int, ranks: int, *events: dict[str, Any]) -> TraceRun:
    head: dict[str, object] = {"distributedInfo": {"rank": rank, "world_size": ranks}}
    return read_run(write_trace(place / f"r{rank}.json", events, **head))


def two_ranks(place: Path, skew_us: float = 0.0) -> tuple[TraceRun, ...]:
    """The second loads its data for 50 us longer; its clock is another one."""
    runs = []
    for rank, wait_us in enumerate((20.0, 70.0)):
        step = training_step(1000, 1, gemm_us=100, wait_us=wait_us)
        if rank == 0:
            step[0] = span("ProfilerStep#1", 1000, 1230)
        skewed = [{**e, "ts": e["ts"] + rank * skew_us} for e in (*step, reduced(1160 + rank * 50, 1220))]
        runs.append(rank_run(place, rank, 2, *skewed))
    return tuple(runs)


@pytest.mark.parametrize("skew_us", [0.0, 1e6])
def test_the_straggler_enters_last_and_its_excess_is_the_reason_whatever_the_clocks(
    tmp_path: Path, skew_us: float
) -> None:
    lines = rank_lines(two_ranks(tmp_path, skew_us))
    assert lines[0] == (
        "rank 1 holds up the others: it enters collectives last, 50.0 µs a step later than they, most at"
        " ncclDevKernel_AllReduce; a step of it has 50.0 µs more of waiting for the loader than one of the"
        " others"
    )
    assert [line.partition("waiting for ")[2] for line in lines[1:]] == [
        "others 50.0 µs (22 %), transferring 10.0 µs",
        "others 0 s (0 %), transferring 10.0 µs",
    ]


def test_each_rank_that_is_late_says_at_which_collective_of_a_step(tmp_path: Path) -> None:
    enters = ((1100, 1300), (1150, 1300), (1100, 1390))  # of three ranks, each at two collectives
    runs = [
        rank_run(
            tmp_path,
            rank,
            3,
            span("ProfilerStep#1", 1000, 1500),
            op("aten::a", 1000, 1010, 1),
            reduced(first, 1200),
            reduced(second, 1400),
        )
        for rank, (first, second) in enumerate(enters)
    ]
    lines = rank_lines(runs)
    first, second = lines[:2]
    assert first.startswith("rank 2 holds up the others: it enters collectives last, 90.0 µs a step later")
    assert "AllReduce 2 of 2; a step of it has 65.0 µs more of Python between calls" in first
    assert second.startswith("rank 1 holds up the others: it enters collectives last, 50.0 µs a step later")
    assert "most at ncclDevKernel_AllReduce 1 of 2; " in second


def test_a_late_rank_with_the_shortest_step_says_why_it_is_short(tmp_path: Path) -> None:
    runs = [
        rank_run(
            tmp_path,
            rank,
            2,
            span("ProfilerStep#1", 1000 + (rank == 1) * 150, 1400),
            op("aten::a", 1160, 1170, 1),
            reduced(1180 if rank == 0 else 1330, 1390),
        )
        for rank in range(2)
    ]
    lines = rank_lines(runs)
    assert lines[0].endswith("Its own step is the shortest, since it waits for nobody")


def test_even_ranks_and_ranks_of_other_work_are_told_so(tmp_path: Path) -> None:
    common = (span("ProfilerStep#1", 1000, 1500), op("aten::a", 1000, 1010, 1))
    even = [rank_run(tmp_path, rank, 2, *common, reduced(1100 + rank, 1200)) for rank in range(2)]
    lines = rank_lines(even)
    assert lines[0] == "2 ranks are even: none waits long for another"
    assert rank_lines(even[:1]) == []
    other = rank_run(tmp_path, 1, 2, *common, reduced(1100, 1200), reduced(1200, 1300))
    assert rank_lines([even[0], other]) == []


def test_ranks_of_cpus_are_compared_by_their_transfers(tmp_path: Path) -> None:
    runs = [
        rank_run(
            tmp_path,
            rank,
            2,
            span("ProfilerStep#1", 1000, 3000),
            op("aten::mm", 1000, 1010, 1),
            span("gloo:all_reduce", 1010 + 1500 * rank, 2900, tid=5),
            op("aten::add_", 2950, 3000, 2),
        )
        for rank in range(2)
    ]
    lines = rank_lines(runs)
    assert "most at gloo:all_reduce; " in lines[0]
    assert "1.50 ms more of Python between calls" in lines[0]
