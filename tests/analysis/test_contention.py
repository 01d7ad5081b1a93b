"""What waiting for CPUs does to the time of a step."""

from __future__ import annotations

import math

import pytest

from gputui.analysis.spread import LEAST_OWN_SHARE, Waiting, effect_of_waiting
from gputui.worker import WORKLOAD_CLASSES


@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
def test_blocks_that_wait_for_different_shares_have_one_own_time(power: float) -> None:
    waiting = Waiting(power, 0.1, 0.1)
    times = [(1 - waited) ** -power * waiting.own_share(waited) for waited in (0.0, 0.1, 0.45, 0.9)]
    assert times == pytest.approx([1.0] * 4)
    assert waiting.own_share(1.0) > 0


def test_of_more_threads_than_were_measured_no_more_than_eight_ninths_is_taken_off() -> None:
    assert effect_of_waiting("training", 16.0).own_share(0.5) == LEAST_OWN_SHARE
    assert effect_of_waiting("training", 2.0).own_share(0.85) < LEAST_OWN_SHARE


@pytest.mark.parametrize("workload_class", WORKLOAD_CLASSES)
def test_the_more_threads_want_a_cpu_the_more_they_wait_for_one_another(workload_class: str) -> None:
    one, two, many = (effect_of_waiting(workload_class, threads) for threads in (1.0, 1.98, 26.0))
    assert one.power == 1 <= two.power < many.power
    assert one.sd < two.sd < many.sd


def test_the_more_blocks_waited_the_less_is_known_of_their_own_time() -> None:
    waiting = Waiting(1.0, 0.5, 0.1)
    assert waiting.log_sd([0.0]) == 0
    assert waiting.log_sd([0.5, 0.5]) == pytest.approx(0.5 * math.log(2))
    assert waiting.log_sd([0.5, 0.0]) == pytest.approx(0.25 * math.log(2))
    assert math.isfinite(waiting.log_sd([1.0]))


def test_what_both_sides_waited_alike_mostly_falls_out_of_their_ratio() -> None:
    waiting = Waiting(2.0, 0.5, 0.1)
    assert waiting.log_sd_of_ratio([0.5], [0.5]) == pytest.approx(0.1 * math.log(2))
    assert waiting.log_sd_of_ratio([0.5], [0.0]) == pytest.approx(math.hypot(0.5, 0.1) * math.log(2))
