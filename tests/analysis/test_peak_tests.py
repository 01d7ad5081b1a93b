from __future__ import annotations

from gputui.analysis.peak_tests import Expectation, PeakTest, Standing, check_performance

MATMUL = Expectation(769e12, 798e12, 461e12, 1019e12)
COPY = Expectation(4.3e12, 4.3e12, 3.225e12, 4.896e12)


def gemm(flops_per_s: float, expectation: Expectation | None = MATMUL) -> PeakTest:
    return PeakTest("gemm amp", "matmul", flops_per_s, "flop", expectation)


def copy(bytes_per_s: float, expectation: Expectation | None = COPY) -> PeakTest:
    return PeakTest("copy", "copy", bytes_per_s, "B", expectation)


def test_a_healthy_h200_is_normal_in_one_line_with_the_figures() -> None:
    performance = check_performance("NVIDIA H200", [gemm(781e12), copy(4.28e12)])

    assert performance.word == "NORMAL"
    assert (
        performance.text
        == "NORMAL: gemm amp 781 TFLOP/s (elsewhere 769–798), copy 4.28 TB/s (elsewhere 4.30)"
    )
    assert [one.word for one in performance.peak_tests] == ["NORMAL", "NORMAL"]


def test_a_capped_gpu_is_below_normal_with_shortfall_and_likely_reasons() -> None:
    performance = check_performance("NVIDIA H200", [copy(4.28e12), gemm(400e12)])

    assert performance.word == "BELOW NORMAL"
    assert performance.text == (
        "BELOW NORMAL: gemm amp 400 TFLOP/s (elsewhere 769–798), 52 % of what this GPU does elsewhere: "
        "likely a power cap, heat, another process on the GPU, or a slice of it; "
        "copy 4.28 TB/s (elsewhere 4.30)"
    )


def test_a_figure_above_the_physical_limit_is_an_error_of_measurement() -> None:
    performance = check_performance("NVIDIA H200", [gemm(300e12), copy(9e12)])

    assert performance.word == "ABOVE THE LIMIT"
    assert "copy 9.00 TB/s is above the physical limit of 4.90 TB/s: a measurement error" in performance.text


def test_what_is_not_close_to_published_figures_and_not_below_the_limit_gets_no_verdict() -> None:
    assert check_performance("x", [gemm(461e12)]).word == "NO VERDICT"
    assert check_performance("x", [gemm(700e12)]).word == "NORMAL"
    found = check_performance("x", [gemm(500e12)])
    assert found.text == (
        "NO VERDICT: gemm amp 500 TFLOP/s (elsewhere 769–798), 65 % of what this GPU does elsewhere"
    )


def test_the_physical_limit_itself_is_normal() -> None:
    assert check_performance("x", [gemm(1019e12)]).word == "NORMAL"


def test_a_device_without_a_reference_is_reported_by_name_with_its_figures() -> None:
    performance = check_performance("NVIDIA Z9000", [gemm(12e12, None)])

    assert performance.word == "NO REFERENCE"
    assert performance.text == "no published figures for NVIDIA Z9000: gemm amp 12.0 TFLOP/s"


def test_nothing_measured_is_no_reference() -> None:
    assert check_performance("", []).text == (
        "no published figures for a device without a name: no peak test was measured"
    )


def test_a_ceiling_without_a_reference_does_not_hide_one_with() -> None:
    performance = check_performance("NVIDIA H200", [gemm(12e12, None), copy(4.28e12)])

    assert performance.text == "NORMAL: copy 4.28 TB/s (elsewhere 4.30)"
    assert performance.peak_tests[0].share is None


def test_a_mere_minimum_is_called_one() -> None:
    minimum = Expectation(207e9, None, 156e9, 326e9)

    assert check_performance("Tesla T4", [copy(240e9, minimum)]).text == (
        "NORMAL: copy 240 GB/s (elsewhere at least 207)"
    )


def test_a_range_across_a_prefix_keeps_both_units() -> None:
    across = Expectation(900e9, 1.1e12, 700e9, 2e12)

    assert "(elsewhere 900 GB/s to 1.10 TB/s)" in check_performance("x", [copy(950e9, across)]).text


def test_where_a_device_stands_is_named_with_the_reference_of_which_months_and_cases() -> None:
    standing = Standing(
        reference="h200-sxm",
        model="18 H200 SXM",
        boxes=18,
        months="2026-11",
        cases=1,
        share_slower=0.31,
        ratio=0.97,
        lowest="gemm 612 of 680–794 TFLOP/s",
        remarks=(),
        judges=True,
    )
    assert standing.text == (
        "Faster than 31 % of 18 H200 SXM (reference of 2026-11, 1 case): gemm 612 of 680–794 TFLOP/s."
    )
