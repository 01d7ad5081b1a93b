from __future__ import annotations

import math
import random

import pytest

from gputui.analysis.fleet import FEWEST, FleetSpread, apart_from, spread_of, standing_out
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
