from __future__ import annotations

from dataclasses import replace

import pytest
from step_facts import MS, at_lines, called, crowded, facts, kinds, line, seen, the, work

from gputui.analysis.findings import (
    StepFacts,
    at_best_without,
    findings_of,
)
from gputui.analysis.spread import CONTENTION
from gputui.model.journal import Kernel, Operator, TimeSlice


def test_a_step_that_waits_for_its_loader_would_take_at_best_the_rest() -> None:
    assert the(facts(60, 40, "data_wait")).text == (
        "The GPU waits for data: the GPU waits for the data loader for 40 % of the step;"
        " without that the step would take at best 60.0 ms of 100 ms."
        " Try less work in the DataLoader, or more workers (with persistent_workers=True)"
    )


@pytest.mark.parametrize(
    ("step", "kind", "at_best_ms", "confidence", "says"),
    [
        (facts(60, 40, "data_wait"), "starved by the loader", 60, "high", "for 40 % of the step"),
        (facts(40, 60, "dispatch", kernel_us=3), "launch-bound", 40, "high", "half of its kernels"),
        (facts(40, 60, "dispatch", kernel_us=300), "launch-bound", 40, "fair", "waits for the host"),
        (facts(20, 80, "python"), "paused in Python", 20, "fair", "for 80 % of the step the host"),
        (facts(20, 80, "python", on_gpu=False), "paused in Python", 20, "fair", "and no operator runs"),
        (facts(20, 80, "runtime_api"), "waits for the driver", 20, "fair", "in calls of the driver"),
        (facts(peak=1e12, flops=70 * 10**9), "compute-bound", 70, "high", "70 % of the 1.00 TFLOP/s"),
        (
            replace(facts(), single_peak=1e12, half_peak=4e12),  # 80 ms of products become 20
            "matrix units unused", 40, "fair", "4.0 x as fast under AMP",
        ),
        (
            replace(facts(), capped_share=0.34, clock_mhz=1500.0, clock_most_mhz=2000.0),  # 80 busy, then 60
            "power-capped", 80, "fair", "34 % of the time, to 1.50 of 2.00 GHz",
        ),
        # gaps between kernels that are all enqueued are the device's own, though a trace shows it idle
        (replace(facts(40, 60, "dispatch"), busy_share=0.7), "launch-bound", 70, "fair", "the host"),
    ],
)  # fmt: skip
def test_one_cause_is_named_with_what_is_left_at_best(
    step: StepFacts, kind: str, at_best_ms: int, confidence: str, says: str
) -> None:
    finding = the(step)
    assert (finding.kind, finding.at_best_ns) == (kind, at_best_ms * MS)
    assert finding.confidence == confidence or step.busy_share is not None
    assert says in finding.text
    if kind == "launch-bound" and step.busy_share is None:
        assert ("half of its kernels" in finding.text) == (confidence == "high")


def test_a_step_that_waits_is_not_called_bound_by_compute_or_memory_as_well() -> None:
    for cause, kind in (("launch", "launch-bound"), ("data_wait", "starved by the loader")):
        waits = facts(75, 25, cause, peak=1e12, flops=70 * 10**9)
        assert the(waits).kind == kind
    assert [f.kind for f in findings_of(facts(75, 25, "sync", peak=1e12, flops=70 * 10**9))] == [
        "compute-bound"
    ]


def test_of_compute_and_memory_only_the_one_that_takes_longer_binds_a_step_near_its_measured_rate() -> None:
    moved = replace(facts(peak=1e12, flops=10**9), bytes_per_step=80 * 10**9, copy_bytes_per_s=1e12)

    assert (the(moved).kind, the(moved).at_best_ns) == ("memory-bound", 80 * MS)
    assert the(moved).evidence == "it moves at least 80 % of the 1.00 TB/s that large copies reach here"
    for gflops, gigabytes, kind in ((70, 80, "memory"), (90, 80, "compute"), (70, 65, "compute")):
        step = replace(moved, flops_per_step=gflops * 10**9, bytes_per_step=gigabytes * 10**9)
        assert kinds(step) == [[f"{kind}-bound"]]


def test_matrix_units_do_not_help_products_that_memory_holds_up_or_that_are_as_short_as_a_launch() -> None:
    wide = replace(facts(), single_peak=1e12, half_peak=4e12)
    assert the(wide).kind == "matrix units unused"
    moved = replace(wide, bytes_per_step=50 * 10**9, copy_bytes_per_s=1e12)
    assert findings_of(moved) == (), "50 of 80 ms at the rate of copies"
    (product,) = wide.side.found.operators
    short = seen(wide, operators=(replace(product, calls=20_000),))
    assert findings_of(short) == (), "4 µs each"
    on_cpu = replace(short, side=replace(short.side, is_on_device=False))
    assert [f.kind for f in findings_of(on_cpu)] == ["tiny operators", "matrix units unused"]


def test_products_in_half_precision_that_are_no_faster_than_fp32_leave_them_unused_too() -> None:
    # 2e9 operations in 80 ms are 25 GFLOP/s; at 100 GFLOP/s they would take 20 ms
    slow = replace(facts(precision="amp-bf16"), single_peak=50e9, half_peak=100e9)
    finding = the(slow)

    assert (finding.kind, finding.at_best_ns, finding.confidence) == ("matrix units unused", 40 * MS, "high")
    assert findings_of(replace(slow, single_peak=20e9)) == ()
    assert the(replace(slow, flops_per_step=4 * 10**9)).kind == "matrix units unused"
    assert findings_of(replace(slow, flops_per_step=6 * 10**9)) == (), "whatever its shapes say"


def test_the_most_to_be_gained_comes_first_and_no_step_is_better_than_nothing() -> None:
    both = replace(
        facts(40, 60, "dispatch"), single_peak=1e12, half_peak=4e12, capped_share=1.0, clock_mhz=0.0,
        clock_most_mhz=2000.0,
    )  # fmt: skip

    found = findings_of(both)

    assert [f.kind for f in found] == ["launch-bound", "power-capped", "matrix units unused"]
    assert all(0 <= f.at_best_ns <= f.step_ns for f in found)


def test_only_a_pass_of_a_cpu_that_took_longer_than_its_step_makes_rough_findings() -> None:
    for on_gpu, step_ms, confidence in ((False, 70, "low"), (False, 100, "high"), (True, 70, "high")):
        step = facts(60, 40, "data_wait", on_gpu=on_gpu)
        rough = replace(step, side=replace(step.side, step_ns=step_ms * MS))
        assert {f.confidence for f in findings_of(rough)} == {confidence}


def test_kernels_that_were_never_called_do_not_count_among_the_short_ones() -> None:
    launches = facts(40, 60, "dispatch", kernel_us=3)
    never = Kernel("sm90_copy", "memcpy", "aten::copy_", 0, 0, 1)
    finding = the(seen(launches, kernels=(*launches.side.found.kernels, never)))

    assert finding.confidence == "high"
    assert (
        "for 60 % of the step the GPU waits for the host, and half of its kernels take less than 3.00 µs"
        in finding.text
    )


def test_short_gaps_of_python_between_many_calls_are_no_pause() -> None:
    busy = called("add", 1000, 1)
    assert kinds(facts(69, 30, "python", busy), facts(69, 30, "python", busy, on_gpu=False)) == [
        ["launch-bound"],
        ["launch-bound"],
    ]


def test_a_host_that_reads_values_of_a_gpu_could_run_ahead_by_what_it_waits_for_them() -> None:
    item = called("item", 20, cpu_ms=30, category="cast_copy")
    finding = next(f for f in findings_of(facts(42, 58, "dispatch", item)) if f.kind == "waits for results")
    assert finding.at_best_ns == 70 * MS
    assert "for 30 % of the step the host waits for values" in finding.evidence
    assert "(item 20 times)" in finding.evidence
    assert kinds(facts(95, 5, "dispatch", item)) == [[]], "the GPU has work all the time"
    short = called("item", 20, cpu_ms=45, category="cast_copy")
    assert kinds(facts(42, 58, "dispatch", item), facts(42, 58, "dispatch", short)) == [
        ["launch-bound", "waits for results"],
        ["waits for results"],
    ], "less than a fifth is left to be launch-bound"
    assert "waits for results" not in kinds(facts(42, 58, "python", item, on_gpu=False))[0]


def test_copies_to_pageable_memory_are_read_values_of_the_operator_that_makes_them() -> None:
    copy = called("to", 4, cpu_ms=40, category="cast_copy", kernels=4)
    copies = facts(42, 58, "dispatch", copy)
    memcpy = Kernel("Memcpy DtoH (Device -> Pageable)", "copy_d2h", "aten::to", 2, 10, 5)
    assert "waits for results" not in kinds(copies)[0]
    finding = the(seen(copies, kernels=(*copies.side.found.kernels, memcpy)), "waits for results")
    assert finding.at_best_ns == 80 * MS, "two of its four kernels are such copies"
    assert "(to 2 times)" in finding.evidence


def test_whether_code_is_compiled_for_the_first_time_or_again_is_told_where_it_is_known() -> None:
    compiling = facts(20, 40, "python", work("other", "dynamo", 40), on_gpu=False)
    assert kinds(compiling) == [["compiles again"]], "the Python between operators is the compiler's own"
    first, again = (replace(compiling, compiled_again=known) for known in (False, True))
    assert the(first).title == "torch.compile compiles for the first time"
    assert the(first).change == "later steps, if these are the first ones: --after N"
    told = next(one for one in findings_of(again) if one.kind == "compiles again")
    assert told.title == "torch.compile compiles again"
    assert "TORCH_LOGS=recompiles" in told.change


def test_lines_that_call_no_operator_make_it_python_that_runs_and_no_short_operators() -> None:
    calls = work("elementwise", "aten::add", 30, 1000)
    step = facts(30, 40, "python", calls, on_gpu=False)
    between = the(at_lines(step, line(3, 40), line(3, 20, "aten::add")))
    assert (between.title, between.change) == (
        "It is between operators",
        "torch.compile, or fewer operators",
    ), "operators of 30 us are not tiny: a larger batch only makes them longer"
    own = the(at_lines(step, line(7, 35), line(3, 5), line(3, 20, "aten::add")))
    assert (own.title, own.line) == ("Python runs between operators in main()", "train.py:7")
    assert own.change.startswith("to do this less often")


def test_the_line_of_another_thread_is_not_that_of_what_the_step_does() -> None:
    each = called("addcdiv_", 200, 30, phase="optimizer")
    lines = (
        line(19, 25, "aten::addcdiv_", "another thread", "optimizer"),
        line(56, 5, "aten::addcdiv_", "", "optimizer"),
    )
    finding = the(at_lines(facts(70, 0, "python", each), *lines))
    assert [(one.line, one.share) for one in finding.lines] == [(56, 1.0)]


@pytest.mark.parametrize(
    ("optimizer", "change"),
    [
        ("", "fused=True or foreach=True, where the optimizer takes it"),
        ("AdamW", "fused=True or foreach=True, where the optimizer takes it"),
        ("NAdam", "foreach=True of NAdam, which has no fused=True"),
        ("Lion", "torch.compile of Lion, which has no fused=True"),
    ],
)
def test_an_optimizer_is_advised_only_what_it_takes(optimizer: str, change: str) -> None:
    each = called("addcdiv_", 200, 30, phase="optimizer")
    step = replace(facts(70, 0, "python", each), optimizer=optimizer)
    assert the(step).change == change


def test_causes_about_the_same_time_leave_what_the_rest_of_the_step_needs() -> None:
    each = called("addcdiv_", 2000, 20, phase="optimizer")
    step = facts(30, 0, "python", each)
    slices = (*step.side.found.slices, TimeSlice("optimizer", "idle", "launch", 45 * MS))
    slices += (TimeSlice("forward", "idle", "launch", 5 * MS),)
    step = seen(step, slices=slices, window_ns=100 * MS)
    causes = findings_of(replace(step, side=replace(step.side, step_ns=100 * MS)))
    assert [(one.kind, one.at_best_ns) for one in causes] == [
        ("many optimizer calls", 35 * MS),
        ("launch-bound", 50 * MS),
    ]
    assert at_best_without(causes) == 30 * MS, "the product"


def test_memory_that_is_allocated_and_freed_is_told_of_a_driver_that_does_it() -> None:
    finding = the(replace(facts(20, 80, "runtime_api"), allocates=True))
    assert finding.title == "The GPU waits for memory to be allocated and freed"
    assert "empty_cache()" in finding.change


def test_only_communication_that_compute_does_not_hide_holds_a_step_up_and_ddp_has_options_for_it() -> None:
    def communicating(share: float) -> StepFacts:
        slices = (
            TimeSlice("backward", "communication", "", round(100 * MS * share)),
            TimeSlice("forward", "compute", "", round(100 * MS * (1 - share))),
        )
        return seen(facts(100, 0), slices=slices)

    assert kinds(communicating(0.4), communicating(0.05)) == [["exposed communication"], []]
    for has_ddp in (True, False):
        change = the(replace(communicating(0.4), has_ddp=has_ddp)).change
        assert ("bucket_cap_mb" in change) == has_ddp


def test_what_a_cpu_computes_in_fp64_is_a_cause_of_half_its_time_and_a_python_number_is_no_fp64() -> None:
    product = called("mm", 1, 80, phase="backward", category="gemm", types="double,double")
    finding = the(facts(0, 20, "sync", product, on_gpu=False))
    assert (finding.title, finding.at_best_ns) == ("It computes in fp64", 60 * MS)
    assert "float32" in finding.change
    wide = called("cos", 4, 80, types="double")
    assert the(facts(0, 20, "sync", wide, on_gpu=False)).title == "It computes in fp64"
    with_number = replace(wide, dtypes="float,double")
    assert kinds(facts(0, 20, "sync", with_number, on_gpu=False)) == [[]]


def test_products_of_the_forward_pass_count_where_kernels_tell_their_type() -> None:
    narrow = called("mm", 1, 30, phase="backward", category="gemm", types="BFloat16,BFloat16")
    wide = replace(narrow, dtypes="float,float", time_ns=20 * MS)
    step = facts(50, 0, "python", narrow, wide)
    kernels = (Kernel("ampere_sgemm_128x64_nn", "compute", "aten::mm", 2, 45 * MS, 23 * MS),)
    finding = the(seen(step, kernels=kernels))
    assert (finding.title, finding.at_best_ns) == ("Products run in fp32", 55 * MS)


def test_an_optimizer_with_calls_for_each_parameter_is_named_and_a_fused_one_is_not() -> None:
    each = called("addcdiv_", 200, 30, phase="optimizer")
    finding = the(facts(70, 0, "python", each))
    assert (finding.kind, finding.at_best_ns) == ("many optimizer calls", 70 * MS)
    assert "take 30 % of the step in 200 calls for one parameter each" in finding.text
    fused = called("_fused_adamw_", 1, 30, phase="optimizer", category="optimizer")
    few, forward = replace(each, calls=10), replace(each, phase="forward", category="reduction")
    assert kinds(
        facts(70, 0, "python", fused),
        facts(40, 0, "python", fused, each),
        facts(70, 0, "python", few),
        facts(70, 0, "python", forward),
    ) == [[], [], [], []]


def test_updates_written_by_hand_are_told_of_a_cpu_by_work_that_no_gradient_needs() -> None:
    update, model = called("sub_", 100, 40), called("gelu_backward", 4, 5, phase="backward")
    step = facts(55, 0, "python", update, model, on_gpu=False)
    finding = the(replace(step, has_optimizer=False))
    assert finding.title == "Parameters are updated by hand, one operator at a time"
    assert "torch.optim" in finding.change
    of_model = replace(update, operator="aten::gelu", calls=100), replace(model, time_ns=40 * MS)
    healthy = facts(55, 0, "python", *of_model, on_gpu=False)
    trains_nothing = facts(55, 0, "python", update, on_gpu=False)
    for other in (healthy, trains_nothing):
        assert findings_of(replace(other, has_optimizer=False)) == ()
    assert findings_of(step) == (), "with an optimizer of torch it is something else"


@pytest.mark.parametrize(("calls", "each"), [(16, True), (24, True), (15, False)])
def test_small_batches_one_after_the_other_are_told_before_their_short_operators(
    calls: int, each: bool
) -> None:
    product = called("addmm", calls, 0.3, category="gemm")
    step = facts(0, 40, "dispatch", product, called("add", 2000, 10), on_gpu=False)
    step = replace(step, backward_calls=8)
    rows = [row for row in step.side.found.operators if row.operator != "aten::mm"]
    finding = the(seen(step, operators=tuple(rows)))
    assert (finding.title == "It computes 8 micro-batches one by one") == each
    assert finding.change.startswith("a larger batch")


def test_calls_that_wait_for_a_core_are_as_short_as_they_would_be_without_waiting() -> None:
    calls = called("addmm", 8, 6, category="gemm")  # 750 us each, most of which it waits
    step = replace(facts(0, 4, "dispatch", calls, on_gpu=False), backward_calls=8)
    rows = tuple(row for row in step.side.found.operators if row.operator != "aten::mm")
    step = seen(step, operators=rows)
    assert kinds(step, crowded(step, 0.95, 1.9)) == [
        ["launch-bound"],
        [CONTENTION, "micro-batches"],
    ]


def test_products_of_a_backward_pass_in_a_wider_type_than_others_fell_back() -> None:
    def product(types: str, time_ms: float, phase: str = "backward") -> Operator:
        return called("mm", 1, time_ms, phase=phase, category="gemm", types=types)

    narrow, wide = product("BFloat16,BFloat16", 30), product("float,float", 40)
    finding = the(facts(30, 0, "python", narrow, wide))
    assert (finding.kind, finding.at_best_ns) == ("wider types", 60 * MS)
    assert "in float take 40 % of the step, while others of it are in BFloat16" in finding.text
    assert kinds(
        facts(30, 0, "python", wide),
        facts(30, 0, "python", product("BFloat16,BFloat16", 1), replace(wide, calls=20)),
        facts(30, 0, "python", narrow, product("float,float", 40, "forward")),
        facts(30, 0, "python", narrow, product("BFloat16,float", 40)),
    ) == [[], [], [], []], "autocast hides types of the forward pass"


def test_many_operators_as_short_as_their_call_are_told_of_a_cpu_but_not_what_the_step_would_take() -> None:
    tiny = called("t", 20_000, 70, category="view_alloc")
    finding = the(facts(30, 0, "python", tiny, on_gpu=False))
    assert (finding.kind, finding.at_best_ns, finding.has_at_best) == ("tiny operators", 30 * MS, False)
    assert finding.text.endswith(
        "20000 calls of 3.50 µs each take 70 % of the step. Try a larger batch or torch.compile"
    )
    few = replace(tiny, calls=20)
    assert kinds(*(facts(30, 0, "python", one, on_gpu=one is tiny) for one in (tiny, few))) == [[], []]


@pytest.mark.parametrize(
    ("operator", "on_gpu", "title"),
    [
        (work("cast_copy", "aten::clone", 40, 8), True, "It copies and casts tensors"),
        (work("cast_copy", "aten::clone", 40, 8), False, "It copies and casts tensors"),
        (work("elementwise", "aten::mul", 40, 24), True, "Elementwise operators run one by one"),
        (work("other", "dynamo", 40), False, "torch.compile compiles"),
        (work("other", "entire_frame_compile", 40), False, "torch.compile compiles"),
    ],
)
def test_work_that_a_step_could_do_without_is_named(operator: Operator, on_gpu: bool, title: str) -> None:
    finding = the(facts(80, 20, "sync", operator, on_gpu=on_gpu))
    assert (finding.title, finding.at_best_ns) == (title, 100 * MS)


MUL = work("elementwise", "aten::mul", 40, 24)


@pytest.mark.parametrize(
    "step",
    [
        facts(),
        # less than a tenth of the step
        facts(91, 9, "data_wait"),
        facts(peak=1e12, flops=50 * 10**9),
        replace(facts(), single_peak=1e12, half_peak=1.2e12),
        replace(facts(), capped_share=0.05, clock_mhz=1500.0, clock_most_mhz=2000.0),
        replace(facts(40, 60, "dispatch"), busy_share=0.95),
        # what every step has some of
        facts(80, 20, "sync", work("cast_copy", "aten::to", 15, 8)),
        facts(80, 20, "sync", work("elementwise", "aten::mul", 15, 24)),
        facts(80, 20, "sync", work("elementwise", "aten::relu", 40, 2), on_gpu=False),
        facts(80, 20, "sync", work("other", "TorchDynamo Cache Lookup", 40), on_gpu=False),
        facts(80, 20, "sync", work("fused", "Torch-Compiled Region: 0/0", 40)),
        # fused elsewhere, or of an optimizer
        facts(80, 20, "sync", MUL, work("fused", "triton_poi_fused_add_0", 5)),
        facts(80, 20, "sync", replace(MUL, phase="optimizer")),
        # other programs without evidence
        *(crowded(facts(), *seen) for seen in ((None, None), (0.09, 1.9), (0.0, 2.0))),
    ],
)
def test_what_holds_no_step_back_is_not_worth_a_word(step: StepFacts) -> None:
    assert findings_of(step) == ()


def test_copies_to_the_gpu_from_pageable_memory_are_told_with_what_to_change() -> None:
    made = facts(60, 0, "sync", work("cast_copy", "aten::copy_", 40, 4))
    kernel = Kernel("Memcpy HtoD (Pageable -> Device)", "copy_h2d", "aten::copy_", 4, 40 * MS, 10 * MS)
    finding = the(seen(made, kernels=(*made.side.found.kernels, kernel)))
    assert finding.title == "Data comes from pageable memory"
    assert finding.change.startswith("pin_memory=True")


def test_on_a_cpu_python_between_operators_is_no_waiting_for_launches() -> None:
    calls = work("gemm", "aten::addmm", 5, 200)
    finding = the(facts(60, 35, "python", calls, on_gpu=False))
    assert finding.title == "Python runs between operators"
    assert "around 200 calls of addmm" in finding.evidence


def test_a_loop_that_reads_values_one_by_one_on_a_cpu_is_told_with_its_python() -> None:
    item, select = work("cast_copy", "aten::item", 10, 200), work("view_alloc", "aten::select", 10, 200)
    finding = the(facts(60, 20, "python", item, select, on_gpu=False))
    assert (finding.title, finding.at_best_ns) == (".item() is called 200 times a step", 60 * MS)
    few, of_optimizer = replace(item, calls=20), replace(item, phase="optimizer")
    for other in (few, of_optimizer):
        assert kinds(facts(60, 5, "python", other, on_gpu=False)) == [[]]
    of_model = work("gemm", "aten::addmm", 10, 200)
    assert kinds(facts(60, 5, "python", item, select, of_model, on_gpu=False)) == [[]]


def test_other_programs_that_took_the_cores_come_before_all_that_they_inflate() -> None:
    waits = facts(20, 80, "data_wait", on_gpu=False)
    first, *rest = findings_of(crowded(waits, 0.45, 1.6))
    assert first.text == (
        "It waits for cores that other programs have: other programs took 1.6 cores while it ran: the step"
        " waited 45 % of the time for one. Try it again on an idle box: everything else takes longer too"
    )
    assert rest == list(findings_of(waits))
