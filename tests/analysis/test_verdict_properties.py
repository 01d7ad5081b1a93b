"""Properties that every verdict must have, whatever was measured."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gputui.analysis.verdict import (
    RatioEstimate,
    SpeedEstimate,
    Verdict,
    compare_launches,
    compare_pairs,
    estimate_speed,
    geometric_mean,
    judge,
    with_ratio_of_speeds,
)
from gputui.model.absent import Missing

MIRRORED = {"faster": "slower", "slower": "faster"}
CLOSE = 1e-9
"""Tolerance for the bisection of many pairs, and for rounding of logs."""

times = st.integers(1_000, 10**12).map(lambda ns: ns * 1e-9)
"""Seconds of a block in whole nanoseconds; two of them differ by up to a factor of 1e9."""
near = st.integers(9_000, 11_000).map(lambda x: x * 1e-4)
"""A scatter as real boxes have it."""
launches_of_any_kind = st.one_of(
    st.lists(st.lists(times, min_size=1, max_size=24), min_size=1, max_size=5),
    st.lists(st.lists(near, min_size=1, max_size=24), min_size=1, max_size=5),
    st.builds(lambda t, n, k: [[t] * n] * k, times, st.integers(1, 24), st.integers(1, 5)),
)
priors = st.sampled_from((0.01, 0.026, 0.1))
pairs_of_any_kind = st.lists(st.lists(st.tuples(near, near), min_size=1, max_size=24), min_size=1, max_size=5)


def compared(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], prior_a: float, prior_b: float
) -> RatioEstimate:
    found = compare_launches(a, b, prior_sd_a=prior_a, prior_sd_b=prior_b)
    if isinstance(found, Missing):
        assert min(sum(map(len, a)), sum(map(len, b))) < 2
        assume(False)
    assert isinstance(found, RatioEstimate)
    return found


def same_numbers(a: RatioEstimate, b: RatioEstimate) -> None:
    for x, y in ((a.ratio, b.ratio), (a.low, b.low), (a.high, b.high), (a.resolvable, b.resolvable)):
        assert math.log(x) == pytest.approx(math.log(y), rel=CLOSE, abs=CLOSE)
    assert a.df == pytest.approx(b.df, rel=1e-6)


def inverted(estimate: RatioEstimate) -> tuple[float, float, float]:
    return 1 / estimate.ratio, 1 / estimate.high, 1 / estimate.low


def mirrored(verdicts: Sequence[Verdict]) -> list[str]:
    return [MIRRORED.get(verdict.word, verdict.word) for verdict in verdicts]


@settings(max_examples=75, deadline=None, derandomize=True)
@given(launches_of_any_kind, launches_of_any_kind, priors, priors)
def test_exchanging_the_sides_inverts_the_interval_and_mirrors_the_word(
    a: list[list[float]], b: list[list[float]], prior_a: float, prior_b: float
) -> None:
    there, back = compared(a, b, prior_a, prior_b), compared(b, a, prior_b, prior_a)

    assert 0 < there.low <= there.ratio * (1 + CLOSE)
    assert there.ratio <= there.high * (1 + CLOSE)
    assert (back.ratio, back.low, back.high) == pytest.approx(inverted(there), rel=CLOSE)
    assert back.p_beyond(0.0) == pytest.approx(there.p_beyond(0.0), rel=1e-6, abs=1e-12)
    assert (back.blocks_a, back.launches_a) == (there.blocks_b, there.launches_b)
    assert (back.blocks_b, back.launches_b) == (there.blocks_a, there.launches_a)
    assert [v.word for v in judge([back])] == mirrored(judge([there]))


@settings(max_examples=75, deadline=None, derandomize=True)
@given(
    *(launches_of_any_kind, launches_of_any_kind, pairs_of_any_kind, priors),
    *(st.integers(-40, 40), st.randoms(use_true_random=False)),
)
def test_in_any_unit_and_order_the_ratio_is_that_of_the_speeds_and_lies_within_its_interval(
    a: list[list[float]],
    b: list[list[float]],
    pairs: list[list[tuple[float, float]]],
    prior: float,
    power: int,
    rng: random.Random,
) -> None:
    found = compared(a, b, prior, prior)
    scaled, shuffled = [
        [[[t * factor for t in launch] for launch in side] for side in (a, b)] for factor in (2.0**power, 1.0)
    ]
    for side in shuffled:
        rng.shuffle(side)
    same_numbers(found, compared(scaled[0], scaled[1], prior, prior))
    same_numbers(found, compared(shuffled[0], shuffled[1], prior, prior))

    speeds = [estimate_speed(side, prior_sd=prior) for side in (a, b)]
    known = [speed for speed in speeds if isinstance(speed, SpeedEstimate)]
    of_speeds = known[1].units_per_s / known[0].units_per_s
    assert math.log(found.ratio) == pytest.approx(math.log(of_speeds), rel=CLOSE, abs=CLOSE)

    paired = compare_pairs(pairs, prior_sd=prior)
    ratios = [found]
    if isinstance(paired, RatioEstimate):
        ratios += [paired, with_ratio_of_speeds(paired, known[0], known[1])]
    points = [(one.ratio, one.low, one.high) for one in ratios]
    for point, low, high in (*points, *((one.units_per_s, one.low, one.high) for one in known)):
        assert low < point / 1.001 < point * 1.001 < high


@settings(max_examples=75, deadline=None, derandomize=True)
@given(pairs_of_any_kind, priors)
def test_exchanging_the_sides_of_pairs_inverts_them_too(
    launches: list[list[tuple[float, float]]], prior: float
) -> None:
    there = compare_pairs(launches, prior_sd=prior)
    back = compare_pairs([[(y, x) for x, y in launch] for launch in launches], prior_sd=prior)
    assume(isinstance(there, RatioEstimate))
    assert isinstance(there, RatioEstimate)
    assert isinstance(back, RatioEstimate)

    assert (back.ratio, back.low, back.high) == pytest.approx(inverted(there), rel=CLOSE)
    assert [v.word for v in judge([back])] == mirrored(judge([there]))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(launches_of_any_kind, launches_of_any_kind, priors, st.floats(1.0, 1.5))
def test_longer_blocks_of_b_never_make_it_faster(
    a: list[list[float]], b: list[list[float]], prior: float, longer: float
) -> None:
    before = compared(a, b, prior, prior)
    after = compared(a, [[t * longer for t in launch] for launch in b], prior, prior)

    assert after.ratio == pytest.approx(before.ratio / longer, rel=1e-6)
    words = [judge([one])[0].word for one in (before, after)]
    assert words[1] != "faster" or words[0] == "faster"
    assert words[0] != "slower" or words[1] == "slower"


quiet = st.integers(9_700, 10_300).map(lambda x: x * 1e-4)
three_quiet = st.lists(st.lists(quiet, min_size=2, max_size=8), min_size=3, max_size=5)
shifted = st.tuples(three_quiet, three_quiet, st.floats(0.7, 1.4))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(shifted, min_size=1, max_size=6))
def test_a_row_of_equals_more_never_adds_a_find_where_launches_vary_as_assumed(
    sides: list[tuple[list[list[float]], list[list[float]], float]],
) -> None:
    rows = [compared(a, [[t * k for t in launch] for launch in b], 0.1, 0.1) for a, b, k in sides]
    null = compared([[1.0, 1.02, 0.98]] * 3, [[1.0, 1.02, 0.98]] * 3, 0.1, 0.1)

    def finds(estimates: Sequence[RatioEstimate | Missing]) -> set[int]:
        return {n for n, v in enumerate(judge(estimates)) if v.word in MIRRORED}

    assert finds([*rows, null]) <= finds(rows)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(launches_of_any_kind, launches_of_any_kind), min_size=1, max_size=5), priors)
def test_the_mean_of_rows_turns_with_the_sides_and_lies_among_them(
    sides: list[tuple[list[list[float]], list[list[float]]]], prior: float
) -> None:
    there = geometric_mean([compared(a, b, prior, prior) for a, b in sides])
    back = geometric_mean([compared(b, a, prior, prior) for a, b in sides])
    assert not isinstance(there, Missing)
    assert not isinstance(back, Missing)

    assert (back.ratio, back.low, back.high) == pytest.approx(
        (1 / there.ratio, 1 / there.high, 1 / there.low), rel=CLOSE
    )
