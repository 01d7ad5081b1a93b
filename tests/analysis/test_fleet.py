from __future__ import annotations

import math
import random

import pytest

from gputui.analysis.fleet import (
    FEWEST,
    FleetSpread,
    apart_from,
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
