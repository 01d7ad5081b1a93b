from __future__ import annotations

import functools
import math
import random
import statistics

import pytest
from scipy import stats

from gputui.analysis.fleet import (
    FEWEST,
    BoxRates,
    FleetSpread,
    apart_from,
    below_normal_at,
    level_of,
    rates_of_both,
    rates_of_one,
    slower_group,
    spread_of,
    standing_out,
)
from gputui.model.absent import Missing


def healthy(boxes: int, seed: int, sd: float = 0.03) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, sd) for _ in range(boxes)]


@pytest.mark.parametrize("boxes", [5, 10, 20, 100])
def test_a_healthy_fleet_has_a_box_that_stands_out_in_at_most_8_of_100_fleets(boxes: int) -> None:
    fleets = 400
    alarms = sum(bool(standing_out(healthy(boxes, seed))) for seed in range(fleets))
    assert alarms / fleets <= 0.08


@pytest.mark.parametrize("boxes", [10, 20, 100])
def test_two_slow_boxes_do_not_hide_each_other(boxes: int) -> None:
    found = 0
    for seed in range(50):
        logs = healthy(boxes, seed)
        logs[3] -= 0.3
        logs[7] -= 0.3
        found += standing_out(logs) >= {3, 7}
    assert found >= 48


def test_a_difference_that_nobody_would_mind_and_too_few_boxes_stand_out_never() -> None:
    assert standing_out([*healthy(30, 1, sd=1e-4), math.log(1.02)]) == frozenset()
    assert standing_out([*healthy(30, 1, sd=1e-4), math.log(1.05)]) == {30}
    assert standing_out([0.001, 0.0, -0.001, 5.0][: FEWEST - 1]) == frozenset()
    assert standing_out([0.0] * 20) == frozenset()


def test_how_far_a_box_lies_from_two_others_and_more_is_an_interval_of_students_t() -> None:
    assert apart_from(0.5, [0.01]) == Missing("fewer than two others")
    half = 12.7062 * 0.02 / math.sqrt(2) * math.sqrt(1.5)  # t of one degree of freedom
    assert apart_from(0.5, [0.01, -0.01]) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-4)


def test_the_middle_of_a_fleet_leaves_out_a_twentieth_at_each_end() -> None:
    assert spread_of([3.0, 1.0, 2.0]) == FleetSpread(3, 2.0, 1.0, 3.0)
    assert spread_of([float(n) for n in range(1, 101)]) == FleetSpread(100, 50.5, 6.0, 95.0)


def heavy(boxes: int, seed: int) -> list[float]:
    """As Student's t with 4 degrees of freedom."""
    rng = random.Random(seed)
    return [
        0.03 * rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(4)) / 4)
        for _ in range(boxes)
    ]


@pytest.mark.parametrize("boxes", [10, 32])
def test_where_boxes_have_heavy_tails_one_stands_out_in_at_most_a_tenth_of_healthy_fleets(boxes: int) -> None:
    alarms = sum(bool(standing_out(heavy(boxes, seed), 0.025)) for seed in range(200))
    assert alarms / 200 <= 0.12


@pytest.mark.parametrize(("boxes", "slow"), [(8, 2), (10, 3), (64, 20), (64, 32)])
def test_a_group_15_percent_slower_is_found_whole(boxes: int, slow: int) -> None:
    found = 0
    for seed in range(50):
        logs = [
            log + (math.log(0.85) if at < slow else 0) for at, log in enumerate(healthy(boxes, seed, 0.015))
        ]
        found += slower_group(logs) == frozenset(range(slow))
    assert found >= 46


@pytest.mark.parametrize("boxes", [5, 8, 16, 64])
def test_a_healthy_fleet_falls_into_two_groups_in_one_of_a_hundred(boxes: int) -> None:
    fleets = [*(healthy(boxes, seed) for seed in range(200)), *(heavy(boxes, seed) for seed in range(200))]
    assert sum(bool(slower_group(logs)) for logs in fleets) <= 12


def test_groups_that_nobody_would_tell_apart_and_too_few_boxes_are_one() -> None:
    assert slower_group([0.0, 0.0, 0.02, 0.02, 0.02, 0.02]) == frozenset()
    assert slower_group([0.0, 0.0, 0.2, 0.2, 0.2, 0.2]) == {0, 1}
    assert slower_group([0.0, 0.0, 0.2, 0.2]) == frozenset()


def of_boxes(*rates: float) -> BoxRates:
    return functools.reduce(rates_of_both, (rates_of_one(rate, rate * 0.99, rate * 1.01) for rate in rates))


def below_normal(cases: list[tuple[float, float, BoxRates]]) -> list[bool]:
    """Which cases of one run are, each a rate, its upper end, and what other boxes reach."""
    level = level_of([(rate, known) for rate, _, known in cases])
    return [below_normal_at(level, *case) for case in cases]


def spread_rates(count: int, sd: float = 0.02, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [700e12 * math.exp(chance.gauss(0, sd)) for _ in range(count)]


def test_boxes_added_one_by_one_or_in_groups_have_the_mean_sd_and_interval_of_all_at_once() -> None:
    rates = spread_rates(18)
    logs = [math.log(rate) for rate in rates]
    half = stats.t.ppf(0.975, 17) * statistics.stdev(logs) / math.sqrt(18)

    for found in (of_boxes(*rates), rates_of_both(of_boxes(*rates[:7]), of_boxes(*rates[7:]))):
        assert found.boxes == 18
        assert found.typical_per_s == pytest.approx(math.exp(statistics.fmean(logs)))
        assert found.log_sd == pytest.approx(statistics.stdev(logs))
        ends = (found.typical_per_s * math.exp(-half), found.typical_per_s * math.exp(half))
        assert (found.low_per_s, found.high_per_s) == pytest.approx(ends)
    few = rates_of_both(of_boxes(*rates[:4]), of_boxes(*rates[4:10]))
    assert few.quantiles_per_s == of_boxes(*rates[:10]).quantiles_per_s == tuple(sorted(rates[:10]))
    assert of_boxes(100.0) == BoxRates(1, 100.0, 99.0, 101.0, 0.0, (100.0,))


def test_of_many_boxes_the_quantiles_are_near_those_of_their_rates() -> None:
    rates = sorted(spread_rates(40))

    found = of_boxes(*rates)

    assert len(found.quantiles_per_s) == 11
    assert found.quantile(0.5) == pytest.approx(statistics.median(rates), rel=0.01)
    low, high = found.usual_range
    assert rates[0] < low < rates[4]
    assert rates[-5] < high < rates[-1]


def test_a_box_is_faster_than_the_share_of_boxes_below_it_and_half_of_its_equals() -> None:
    few, many = of_boxes(10.0, 11.0, 12.0, 13.0), of_boxes(*(100.0 + n for n in range(21)))
    for rate, share in ((9.0, 0.0), (10.0, 1 / 8), (10.5, 0.25), (13.0, 7 / 8), (14.0, 1.0)):
        assert few.share_slower(rate) == pytest.approx(share)
    for rate, share in ((99.0, 0.0), (105.0, 0.25), (121.0, 1.0)):
        assert many.share_slower(rate) == pytest.approx(share), "between quantiles"


def test_the_chance_of_a_slower_box_is_that_of_a_prediction_with_n_minus_1_degrees_of_freedom() -> None:
    rates = spread_rates(10)
    logs = [math.log(rate) for rate in rates]
    t = (math.log(650e12) - statistics.fmean(logs)) / (statistics.stdev(logs) * math.sqrt(1.1))

    found = of_boxes(*rates)

    assert found.p_healthy(650e12) == pytest.approx(stats.t.cdf(t, 9))
    assert found.p_healthy(found.lowest_normal(0.01)) == pytest.approx(0.01)


def test_a_box_is_below_normal_beside_five_or_more_and_the_lower_the_more_cases_are_asked() -> None:
    for boxes, is_found in ((1, False), (4, False), (5, True), (20, True)):
        assert below_normal([(350e12, 353e12, of_boxes(*spread_rates(boxes, sd=0.01)))]) == [is_found]
    found = of_boxes(*spread_rates(10))
    rate = found.lowest_normal(0.02)
    healthy = (found.typical_per_s, found.typical_per_s, found)
    assert below_normal([(rate, rate, found)]) == [True]
    assert below_normal([(rate, rate, found), *[healthy] * 11]) == [False] * 12


def test_neither_a_small_difference_nor_a_rough_measurement_is_below_normal() -> None:
    agreeing, apart = of_boxes(*spread_rates(10, sd=0.002)), of_boxes(*spread_rates(10))

    assert agreeing.p_healthy(0.98 * agreeing.typical_per_s) < 0.001
    for known, share, upper, is_below in (
        (agreeing, 0.98, 1.001, False),
        (agreeing, 0.96, 1.001, True),
        (apart, 0.8, 1.01, True),
        (apart, 0.8, 1.3, False),
    ):
        rate = share * known.typical_per_s
        assert below_normal([(rate, upper * rate, known)]) == [is_below]
