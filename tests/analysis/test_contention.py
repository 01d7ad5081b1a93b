"""What waiting for CPUs does to the time of a step."""

from __future__ import annotations

import math

import pytest

from gputui.analysis.contention import Waiting, effect_of_waiting
from gputui.model.case import WORKLOAD_CLASSES


@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
def test_blocks_that_wait_for_different_shares_have_one_own_time(power: float) -> None:
    waiting = Waiting(power, 0.1)
    times = [(1 - waited) ** -power * waiting.own_share(waited) for waited in (0.0, 0.1, 0.3, 0.5)]
    assert times == pytest.approx([1.0] * 4)
    assert waiting.own_share(1.0) > 0


@pytest.mark.parametrize("workload_class", WORKLOAD_CLASSES)
def test_one_thread_waits_for_no_other(workload_class: str) -> None:
    one, two = (effect_of_waiting(workload_class, threads=threads) for threads in (1, 2))
    assert one.power == 1 <= two.power
    assert one.sd < two.sd


def test_the_more_blocks_waited_the_less_is_known_of_their_own_time() -> None:
    waiting = Waiting(1.0, 0.5)
    assert waiting.log_sd([0.0]) == 0
    assert waiting.log_sd([0.5, 0.5]) == pytest.approx(0.5 * math.log(2))
    assert waiting.log_sd([0.5, 0.0]) == pytest.approx(0.25 * math.log(2))
    assert math.isfinite(waiting.log_sd([1.0]))
