from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_run, measured, steady, unmeasured
from journals import CPU_MACHINE, GPU_MACHINE

from gputui.analysis.peak_tests import (
    ABOVE_LIMIT,
    BELOW_NORMAL,
    NO_REFERENCE,
    NO_VERDICT,
    NORMAL,
    PerformanceCheck,
)
from gputui.facts.tables import distribution_rows
from gputui.model.absent import Missing
from gputui.model.plan import Case, Variant
from gputui.model.result import CaseResult
from gputui.services.profiles.planner import case_of
from gputui.services.results.expected import performance_checks, public_boxes
from gputui.worker.workloads import workload_named

H200 = "NVIDIA H200"


def shipped_case(workload: str, size: str, precision: str = "fp32", device_class: str = "gpu") -> Case:
    threads = "host" if device_class == "gpu" else "all"
    return case_of(workload_named(workload), size, Variant(device_class, precision, "eager", threads))


def at_rate(
    units_per_s: float,
    workload: str,
    size: str,
    precision: str = "fp32",
    *,
    device_class: str = "gpu",
    device_name: str = H200,
    index: int = 0,
) -> CaseResult:
    """A case of the shipped workload that was measured at this rate."""
    case = shipped_case(workload, size, precision, device_class)
    used = "amp-bf16" if precision == "amp" else precision
    launch = steady(case.units_per_step / units_per_s)
    result = measured(case, launch, precision_used=used, device_name=device_name)
    return replace(result, device_index=index if device_class == "gpu" else None)


def gemm(tflops: float, size: str = "large", device_name: str = H200) -> CaseResult:
    return at_rate(tflops * 1e12, "gemm", size, "amp", device_name=device_name)


def copy(tb_per_s: float, size: str = "base") -> CaseResult:
    return at_rate(tb_per_s * 1e12, "membw", size)


def judged(*cases: CaseResult) -> PerformanceCheck:
    (performance,) = performance_checks(make_run(*cases, machine=GPU_MACHINE))
    return performance


def test_an_h200_that_reaches_the_few_public_figures_gets_their_shares_and_no_verdict() -> None:
    performance = judged(gemm(780), copy(4.28))

    assert performance.word == NO_VERDICT
    assert "matmul amp 780 TFLOP/s, 101 % of the lowest of 2 public figures, 769–798" in performance.text
    assert "copy 4.28 TB/s, 100 % of the one public figure, 4.30" in performance.text


RTX_4090 = "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(("tflops", "word"), [(165, NORMAL), (150, NORMAL), (120, BELOW_NORMAL)])
def test_a_gpu_of_which_six_boxes_were_published_is_judged_by_their_spread(tflops: float, word: str) -> None:
    performance = judged(gemm(tflops, device_name=RTX_4090))

    assert performance.word == word
    assert "(6 boxes: 158–168)" in performance.text


def test_a_published_box_that_stands_out_is_left_out_and_five_others_still_judge() -> None:
    known = [len(row.rates) for row in distribution_rows() if (row.gpu, row.dtype) == ("RTX 5090", "bf16")]
    boxes = public_boxes("RTX 5090", "matmul", "bf16")

    assert not isinstance(boxes, Missing)
    assert (known, boxes.boxes) == ([6], 5)
    assert boxes.quantiles_per_s[0] > 200e12


@pytest.mark.parametrize(
    ("gpu", "measure", "dtype"),
    [
        ("RTX 3090", "matmul", "bf16"),
        ("H100 SXM 80GB", "copy of 160 MB", ""),
        ("H100 SXM 80GB", "training: ResNet-50", "amp"),
        ("H200 SXM", "copy", ""),
    ],
)
def test_few_boxes_one_box_with_eight_gpus_other_work_and_a_mere_spread_judge_nothing(
    gpu: str, measure: str, dtype: str
) -> None:
    assert any((row.gpu, row.measure, row.dtype) == (gpu, measure, dtype) for row in distribution_rows())
    assert isinstance(public_boxes(gpu, measure, dtype), Missing)


def test_an_h200_at_300_tflops_is_below_normal_with_the_share_it_reaches() -> None:
    performance = judged(gemm(300), copy(4.28))

    assert performance.word == BELOW_NORMAL
    assert performance.text.startswith(
        "BELOW NORMAL: matmul amp 300 TFLOP/s, 39 % of the lowest of 2 public figures, 769–798"
    )
    assert "power cap" in performance.text
    assert "copy 4.28 TB/s" in performance.text


def test_a_slow_copy_alone_makes_a_box_below_normal() -> None:
    assert judged(gemm(780), copy(2.0)).word == BELOW_NORMAL


def test_more_than_the_physical_peak_is_an_error_of_measurement() -> None:
    performance = judged(gemm(2000), copy(4.28))

    assert performance.word == ABOVE_LIMIT
    assert "a measurement error" in performance.text


@pytest.mark.parametrize("small", [gemm(300, "mini"), gemm(300, "base"), copy(1.0, "mini")])
def test_small_work_alone_is_never_called_below_normal(small: CaseResult) -> None:
    performance = judged(small)

    assert performance.word == NO_REFERENCE
    assert f"{small.case.work.size} " in performance.text


def test_small_work_beside_large_is_left_out_of_the_judgement() -> None:
    assert judged(gemm(300, "mini"), gemm(780), copy(1.0, "mini"), copy(4.28)).word == NO_VERDICT


def test_a_large_product_that_ran_out_of_memory_leaves_no_judgement_of_the_small_one() -> None:
    lost = unmeasured(shipped_case("gemm", "large", "amp"), "oom")

    assert judged(gemm(300, "mini"), lost).word == NO_REFERENCE


def test_a_precision_without_a_reference_does_not_count() -> None:
    nvl = "NVIDIA H100 NVL"
    fp32 = at_rate(50e12, "gemm", "large", "fp32", device_name=nvl)

    performance = judged(gemm(600, device_name=nvl), fp32)

    assert performance.word == NO_VERDICT, "one card was published"
    assert "fp32" not in performance.text


def test_a_cpu_has_no_reference_and_its_name_and_figures_are_reported() -> None:
    product = at_rate(
        1.5e12, "gemm", "mini", "fp32", device_class="cpu", device_name=str(CPU_MACHINE.cpu.model)
    )

    (performance,) = performance_checks(make_run(product))

    assert performance.word == NO_REFERENCE
    assert performance.text == "no published figures for Xeon 8481C: matmul fp32 1.50 TFLOP/s"


def test_a_gpu_that_is_not_in_the_table_has_no_reference() -> None:
    performance = judged(gemm(780, device_name="NVIDIA Imaginary 9000"))

    assert performance.word == NO_REFERENCE
    assert "NVIDIA Imaginary 9000" in performance.text


def test_each_device_is_judged_alone_and_gpus_come_first() -> None:
    slow_second = at_rate(300e12, "gemm", "large", "amp", index=1)
    cpu = at_rate(1e12, "gemm", "mini", "fp32", device_class="cpu", device_name="Xeon 8481C")

    words = [n.word for n in performance_checks(make_run(cpu, slow_second, gemm(780), machine=GPU_MACHINE))]

    assert words == [NO_VERDICT, BELOW_NORMAL, NO_REFERENCE]


def test_a_run_without_a_ceiling_is_not_judged() -> None:
    training = at_rate(1000, "conv_train", "mini", "amp")

    assert performance_checks(make_run(training, machine=GPU_MACHINE)) == ()


def link(gb_per_s: float, size: str, device_name: str = H200) -> CaseResult:
    return at_rate(gb_per_s * 1e9, "xfer", size, device_name=device_name)


def test_a_large_pinned_copy_is_judged_by_what_that_gpu_reached_elsewhere() -> None:
    performance = judged(link(55.4, "256m-h2d"), link(12.0, "256m-d2h"))

    assert performance.word == BELOW_NORMAL
    assert "pinned copy from the GPU 12.0 GB/s, 22 % of the one public figure, 55.0–55.1" in performance.text
    assert "PCIe link" in performance.text
    assert "pinned copy to the GPU 55.4 GB/s, 100 % of the one public figure, 55.4–55.5" in performance.text


def test_a_link_faster_than_its_bus_is_an_error_of_measurement() -> None:
    assert judged(link(80.0, "256m-h2d")).word == ABOVE_LIMIT


@pytest.mark.parametrize("size", ["4k-h2d", "16m-d2h", "256m-both", "256m-h2d-pageable"])
def test_copies_of_which_no_figures_of_the_same_work_are_known_are_not_judged(size: str) -> None:
    assert performance_checks(make_run(link(1.0, size), machine=GPU_MACHINE)) == ()


def test_a_link_of_a_gpu_without_a_figure_is_not_judged() -> None:
    assert performance_checks(make_run(link(1.0, "256m-h2d", "NVIDIA A10G"), machine=GPU_MACHINE)) == ()


def test_what_is_accepted_at_least_is_no_typical_figure() -> None:
    (performance,) = performance_checks(
        make_run(link(14.0, "256m-h2d", "NVIDIA A100-SXM4-80GB"), machine=GPU_MACHINE)
    )

    assert "67 % of the one public figure, at least 21.0" in performance.text


def test_a_figure_of_low_confidence_never_makes_a_box_below_normal() -> None:
    (performance,) = performance_checks(
        make_run(at_rate(2e12, "gemm", "large", "amp", device_name="NVIDIA L4"), machine=GPU_MACHINE)
    )
    assert performance.word == NO_REFERENCE


def test_one_persons_figure_of_one_card_is_called_that_and_claims_less() -> None:
    fp32 = at_rate(20e12, "gemm", "large", "fp32")
    (performance,) = performance_checks(make_run(fp32, machine=GPU_MACHINE))
    assert performance.word == BELOW_NORMAL
    assert "39 % of the one public figure, 51.3" in performance.text
    assert "or the card of that one report was a better one" in performance.text
