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


def link(gb_per_s: float, size: str, device_name: str = H200) -> CaseResult:
    return at_rate(gb_per_s * 1e9, "xfer", size, device_name=device_name)


RTX_4090, NVL = "NVIDIA GeForce RTX 4090", "NVIDIA H100 NVL"
LOST = unmeasured(shipped_case("gemm", "large", "amp"), "oom")
COPY_428 = "copy 4.28 TB/s, 100 % of the one public figure, 4.30"


@pytest.mark.parametrize(
    ("cases", "word", "said"),
    [
        (
            [gemm(780), copy(4.28)],
            NO_VERDICT,
            ["matmul amp 780 TFLOP/s, 101 % of the lowest of 2 public figures, 769–798", COPY_428],
        ),
        (
            [gemm(300), copy(4.28)],
            BELOW_NORMAL,
            ["matmul amp 300 TFLOP/s, 39 % of the lowest of 2 public", "power cap", "copy 4.28 TB/s"],
        ),
        ([gemm(780), copy(2.0)], BELOW_NORMAL, ["copy 2.00 TB/s"]),
        ([gemm(2000), copy(4.28)], ABOVE_LIMIT, ["a measurement error"]),
        ([gemm(165, device_name=RTX_4090)], NORMAL, ["(6 boxes: 158–168)"]),
        ([gemm(150, device_name=RTX_4090)], NORMAL, ["(6 boxes: 158–168)"]),
        ([gemm(120, device_name=RTX_4090)], BELOW_NORMAL, ["(6 boxes: 158–168)"]),
        # small work alone is never called below normal, and left out beside large work
        ([gemm(300, "mini")], NO_REFERENCE, ["mini "]),
        ([gemm(300, "base")], NO_REFERENCE, ["base "]),
        ([copy(1.0, "mini")], NO_REFERENCE, ["mini "]),
        ([gemm(300, "mini"), LOST], NO_REFERENCE, []),
        ([gemm(300, "mini"), gemm(780), copy(1.0, "mini"), copy(4.28)], NO_VERDICT, [COPY_428]),
        ([gemm(780, device_name="NVIDIA Imaginary 9000")], NO_REFERENCE, ["NVIDIA Imaginary 9000"]),
        # a figure of low confidence, and one of one person's card
        ([at_rate(2e12, "gemm", "large", "amp", device_name="NVIDIA L4")], NO_REFERENCE, []),
        (
            [at_rate(20e12, "gemm", "large", "fp32")],
            BELOW_NORMAL,
            ["39 % of the one public figure, 51.3", "or the card of that one report was a better one"],
        ),
        (
            [link(55.4, "256m-h2d"), link(12.0, "256m-d2h")],
            BELOW_NORMAL,
            [
                "pinned copy from the GPU 12.0 GB/s, 22 % of the one public figure, 55.0–55.1",
                "PCIe link",
                "pinned copy to the GPU 55.4 GB/s, 100 % of the one public figure, 55.4–55.5",
            ],
        ),
        ([link(80.0, "256m-h2d")], ABOVE_LIMIT, []),
        (
            [link(14.0, "256m-h2d", "NVIDIA A100-SXM4-80GB")],
            NO_VERDICT,
            ["67 % of the one public figure, at least 21.0"],
        ),
    ],
)
def test_a_gpu_is_judged_by_what_was_published_of_the_same_large_work(
    cases: list[CaseResult], word: str, said: list[str]
) -> None:
    performance = judged(*cases)

    assert performance.word == word
    assert [words for words in said if words not in performance.text] == []


def test_a_precision_without_a_reference_does_not_count() -> None:
    fp32 = at_rate(50e12, "gemm", "large", "fp32", device_name=NVL)
    performance = judged(gemm(600, device_name=NVL), fp32)
    assert performance.word == NO_VERDICT, "one card was published"
    assert "fp32" not in performance.text


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


def test_a_cpu_has_no_reference_and_its_name_and_figures_are_reported() -> None:
    product = at_rate(
        1.5e12, "gemm", "mini", "fp32", device_class="cpu", device_name=str(CPU_MACHINE.cpu.model)
    )

    (performance,) = performance_checks(make_run(product))

    assert performance.word == NO_REFERENCE
    assert performance.text == "no published figures for Xeon 8481C: matmul fp32 1.50 TFLOP/s"


def test_each_device_is_judged_alone_and_gpus_come_first() -> None:
    slow_second = at_rate(300e12, "gemm", "large", "amp", index=1)
    cpu = at_rate(1e12, "gemm", "mini", "fp32", device_class="cpu", device_name="Xeon 8481C")

    words = [n.word for n in performance_checks(make_run(cpu, slow_second, gemm(780), machine=GPU_MACHINE))]

    assert words == [NO_VERDICT, BELOW_NORMAL, NO_REFERENCE]


@pytest.mark.parametrize(
    "case",
    [
        at_rate(1000, "conv_train", "mini", "amp"),
        *(link(1.0, size) for size in ("4k-h2d", "16m-d2h", "256m-both", "256m-h2d-pageable")),
        link(1.0, "256m-h2d", "NVIDIA A10G"),
    ],
)
def test_what_is_no_peak_test_or_has_no_figures_of_the_same_work_is_not_judged(case: CaseResult) -> None:
    assert performance_checks(make_run(case, machine=GPU_MACHINE)) == ()
