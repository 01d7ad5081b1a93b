"""Quantiles of the normal and of Student's t distribution, without scipy, whose import takes 0.35 s."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

_SMALLEST = 1e-300  # stands for 0 in Lentz's algorithm
_NORMAL_ABOVE_DF = 1e7
"""Student's t differs by less than 1e-6 there, and differences of log-gammas lose their digits above it."""


def normal_cdf(z: float) -> float:
    """The share of a standard normal distribution below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def normal_quantile(share: float) -> float:
    """The z below which a share of the standard normal distribution lies; 0 < share < 1."""
    return NormalDist().inv_cdf(share)


def t_cdf(t: float, df: float) -> float:
    """The share of Student's t distribution below t; `df` may be fractional, or infinite for the normal.

    Source: Abramowitz & Stegun 26.7.1, by the incomplete beta function.
    """
    if df > _NORMAL_ABOVE_DF:
        return normal_cdf(t)
    if math.isinf(t):
        return 0.0 if t < 0 else 1.0
    tail = _t_tail(t, df)
    return tail if t < 0 else 1 - tail


def _t_tail(t: float, df: float) -> float:
    """The share of Student's t distribution beyond |t|, on one side."""
    return 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))


@functools.lru_cache(maxsize=1024)
def t_quantile(share: float, df: float) -> float:
    """The t below which a share of Student's t distribution lies; 0 < share < 1, df ≥ 1, maybe fractional.

    Newton's method from the normal's quantile, which is never the larger: the upper tail is convex there, so
    each step comes nearer from the same side.
    """
    if df > _NORMAL_ABOVE_DF:
        return normal_quantile(share)
    if share < 0.5:
        return -t_quantile(1 - share, df)
    if not share < 1:
        raise ValueError(f"a quantile needs a share between 0 and 1, not {share}")
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    t = max(normal_quantile(share), 0.0)
    while True:
        density = math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (_t_tail(t, df) - (1 - share)) / density
        if step <= 1e-15 * t:
            return t
        t += step


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function for a, b > 0 and x from 0 to 1.

    Source: continued fraction DLMF 8.17.22, evaluated by Lentz's algorithm.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


def _not_zero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST
