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


TB_428 = "copy 4.28 TB/s, 100 % of the one public figure, 4.30"


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (
            [gemm(781), copy(4.28e12)],
            f"NO VERDICT: gemm amp 781 TFLOP/s, 102 % of the lowest of 2 public figures, 769–798, {TB_428}",
        ),
        (
            [copy(4.28e12), gemm(370)],
            (
                "BELOW NORMAL: gemm amp 370 TFLOP/s, 48 % of the lowest of 2 public figures, 769–798: "
                f"likely a power cap, heat, another process on the GPU, or a slice of it; {TB_428}"
            ),
        ),
        (
            [gemm(327, Expectation(496e12, 500e12, 248e12, 800e12))],  # a third slower is never normal
            "NO VERDICT: gemm amp 327 TFLOP/s, 66 % of the one public figure, 496–500",
        ),
        (
            [copy(240e9, Expectation(207e9, None, 103e9, 326e9))],
            "NO VERDICT: copy 240 GB/s, 116 % of the one public figure, at least 207",
        ),
        (
            [copy(950e9, Expectation(900e9, 1.1e12, 450e9, 2e12))],
            "NO VERDICT: copy 950 GB/s, 106 % of the one public figure, 900 GB/s to 1.10 TB/s",
        ),
        ([gemm(12, None), copy(4.28e12)], f"NO VERDICT: {TB_428}"),
        ([gemm(12, None)], "no published figures for NVIDIA H200: gemm amp 12.0 TFLOP/s"),
        ([], "no published figures for NVIDIA H200: no peak test was measured"),
    ],
)
def test_a_few_public_figures_give_a_share_and_no_verdict_but_below_half(
    tests: list[PeakTest], said: str
) -> None:
    performance = check_performance("NVIDIA H200", tests)

    assert performance.text == said
    assert performance.word == (said.partition(":")[0] if said[0].isupper() else "NO REFERENCE")
    assert "a device without a name" in check_performance("", []).text


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
