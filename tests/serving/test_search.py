"""Which rate comes next, where the limit lies, and percentiles with their intervals."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from dataclasses import replace

import pytest
from model_server import Behaviour
from offered_loads import LOAD
from scipy.stats import binom
from simulated_search import chat_load, limit_in_theory, searches_of_a_run

from gputui.analysis.statistics import Percentile, percentile, sample_needed
from gputui.model.absent import Missing
from gputui.worker.serving.load import TriedRate, bracket_of, is_growing
from gputui.worker.serving.load_launch import (
    LONG_REQUESTS,
    LONG_WAITS,
    SearchStart,
    is_known,
    limit_of,
    limit_search,
)


def _tried(*steps: tuple[float, float]) -> list[TriedRate]:
    return [TriedRate(rate, share, share >= 0.9, 100) for rate, share in steps]


_LOAD = replace(LOAD, ttft_s=0.5)


def _trials(limit_per_s: float, start: SearchStart, budget_s: float = 1e4) -> list[tuple[float, float]]:
    """The rates that a search tries on a server that holds exactly this one, and how long it offers each."""
    left_s = budget_s
    made: list[tuple[float, float]] = []
    search = limit_search(start, _LOAD, 0.5, lambda: left_s)
    trial = next(search, None)
    while trial is not None:
        made.append(trial)
        rate, seconds = trial
        left_s -= seconds
        trial = None
        with suppress(StopIteration):
            trial = search.send(TriedRate(rate, 1.0 if rate < limit_per_s else 0.5, rate < limit_per_s, 50))
    return made


def _is_long(rate: float, seconds: float) -> bool:
    return seconds >= max(LONG_REQUESTS / rate, LONG_WAITS * 0.5)


def test_a_search_doubles_until_a_rate_fails_makes_sure_of_the_one_before_and_then_halves_the_interval() -> (
    None
):
    rates = [rate for rate, _ in _trials(11.0, SearchStart(4.0, 2.0))]
    assert rates[:5] == pytest.approx([4, 8, 16, 8, math.sqrt(8 * 16)])
    assert rates[-1] == pytest.approx(11.0, rel=0.1)
    falling = [rate for rate, _ in _trials(1.5, SearchStart(4.0, 2.0))]
    assert falling[:3] == [4, 2, 1]


def test_trials_far_from_the_limit_are_short_and_the_last_ones_long() -> None:
    trials = _trials(11.0, SearchStart(1.0, 2.0), budget_s=200)
    assert [_is_long(*trial) for trial in trials[:4]] == [False] * 4
    assert _is_long(*trials[-1])
    assert sum(seconds for _, seconds in trials) <= 200


def test_a_search_that_knows_the_limit_looks_beside_it_only() -> None:
    trials = _trials(11.0, SearchStart(11.0 / 1.04, 1.08))
    assert len(trials) == 3
    assert all(_is_long(*trial) and 10 < trial[0] < 12 for trial in trials)


def test_a_search_goes_on_where_another_ended_and_measures_both_ends_itself() -> None:
    known = (TriedRate(8.0, 1.0, True, 16), TriedRate(16.0, 0.2, False, 16))
    trials = _trials(11.0, SearchStart(math.sqrt(128), 2.0, known))
    assert trials[0][0] == pytest.approx(math.sqrt(128))
    assert trials[1][0] == 8
    assert all(8 <= rate < 16 for rate, _ in trials)
    assert all(_is_long(*trial) for trial in trials)


def test_a_long_trial_overrules_a_short_one() -> None:
    """A short trial at 8 failed by chance: the limit is 11."""
    known = (TriedRate(4.0, 1.0, True, 16), TriedRate(8.0, 0.8, False, 16))
    assert _trials(11.0, SearchStart(5.7, 2.0, known))[-1][0] == pytest.approx(11.0, rel=0.1)


def test_in_a_short_time_the_limit_lies_between_two_rates_or_is_not_known() -> None:
    tried = _tried((4, 1.0), (8, 0.2))
    assert bracket_of(tried) == (tried[0], tried[1])
    assert not is_known(tried)
    near = _tried((4, 1.0), (5, 0.2))
    assert is_known(near)
    assert not is_known([replace(near[0], requests=16), near[1]])  # too few to say 90 %
    assert len(_trials(11.0, SearchStart(1.0, 2.0), budget_s=20)) == 1


@pytest.mark.parametrize(("slots", "decode_s"), [(4, 0.002), (16, 0.005)])
def test_a_run_in_the_default_time_ends_with_the_limit_that_theory_knows(slots: int, decode_s: float) -> None:
    """In virtual time; `tests/benchmarks/serving_search.py` prints more of them."""
    does = Behaviour(slots=slots, prefill_s=0.1, decode_s=decode_s)
    found = searches_of_a_run(does, 91.0, 3, None)
    assert found.limit_per_s == pytest.approx(limit_in_theory(does, chat_load()), rel=0.2)
    assert found.taken_s < 91.0


def test_the_limit_lies_where_the_share_of_good_requests_falls_below_the_wanted_one() -> None:
    assert limit_of(_tried((10, 1.0), (11, 0.8)), 0.9) == pytest.approx(math.sqrt(110))
    assert limit_of(_tried((10, 0.9), (11, 0.4)), 0.9) == pytest.approx(10)
    assert limit_of(_tried((10, 1.0)), 0.9) is None
    assert limit_of(_tried((10, 0.1)), 0.9) is None
    overloaded = TriedRate(12, 1.0, False, 100)  # which does not hold, whatever its share
    assert limit_of([TriedRate(10, 1.0, True, 100), overloaded], 0.9) == pytest.approx(12)


def test_a_share_that_rises_with_the_rate_by_chance_is_pooled() -> None:
    """0.95 at 12 and 0.75 at 11 are one pool of 0.85, between 10 and 14."""
    found = limit_of(_tried((10, 1.0), (11, 0.75), (12, 0.95), (14, 0.1)), 0.9)

    middle = math.sqrt(11 * 12)
    assert found == pytest.approx(10 * (middle / 10) ** (0.1 / 0.15))


def test_rising_is_told_from_chance() -> None:
    draw = random.Random(1)
    at = [float(n) for n in range(200)]
    assert is_growing([(n, 0.02 * n + draw.gauss(0, 1)) for n in at])
    flat = sum(is_growing([(n, draw.gauss(5, 1)) for n in at]) for _ in range(200))
    assert flat <= 2
    assert not is_growing([(n, n) for n in at[:10]])


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
