"""Intervals drawn in cells: what they claim by touching zero, and that none hides another."""

from __future__ import annotations

import math
import re
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.document.drawings import PAGE_CELLS, ZERO, Axis, Interval, axis_of, intervals
from gputui.document.spans import Line
from gputui.document.table import Column

RATIOS = st.floats(math.log(0.005), math.log(200))
HALVES = st.floats(1e-4, 1.5)


def interval(middle: float, half: float, mark: str = "●", style: str = "warn", beside: str = "") -> Interval:
    """One given by the logarithms of its middle and its half width."""
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Interval(math.exp(middle), low, high, mark, style, beside)


def text_of(line: Line) -> str:
    return "".join(span.text for span in line)


def plots(*rows: list[Interval]) -> list[str]:
    """What a page draws of each row."""
    drawing = intervals(rows)
    assert drawing.picture is not None
    return list(drawing.picture()[1])


def percents(name: str, drawn: str) -> list[float]:
    return [float(value) for value in re.findall(rf'{name}="([\d.]+)%"', drawn)]


@given(st.lists(st.tuples(RATIOS, HALVES), min_size=1, max_size=8), st.integers(9, 60))
def test_an_interval_covers_the_zero_line_only_if_it_holds_zero(
    found: list[tuple[float, float]], cells: int
) -> None:
    drawn = [interval(*one) for one in found]
    axis = axis_of(drawn, cells)
    for one in drawn:
        (line,) = axis.lines([one])
        text = text_of(line)
        assert len(text) == cells
        assert (text[axis.cell(1.0)] != ZERO) is (one.low <= 1 <= one.high)
        assert text.count(one.mark) == 1


@pytest.mark.parametrize(
    ("low", "high", "drawn"),
    [
        (-0.9, -0.5, " ━━●━╸    │         "),
        (-0.95, -0.45, "╺━━●━━    │         "),
        (0.2, 0.7, "          │╺━━●━━   "),
        (0.25, 0.75, "          │ ━━●━━╸  "),
        (-0.3, 0.3, "       ━━━●━━       "),
    ],
)
def test_an_interval_begins_and_ends_in_the_half_of_a_cell_in_which_its_ends_lie(
    low: float, high: float, drawn: str
) -> None:
    (line,) = Axis(-1.0, 1.0, 20).lines([interval((low + high) / 2, (high - low) / 2)])
    assert text_of(line) == drawn


@settings(max_examples=50)
@given(st.lists(st.tuples(RATIOS, HALVES), min_size=2, max_size=6), st.integers(9, 60))
def test_no_interval_covers_another_and_each_has_its_letter(
    found: list[tuple[float, float]], cells: int
) -> None:
    drawn = [interval(*one, letter, letter) for one, letter in zip(found, "bcdefg", strict=False)]
    lines = axis_of(drawn, cells).lines(drawn)
    texts = [text_of(line) for line in lines]
    assert {len(text) for text in texts} == {cells}
    assert sorted(c for text in texts for c in text if c.isalpha()) == [one.mark for one in drawn]
    for line in lines:
        styles = [span.style for span in line]
        assert all("track" in pair for pair in pairwise(styles)), "a blank cell lies between two"


def test_only_intervals_of_columns_in_sight_are_drawn() -> None:
    drawing = intervals([[interval(0.1, 0.01, "b", "", "b vs a"), interval(0.2, 0.01, "c", "", "c vs a")]])
    column = drawing.draw(30, [Column("c vs a", ["+22 %"])])
    assert [c for c in column.texts[0] if c.isalpha()] == ["c"]


def test_the_heading_names_zero_above_the_zero_line() -> None:
    axis = axis_of([interval(-0.7, 0.1), interval(0.3, 0.1)], 40)
    heading = axis.heading()
    assert heading[axis.cell(1.0)] == "0"
    assert heading.split() == ["-50", "-30", "-20", "0", "+25"]


# On a page


def test_equal_factors_are_equally_far_on_the_axis_and_none_leaves_it() -> None:
    ratios = (0.25, 0.5, 1.0, 2.0, 4.0)
    axis = axis_of([interval(math.log(ratio), 0.01) for ratio in ratios], PAGE_CELLS)
    places = [axis.percent(ratio) for ratio in ratios]
    gaps = [b - a for a, b in pairwise(places)]
    assert gaps == pytest.approx([gaps[0]] * 4)
    assert 0 < places[0] < places[-1] < 100
    assert axis_of([interval(math.log(1e6), 2.0)], PAGE_CELLS).percent(1e7) < 100


@pytest.mark.parametrize("span", [(0.999, 1.001), (0.4, 1.02), (0.98, 3.9), (0.01, 90.0), (1.2, 1.3)])
def test_the_ticks_of_an_axis_have_room_for_their_labels(span: tuple[float, float]) -> None:
    axis = axis_of([Interval(math.sqrt(span[0] * span[1]), *span, "●", "")], PAGE_CELLS)
    ticks = axis.ticks()
    assert 1.0 in [tick for tick, _, _ in ticks]
    assert len(ticks) > 1
    for (_, first, a), (_, second, b) in combinations(ticks, 2):
        assert a + len(first) + 2 <= b or b + len(second) + 2 <= a


def test_an_interval_is_hollow_where_it_is_undecided_and_drawn_from_end_to_end() -> None:
    one, wide = Interval(1.1, 0.9, 1.3, "○", "accent"), Interval(1.0, 0.5, 2.0, "●", "dim")
    axis = axis_of([one, wide], PAGE_CELLS)
    drawn, _ = plots([one], [wide])
    line = drawn[drawn.index('class="interval') :]
    assert 'class="point accent hollow"' in drawn
    places = percents("x1", line) + percents("x2", line) + percents(" x", line)
    assert places == pytest.approx([axis.percent(ratio) for ratio in (0.9, 1.3, 1.1)], abs=0.01)


def test_several_sides_of_a_row_have_their_letters_on_lines_of_their_own() -> None:
    (drawn,) = plots([interval(0.1, 0.1, "b"), interval(0.1, 0.1, "c")])
    assert re.findall(r">(\w)</text>", drawn) == ["b", "c"]
    assert percents("y1", drawn) == [25, 75]
