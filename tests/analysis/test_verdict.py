from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from gputui.analysis.priors import (
    INSTANCE_SD,
    LAUNCH_SD,
    band_between_models,
    instance_prior_sd,
    launch_prior_sd,
)
from gputui.analysis.verdict import (
    GeometricMean,
    RatioEstimate,
    SpeedEstimate,
    Verdict,
    compare_launches,
    compare_pairs,
    estimate_speed,
    geometric_mean,
    is_explained_by_clock,
    judge,
    runs_needed,
    with_ratio_of_speeds,
)
from gputui.model.absent import Missing
from gputui.model.result import Spread

JITTER = (1.002, 0.998, 1.001, 0.9995, 1.0005, 0.999, 1.003, 0.997, 1.0015, 0.9985)


def launch(seconds: float, blocks: int = 10) -> list[float]:
    """Blocks that scatter by 0.2 % around a time per unit."""
    return [seconds * JITTER[i % len(JITTER)] for i in range(blocks)]


def compared(
    a: list[list[float]], b: list[list[float]], prior_a: float = 0.1, prior_b: float | None = None
) -> RatioEstimate:
    estimate = compare_launches(a, b, prior_sd_a=prior_a, prior_sd_b=prior_a if prior_b is None else prior_b)
    assert isinstance(estimate, RatioEstimate), estimate
    return estimate


def test_the_ratio_is_above_1_when_b_needs_less_time() -> None:
    estimate = compared([launch(2.0)], [launch(1.0)])

    assert estimate.ratio == pytest.approx(2.0)
    assert estimate.low < 2 < estimate.high
    assert judge([estimate]) == [Verdict("faster", "")]
    assert judge([compared([launch(1.0)], [launch(2.0)])]) == [Verdict("slower", "")]


def test_one_launch_a_side_is_widened_by_the_prior_and_says_so() -> None:
    estimate = compared([launch(1.0)], [launch(1.0)])

    assert math.log(estimate.high) == pytest.approx(1.96 * 0.1 * math.sqrt(2), rel=0.01)
    assert estimate.method == "this run only, launch prior 10 %"
    assert judge([estimate]) == [Verdict("inconclusive", "the interval is too wide: needs 3 launches a side")]


def test_priors_of_both_sides_are_named_where_they_differ() -> None:
    estimate = compared([launch(1.0)], [launch(0.1)], 0.1, 0.026)

    assert estimate.method == "this run only, launch priors 10 % and 2.6 %"


def test_a_second_launch_narrows_the_interval() -> None:
    one = compared([launch(1.0)], [launch(1.0)])
    two = compared([launch(1.0)] * 2, [launch(1.0)] * 2)

    assert math.log(two.high) == pytest.approx(math.log(one.high) / math.sqrt(2), rel=0.02)
    assert two.method == "2 launches, launch prior 10 %"
    assert compared([launch(1.0)] * 3, [launch(1.0)]).method == "3 and 1 launches, launch prior 10 %"


def test_two_launches_that_differ_by_more_than_the_prior_override_it() -> None:
    calm = compared([launch(1.0), launch(1.0)], [launch(1.0), launch(1.0)], 0.01)
    wild = compared([launch(1.0), launch(1.5)], [launch(1.0), launch(1.0)], 0.01)

    assert math.log(wild.high / wild.low) > 5 * math.log(calm.high / calm.low)
    standard_error = math.log(1.5) / math.sqrt(2) / math.sqrt(2)
    assert math.log(wild.high / wild.low) / 2 >= 1.96 * standard_error


def test_three_launches_a_side_are_compared_by_their_own_spread() -> None:
    a = [launch(1.0), launch(1.01), launch(0.99)]
    b = [launch(0.5), launch(0.505), launch(0.495)]
    estimate = compared(a, b)

    assert estimate.method == "welch on launch medians"
    assert (estimate.launches_a, estimate.launches_b, estimate.n_a) == (3, 3, 30)
    assert estimate.ratio == pytest.approx(2.0, rel=1e-3)
    assert math.log(estimate.high / estimate.ratio) == pytest.approx(
        2.776 * 0.01 * math.sqrt(2 / 3), rel=0.02
    )
    assert judge([estimate]) == [Verdict("faster", "")]


def test_three_launches_that_agree_by_luck_keep_the_error_of_their_blocks() -> None:
    estimate = compared([launch(1.0)] * 3, [launch(1.0)] * 3)

    assert 1.0005 < estimate.high < 1.01
    assert judge([estimate]) == [Verdict("same", "")]


def test_a_launch_without_blocks_does_not_count() -> None:
    estimate = compared([launch(1.0), [], launch(1.0)], [launch(1.0)] * 3)

    assert estimate.launches_a == 2
    assert not estimate.replicated


@pytest.mark.parametrize(("b", "reason"), [([], "no block in b"), ([[1.0]], "only 1 block in b")])
def test_a_side_without_blocks_is_not_comparable(b: list[list[float]], reason: str) -> None:
    estimate = compare_launches([launch(1.0)], b, prior_sd_a=0.1, prior_sd_b=0.1)

    assert judge([estimate]) == [Verdict("not comparable", reason)]


def test_few_blocks_are_named_as_the_reason() -> None:
    estimate = compared([launch(1.0, 3)], [launch(1.0)])

    assert judge([estimate]) == [Verdict("inconclusive", "only 3 blocks in a")]


def test_the_p_is_below_5_percent_exactly_if_the_interval_excludes_the_band() -> None:
    for factor in (1.1, 1.25, 1.3, 1.32, 1.33, 1.34, 1.36, 1.4, 0.9, 0.76, 0.75, 0.74, 0.73, 0.7):
        for launches in (1, 2, 3):
            spread = [launch(factor), launch(factor * 1.1), launch(factor / 1.1)]
            estimate = compared(spread[:launches], [launch(1.0), launch(1.1), launch(0.9)][:launches])
            excludes = estimate.low > 1.01 or estimate.high < 1 / 1.01
            assert (estimate.p_beyond(0.01) < 0.05) == excludes


def test_a_ratio_inside_the_band_has_a_p_of_1_against_it() -> None:
    estimate = compared([launch(1.005)], [launch(1.0)])

    assert estimate.p_beyond(0.01) == 1


def test_what_is_resolvable_is_just_outside_the_interval_of_an_equal_pair() -> None:
    estimate = compared([launch(1.0)], [launch(1.0)])
    barely = compared([launch(estimate.resolvable * 1.001)], [launch(1.0)])
    not_quite = compared([launch(estimate.resolvable * 0.999)], [launch(1.0)])

    assert judge([barely])[0].word == "faster"
    assert judge([not_quite])[0].word == "inconclusive"


def weak_find() -> RatioEstimate:
    """Three launches a side whose interval excludes the band by little."""
    return compared(
        [launch(1.2), launch(1.25), launch(1.3)], [launch(1.0), launch(1.04), launch(1.08)], prior_a=0.2
    )


def test_a_weak_find_stands_alone_and_is_kept_back_among_many_rows() -> None:
    null = compared([launch(1.0), launch(1.1), launch(0.9)], [launch(1.0), launch(1.1), launch(0.9)], 0.2)

    assert weak_find().low > 1.01
    verdicts = judge([weak_find(), *[null] * 8])

    assert verdicts[0] == Verdict("inconclusive", "not clear enough among 9 rows")
    assert all(verdict.word == "inconclusive" for verdict in verdicts)


def test_what_a_table_keeps_back_names_no_smaller_ratio_that_would_have_shown() -> None:
    found = weak_find()

    assert found.is_beyond(0.01)
    assert not replace(found, low=1.005).is_beyond(0.01)
    assert replace(found, ratio=0.5, low=0.4, high=0.98).is_beyond(0.01)


def test_benjamini_hochberg_lets_weak_finds_pass_beside_strong_ones() -> None:
    strong = compared(
        [launch(9.0), launch(9.1), launch(8.9)], [launch(1.0), launch(1.01), launch(0.99)], prior_a=0.2
    )

    assert judge([weak_find(), *[strong] * 8])[0] == Verdict("faster", "")


def test_rows_of_one_launch_do_not_enter_benjamini_hochberg() -> None:
    found = compared([launch(1.4)], [launch(1.0)])
    nulls = [compared([launch(1.0)], [launch(1.0)])] * 9

    assert judge([found, *nulls])[0] == Verdict("faster", "")
    assert judge([found, *[compared([launch(1.0)] * 3, [launch(1.0)] * 3)] * 9])[0].word == "faster"


def test_a_replicated_row_says_how_many_launches_would_do() -> None:
    wide = compared([launch(1.2), launch(1.3), launch(1.1)], [launch(1.1), launch(1.0), launch(0.95)])
    hopeless = compared([launch(1.0), launch(1.1), launch(0.9)], [launch(1.0), launch(1.1), launch(0.9)])

    [open_row, lost_row] = judge([wide, hopeless])

    assert open_row.word == lost_row.word == "inconclusive"
    assert re.fullmatch(r"the interval is too wide: needs about \d+ launches a side", open_row.reason)
    assert lost_row.reason == "too near to ±1 % to tell: it takes more than 20 launches a side"


def test_a_band_may_be_given_per_row() -> None:
    estimate = compared([launch(1.5)] * 3, [launch(1.0)] * 3)

    assert [v.word for v in judge([estimate, estimate], band=[0.01, 0.6])] == ["faster", "same"]


def test_an_empty_table_has_no_verdicts() -> None:
    assert judge([]) == []


def test_blocks_that_follow_each_other_widen_the_interval() -> None:
    calm = [1 + 0.001 * (-1) ** i * (i % 3) for i in range(16)]
    drifting = sorted(calm)

    flat = compared([calm], [calm], 0.0)
    drift = compared([drifting], [drifting], 0.0)

    assert drift.autocorrelation > 0.5
    assert drift.high > 1 + 1.5 * (flat.high - 1)


def test_the_geometric_mean_weighs_rows_equally_and_is_narrower_than_a_row() -> None:
    faster, slower = compared([launch(2.0)], [launch(1.0)]), compared([launch(1.0)], [launch(2.0)])
    mean = geometric_mean([faster, slower])

    assert isinstance(mean, GeometricMean)
    assert mean.ratio == pytest.approx(1.0)
    assert mean.rows == 2
    assert math.log(mean.high) == pytest.approx(
        math.log(faster.high / faster.ratio) * math.sqrt(0.75), rel=0.01
    )


def test_the_geometric_mean_of_one_row_is_that_row_and_of_none_is_missing() -> None:
    row = compared([launch(2.0)], [launch(1.0)])
    mean = geometric_mean([row])

    assert isinstance(mean, GeometricMean)
    assert (mean.ratio, mean.low, mean.high) == pytest.approx((row.ratio, row.low, row.high))
    assert isinstance(geometric_mean([]), Missing)


def test_speed_is_the_inverse_of_the_time_per_unit_with_its_interval() -> None:
    one = estimate_speed([launch(0.01)], prior_sd=0.1)
    three = estimate_speed([launch(0.01), launch(0.0101), launch(0.0099)], prior_sd=0.1)

    assert isinstance(one, SpeedEstimate)
    assert isinstance(three, SpeedEstimate)
    assert one.units_per_s == pytest.approx(100, rel=1e-3)
    assert one.high / one.units_per_s == pytest.approx(math.exp(0.196), rel=0.01)
    assert three.high / three.units_per_s == pytest.approx(math.exp(4.303 * 0.01 / math.sqrt(3)), rel=0.01)
    assert (one.method, three.method) == ("this run only, launch prior 10 %", "t on launch medians")
    assert estimate_speed([[]], prior_sd=0.1) == Missing("no block")


def test_every_class_of_work_has_priors_and_an_unknown_one_gets_the_widest() -> None:
    classes = {(d, w) for d in ("cpu", "gpu") for w in ("ceiling", "training", "inference", "host")}

    assert set(INSTANCE_SD) == classes
    assert set(LAUNCH_SD) == classes | {("host", "inference")}, "and loads on a server"
    assert launch_prior_sd("cpu", "training") == 0.10
    assert launch_prior_sd("tpu", "training") == max(LAUNCH_SD[one] for one in classes)
    assert instance_prior_sd("gpu", "unheard of") == max(INSTANCE_SD.values())


def test_a_claim_about_models_of_gpu_has_a_wider_band() -> None:
    assert band_between_models(0.01, 0.0) == pytest.approx(0.01)
    assert band_between_models(0.01, 0.018) == pytest.approx(0.0509, abs=1e-3)


def test_runs_are_needed_in_proportion_to_the_square_of_the_interval_over_the_distance_to_the_limit() -> None:
    found = compared([launch(1.1)], [launch(1.0)])
    wide = replace(found, ratio=1.1, low=1.1 / 1.2, high=1.1 * 1.2)
    assert runs_needed(wide, 1.01) == math.ceil((math.log(1.2) / math.log(1.1 / 1.01)) ** 2)
    assert isinstance(runs_needed(wide, 1.099), Missing)


def test_a_mean_has_no_more_degrees_of_freedom_than_its_worst_row() -> None:
    rows = [replace(compared([launch(1.0)] * 3, [launch(2.0)] * 3), df=df) for df in (9.0, 2.0, 30.0)]
    mean = geometric_mean(rows)
    assert not isinstance(mean, Missing)
    assert mean.df == 2.0


@pytest.mark.parametrize(
    ("ratio", "clock_a_mhz", "clock_b_mhz", "is_explained"),
    [
        (1.2, 1000, 1200, True),
        (1.2, 1000, 1050, False),  # less than half of it
        (1.2, 1000, 1500, False),  # the clock would make it faster than it is
        (1.02, 1000, 1005, False),  # touches the band, and the clocks say little
        (1.2, 0, 1200, False),
    ],
)
def test_a_difference_is_of_the_clock_if_the_cycles_are_alike_and_most_of_it_vanishes(
    ratio: float, clock_a_mhz: float, clock_b_mhz: float, is_explained: bool
) -> None:
    exact = replace(
        compared([launch(1.0)] * 3, [launch(1.0)] * 3), ratio=ratio, low=ratio / 1.01, high=ratio * 1.01
    )
    assert is_explained_by_clock(exact, clock_a_mhz, clock_b_mhz) is is_explained


def paired(*ratios: float, spread: Spread | None = None) -> RatioEstimate:
    launches = [[(ratio * seconds, seconds) for seconds in launch(1.0)] for ratio in ratios]
    found = compare_pairs(launches, prior_sd=0.06, spread=spread)
    assert isinstance(found, RatioEstimate)
    return found


def test_pairs_tell_how_they_were_judged_and_what_they_could_have_told() -> None:
    alone = paired(1.5)
    assert alone.method == "this run only, blocks in pairs, launch prior 6 %"
    own = paired(1.49, 1.5, 1.51)
    assert own.method == "t on ratios of paired blocks by launch"
    of_the_box = paired(1.5, spread=Spread(0.02**2, 10.0))
    assert of_the_box.method == "moderated t on ratios of paired blocks by launch"
    assert math.log(paired(1.5, 1.5).high / 1.5) == pytest.approx(1.96 * 0.06 / math.sqrt(2), rel=1e-3)
    for found in (alone, own, of_the_box):
        half = math.log(found.high / found.low) / 2
        assert found.resolvable == pytest.approx(math.exp(half) * 1.01)


def test_pairs_that_do_not_hold_the_ratio_of_the_speeds_are_widened_to_it_and_could_tell_less() -> None:
    pairs = paired(1.49, 1.5, 1.51)
    speeds = [estimate_speed([launch(seconds)] * 3, prior_sd=0.1) for seconds in (1.6, 1.0)]
    a, b = speeds
    assert not isinstance(a, Missing)
    assert not isinstance(b, Missing)
    found = with_ratio_of_speeds(pairs, a, b)

    assert (found.ratio, found.high) == pytest.approx((1.6, 1.6), rel=0.01)
    assert found.low == pairs.low
    wider = found.high / pairs.high
    assert found.resolvable == pytest.approx(pairs.resolvable * math.sqrt(wider))


def test_a_difference_without_any_doubt_has_a_p_of_0() -> None:
    sure = replace(compared([launch(2.0)] * 3, [launch(1.0)] * 3), ratio=2.0, low=2.0, high=2.0)
    assert sure.p_beyond(0.01) == 0.0
