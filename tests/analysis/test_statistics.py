from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from gputui.analysis.statistics import (
    Estimated,
    _signed_rank_critical,
    bin_of,
    dependence_factor,
    histogram,
    hodges_lehmann,
    hodges_lehmann_interval,
    incomplete_beta,
    lag1_autocorrelation,
    location_error,
    merged_until_independent,
    normal_cdf,
    normal_quantile,
    rank_autocorrelation,
    t_cdf,
    t_quantile,
)
from gputui.model.absent import Missing

samples = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


def correlated(rng: random.Random, count: int, rho: float) -> list[float]:
    """A first-order autoregressive series around 100."""
    away = rng.gauss(0, 1)
    series = []
    for _ in range(count):
        away = rho * away + math.sqrt(1 - rho * rho) * rng.gauss(0, 1)
        series.append(100 + away)
    return series


@given(samples)
def test_a_histogram_counts_every_value_once_and_what_is_beyond_in_the_outer_bins(
    values: list[float],
) -> None:
    counts = histogram(values, -50, 50, 10, is_log=False)
    assert sum(counts) == len(values)
    assert counts[0] == sum(value < -40 for value in values)
    assert counts[-1] == sum(value >= 40 for value in values)


def test_bins_on_a_logarithmic_axis_are_of_equal_ratios() -> None:
    assert [bin_of(value, 1, 100, 2, is_log=True) for value in (1, 9.9, 10.1, 100)] == [0, 0, 1, 1]


@given(samples)
def test_the_centre_of_one_sample_is_the_median_of_all_pair_means(values: list[float]) -> None:
    pairs = [(values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values))]

    assert hodges_lehmann(values) == pytest.approx(np.median(pairs), abs=1e-9)


@settings(max_examples=40)
@given(st.integers(6, 25), st.integers(0, 2**32).map(random.Random))
def test_an_exact_interval_holds_0_exactly_if_wilcoxon_keeps_the_null(n: int, rng: random.Random) -> None:
    values = [rng.gauss(0.5, 1) for _ in range(n)]
    interval = hodges_lehmann_interval(values)

    assert isinstance(interval, Estimated)
    assert (interval.low <= 0 <= interval.high) == (stats.wilcoxon(values, mode="exact").pvalue > 0.05)


def test_many_blocks_give_the_same_interval_as_sorting_all_pairs() -> None:
    rng = random.Random(3)
    x = [rng.gauss(0, 1) for _ in range(300)]
    centre = hodges_lehmann_interval(x)
    i, j = np.triu_indices(300)
    means = np.sort((np.array(x)[i] + np.array(x)[j]) / 2)

    assert isinstance(centre, Estimated)
    assert centre.value == pytest.approx(np.median(means), abs=1e-10)
    assert np.abs(means - centre.high).min() < 1e-10


def test_five_blocks_have_no_rank_interval_and_six_have() -> None:
    assert hodges_lehmann_interval([1, 2, 3, 4, 5]) == Missing("only 5 blocks: a 95 % interval needs 6")
    assert hodges_lehmann_interval([1, 2, 3, 4, 5, 6]) == Estimated(3.5, 1, 6)


def test_the_rank_of_wilcoxon_for_many_blocks_is_that_of_the_printed_tables() -> None:
    assert _signed_rank_critical(50) == pytest.approx(435, abs=1)


def test_autocorrelation_is_that_of_the_series_and_last_bits_are_none_on_any_scale() -> None:
    series = correlated(random.Random(5), 5000, 0.6)

    assert lag1_autocorrelation(series) == pytest.approx(0.6, abs=0.04)
    assert lag1_autocorrelation([1, -1] * 50) == pytest.approx(-0.99)
    assert lag1_autocorrelation([0.1] * 50) == 0
    assert lag1_autocorrelation([1, 2, 3]) == 0
    for scale in (1e-9, 1.0, 1e9):
        assert lag1_autocorrelation(([(0.1 + 0.2) * scale] * 2 + [0.3 * scale] * 2) * 5) == 0


def test_blocks_that_follow_each_other_are_merged_until_they_do_not() -> None:
    series = correlated(random.Random(6), 400, 0.8)
    merged = merged_until_independent(series)

    assert 10 <= len(merged) <= 100
    assert rank_autocorrelation(merged) <= 0.3
    assert math.fsum(merged) / len(merged) == pytest.approx(math.fsum(series) / len(series), abs=0.1)
    independent = correlated(random.Random(7), 200, 0.0)
    assert merged_until_independent(independent) == tuple(independent)
    odd = merged_until_independent([-1.0, *range(20)])
    assert odd == tuple(x + 0.5 for x in range(0, 20, 2)), "without the block next to the warm-up"


def test_one_outlier_does_not_hide_that_blocks_follow_each_other_and_ties_do_not_feign_it() -> None:
    series = correlated(random.Random(9), 400, 0.6)
    spoilt = [*series[:200], 1000.0, *series[200:]]

    assert lag1_autocorrelation(spoilt) < 0.1
    assert rank_autocorrelation(spoilt) == pytest.approx(rank_autocorrelation(series), abs=0.02)
    assert rank_autocorrelation([0.1] * 50) == 0


def test_fewer_than_20_blocks_are_not_merged_but_widen_the_interval() -> None:
    rising = [float(x) for x in range(19)]

    assert merged_until_independent(rising) == tuple(rising)
    assert dependence_factor(rising) > 2
    assert dependence_factor([1.0, 2.0, 1.5, 1.2, 2.1, 1.1, 1.9]) == 1


def test_the_error_of_a_location_shrinks_with_the_root_of_the_blocks() -> None:
    rng = random.Random(8)
    few = [location_error([rng.gauss(0, 1) for _ in range(25)]) for _ in range(40)]
    many = [location_error([rng.gauss(0, 1) for _ in range(100)]) for _ in range(40)]

    assert statistics.median(few) == pytest.approx(0.2, rel=0.2)
    assert statistics.median(many) == pytest.approx(0.1, rel=0.2)
    assert location_error([1.0]) == 0
    assert location_error([1.0, 1.2]) == pytest.approx(0.1)


def test_quantiles_and_distributions_are_scipys_also_of_fractional_freedom_and_far_out_in_the_tail() -> None:
    shares = (1e-6, 0.001, 0.005, 0.025, 0.3, 0.5, 0.6, 0.9, 0.975, 0.995, 0.9999)
    for share in (1e-300, 1e-12, *shares, 1 - 1e-12):
        assert normal_quantile(share) == pytest.approx(stats.norm.ppf(share), abs=1e-8), share
    for z in (-40, -8, -1.96, -0.1, 0, 0.1, 1.96, 8):
        assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-12), z
    for df in (1, 1.01, 1.37, 2, 2.5, 3, 3.9, 4, 7.7, 10, 30.2, 99.5, 200):
        for share in shares:
            known = stats.t.ppf(share, df)
            assert t_quantile(share, df) == pytest.approx(known, rel=1e-8, abs=1e-8), (share, df)
        for t in (-1e6, -300, -5.6, -2, -0.01, 0, 0.5, 2.78, 50):
            assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-8), (t, df)
    for df in (1e5, 9e6, 1e10, 1e17, math.inf):
        assert t_quantile(0.975, df) == pytest.approx(normal_quantile(0.975), rel=3e-5), df
        assert t_cdf(1.3, df) == pytest.approx(normal_cdf(1.3), rel=3e-5), df
    for a, b in ((0.5, 0.5), (0.7, 3), (50, 0.5), (2, 80)):
        for x in (0, 1e-9, 0.2, 0.5, 0.93, 1):
            known = special.betainc(a, b, x)
            assert incomplete_beta(a, b, x) == pytest.approx(known, rel=1e-9, abs=1e-15), (a, b, x)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.1])
def test_a_share_outside_0_to_1_has_no_quantile(share: float) -> None:
    with pytest.raises(ValueError, match="in the range"):
        normal_quantile(share)
    with pytest.raises(ValueError, match="between 0 and 1"):
        t_quantile(share, 5)
