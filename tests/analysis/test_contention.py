"""What waiting for CPUs does to the time of a step, as the blocks of a launch show it."""

from __future__ import annotations

import math
import random

import pytest

from gputui.analysis.contention import Waiting, effect_of_waiting
from gputui.analysis.priors import WAITING_POWER_SD, WAITING_SD

SHARES = (0.1, 0.3, 0.5, 0.2, 0.4, 0.0)


def blocks(power: float, time: float = 1.0, shares: tuple[float, ...] = SHARES) -> list[tuple[float, float]]:
    return [(time * (1 - waited) ** -power, waited) for waited in shares]


@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
def test_blocks_that_wait_for_different_shares_tell_the_power(power: float) -> None:
    found = effect_of_waiting([blocks(power), blocks(power, time=7.0)], threads=2)

    assert found.power == pytest.approx(power, rel=1e-4)
    assert found.sd == pytest.approx(WAITING_SD, rel=1e-4)
    assert [t * found.own_share(w) for t, w in blocks(power)] == pytest.approx([1.0] * 6, rel=1e-3)


def test_launches_of_different_speed_tell_nothing_by_that() -> None:
    fast, slow = [(1.0, 0.0)] * 6, [(9.0, 0.5)] * 6
    found = effect_of_waiting([fast, slow], threads=2)

    assert found.power == 1
    assert found.sd == pytest.approx(math.hypot(WAITING_POWER_SD, WAITING_SD))
    assert effect_of_waiting([], threads=2) == found
    assert effect_of_waiting([[(1.0, 0.4)]], threads=2) == found


def test_noisy_blocks_leave_the_power_near_to_what_was_assumed() -> None:
    chance = random.Random(1)

    def launch(noise: float) -> list[tuple[float, float]]:
        return [(time * math.exp(chance.gauss(0, noise)), waited) for time, waited in blocks(3.0)]

    clear, noisy = (effect_of_waiting([launch(noise)], threads=2) for noise in (0.01, 3.0))
    assert clear.power == pytest.approx(3.0, abs=0.2)
    assert abs(noisy.power - 1) < 0.5
    assert clear.sd < 0.3 < 0.9 < noisy.sd


def test_one_thread_waits_for_no_other() -> None:
    one, two = (effect_of_waiting([], threads=threads) for threads in (1, 2))
    assert one.power == two.power == 1
    assert one.sd < 0.2 < two.sd
    chance = random.Random(2)
    noisy = [(time * math.exp(chance.gauss(0, 0.1)), waited) for time, waited in blocks(3.0)]
    one, two = (effect_of_waiting([noisy], threads=threads) for threads in (1, 2))
    assert one.power < 1.6 < two.power
    assert one.sd < 0.12 < two.sd


def test_waiting_never_makes_a_step_faster_than_its_waiting_alone_explains() -> None:
    assert effect_of_waiting([blocks(0.2)], threads=2).power == 1


def test_the_more_blocks_waited_the_less_is_known_of_their_own_time() -> None:
    waiting = Waiting(1.0, 0.5)
    assert waiting.log_sd([0.0]) == 0
    assert waiting.log_sd([0.5, 0.5]) == pytest.approx(0.5 * math.log(2))
    assert waiting.log_sd([0.5, 0.0]) == pytest.approx(0.25 * math.log(2))
    assert math.isfinite(waiting.log_sd([1.0]))
    assert waiting.own_share(1.0) > 0
