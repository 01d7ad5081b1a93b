"""Which rate comes next, where the limit lies, and percentiles with their intervals."""

from __future__ import annotations

import math
import random

import pytest
from scipy.stats import binom

from gputui.analysis.order_statistics import Percentile, percentile, sample_needed
from gputui.model.absent import Missing
from gputui.worker.serving.search import TriedRate, is_growing, limit_of, next_rate


def _tried(*steps: tuple[float, float]) -> list[TriedRate]:
    return [TriedRate(rate, share, share >= 0.9, 100) for rate, share in steps]


def test_a_search_doubles_until_a_rate_fails_and_halves_until_one_holds() -> None:
    assert next_rate(_tried((4, 1.0))) == 8
    assert next_rate(_tried((4, 0.5))) == 2
    assert next_rate(_tried((4, 1.0), (8, 0.2))) == pytest.approx(math.sqrt(32))
    assert next_rate(_tried((10, 1.0), (11, 0.2))) is None


def test_the_limit_lies_where_the_share_of_good_requests_falls_below_the_wanted_one() -> None:
    assert limit_of(_tried((10, 1.0), (11, 0.8)), 0.9) == pytest.approx(math.sqrt(110))
    assert limit_of(_tried((10, 0.9), (11, 0.4)), 0.9) == pytest.approx(10)
    assert limit_of(_tried((10, 1.0)), 0.9) is None
    assert limit_of(_tried((10, 0.1)), 0.9) is None


def test_a_share_that_rises_with_the_rate_by_chance_is_pooled() -> None:
    """0.95 at 12 and 0.75 at 11 are one pool of 0.85, between 10 and 14."""
    found = limit_of(_tried((10, 1.0), (11, 0.75), (12, 0.95), (14, 0.1)), 0.9)

    middle = math.sqrt(11 * 12)
    assert found == pytest.approx(10 * (middle / 10) ** (0.1 / 0.15))


def test_an_overloaded_rate_does_not_hold_whatever_its_share() -> None:
    found = limit_of([TriedRate(10, 1.0, True, 100), TriedRate(12, 1.0, False, 100)], 0.9)

    assert found == pytest.approx(12)


def test_rising_is_told_from_chance() -> None:
    draw = random.Random(1)
    at = [float(n) for n in range(200)]
    assert is_growing(at, [0.02 * n + draw.gauss(0, 1) for n in at])
    flat = sum(is_growing(at, [draw.gauss(5, 1) for _ in at]) for _ in range(200))
    assert flat <= 2
    assert not is_growing(at[:10], at[:10])


@pytest.mark.parametrize(("share", "needed"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_a_percentile_needs_so_many_requests(share: float, needed: int) -> None:
    assert sample_needed(share) == needed
    assert isinstance(percentile(list(range(needed)), share), Percentile)
    assert percentile(list(range(needed - 1)), share) == Missing(f"needs {needed} requests, has {needed - 1}")


@pytest.mark.parametrize(("n", "share"), [(40, 0.5), (72, 0.95), (1000, 0.99), (3000, 0.99)])
def test_the_ends_of_a_percentile_are_the_ranks_that_hold_it(n: int, share: float) -> None:
    found = percentile([float(rank) for rank in range(1, n + 1)], share)

    assert isinstance(found, Percentile)
    below, within = binom.cdf(found.low - 1, n, share), binom.cdf(found.high - 1, n, share)
    assert below <= 0.025 < binom.cdf(found.low, n, share)
    assert within >= 0.975 > binom.cdf(found.high - 2, n, share)
    assert found.value == math.ceil(n * share)
