"""Intervals drawn in cells: what they claim by touching zero, and that none hides another."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputui.analysis.judgement import RATE, Judgement, judgements
from gputui.analysis.verdict import Estimate, GeometricMean
from gputui.services.compare.forest import ZERO, ForestAxis, forest_axis, mark_of

RATIOS = st.floats(math.log(0.005), math.log(200))
HALVES = st.floats(1e-4, 1.5)


def judged(*intervals: tuple[float, float]) -> list[Judgement]:
    """Judgements of intervals, each given by the logarithms of its middle and its half width."""
    return judgements(
        RATE,
        [
            Estimate(
                ratio=math.exp(middle),
                low=math.exp(middle - half),
                high=math.exp(middle + half),
                df=math.inf,
                run_share=0.0,
            )
            for middle, half in intervals
        ],
    )


def zero_of(axis: ForestAxis) -> int:
    return axis.cell(0.0)


@given(st.lists(st.tuples(RATIOS, HALVES), min_size=1, max_size=8), st.integers(9, 60))
def test_an_interval_covers_the_zero_line_only_if_it_holds_zero(
    intervals: list[tuple[float, float]], cells: int
) -> None:
    found = judged(*intervals)
    axis = forest_axis(found, cells)
    for judgement in found:
        assert judgement.ratio is not None
        _, low, high = judgement.ratio
        drawn = axis.drawn(judgement)
        assert len(drawn) == cells
        assert (drawn[zero_of(axis)] != ZERO) is (low <= 1 <= high)
        assert drawn.count(mark_of(judgement)) == 1


@pytest.mark.parametrize(
    ("low", "high", "drawn"),
    [
        (-0.9, -0.5, " ━━●━╸    │         "),
        (-0.95, -0.45, "╺━━●━━    │         "),
        (0.2, 0.7, "          │╺━━●━━   "),
        (0.25, 0.75, "          │ ━━●━━╸  "),
        (-0.3, 0.3, "       ━━━○━━       "),
    ],
)
def test_an_interval_begins_and_ends_in_the_half_of_a_cell_in_which_its_ends_lie(
    low: float, high: float, drawn: str
) -> None:
    (judgement,) = judged(((low + high) / 2, (high - low) / 2))
    assert ForestAxis(-1.0, 1.0, 20).drawn(judgement) == drawn


@given(st.lists(st.tuples(RATIOS, HALVES), min_size=2, max_size=6), st.integers(9, 60))
def test_no_interval_covers_another_and_each_has_its_letter(
    intervals: list[tuple[float, float]], cells: int
) -> None:
    found = judged(*intervals)
    axis = forest_axis(found, cells)
    marked = list(zip("bcdefg", found, strict=False))
    lines = axis.lines(marked)
    text = ["".join(text for text, _ in pieces) for pieces in lines]
    assert {len(line) for line in text} == {cells}
    assert sorted(letter for line in text for letter in line if letter.isalpha()) == [m for m, _ in marked]
    for pieces in lines:
        drawn = [judgement for _, judgement in pieces]
        neighbours = list(pairwise(drawn))
        assert all(a is None or b is None for a, b in neighbours), "a blank cell lies between two"


def test_what_is_undecided_is_hollow_and_a_mean_is_a_diamond() -> None:
    decided, undecided = judged((-0.5, 0.01), (0.01, 0.3))
    assert [mark_of(one) for one in (decided, undecided)] == ["●", "○"]
    (mean,) = judgements(
        RATE,
        [
            GeometricMean(
                ratio=0.6,
                low=0.59,
                high=0.61,
                df=math.inf,
                run_share=0.0,
                rows=3,
            )
        ],
    )
    assert mark_of(mean) == "◆"
    assert forest_axis([decided, undecided], 31).drawn(undecided).strip(" ").strip("━╺╸┿") == "○"


def test_the_heading_names_zero_above_the_zero_line() -> None:
    axis = forest_axis(judged((-0.7, 0.1), (0.3, 0.1)), 40)
    heading = axis.heading()
    assert heading[zero_of(axis)] == "0"
    assert heading.split() == ["-50", "-30", "-20", "0", "+25"]
