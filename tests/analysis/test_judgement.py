"""The ratio of a figure other than speed, and what is surely slower than a limit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.judgement import (
    COST,
    ENERGY,
    FIGURE,
    RATE,
    figure_ratio,
    judgements,
    surely_slower,
    work_per_dollar,
    work_per_joule,
)
from gputui.analysis.verdict import Estimate, RatioEstimate, Verdict, compare_launches
from gputui.model.absent import Missing


def test_a_figure_has_the_ratio_of_the_medians_and_the_t_interval_of_its_logarithms_or_says_why_not() -> None:
    found = figure_ratio((1.0, 1.1, 1.2), (2.0, 2.2, 2.4))

    assert isinstance(found, RatioEstimate)
    assert found.ratio == pytest.approx(2.0)
    assert (found.blocks_a, found.blocks_b) == (3, 3)
    logs = [math.log(value) for value in (1.0, 1.1, 1.2)]
    mean = sum(logs) / 3
    error = math.sqrt(2 * sum((x - mean) ** 2 for x in logs) / 2 / 3)
    assert math.log(found.high / found.low) / 2 == pytest.approx(2.776 * error, rel=1e-3)  # t of 4 df
    higher, lower = judgements(FIGURE, [found, figure_ratio((8e9,) * 3, (6e9,) * 3)])
    assert (higher.word, higher.n) == ("higher", (3, 3))
    assert lower.word == "lower"
    assert lower.ratio == pytest.approx((0.75, 0.75, 0.75)), "launches that agree leave no doubt"
    assert figure_ratio((1.0, 1.0), (1.0, 1.0, 1.0)) == Missing("needs 3 launches")
    assert figure_ratio((0.0, 1.0, 1.0), (1.0, 1.0, 1.0)) == Missing("no ratio to 0")


def test_the_interval_of_a_figure_holds_the_ratio_of_the_shown_medians() -> None:
    found = figure_ratio((1.0,) * 20, (1.0,) * 11 + (2.0,) * 9)

    assert isinstance(found, RatioEstimate)
    assert found.ratio == 1.0
    assert found.low < 1.0
    assert math.log(found.high) > math.log(2) * 9 / 20, "the mean of the logarithms"


def test_only_what_is_judged_slower_is_surely_slower_than_a_limit() -> None:
    times = [[1.0, 1.001, 1.002, 0.999]] * 3
    twice = compare_launches(
        times, [[2 * t for t in launch] for launch in times], prior_sd_a=0.01, prior_sd_b=0.01
    )
    judged = judgements(RATE, [twice, Missing("not on b"), twice])
    open_row = judged[2].__class__(RATE, twice, Verdict("inconclusive", "above the physical peak"))

    assert surely_slower(judged, 0.95) == [True, False, True]
    assert surely_slower([judged[0], judged[1], open_row], 0.95) == [True, False, False]
    assert surely_slower(judged, 0.4) == [False, False, False]


RATE_OF_B = Estimate(1.5, 1.4, 1.6, math.inf, 0.0)


def energy(joules_per_unit: float, low: float | None, high: float | None) -> Energy:
    return Energy(joules_per_unit, low, high, mean_power_w=100.0, launches=3, samples=50)


def test_a_dollar_buys_what_the_rates_and_the_prices_say_and_nothing_where_a_side_is_free() -> None:
    dear, cheap, free = (Cost(usd, usd, usd, 1.0) for usd in (6.0, 2.0, 0.0))
    found = work_per_dollar(RATE_OF_B, dear, cheap)
    assert isinstance(found, Estimate)
    assert (found.ratio, found.low, found.high) == pytest.approx((3.0, 2.8, 3.2))
    assert work_per_dollar(RATE_OF_B, free, cheap) == Missing("a costs nothing")
    assert work_per_dollar(RATE_OF_B, dear, free) == Missing("b costs nothing")


def test_work_per_joule_is_as_unsure_as_both_sides_together() -> None:
    found = work_per_joule(RATE_OF_B, energy(3.0, 2.7, 3.0 / 0.9), energy(2.0, 1.6, 2.5))

    assert isinstance(found, Estimate)
    assert found.ratio == pytest.approx(1.5)
    half = math.hypot(math.log(1 / 0.9), math.log(1.25))
    assert (found.low, found.high) == pytest.approx((1.5 * math.exp(-half), 1.5 * math.exp(half)))
    assert found.df == 2, "of three launches a side"
    few = work_per_joule(RATE_OF_B, energy(3.0, 2.7, 3.3), energy(2.0, None, None))
    assert few == Missing("fewer than 3 launches with power on a side")
    assert work_per_joule(Missing("not on b"), energy(3.0, 2.7, 3.3), Missing("no sensor")) == Missing(
        "not on b"
    )


def test_what_is_in_doubt_of_the_rate_is_in_doubt_of_what_a_dollar_and_a_joule_buy() -> None:
    doubtful = replace(RATE_OF_B, doubt="b is above the physical peak")
    dollar = work_per_dollar(doubtful, Cost(6.0, 6.0, 6.0, 1.0), Cost(2.0, 2.0, 2.0, 1.0))
    joule = work_per_joule(doubtful, energy(3.0, 2.9, 3.1), energy(1.0, 0.99, 1.01))

    for judged in (*judgements(RATE, [doubtful]), *judgements(COST, [dollar]), *judgements(ENERGY, [joule])):
        assert judged.verdict == Verdict("inconclusive", "b is above the physical peak")
