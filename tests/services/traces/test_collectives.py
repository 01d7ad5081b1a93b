"""Hidden and exposed communication is that of an independent sweep, and its rates are those of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from chrome_traces import call, event, kernel, op, span, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import communication_ns

from gputui.services.results.step_answer import sentence
from gputui.services.traces.forms import answer_of, category_table
from gputui.services.traces.imported import TraceRun, collective_lines, message_sizes, read_run

_KERNELS = st.lists(
    st.tuples(st.integers(0, 900), st.integers(1, 300), st.booleans(), st.integers(7, 10)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(_KERNELS)
def test_hidden_and_exposed_communication_is_that_of_an_independent_sweep(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[int, int, bool, int]]
) -> None:
    events = [span("ProfilerStep#1", 0, 1000), op("aten::mm", 0, 1000, 1)]
    for number, (begin, length, communicates, stream) in enumerate(kernels, 1):
        name = "ncclDevKernel_AllReduce" if communicates else "ampere_sgemm"
        made = kernel(name, begin + number / 1000, begin + length + number / 500, number)
        events += [
            call("cudaLaunchKernel", begin, begin + 0.001, number),
            {**made, "args": {**made["args"], "stream": stream}},
        ]
    run = read_run(write_trace(tmp_path_factory.mktemp("t") / "a.json", events))
    raw = [(b * 1000 + n, (b + length) * 1000 + 2 * n, c) for n, (b, length, c, _) in enumerate(kernels, 1)]
    total, exposed = communication_ns(raw, run.window.start_ns, run.window.end_ns)
    assert sum(s.time_ns for s in run.found.slices if s.time_class == "communication") == exposed
    assert sum(c.exposed_ns for c in run.collectives) == exposed
    assert run.found.fault() == ""
    if total > 0.01 * run.found.window_ns:
        assert any(note.startswith("communication takes") for note in run.notes)


def test_each_kind_and_size_says_how_often_how_long_and_how_fast(tmp_path: Path) -> None:
    message = {
        "Collective name": "allreduce",
        "In msg nelems": 1_000_000,
        "Out msg nelems": 1_000_000,
        "dtype": "BFloat16",
        "Group size": 8,
    }
    run = read_run(
        write_trace(
            tmp_path / "a.json",
            [
                span("ProfilerStep#1", 0, 1000),
                op("aten::mm", 0, 10, 1),
                kernel("ampere_sgemm", 100, 200, 1),
                event("kernel", "ncclDevKernel_A", 150, 250, device=0, stream=9, correlation=71, **message),
                event("kernel", "ncclDevKernel_A", 300, 500, device=0, stream=9, correlation=72, **message),
                event("kernel", "void deep_ep::intranode::dispatch<8>(int)", 600, 660, device=0, stream=9),
            ],
        )
    )
    # 2 MB x 2 x 7/8 in 100 us
    assert list(collective_lines(run.collectives, 1, is_on_device=True)) == [
        "allreduce of 1.91 MiB: 2 in all, 300 µs, 250 µs of it exposed, at best 35.0 GB/s on the bus",
        "deep_ep::intranode::dispatch: 1 in all, 60.0 µs, 60.0 µs of it exposed",
    ]


@pytest.mark.parametrize(
    ("operation", "given_", "got", "size", "bus"),
    [
        ("allreduce", 100, 100, 400, 600.0),
        ("_allgather_base", 100, 400, 1600, 1200.0),
        ("reduce_scatter", 400, 100, 1600, 1200.0),
        ("all_to_allv", 100, 100, 400, 300.0),
        ("broadcast", 100, 100, 400, 400.0),
        ("send", 100, 100, 400, 400.0),
    ],
)
def test_bytes_on_the_bus_follow_the_formulas_of_nccl_tests(
    operation: str, given_: int, got: int, size: int, bus: float
) -> None:
    told = {
        "Collective name": operation,
        "In msg nelems": given_,
        "Out msg nelems": got,
        "dtype": "Float",
        "Group size": 4,
    }
    assert message_sizes(told) == (size, bus)
    assert message_sizes({**told, "Group size": 0}) == message_sizes({}) == (0, 0)


def cpu_rank(place: Path, *events: dict[str, object]) -> TraceRun:
    return read_run(write_trace(place / "a.json", [span("ProfilerStep#1", 0, 2000), *events]))


def test_ranks_of_cpus_communicate_in_gloo_and_say_what_of_them_is_left_out(tmp_path: Path) -> None:
    product, transfer = op("aten::mm", 0, 100, 1), span("gloo:all_reduce", 100, 1900, tid=5)
    run = cpu_rank(tmp_path, product, transfer, op("aten::add_", 1950, 2000))
    assert sum(s.time_ns for s in run.found.slices if s.time_class == "communication") == 1_800_000
    assert run.notes[-1] == "gloo:all_reduce: 1 in all, 1.80 ms"
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    run = cpu_rank(tmp_path, op("aten::mm", 0, 100, 1, **shapes), span("nccl:all_to_all", 200, 300))
    assert run.notes == (
        "NCCL needs a GPU, whose work was not recorded: times are those of the host's calls",
    )
    run = cpu_rank(tmp_path, product, op("aten::copy_", 50, 80, 2, tid=7))
    assert run.notes == ("operators of 1 other thread are left out: the one that steps counts",)


@pytest.mark.parametrize("thread", [5, 100])
def test_a_rank_with_nothing_but_ranges_of_gloo_is_read(tmp_path: Path, thread: int) -> None:
    run = cpu_rank(tmp_path, span("gloo:all_reduce", 100, 1300, tid=thread))
    assert run.found.fault() == ""
    assert "communication takes 1.20 ms in all" in run.notes[0]
    assert sentence(answer_of(run)).startswith("A step takes 2.00 ms: ")
    assert category_table(run.found).rows
