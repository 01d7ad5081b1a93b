"""The recursion that predicts waits, against the closed form of M/D/1 and by hand."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest
from queue_theory import waits_s


@pytest.mark.parametrize(("load", "mean_wait"), [(0.5, 0.5), (0.8, 2.0)])
def test_the_mean_wait_at_one_slot_is_that_of_pollaczek_and_khinchine(load: float, mean_wait: float) -> None:
    draw = random.Random(22)
    arrivals = list(itertools.accumulate(draw.expovariate(load) for _ in range(300_000)))

    waits = waits_s(arrivals, [1.0] * len(arrivals), 1)

    assert statistics.fmean(waits) == pytest.approx(mean_wait, rel=0.03)


def test_a_request_waits_for_the_slot_that_is_free_first() -> None:
    # Two slots: the first is busy until 5, the second until 3, then until 5.
    assert waits_s([0, 1, 2, 2], [5, 2, 2, 1], 2) == [0, 0, 1, 3]
