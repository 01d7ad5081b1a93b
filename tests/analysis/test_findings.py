from __future__ import annotations

from dataclasses import replace

import pytest

from gputui.analysis.attribution import ProfiledSide
from gputui.analysis.findings import KINDS, Finding, StepFacts, findings_of
from gputui.model.absent import Missing
from gputui.model.profiled import Kernel, Operator, ProfiledPass, TimeSlice

MS = 1_000_000
NOT_MEASURED = Missing("not measured")


def facts(
    gemm_ms: float = 80,
    idle_ms: float = 20,
    cause: str = "sync",
    *,
    on_gpu: bool = True,
    precision: str = "fp32",
    kernel_us: float = 100,
    peak: float | Missing = NOT_MEASURED,
    flops: int | None = None,
) -> StepFacts:
    """One profiled step: a product of 2 * 1000^3 operations, and idle time."""
    gemm_ns, idle_ns = round(gemm_ms * MS), round(idle_ms * MS)
    found = ProfiledPass(
        launch_id=0,
        case_id=0,
        is_valid=True,
        reason="",
        steps=1,
        window_ns=gemm_ns + idle_ns,
        events=1,
        event_cost_ns=0,
        unmatched_ns=0,
        operators=(
            Operator("forward", "gemm", "aten::mm", "1000x1000,1000x1000", "float", 1, 1, gemm_ns, 0, 1),
        ),
        slices=(
            TimeSlice("forward", "compute", "", gemm_ns),
            TimeSlice("forward", "idle", cause, idle_ns),
        ),
        kernels=(Kernel("sm90_gemm", "compute", "aten::mm", 800, round(800 * kernel_us * 1000), 1),),
        memory=(),
        memory_reason="not asked for",
        trace_bytes=0,
    )
    return StepFacts(ProfiledSide(found, gemm_ns + idle_ns, on_gpu, peak), precision, flops, None)


def only(found: tuple[Finding, ...]) -> Finding:
    (finding,) = found
    return finding


def test_a_step_that_nothing_holds_back_has_no_finding() -> None:
    assert findings_of(facts()) == ()


def test_a_step_that_waits_for_its_loader_would_take_at_best_the_rest() -> None:
    finding = only(findings_of(facts(60, 40, "data_wait")))

    assert (finding.kind, finding.at_best_ns, finding.confidence) == (KINDS[0], 60 * MS, "high")
    assert finding.text == (
        "starved by the loader: the GPU waits for the data loader for 40 % of the step;"
        " without that the step would take at best 60.0 ms of 100 ms"
    )


def test_a_tenth_of_the_step_is_the_least_that_a_loader_is_blamed_for() -> None:
    assert findings_of(facts(91, 9, "data_wait")) == ()


@pytest.mark.parametrize(("kernel_us", "confidence"), [(3, "high"), (300, "fair")])
def test_a_gpu_that_waits_for_the_host_is_launch_bound(kernel_us: float, confidence: str) -> None:
    finding = only(findings_of(facts(40, 60, "dispatch", kernel_us=kernel_us)))

    assert (finding.kind, finding.at_best_ns, finding.confidence) == (KINDS[1], 40 * MS, confidence)
    assert ("half of its kernels" in finding.text) == (kernel_us < 10)


def test_a_step_near_the_measured_rate_of_products_is_compute_bound() -> None:
    finding = only(findings_of(facts(peak=1e12, flops=70 * 10**9)))

    assert (finding.kind, finding.at_best_ns) == (KINDS[2], 70 * MS)
    assert findings_of(facts(peak=1e12, flops=50 * 10**9)) == ()


def test_a_step_near_the_measured_rate_of_copies_is_memory_bound_unless_its_arithmetic_takes_longer() -> None:
    moved = replace(facts(peak=1e12, flops=10**9), bytes_per_step=80 * 10**9, copy_bytes_per_s=1e12)

    assert [(f.kind, f.at_best_ns) for f in findings_of(moved)] == [(KINDS[3], 80 * MS)]
    assert (
        only(findings_of(moved)).evidence
        == "it moves at least 80 % of the 1.00 TB/s that large copies reach here"
    )
    assert [f.kind for f in findings_of(replace(moved, flops_per_step=90 * 10**9))] == [KINDS[2]]


def test_a_step_that_waits_is_not_called_bound_by_compute_or_memory_as_well() -> None:
    for cause, kind in (("launch", KINDS[1]), ("data_wait", KINDS[0])):
        waits = facts(75, 25, cause, peak=1e12, flops=70 * 10**9)
        assert only(findings_of(waits)).kind == kind
    assert [f.kind for f in findings_of(facts(75, 25, "sync", peak=1e12, flops=70 * 10**9))] == [KINDS[2]]


def test_of_compute_and_memory_only_the_one_that_takes_longer_binds() -> None:
    both = replace(facts(peak=1e12, flops=70 * 10**9), bytes_per_step=80 * 10**9, copy_bytes_per_s=1e12)
    assert only(findings_of(both)).kind == KINDS[3]
    assert only(findings_of(replace(both, bytes_per_step=65 * 10**9))).kind == KINDS[2]


def test_products_in_fp32_where_amp_is_faster_leave_matrix_units_unused() -> None:
    finding = only(findings_of(replace(facts(), single_peak=1e12, half_peak=4e12)))

    assert (finding.kind, finding.at_best_ns) == (KINDS[4], 40 * MS)  # 80 ms of products become 20
    assert findings_of(replace(facts(), single_peak=1e12, half_peak=1.2e12)) == ()


def test_products_in_half_precision_that_are_no_faster_than_fp32_leave_them_unused_too() -> None:
    # 2e9 operations in 80 ms are 25 GFLOP/s; at 100 GFLOP/s they would take 20 ms
    slow = replace(facts(precision="amp-bf16"), single_peak=50e9, half_peak=100e9)

    assert [(f.kind, f.at_best_ns, f.confidence) for f in findings_of(slow)] == [(KINDS[4], 40 * MS, "high")]
    assert findings_of(replace(slow, single_peak=20e9)) == ()


def test_matrix_units_do_not_help_products_that_memory_holds_up_or_that_are_as_short_as_a_launch() -> None:
    wide = replace(facts(), single_peak=1e12, half_peak=4e12)
    assert only(findings_of(wide)).kind == KINDS[4]
    moved = replace(wide, bytes_per_step=50 * 10**9, copy_bytes_per_s=1e12)
    assert findings_of(moved) == (), "50 of 80 ms at the rate of copies"
    (product,) = wide.side.found.operators
    found = replace(wide.side.found, operators=(replace(product, calls=20_000),))
    short = replace(wide, side=replace(wide.side, found=found))
    assert findings_of(short) == (), "4 µs each"
    on_cpu = replace(short, side=replace(short.side, is_on_device=False))
    assert only(findings_of(on_cpu)).kind == KINDS[4]


def test_a_step_that_computes_faster_than_fp32_can_uses_the_matrix_units_whatever_its_shapes_say() -> None:
    slow = replace(facts(precision="amp-bf16"), single_peak=50e9, half_peak=100e9)
    assert only(findings_of(replace(slow, flops_per_step=4 * 10**9))).kind == KINDS[4]
    assert findings_of(replace(slow, flops_per_step=6 * 10**9)) == ()


def test_under_a_power_cap_the_work_would_go_with_the_clock_at_best() -> None:
    capped = replace(facts(), capped_share=0.34, clock_mhz=1500.0, clock_most_mhz=2000.0)

    finding = only(findings_of(capped))

    assert (finding.kind, finding.at_best_ns) == (KINDS[5], 80 * MS)  # 80 ms busy become 60
    assert "34 % of the time, to 1.50 of 2.00 GHz" in finding.text
    assert findings_of(replace(capped, capped_share=0.05)) == ()


def test_the_most_to_be_gained_comes_first_and_no_step_is_better_than_nothing() -> None:
    both = replace(
        facts(40, 60, "dispatch"), single_peak=1e12, half_peak=4e12, capped_share=1.0, clock_mhz=0.0,
        clock_most_mhz=2000.0,
    )  # fmt: skip

    found = findings_of(both)

    assert [f.kind for f in found] == ["launch-bound", "power-capped", "matrix units unused"]
    assert all(0 <= f.at_best_ns <= f.step_ns for f in found)


def test_a_pass_that_is_rough_makes_rough_findings() -> None:
    rough = facts(60, 40, "data_wait", on_gpu=False)
    rough = replace(rough, side=replace(rough.side, step_ns=70 * MS))

    assert {f.confidence for f in findings_of(rough)} == {"low"}


def test_a_pass_of_a_cpu_that_took_its_usual_time_makes_findings_as_sure_as_their_rule() -> None:
    assert only(findings_of(facts(60, 40, "data_wait", on_gpu=False))).confidence == "high"
    slow_gpu = facts(60, 40, "data_wait")
    slow_gpu = replace(slow_gpu, side=replace(slow_gpu.side, step_ns=70 * MS))
    assert only(findings_of(slow_gpu)).confidence == "high"


def test_kernels_that_were_never_called_do_not_count_among_the_short_ones() -> None:
    launches = facts(40, 60, "dispatch", kernel_us=3)
    never = Kernel("sm90_copy", "memcpy", "aten::copy_", 0, 0, 1)
    found = replace(launches.side.found, kernels=(*launches.side.found.kernels, never))
    finding = only(findings_of(replace(launches, side=replace(launches.side, found=found))))

    assert finding.confidence == "high"
    assert (
        "for 60 % of the step the GPU waits for the host, and half of its kernels take less than 3.00 µs"
        in finding.text
    )
