from __future__ import annotations

import math

import pytest
from scipy import special, stats

from gputui.analysis.statistics import incomplete_beta, normal_cdf, normal_quantile, t_cdf, t_quantile

SHARES = (1e-6, 0.001, 0.005, 0.025, 0.3, 0.5, 0.6, 0.9, 0.975, 0.995, 0.9999)
FREEDOMS = (1, 1.01, 1.37, 2, 2.5, 3, 3.9, 4, 7.7, 10, 30.2, 99.5, 200)


@pytest.mark.parametrize("share", [1e-300, 1e-12, *SHARES, 1 - 1e-12])
def test_the_normal_quantile_is_scipys(share: float) -> None:
    assert normal_quantile(share) == pytest.approx(stats.norm.ppf(share), abs=1e-8)


@pytest.mark.parametrize("z", [-40, -8, -1.96, -0.1, 0, 0.1, 1.96, 8])
def test_the_normal_distribution_is_scipys(z: float) -> None:
    assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-12)


@pytest.mark.parametrize("df", FREEDOMS)
@pytest.mark.parametrize("share", SHARES)
def test_the_t_quantile_is_scipys_also_for_fractional_degrees_of_freedom(share: float, df: float) -> None:
    assert t_quantile(share, df) == pytest.approx(stats.t.ppf(share, df), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("df", FREEDOMS)
@pytest.mark.parametrize("t", [-1e6, -300, -5.6, -2, -0.01, 0, 0.5, 2.78, 50])
def test_the_t_distribution_is_scipys_also_far_out_in_the_tail(t: float, df: float) -> None:
    assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-8)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (0.7, 3), (50, 0.5), (2, 80)])
@pytest.mark.parametrize("x", [0, 1e-9, 0.2, 0.5, 0.93, 1])
def test_the_incomplete_beta_function_is_scipys(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("df", [1e5, 9e6, 1e10, 1e17, math.inf])
def test_with_very_many_degrees_of_freedom_t_is_normal(df: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(normal_quantile(0.975), rel=3e-5)
    assert t_cdf(1.3, df) == pytest.approx(normal_cdf(1.3), rel=3e-5)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.1])
def test_a_share_outside_0_to_1_has_no_quantile(share: float) -> None:
    with pytest.raises(ValueError, match="in the range"):
        normal_quantile(share)
    with pytest.raises(ValueError, match="between 0 and 1"):
        t_quantile(share, 5)
