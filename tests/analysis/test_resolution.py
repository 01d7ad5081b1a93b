"""Looks at rows that get launches until they are decided."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from gputui.analysis.quantiles import t_quantile
from gputui.analysis.resolution import (
    ERROR_RATE,
    FASTER,
    MOST_LOOKS,
    OPEN,
    OUT_OF_REACH,
    SLOWER,
    WITHIN,
    Decision,
    decisions,
    error_rate_of,
    looks_up_to,
    most_launches,
)
from gputui.analysis.spread import together
from gputui.analysis.verdict import RatioEstimate, compare_launches
from gputui.model.absent import Missing
from gputui.model.result import Spread


def estimated(ratio: float, half: float, *, df: float = 12, run_share: float = 0.0) -> RatioEstimate:
    """Three launches a side; `half` of the 95 % interval, on the log scale. `df` of each spread."""
    one, runs = Spread(3 * (1 - run_share) / 2, df), Spread(run_share, df)
    plain = RatioEstimate(
        ratio=ratio,
        low=ratio * math.exp(-half),
        high=ratio * math.exp(half),
        df=together((Spread(1 - run_share, 2 * df), runs)).df,
        run_share=run_share,
        n_a=18,
        n_b=18,
        independent_a=18,
        independent_b=18,
        launches_a=3,
        launches_b=3,
        spread_a=one,
        spread_b=one,
        runs=runs,
        method="",
        autocorrelation=0.0,
    )
    scale = (half / plain.half_width_with(3, 3)) ** 2
    scaled = [replace(spread, variance=spread.variance * scale) for spread in (one, one, runs)]
    return replace(plain, spread_a=scaled[0], spread_b=scaled[1], runs=scaled[2])


@pytest.mark.parametrize("launches", [1, 2, 3, 5, 6, 11, 12, 20, 100])
def test_looks_rise_to_the_last_launch_and_there_are_never_more_than_planned(launches: int) -> None:
    looks = looks_up_to(launches)
    assert looks[-1] == launches
    assert list(looks) == sorted(set(looks))
    assert len(looks) <= MOST_LOOKS
    assert launches < 3 or looks[0] >= 3
    assert error_rate_of(looks) * len(looks) == pytest.approx(ERROR_RATE)


@pytest.mark.parametrize(("base", "most"), [(1, 6), (2, 8), (3, 12), (5, 20), (9, 20)])
def test_four_times_the_launches_of_the_base_are_the_most_within_reason(base: int, most: int) -> None:
    assert most_launches(base) == most


def test_an_interval_at_another_error_rate_is_that_of_students_t() -> None:
    wide = estimated(1.2, 0.1, df=3).at_error_rate(0.01)
    assert math.log(wide.high / 1.2) == pytest.approx(0.1 * t_quantile(0.995, 6) / t_quantile(0.975, 6))
    assert math.log(wide.low / 1.2) == pytest.approx(-math.log(wide.high / 1.2))


@pytest.mark.parametrize(
    ("ratio", "half", "word"),
    [
        (1.5, 0.10, FASTER),
        (0.7, 0.10, SLOWER),
        (1.01, 0.005, WITHIN),
        (0.99, 0.02, WITHIN),
        (1.04, 0.04, OPEN),
        (1.0, 0.038, OPEN),
        (1.0, 0.20, OUT_OF_REACH),
    ],
)
def test_a_row_is_decided_when_its_interval_excludes_no_difference_or_lies_within_the_limit(
    ratio: float, half: float, word: str
) -> None:
    (found,) = decisions([estimated(ratio, half)], (3, 6, 12), 0.05)
    assert isinstance(found, Decision)
    assert found.word == word


def test_each_of_several_looks_asks_for_more_than_a_single_one() -> None:
    row = estimated(1.1, 0.08)
    words = [decisions([row], looks, 0.02)[0] for looks in ((12,), (3, 6, 12))]
    assert [isinstance(d, Decision) and d.word == FASTER for d in words] == [True, False]


def test_a_row_that_cannot_be_estimated_keeps_its_reason() -> None:
    assert decisions([Missing("b failed")], (3,), 0.05) == [Missing("b failed")]


def test_a_row_is_given_up_only_where_no_launch_to_come_could_decide_it() -> None:
    far, near = estimated(1.28, 0.20), estimated(1.0, 0.20)
    words = [d.word for d in decisions([far, near], (3, 6, 12), 0.05) if isinstance(d, Decision)]
    assert words == [OPEN, OUT_OF_REACH]


def test_nothing_is_decided_of_a_row_that_is_in_doubt() -> None:
    row = replace(estimated(1.5, 0.1), doubt="b: its threads waited 80 % of the time")
    (found,) = decisions([row], (3, 6, 12), 0.05)
    assert isinstance(found, Decision)
    assert found.word == OPEN


def test_launches_shrink_their_own_part_of_the_variance_and_not_that_of_runs() -> None:
    row = estimated(1.0, 0.1, run_share=0.36, df=math.inf)
    assert row.half_width_with(10**9, 10**9) == pytest.approx(0.06)
    only_launches = estimated(1.0, 0.1, df=math.inf)
    assert only_launches.half_width_with(3, 10**9) == pytest.approx(0.1 / math.sqrt(2))


def test_launches_bring_degrees_of_freedom() -> None:
    row = estimated(1.0, 0.1, df=4)
    assert row.half_width_with(3, 3, 0.01) == pytest.approx(0.1 * t_quantile(0.995, 8) / t_quantile(0.975, 8))
    expected = 0.1 / 2 * t_quantile(0.975, 2 * (4 + 9)) / t_quantile(0.975, 8)
    assert row.half_width_with(12, 12) == pytest.approx(expected)


def test_the_half_width_foretold_for_more_launches_is_near_the_one_they_have() -> None:
    chance = random.Random(5)

    def launches(count: int) -> list[list[float]]:
        return [
            [math.exp(middle + chance.gauss(0, 0.01)) for _ in range(6)]
            for middle in (chance.gauss(0, 0.03) for _ in range(count))
        ]

    a, b = launches(40), launches(80)
    few = compare_launches(a, b[:40], prior_sd_a=0.03, prior_sd_b=0.03)
    many = compare_launches(a, b, prior_sd_a=0.03, prior_sd_b=0.03)
    assert isinstance(few, RatioEstimate)
    assert isinstance(many, RatioEstimate)
    assert few.half_width_with(40, 80) == pytest.approx(many.half_width, rel=0.1)
