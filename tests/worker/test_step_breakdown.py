"""The partition of a window is exact for any trace, and matches what a person would conclude."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.model.journal import CATEGORIES, IDLE_CAUSES, PHASES, TIME_CLASSES
from gputui.worker.profiling.op_categories import category_of, category_of_kernel
from gputui.worker.profiling.step_breakdown import (
    MOST_ROWS,
    Partition,
    PartitionInParts,
    TraceEvent,
    class_of,
    partition,
)

MAIN, AUTOGRAD = 1, 2


def op(
    name: str, start: int, end: int, *, thread: int = MAIN, number: int = 0, shapes: str = ""
) -> TraceEvent:
    return TraceEvent(name, "op", start, end, thread=thread, number=number, shapes=shapes)


def call(name: str, start: int, end: int, correlation: int = 0, *, thread: int = MAIN) -> TraceEvent:
    return TraceEvent(name, "runtime", start, end, thread=thread, correlation=correlation)


def kernel(
    name: str, start: int, end: int, *, operator: int = 0, stream: int = 7, correlation: int = 0
) -> TraceEvent:
    kind = "copy" if name.startswith("Memcpy") else "memset" if name.startswith("Memset") else "kernel"
    return TraceEvent(name, kind, start, end, stream=stream, operator=operator, correlation=correlation)


def slices(found: Partition) -> dict[tuple[str, str, str], int]:
    return {(s.phase, s.time_class, s.cause): s.time_ns for s in found.slices}


def classes(found: Partition) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in found.slices:
        total[part.cause or part.time_class] += part.time_ns
    return total


def times(found: Partition) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in found.rows:
        total[row.operator] += row.time_ns
    return dict(total)


def assert_exact(found: Partition) -> None:
    assert sum(s.time_ns for s in found.slices) == found.window_ns
    busy_ns = sum(s.time_ns for s in found.slices if s.time_class != "idle")
    assert sum(r.time_ns for r in found.rows) == busy_ns
    assert all(s.time_ns > 0 for s in found.slices)
    assert 0 <= found.unmatched_ns <= busy_ns


def test_on_a_cpu_an_instant_belongs_to_the_innermost_event() -> None:
    found = partition(
        [
            op("aten::linear", 10, 60, shapes="8x64"),
            op("aten::addmm", 20, 50, shapes="64"),
            op("aten::relu", 70, 90),
        ],
        0,
        100,
        MAIN,
    )
    assert_exact(found)
    assert times(found) == {"aten::linear": 50, "aten::relu": 20}
    assert slices(found) == {("forward", "compute", ""): 70, ("between", "idle", "python"): 30}
    linear = next(row for row in found.rows if row.operator == "aten::linear")
    assert (linear.calls, linear.events, linear.shapes, linear.category) == (1, 2, "8x64", "gemm")


def transfer(name: str, start: int, end: int, thread: int) -> TraceEvent:
    return TraceEvent(name, "range", start, end, thread=thread)


@pytest.mark.parametrize(
    ("ends", "waited"),
    [
        (900_000, 890_000),  # the thread goes on right after it
        (500_000, 0),  # it does something else for long
        (1_100_000, 990_000),  # the thread is told first
        (1_400_000, 0),  # it goes on long before
    ],
)
def test_a_thread_without_an_event_waits_for_a_transfer_if_it_goes_on_as_that_ends(
    ends: int, waited: int
) -> None:
    found = partition(
        [
            op("autograd::engine::evaluate_function: AddmmBackward0", 0, 10_000),
            op("aten::mm", 0, 10_000),
            transfer("gloo:all_reduce", 9_000, ends, thread=AUTOGRAD),
            op("aten::add_", 1_000_000, 1_010_000),
        ],
        0,
        1_010_000,
        MAIN,
    )
    assert_exact(found)
    assert times(found).get("gloo:all_reduce", 0) == waited
    assert slices(found).get(("backward", "communication", ""), 0) == waited
    assert classes(found)["python"] == 990_000 - waited
    assert found.communication_ns == min(ends, 1_010_000) - 9_000, "whether it waits or not"


def test_short_pauses_before_a_transfer_ends_are_no_waits() -> None:
    pauses = [op("aten::mm", at, at + 90_000) for at in range(0, 1_000_000, 100_000)]
    found = partition([*pauses, transfer("gloo:all_reduce", 0, 950_000, AUTOGRAD)], 0, 1_000_000, MAIN)
    assert times(found) == {"aten::mm": 900_000}
    assert classes(found)["python"] == 100_000


def during(name: str, kind: str, start: int, end: int) -> TraceEvent:
    return TraceEvent(name, kind, start, end, thread=MAIN)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], {"python": 100}, id="nothing was recorded"),
        pytest.param(
            [op("aten::mm", 0, 50), op("aten::mm", 0, 90, thread=9)],
            {"compute": 50, "python": 50},
            id="another thread of a CPU computes",
        ),
        pytest.param(
            [op("aten::mm", 0, 60), op("c10d::allreduce_", 60, 100)],
            {"compute": 60, "communication": 40},
            id="CPUs communicate",
        ),
        pytest.param(
            [
                transfer("my backward", 0, 100, thread=MAIN),
                op("aten::mm", 0, 10),
                transfer("gloo:all_reduce", 10, 90, thread=AUTOGRAD),
            ],
            {"compute": 10, "communication": 80, "python": 10},
            id="a thread waits inside a range for a transfer of another",
        ),
        pytest.param(
            [transfer("gloo:all_reduce", 20, 90, thread=MAIN)],
            {"communication": 70, "python": 30},
            id="only transfers were recorded",
        ),
        pytest.param(
            [
                kernel("gemm", 10, 50),
                kernel("Memcpy HtoD (Pinned -> Device)", 30, 70, stream=9),
                kernel("ncclDevKernel_AllReduce", 60, 90, stream=11),
                kernel("Memset (Device)", 90, 95),
                kernel("Memcpy DtoD", 95, 97),
            ],
            {"compute": 40, "copy_h2d": 10, "communication": 30, "memset": 5, "copy_d2d": 2, "python": 13},
            id="copies behind kernels cost nothing, and exposed ones what is exposed",
        ),
        pytest.param(
            [
                during("enumerate(DataLoader)#_Multi", "range", 0, 20),
                op("aten::mm", 20, 40, number=1),
                call("cudaLaunchKernel", 30, 38, 5),
                call("cudaMalloc", 50, 60),
                call("cudaStreamSynchronize", 70, 100),
                kernel("gemm", 40, 50, operator=1, correlation=5),
            ],
            {
                "data_wait": 20,
                "dispatch": 12,
                "launch": 8,
                "compute": 10,
                "runtime_api": 10,
                "python": 10,
                "sync": 30,
            },
            id="an idle device is explained by what the host does",
        ),
        pytest.param(
            [
                op("aten::linear", 0, 10, number=1),
                during("Activity Buffer Request", "overhead", 10, 60),
                kernel("gemm", 60, 100, operator=1),
            ],
            {"dispatch": 10, "profiler": 50, "compute": 40},
            id="the device waits for the profiler",
        ),
        pytest.param(
            [op("aten::mm", 10, 90), during("Buffer Flush", "overhead", 20, 50)],
            {"compute": 50, "profiler": 30, "python": 20},
            id="the profiler works within an operator",
        ),
        pytest.param(
            [
                during("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "range", 0, 80),
                op("aten::stack", 10, 70, number=1),
                kernel("conv", 80, 100),
            ],
            {"data_wait": 80, "compute": 20},
            id="all that a data loader does on the host is waiting for data",
        ),
    ],
)
def test_each_instant_has_one_class_or_cause(events: list[TraceEvent], expected: dict[str, int]) -> None:
    found = partition(events, 0, 100, MAIN)
    assert_exact(found)
    assert classes(found) == expected


def test_the_kernels_of_a_row_count_in_full_where_others_run_at_the_same_time() -> None:
    found = partition(
        [
            op("aten::mm", 0, 10, number=1),
            op("aten::add", 10, 20, number=2),
            kernel("gemm", 20, 60, operator=1),
            kernel("elementwise", 40, 60, operator=2, stream=8),
            kernel("Memcpy DtoD", 50, 80, operator=2, stream=9),
        ],
        0,
        100,
        MAIN,
    )
    assert_exact(found)
    assert {row.operator: (row.time_ns, row.kernel_ns) for row in found.rows if row.kernel_ns} == {
        "aten::mm": (30, 40),
        "aten::add": (30, 50),
    }


def test_a_cast_inside_an_operator_is_a_row_of_its_own() -> None:
    found = partition(
        [op("aten::linear", 0, 100), op("aten::to", 10, 40), op("aten::_to_copy", 15, 35)], 0, 100, MAIN
    )
    assert times(found) == {"aten::linear": 70, "aten::to": 30}
    assert {row.operator: row.category for row in found.rows}["aten::to"] == "cast_copy"


def test_phases_are_recognized_by_what_autograd_and_optimizers_mark() -> None:
    found = partition(
        [
            TraceEvent("enumerate(DataLoader)#_Single", "range", 0, 10, thread=MAIN),
            op("aten::conv2d", 10, 30),
            op("autograd::engine::evaluate_function: ConvolutionBackward0", 40, 80),
            op("ConvolutionBackward0", 42, 78),
            op("aten::convolution_backward", 45, 75),
            TraceEvent("Optimizer.step#AdamW.step", "range", 85, 100, thread=MAIN),
            op("aten::_fused_adamw_", 88, 99),
        ],
        0,
        100,
        MAIN,
    )
    assert_exact(found)
    assert slices(found) == {
        ("data", "idle", "data_wait"): 10,
        ("forward", "compute", ""): 20,
        ("between", "idle", "python"): 15,
        ("backward", "compute", ""): 30,
        ("backward", "idle", "dispatch"): 10,
        ("optimizer", "idle", "python"): 4,
        ("optimizer", "compute", ""): 11,
    }


def test_what_an_optimizers_closure_computes_before_going_back_is_no_work_of_the_optimizer() -> None:
    found = partition(
        [
            TraceEvent("Optimizer.step#SGD.step", "range", 0, 100, thread=MAIN),
            op("aten::mm", 0, 30),
            TraceEvent("Optimizer.zero_grad#SGD.zero_grad", "range", 30, 35, thread=MAIN),
            op("autograd::engine::evaluate_function: MmBackward0", 40, 80),
            op("aten::mm", 40, 80),
            op("aten::add_", 80, 100),
        ],
        0,
        100,
        MAIN,
    )
    of_phase = Counter[str]()
    for row in found.rows:
        of_phase[row.phase] += row.time_ns
    assert of_phase == {"forward": 30, "backward": 40, "optimizer": 20}


def test_memory_that_an_operator_asks_of_the_driver_is_its_call_even_if_it_names_no_operator() -> None:
    asks = TraceEvent("cudaMalloc", "runtime", 10, 70, thread=MAIN)
    launch = TraceEvent("cudaLaunchKernel", "runtime", 80, 85, thread=MAIN, operator=1, correlation=3)
    events = [op("aten::empty", 0, 90, number=1), asks, launch, kernel("fill", 90, 100, correlation=3)]
    assert slices(partition(events, 0, 100, MAIN))["forward", "idle", "runtime_api"] == 60


def test_kernels_that_overlap_share_the_instant_to_the_nanosecond() -> None:
    found = partition(
        [
            op("aten::mm", 0, 5, number=1),
            op("aten::relu", 5, 9, number=2),
            kernel("gemm", 10, 41, operator=1, stream=1),
            kernel("relu", 20, 41, operator=2, stream=2),
        ],
        0,
        100,
        MAIN,
    )
    assert_exact(found)
    assert times(found) == {"aten::mm": 10 + 11, "aten::relu": 10}  # 21 ns in two: the earlier gets the rest
    assert classes(found)["compute"] == 31
    assert [(k.name, k.time_ns, k.operator) for k in found.kernels] == [
        ("gemm", 31, "aten::mm"),
        ("relu", 21, "aten::relu"),
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-20, 200), st.integers(0, 60)), max_size=12))
def test_communication_is_hidden_or_exposed_to_the_nanosecond(work: list[tuple[bool, int, int]]) -> None:
    events = [
        kernel("nvshmem_put" if is_transfer else "gemm", start, start + length, stream=stream)
        for stream, (is_transfer, start, length) in enumerate(work)
    ]
    found = partition(events, 0, 150, MAIN)
    if not found.kernels:
        assert found.communication_ns == 0
        return

    def at(is_transfer: bool) -> set[int]:
        return {
            ns
            for kind, start, length in work
            if kind == is_transfer
            for ns in range(max(0, start), min(150, start + length))
        }

    assert found.communication_ns == len(at(True))
    assert classes(found)["communication"] == len(at(True) - at(False)), "what is exposed"


def test_a_short_gap_before_queued_work_is_the_devices_own_and_a_long_one_is_not() -> None:
    queued = [
        op("aten::mm", 0, 10, number=1),
        call("cudaLaunchKernel", 2, 4, 1),
        call("cudaLaunchKernel", 5, 7, 2),
        kernel("a", 10_000, 20_000, operator=1, correlation=1),
    ]
    short = partition([*queued, kernel("b", 24_000, 30_000, operator=1, correlation=2)], 0, 30_000, MAIN)
    assert classes(short)["kernel_gap"] == 4_000
    long = partition([*queued, kernel("b", 26_000, 30_000, operator=1, correlation=2)], 0, 30_000, MAIN)
    assert "kernel_gap" not in classes(long)
    assert_exact(short)
    assert_exact(long)


def test_work_of_no_or_negative_length_costs_itself_alone() -> None:
    usual = [op("aten::mm", 10, 60, number=1), kernel("gemm", 20, 70, operator=1)]
    found = partition([*usual, op("aten::t", 5, 2), kernel("odd", 60, 20), op("aten::t", 8, 2)], 0, 100, MAIN)
    assert found == partition(usual, 0, 100, MAIN)
    with_empty = partition([*usual, kernel("empty", 30, 30)], 0, 100, MAIN)
    assert_exact(with_empty)
    assert times(with_empty) == {"aten::mm": 50, "empty": 0}


def test_time_between_the_phases_belongs_to_none_of_them() -> None:
    loader = TraceEvent("enumerate(DataLoader)#_Single", "range", 70, 80, thread=MAIN)
    on_cpu = partition([op("aten::mm", 0, 50), loader], 0, 100, MAIN)
    assert slices(on_cpu) == {
        ("forward", "compute", ""): 50,
        ("data", "idle", "data_wait"): 10,
        ("between", "idle", "python"): 40,
    }
    on_gpu = partition([op("aten::mm", 0, 50), kernel("gemm", 20, 60), loader], 0, 100, MAIN)
    assert slices(on_gpu) == {
        ("forward", "idle", "dispatch"): 20,
        ("forward", "compute", ""): 40,
        ("data", "idle", "data_wait"): 10,
        ("between", "idle", "python"): 30,
    }


def test_time_in_an_optimizers_range_is_its_own_whatever_the_device_still_runs() -> None:
    step = TraceEvent("Optimizer.step#SGD.step", "range", 60, 90, thread=MAIN)
    found = partition([op("aten::mm", 0, 10), kernel("late", 40, 50), step], 0, 100, MAIN)
    assert slices(found) == {
        ("forward", "compute", ""): 10,
        ("forward", "idle", "dispatch"): 10,
        ("optimizer", "idle", "python"): 30,
        ("between", "idle", "python"): 50,
    }


def test_a_kernel_that_several_operators_launch_is_listed_with_the_one_that_launches_it_most() -> None:
    names = ("aten::linear", "aten::mm", "aten::mm", "aten::mm", "aten::bmm")
    events = [op(name, i * 10, i * 10 + 5, number=i + 1) for i, name in enumerate(names)]
    work = [kernel("sgemm", 100 + i * 10, 108 + i * 10, operator=i + 1) for i in range(len(names))]
    (row,) = partition([*events, *work], 0, 200, MAIN).kernels
    assert (row.operator, row.calls, row.time_ns, row.longest_ns) == ("aten::mm", 5, 40, 8)


def test_work_belongs_to_the_operator_that_the_trace_names_unless_that_is_none() -> None:
    events = [
        op("aten::linear", 0, 10, number=1),
        TraceEvent("a range", "range", 10, 40, thread=MAIN, number=2),
        op("aten::mm", 20, 30, number=3),
        call("cudaLaunchKernel", 22, 24, 5),
        call("cudaLaunchKernel", 26, 28, 6),
    ]
    of_operator = kernel("first", 40, 60, correlation=5, operator=1)
    of_range = kernel("second", 60, 90, correlation=6, operator=2)
    found = partition([*events, of_operator, of_range], 0, 100, MAIN)
    assert times(found) == {"aten::linear": 20, "aten::mm": 30}


def test_an_operator_of_a_library_that_ends_as_a_frame_of_autograd_is_an_operator() -> None:
    found = partition([op("mylib::FastBackward", 0, 60), op("FastBackward0", 60, 90)], 0, 100, MAIN)
    assert [(row.operator, row.phase) for row in found.rows] == [("mylib::FastBackward", "forward")]


def test_a_backward_pass_on_autograds_own_thread_is_backward_and_its_launches_count() -> None:
    found = partition(
        [
            op("autograd::engine::evaluate_function: MmBackward0", 10, 60, thread=AUTOGRAD),
            op("aten::mm", 20, 50, thread=AUTOGRAD, number=4),
            call("cudaLaunchKernel", 30, 40, 8, thread=AUTOGRAD),
            kernel("gemm", 60, 90, correlation=8),
        ],
        0,
        100,
        MAIN,
    )
    assert_exact(found)
    assert slices(found)["backward", "compute", ""] == 30
    assert slices(found)["backward", "idle", "launch"] == 10
    (row,) = found.rows
    assert (row.operator, row.kernels, row.cpu_ns) == ("aten::mm", 1, 30)


def test_more_operators_than_are_kept_are_added_up_and_the_sum_still_holds() -> None:
    events = [op("aten::mm", i * 10, i * 10 + 7, shapes=f"{i}x1") for i in range(MOST_ROWS + 50)]
    found = partition(events, 0, 10 * len(events), MAIN)
    assert_exact(found)
    assert len(found.rows) == MOST_ROWS + 1
    others = found.rows[-1]
    assert (others.operator, others.shapes, others.dtypes) == ("others", "", "")
    assert (others.calls, others.time_ns, others.cpu_ns) == (50, 350, 350)

    numbered = [replace(event, number=number) for number, event in enumerate(events, 1)]
    work = [kernel("gemm", e.start_ns + 5, e.start_ns + 8, operator=e.number) for e in numbered]
    *_, others = partition([*numbered, *work], 0, 10 * len(events), MAIN).rows
    assert (others.operator, others.kernels) == ("others", 50)


def test_rows_are_in_order_of_time_then_of_the_hosts_time_then_of_their_names() -> None:
    events = [
        op("aten::t", 0, 10),
        op("aten::view", 10, 40),
        op("aten::mm", 40, 50, number=3),
        op("aten::add", 50, 60, number=4),
        op("aten::as_strided", 60, 70),
        call("cudaLaunchKernel", 42, 44, 1),
        kernel("sgemm", 60, 80, correlation=1, operator=3),
        kernel("add", 80, 95, operator=4),
    ]
    found = partition(events, 0, 100, MAIN)
    assert [(row.operator, row.time_ns, row.cpu_ns, row.category) for row in found.rows] == [
        ("aten::mm", 20, 10, "gemm"),
        ("aten::add", 15, 10, "elementwise"),
        ("aten::view", 0, 30, "view_alloc"),
        ("aten::as_strided", 0, 10, "view_alloc"),
        ("aten::t", 0, 10, "view_alloc"),
    ]
    assert partition(events[::-1], 0, 100, MAIN) == found


def test_a_copy_has_the_class_of_its_direction_and_other_work_that_of_its_name() -> None:
    def seen(kind: str, name: str) -> str:
        return class_of(TraceEvent(name, kind, 0, 1, thread=1))

    assert seen("copy", "Memcpy HtoD (Pageable -> Device)") == "copy_h2d"
    assert seen("copy", "Memcpy DtoH (Device -> Pinned)") == "copy_d2h"
    assert seen("copy", "Memcpy DtoD (Device -> Device)") == "copy_d2d"
    assert seen("memset", "Memset (Device)") == "memset"
    assert seen("kernel", "ncclDevKernel_AllReduce_Sum_f32") == "communication"
    assert seen("kernel", "ampere_sgemm_128x64") == "compute"


NAMES = (
    "aten::mm",
    "aten::to",
    "aten::relu",
    "autograd::engine::evaluate_function: MmBackward0",
    "Optimizer.step#SGD.step",
    "enumerate(DataLoader)#x",
    "cudaLaunchKernel",
    "cudaDeviceSynchronize",
)
instants = st.integers(-50, 250)


@st.composite
def events(draw: st.DrawFn, on_device: bool) -> TraceEvent:
    start, length = draw(instants), draw(st.integers(0, 120))
    if on_device:
        name = draw(st.sampled_from(("gemm", "Memcpy HtoD", "Memcpy DtoH", "Memset", "ncclKernel")))
        return kernel(
            name,
            start,
            start + length,
            operator=draw(st.integers(0, 6)),
            stream=draw(st.integers(1, 3)),
            correlation=draw(st.integers(0, 6)),
        )
    name = draw(st.sampled_from(NAMES))
    kind = "runtime" if name.startswith("cuda") else "range" if "#" in name else "op"
    return TraceEvent(
        name,
        kind,
        start,
        start + length,
        thread=draw(st.sampled_from((MAIN, AUTOGRAD))),
        correlation=draw(st.integers(0, 6)) if kind == "runtime" else 0,
        number=draw(st.integers(0, 6)) if kind == "op" else 0,
        shapes=draw(st.sampled_from(("", "8x8"))),
    )


@settings(deadline=None)
@given(st.lists(events(on_device=False), max_size=25), st.lists(events(on_device=True), max_size=15))
def test_every_nanosecond_is_given_away_once_however_wild_the_trace(
    host: list[TraceEvent], device: list[TraceEvent]
) -> None:
    found = partition([*host, *device], 0, 200, MAIN)
    assert_exact(found)
    assert {s.phase for s in found.slices} <= set(PHASES)
    assert {s.time_class for s in found.slices} <= set(TIME_CLASSES)
    assert {s.cause for s in found.slices} <= {"", *IDLE_CAUSES}
    assert {r.category for r in found.rows} <= set(CATEGORIES)


def test_work_of_a_custom_backward_or_fused_optimizer_has_its_phase_and_the_name_of_its_frame() -> None:
    found = partition(
        [
            op("autograd::engine::evaluate_function: FusedNormBackward", 0, 30, number=1),
            call("cudaLaunchKernel", 5, 10, 11),
            TraceEvent("Optimizer.step#FusedAdam.step", "range", 30, 60, thread=MAIN, number=2),
            call("cudaLaunchKernel", 35, 40, 12),
            kernel("fused_norm_bw", 10, 30, correlation=11, operator=1),
            kernel("multi_tensor_apply_kernel", 40, 60, correlation=12),
        ],
        0,
        60,
        MAIN,
    )
    assert_exact(found)
    assert {(r.phase, r.category, r.operator): r.time_ns for r in found.rows} == {
        ("backward", "norm", "FusedNormBackward"): 20,
        ("optimizer", "optimizer", "Optimizer.step#FusedAdam.step"): 20,
    }
    assert (found.unmatched_ns, found.stand_in_ns) == (0, 40)


def test_a_graph_launch_is_an_operator_whose_kernels_tell_what_kind_of_work_it_is() -> None:
    found = partition(
        [
            op("aten::copy_", 0, 5, number=1),
            call("cudaGraphLaunch", 10, 20, 7),
            kernel("sm90_xmma_gemm_bf16", 20, 50, correlation=7),
            kernel("flash_fwd_kernel", 50, 60, correlation=7),
            kernel("Memcpy DtoD (Device -> Device)", 60, 62, correlation=7),
        ],
        0,
        62,
        MAIN,
    )
    assert_exact(found)
    by_category = {r.category: r.time_ns for r in found.rows if r.operator == "cudaGraphLaunch"}
    assert by_category == {"gemm": 30, "attention": 10, "cast_copy": 2}
    assert [r.calls for r in found.rows if r.operator == "cudaGraphLaunch"] == [1, 0, 0]
    assert (found.unmatched_ns, found.stand_in_ns) == (0, 42)


def test_a_device_that_waits_for_another_stream_is_not_blamed_on_the_host() -> None:
    found = partition(
        [
            call("cudaLaunchKernel", 0, 1_000, 1),
            call("cudaLaunchKernel", 2_000, 3_000, 2),
            op("aten::busy_host", 3_000, 100_000, number=9),
            kernel("first", 1_000, 20_000, correlation=1),
            kernel("waits_for_a_peer", 60_000, 100_000, correlation=2),
        ],
        0,
        100_000,
        MAIN,
    )
    assert_exact(found)
    assert classes(found)["queue"] == 40_000
    assert classes(found)["dispatch"] == 0


def test_a_driver_call_of_another_thread_filed_under_this_one_does_not_break_its_operators() -> None:
    def linked(name: str, start: int, end: int, operator: int) -> TraceEvent:
        return TraceEvent(name, "runtime", start, end, thread=MAIN, correlation=5, operator=operator)

    found = partition(
        [
            op("aten::conv2d", 0, 1_000, number=1),
            linked("cudaLaunchKernel", 10, 20, 1),
            TraceEvent("cudaHostAlloc", "runtime", 100, 900, thread=MAIN, correlation=6),
            kernel("conv", 1_000, 1_100, correlation=5, operator=1),
        ],
        0,
        1_100,
        MAIN,
    )
    assert_exact(found)
    (row,) = [r for r in found.rows if r.operator == "aten::conv2d"]
    assert row.cpu_ns == 1_000
    assert classes(found)["dispatch"] == 990


def test_work_that_another_threads_call_queued_long_before_it_began_waited_for_no_host() -> None:
    found = partition(
        [
            op("aten::conv2d", 0, 50_000, number=1),
            TraceEvent("cudaLaunchKernel", "runtime", 10, 20, thread=MAIN, correlation=5, operator=1),
            TraceEvent("cudaLaunchKernel", "runtime", 1_000, 2_000, thread=MAIN, correlation=6),
            op("aten::relu", 50_000, 100_000, number=2),
            kernel("first", 20, 3_000, correlation=5, operator=1),
            kernel("waits_for_a_peer", 60_000, 90_000, correlation=6),
        ],
        0,
        100_000,
        MAIN,
    )
    assert classes(found)["queue"] == 57_000
    assert {row.operator: row.cpu_ns for row in found.rows}["aten::relu"] == 50_000


def test_an_operator_or_kernel_that_began_before_the_window_counts_as_one_call() -> None:
    on_cpu = partition([op("aten::mm", -50, 50)], 0, 100, MAIN)
    assert [(row.calls, row.time_ns) for row in on_cpu.rows] == [(1, 50)]
    on_gpu = partition([kernel("gemm", -50, 50)], 0, 100, MAIN)
    assert [(row.kernels, row.time_ns) for row in on_gpu.rows] == [(1, 50)]
    assert [(row.calls, row.longest_ns) for row in on_gpu.kernels] == [(1, 100)]


def test_work_whose_launch_is_not_in_the_trace_is_named_by_itself() -> None:
    found = partition([kernel("gemm", 0, 30), kernel("Memcpy HtoD", 30, 50)], 0, 100, MAIN)
    assert times(found) == {"gemm": 30, "copy": 20}
    assert {(row.shapes, row.dtypes) for row in found.rows} == {("", "")}
    assert found.unmatched_ns == 50


def test_work_launched_before_the_trace_has_the_phase_that_its_name_or_its_neighbour_tells() -> None:
    early = [
        kernel("wgrad_engine<float>", 0, 20, correlation=1),
        kernel("elementwise_kernel<add>", 20, 30, correlation=2),
    ]
    step = [
        op("aten::mm", 0, 10, number=5),
        call("cudaLaunchKernel", 2, 8, 3),
        kernel("sgemm", 30, 60, correlation=3, operator=5),
        kernel("unknown", 60, 70, correlation=9),
    ]
    found = partition([*early, *step], 0, 100, MAIN)
    assert [(row.phase, row.operator) for row in sorted(found.rows, key=lambda row: -row.time_ns)] == [
        ("forward", "aten::mm"),
        ("backward", "wgrad_engine<float>"),
        ("backward", "elementwise_kernel<add>"),
        ("forward", "unknown"),
    ]
    assert found.unmatched_ns == 40


@pytest.mark.parametrize(
    ("work", "category"), [("Memcpy DtoH", "cast_copy"), ("fill_kernel", "cast_copy"), ("odd", "view_alloc")]
)
def test_work_of_a_view_or_an_allocation_is_of_the_kind_that_its_kernel_tells(
    work: str, category: str
) -> None:
    events = [
        op("aten::zeros", 0, 10, number=5),
        call("cudaLaunchKernel", 2, 8, 3),
        kernel(work, 20, 60, correlation=3, operator=5),
    ]
    (row,) = partition(events, 0, 100, MAIN).rows
    assert (row.operator, row.category) == ("aten::zeros", category)


def test_work_without_a_call_belongs_to_the_range_that_the_trace_names() -> None:
    step = TraceEvent("Optimizer.step#FusedAdam.step", "range", 0, 30, thread=MAIN, number=2)
    found = partition([step, kernel("adam", 40, 90, operator=2)], 0, 100, MAIN)
    assert [(row.phase, row.operator) for row in found.rows] == [("optimizer", step.name)]
    assert (found.unmatched_ns, found.stand_in_ns) == (0, 50)


def test_kernels_of_a_graph_belong_to_its_launch_in_later_parts_of_the_window_too() -> None:
    launched = call("cudaGraphLaunch", 0, 10, 7)
    kernels = [kernel("gemm", start, start + 40, correlation=7) for start in (20, 120, 220)]
    parts = PartitionInParts(MAIN)
    for start, following in ((0, kernels[1]), (100, kernels[2]), (200, None)):
        parts.add([launched, *kernels], start, start + 100, following)
    found = parts.result()
    assert [(row.operator, row.kernels, row.time_ns) for row in found.rows] == [("cudaGraphLaunch", 3, 120)]
    assert found.unmatched_ns == 0


@pytest.mark.parametrize("cuts", [(100, 200), (20, 150, 300), (250, 390)])
def test_a_window_in_parts_has_the_sums_of_the_whole(cuts: tuple[int, ...]) -> None:
    events = [
        op("aten::linear", 0, 300, number=1),
        call("cudaLaunchKernel", 10, 20, 1),
        call("cudaLaunchKernel", 30, 40, 2),
        kernel("gemm", 20, 120, correlation=1, operator=1),
        kernel("gemm", 150, 250, correlation=2, operator=1),
        op("aten::relu", 300, 400, number=2),
        call("cudaLaunchKernel", 310, 320, 3),
        kernel("relu", 330, 390, correlation=3, operator=2),
    ]
    whole = partition(events, 0, 400, MAIN)
    parts = PartitionInParts(MAIN)
    for start, end in pairwise((0, *cuts, 400)):
        following = next((e for e in events if e.kind == "kernel" and e.start_ns >= end), None)
        parts.add(events, start, end, following)
    found = parts.result()
    assert (found.slices, found.kernels) == (whole.slices, whole.kernels)
    assert [(r.operator, r.calls, r.time_ns, r.kernels) for r in found.rows] == [
        (r.operator, r.calls, r.time_ns, r.kernels) for r in whole.rows
    ]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("void deep_ep::intranode::dispatch<4, 768>(int4*)", "communication"),
        ("void dpsk::ep::internode::combine<__nv_bfloat16>(Params)", "communication"),
        ("nvshmemi_transfer_put_signal", "communication"),
        ("void dpsk::ep::internode_ll::combine<3>(...)", "communication"),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8>(...)", "communication"),
        ("void deep_ep::buffer::wait(...)", "communication"),
        ("pplx::all_to_all_dispatch", "communication"),
        ("pplx::wait", "communication"),
        ("rcclGenericKernel", "communication"),
        ("oneccl_allreduce_small", "communication"),
        ("oneccl_copy_engine", "communication"),
        ("userbuffers_fp16_sum_inplace_gpu_rr", "communication"),
        ("void multimem_one_shot_reduce_kernel<c10::BFloat16>(long)", "communication"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16>(Params)", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64", "gemm"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "gemm"),
        ("volta_sgemm_128x64_nt", "gemm"),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16", "gemm"),
        ("void pytorch_flash::flash_fwd_kernel<Traits>(Params)", "attention"),
        ("attn_fwd", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "communication"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(cudnnTensorStruct)", "norm"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16b", "norm"),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "conv"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdam>(Meta)", "optimizer"),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(lambda)>",
            "cast_copy",
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::relu(lambda)>", "elementwise"),
        ("triton_poi_fused_add_gelu_0", "fused"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "elementwise"),
        ("moe::dev::routing::routingRenormalize::indices_kernel<Params>", "embedding_index"),
        ("_finalize_matmul_scatter_f16", "embedding_index"),
        ("split_embedding_codegen_rowwise_adagrad_kernel", "embedding_index"),
        ("create_flashinfer_kv_indices", "embedding_index"),
        ("quantize_with_scales<half>(flashinfer::Layout)", "cast_copy"),
        ("BatchDecodeWithPagedKVCacheKernel<half>(flashinfer::Params)", "attention"),
        ("mine::reshape_and_cache_flash_kernel<half>", "cast_copy"),
        ("store_kvcache<64, 4>(StoreKVCacheParams)", "cast_copy"),
        ("multi_tensor_apply_kernel<CopyFunctor<int, long>>", "cast_copy"),
        ("fbgemm_gpu::permute_2d_data<float>", "cast_copy"),
        ("unrolled_elementwise_kernel<Functor_add, memory::LoadWithCast>", "elementwise"),
        ("vectorized_elementwise_kernel<4, normal_and_transform>", "elementwise"),
        ("reduce_kernel<512, 1, ReduceOp<float, NormTwoOps<float>>>", "reduction"),
        ("cutlass_cudnn::Kernel<tensorop_s1688fprop_128x128>", "conv"),
    ],
)
def test_a_kernel_has_the_category_that_its_name_tells(name: str, category: str) -> None:
    assert category_of_kernel(name) == category


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("aten::addmm", "gemm"),
        ("aten::bmm", "gemm"),
        ("aten::linear_backward", "gemm"),
        ("aten::convolution_backward", "conv"),
        ("aten::cudnn_convolution", "conv"),
        ("aten::_scaled_dot_product_flash_attention_backward", "attention"),
        ("aten::native_layer_norm_backward", "norm"),
        ("aten::_log_softmax", "softmax_loss"),
        ("aten::_thnn_fused_lstm_cell", "rnn"),
        ("aten::mkldnn_rnn_layer", "rnn"),
        ("aten::gelu_backward", "elementwise"),
        ("aten::threshold_backward", "elementwise"),
        ("aten::native_dropout", "elementwise"),
        ("aten::_to_copy", "cast_copy"),
        ("aten::copy_", "cast_copy"),
        ("aten::max_pool2d_with_indices", "reduction"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::_foreach_add_", "optimizer"),
        ("aten::embedding_dense_backward", "embedding_index"),
        ("aten::index_put_", "embedding_index"),
        ("aten::topk", "reduction"),
        ("aten::t", "view_alloc"),
        ("aten::zero_", "view_alloc"),
        ("c10d::allreduce_", "communication"),
        ("symm_mem::multimem_one_shot_all_reduce", "communication"),
        ("triton_poi_fused_add_0", "fused"),
        ("aiter::gemm_a16w16", "gemm"),
        ("All2All_Pooled_Req", "communication"),
        ("fbgemm::permute_2D_sparse_data", "cast_copy"),
        ("fbgemm::bounds_check_indices", "embedding_index"),
        ("torch::distributed::reducer::mul_out", "other"),
        ("torch.distributed.ddp.reducer::copy_bucket_to_grad", "cast_copy"),
        ("aten::cat", "cast_copy"),
        ("aten::constant_pad_nd", "cast_copy"),
        ("aten::item", "cast_copy"),
        ("aten::_foreach_copy_", "cast_copy"),
        ("aten::normal_", "elementwise"),
        ("mine::strange", "other"),
    ],
)
def test_an_operator_has_the_category_of_its_name(name: str, category: str) -> None:
    assert category_of(name) == category
