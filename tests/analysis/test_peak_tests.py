from __future__ import annotations

import pytest

from gputui.analysis.fleet import lowest_normal_rate, rates_of_boxes
from gputui.analysis.peak_tests import Expectation, PeakTest, Standing, check_performance

FEW = Expectation(769e12, 798e12, 384.5e12, 1019e12, figures=2)
ONE = Expectation(4.3e12, 4.3e12, 2.15e12, 4.896e12)
BOXES = rates_of_boxes([rate * 1e12 for rate in (162.4, 163.1, 164.8, 165.7, 170.1, 173.3)])
PUBLIC = Expectation(*BOXES.usual_range, lowest_normal_rate(BOXES, 0.01), 190e12, rates=BOXES, is_public=True)


def gemm(
    tflops: float, expectation: Expectation | None = FEW, *, ends: tuple[float, float] | None = None
) -> PeakTest:
    low, high = (end * 1e12 for end in ends or (tflops, tflops))
    return PeakTest("gemm amp", "matmul", tflops * 1e12, "flop", expectation, low_per_s=low, high_per_s=high)


def copy(bytes_per_s: float, expectation: Expectation | None = ONE) -> PeakTest:
    return PeakTest("copy", "copy", bytes_per_s, "B", expectation)


def test_a_few_public_figures_give_a_share_and_no_verdict() -> None:
    performance = check_performance("NVIDIA H200", [gemm(781), copy(4.28e12)])

    assert performance.word == "NO VERDICT"
    assert performance.text == (
        "NO VERDICT: gemm amp 781 TFLOP/s, 102 % of the lowest of 2 public figures, 769–798, "
        "copy 4.28 TB/s, 100 % of the one public figure, 4.30"
    )


def test_below_half_of_a_few_public_figures_is_low_with_likely_reasons() -> None:
    performance = check_performance("NVIDIA H200", [copy(4.28e12), gemm(370)])

    assert performance.word == "BELOW NORMAL"
    assert performance.text == (
        "BELOW NORMAL: gemm amp 370 TFLOP/s, 48 % of the lowest of 2 public figures, 769–798: "
        "likely a power cap, heat, another process on the GPU, or a slice of it; "
        "copy 4.28 TB/s, 100 % of the one public figure, 4.30"
    )


def test_a_third_slower_than_the_one_public_figure_is_never_normal() -> None:
    h100_pcie = Expectation(496e12, 500e12, 248e12, 800e12)

    assert check_performance("x", [gemm(327, h100_pcie)]).text == (
        "NO VERDICT: gemm amp 327 TFLOP/s, 66 % of the one public figure, 496–500"
    )


@pytest.mark.parametrize(
    ("tflops", "ends", "word"),
    [
        (166, (165, 167), "NORMAL"),
        (152, (151.5, 152.5), "NORMAL"),
        (152, (140, 164), "CAN'T TELL"),
        (141, (140, 142), "BELOW NORMAL"),
        (141, (110, 175), "CAN'T TELL"),
        (200, (199, 201), "ABOVE THE LIMIT"),
    ],
)
def test_five_boxes_or_more_decide_by_the_whole_interval(
    tflops: float, ends: tuple[float, float], word: str
) -> None:
    assert gemm(tflops, PUBLIC, ends=ends).word == word


def test_however_much_public_reports_differ_less_than_nine_tenths_of_typical_is_not_called_normal() -> None:
    wide = rates_of_boxes([rate * 1e12 for rate in (57, 64, 67.6, 69.2, 69.8, 70.5)])
    expectation = Expectation(
        *wide.usual_range, lowest_normal_rate(wide, 0.01), 1e15, rates=wide, is_public=True
    )

    assert gemm(58, expectation).word == "CAN'T TELL"
    assert gemm(58, expectation).is_far_from_typical
    assert gemm(62, expectation).word == "NORMAL"


def test_a_few_figures_beside_boxes_do_not_take_their_verdict_away() -> None:
    performance = check_performance("RTX 4090", [gemm(166, PUBLIC), copy(3.9e12)])

    assert performance.word == "NORMAL"
    assert "gemm amp 166 TFLOP/s (6 boxes: 162–173)" in performance.text


def test_a_figure_above_the_physical_limit_is_an_error_of_measurement() -> None:
    performance = check_performance("NVIDIA H200", [gemm(300), copy(9e12)])

    assert performance.word == "ABOVE THE LIMIT"
    assert "copy 9.00 TB/s is above the physical limit of 4.90 TB/s: a measurement error" in performance.text
    assert check_performance("x", [gemm(1019)]).word == "NO VERDICT", "the limit itself is possible"


def test_a_device_without_a_reference_is_reported_by_name_with_its_figures() -> None:
    performance = check_performance("NVIDIA Z9000", [gemm(12, None)])

    assert performance.word == "NO REFERENCE"
    assert performance.text == "no published figures for NVIDIA Z9000: gemm amp 12.0 TFLOP/s"


def test_nothing_measured_is_no_reference() -> None:
    assert check_performance("", []).text == (
        "no published figures for a device without a name: no peak test was measured"
    )


def test_a_ceiling_without_a_reference_does_not_hide_one_with() -> None:
    performance = check_performance("NVIDIA H200", [gemm(12, None), copy(4.28e12)])

    assert performance.text == "NO VERDICT: copy 4.28 TB/s, 100 % of the one public figure, 4.30"
    assert performance.peak_tests[0].share is None


def test_a_mere_minimum_is_called_one() -> None:
    minimum = Expectation(207e9, None, 103e9, 326e9)

    assert check_performance("Tesla T4", [copy(240e9, minimum)]).text == (
        "NO VERDICT: copy 240 GB/s, 116 % of the one public figure, at least 207"
    )


def test_a_range_across_a_prefix_keeps_both_units() -> None:
    across = Expectation(900e9, 1.1e12, 450e9, 2e12)

    assert ", 900 GB/s to 1.10 TB/s" in check_performance("x", [copy(950e9, across)]).text


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
