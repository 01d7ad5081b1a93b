from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from gputui.analysis.spread import (
    ASSUMED,
    INSTANCE_SD,
    LAUNCH_SD,
    RUN_DF,
    RUN_SD,
    assumed_runs,
    band_between_models,
    instance_prior_sd,
    kind_of_work,
    launch_prior_sd,
    run_prior_sd,
    together,
)
from gputui.analysis.statistics import sample_variance, t_quantile
from gputui.analysis.verdict import (
    BAND,
    FALSE_DISCOVERY_RATE,
    ONE_RUN,
    GeometricMean,
    RatioEstimate,
    SpeedEstimate,
    Verdict,
    are_slower,
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


def known(*launches: float, prior: float = 0.1) -> Spread:
    """Of one launch, by the account of `spread`, which verdicts rest on."""
    logs = [math.log(seconds) for seconds in launches]
    return ASSUMED.of_row(Spread(sample_variance(logs), len(logs) - 1.0) if len(logs) > 1 else None, prior)


def half_of(a: Spread, b: Spread, launches: int, runs: Spread = ONE_RUN) -> float:
    """Half the 95 % interval of a log ratio."""
    total = together(
        (*(replace(one, variance=one.variance / launches) for one in (a, b)), runs),
    )
    return t_quantile(0.975, total.df) * math.sqrt(total.variance)


def test_the_ratio_is_above_1_when_b_needs_less_time() -> None:
    estimate = compared([launch(2.0)], [launch(1.0)])

    assert estimate.ratio == pytest.approx(2.0)
    assert estimate.low < 2 < estimate.high
    assert judge([estimate])[0].word == "faster"
    assert judge([compared([launch(1.0)], [launch(2.0)])])[0].word == "slower"


def test_a_launch_without_blocks_does_not_count_and_a_side_without_them_is_not_comparable() -> None:
    assert compared([launch(1.0), [], launch(1.0)], [launch(1.0)] * 3).launches_a == 2
    for b, reason in (([], "no block in b"), ([[1.0]], "only 1 block in b")):
        estimate = compare_launches([launch(1.0)], b, prior_sd_a=0.1, prior_sd_b=0.1)
        assert judge([estimate]) == [Verdict("not comparable", reason)]
    assert judge([]) == []


def test_one_launch_a_side_has_the_interval_of_students_t_on_the_table_and_says_so() -> None:
    estimate, more = compared([launch(1.0)], [launch(1.0)]), compared([launch(1.0)] * 3, [launch(1.0)])

    assert math.log(estimate.high) == pytest.approx(half_of(known(), known(), 1))
    assert math.log(estimate.high) > 1.96 * 0.1 * math.sqrt(2), "the table is not known exactly"
    assert estimate.method == "t on launch medians, assumed spread"
    as_stored = estimate_speed([launch(1.0)], prior_sd=0.1, spread=known())  # what a file of one run knows
    assert isinstance(as_stored, SpeedEstimate)
    assert as_stored.method == estimate.method
    assert judge([estimate])[0].word == "inconclusive"
    assert more.half_width < estimate.half_width, "launches of one side tell more than none"
    assert more.method == "moderated t on launch medians"


@pytest.mark.parametrize("scatter", [0.0, 0.001, 0.1, 0.3])
def test_launches_are_pooled_with_the_table_however_many_there_are(scatter: float) -> None:
    times = [1.0, 1.0 + scatter, 1.0 / (1 + scatter)]
    for launches in (2, 3):
        mine = times[:launches]
        estimate = compared([launch(t, 2) for t in mine], [launch(t / 2, 2) for t in mine])

        assert estimate.half_width == pytest.approx(half_of(known(*mine), known(*mine), launches), rel=1e-3)
        assert estimate.ratio == pytest.approx(2.0)
        assert (estimate.launches_a, estimate.launches_b, estimate.blocks_a) == (
            launches,
            launches,
            2 * launches,
        )
        assert estimate.method == "moderated t on launch medians"


def test_what_runs_differ_by_is_no_more_known_than_launches_and_no_launch_averages_it_out() -> None:
    runs = assumed_runs(0.04)
    wide = compare_launches([launch(1.0)] * 3, [launch(1.0)] * 3, prior_sd_a=0.1, prior_sd_b=0.1, runs=runs)

    assert isinstance(wide, RatioEstimate)
    equal = known(1.0, 1.0, 1.0)
    assert wide.half_width == pytest.approx(half_of(equal, equal, 3, runs), rel=1e-3)
    assert wide.half_width_with(10**6, 10**6) == pytest.approx(t_quantile(0.975, RUN_DF) * 0.04, rel=1e-3)


def test_three_launches_that_agree_by_luck_keep_the_table_and_the_error_of_their_blocks() -> None:
    estimate = compared([launch(1.0)] * 3, [launch(1.0)] * 3)
    blocks = compared([launch(1.0)] * 3, [launch(1.0)] * 3, prior_a=1e-9)

    assert judge([estimate])[0].word == "inconclusive"
    assert 1.0005 < blocks.high < 1.01
    assert judge([blocks]) == [Verdict("same", "")]


def test_the_p_is_below_5_percent_exactly_if_the_interval_excludes_the_band() -> None:
    for factor in (1.1, 1.25, 1.3, 1.32, 1.33, 1.34, 1.36, 1.4, 0.9, 0.76, 0.75, 0.74, 0.73, 0.7):
        for launches in (1, 2, 3):
            spread = [launch(factor), launch(factor * 1.1), launch(factor / 1.1)]
            estimate = compared(spread[:launches], [launch(1.0), launch(1.1), launch(0.9)][:launches])
            excludes = estimate.low > 1.01 or estimate.high < 1 / 1.01
            assert (estimate.p_beyond(0.01) < 0.05) == excludes
    assert compared([launch(1.005)], [launch(1.0)]).p_beyond(0.01) == 1, "it lies inside the band"
    sure = replace(estimate, ratio=2.0, low=2.0, high=2.0)
    assert sure.p_beyond(0.01) == 0.0


def test_what_is_resolvable_is_just_outside_the_interval_of_an_equal_pair() -> None:
    estimate = compared([launch(1.0)], [launch(1.0)])
    barely = compared([launch(estimate.resolvable * 1.001)], [launch(1.0)])
    not_quite = compared([launch(estimate.resolvable * 0.999)], [launch(1.0)])

    assert judge([barely])[0].word == "faster"
    assert judge([not_quite])[0].word == "inconclusive"


def estimated(p: float, ratio: float = 1.2, df: float = 8.0) -> RatioEstimate:
    """One whose difference from the band has this p."""
    distance = abs(math.log(ratio)) - math.log1p(BAND)
    half = t_quantile(0.975, df) / t_quantile(1 - p / 2, df) * distance
    plain = compared([launch(1.2)], [launch(1.0)])
    found = replace(plain, ratio=ratio, low=ratio * math.exp(-half), high=ratio * math.exp(half), df=df)
    assert found.p_beyond(BAND) == pytest.approx(p)
    return found


def words(*verdicts: Verdict) -> list[str]:
    return [verdict.word for verdict in verdicts]


def test_a_weak_find_stands_alone_is_kept_back_among_many_rows_and_passes_beside_strong_ones() -> None:
    one_launch = compared([launch(1.5)], [launch(1.0)])
    equals = compared([launch(1.0)], [launch(1.0)])

    assert one_launch.p_beyond(BAND) < FALSE_DISCOVERY_RATE
    for weak in (estimated(0.03), one_launch):  # an assumed spread is corrected like the others
        assert judge([weak]) == [Verdict("faster", "")]
        for null in (estimated(0.6), equals):
            kept = Verdict("inconclusive", "not clear enough among 10 rows")
            assert judge([weak, *[null] * 9])[0] == kept
        assert judge([weak, *[estimated(1e-6)] * 8])[0] == Verdict("faster", "")


@pytest.mark.parametrize("others", [[], [estimated(0.6)] * 11, [estimated(1e-6)] * 11])
def test_the_main_row_is_decided_at_1_percent_whatever_the_others_show(others: list[RatioEstimate]) -> None:
    sure, unsure = (judge([estimated(p), *others], asked=0)[0] for p in (0.009, 0.011))

    assert sure == Verdict("faster", "", is_sure=True)
    assert (unsure.word, unsure.reason) == ("inconclusive", "a main result takes 99 % certainty")


def test_another_row_is_sure_only_by_holm_over_the_whole_table() -> None:
    main, nulls = estimated(0.6), [estimated(0.6)] * 9
    barely, not_quite = (judge([main, estimated(p), *nulls], asked=0)[1] for p in (0.00090, 0.00092))

    assert barely == Verdict("faster", "", is_sure=True), "0.01 / 11"
    assert not_quite == Verdict("faster", "", is_sure=False), "enough for the table"


def test_nothing_is_decided_of_a_row_that_is_in_doubt_and_it_does_not_count_among_the_others() -> None:
    doubtful = replace(estimated(1e-9), doubt="a waited 80 % of the time")
    equal = replace(doubtful, ratio=1.0, low=0.999, high=1.001)

    verdicts = judge([doubtful, equal, estimated(0.04)], asked=0)
    assert words(*verdicts) == ["inconclusive", "inconclusive", "faster"]
    assert {verdict.reason for verdict in verdicts[:2]} == {"a waited 80 % of the time"}
    assert isinstance(geometric_mean([doubtful]), Missing)
    assert are_slower([replace(estimated(1e-9, 0.5), doubt="so")], 0.9) == [False]


def test_a_row_says_how_many_launches_would_do_or_that_runs_differ_by_more_than_they_help() -> None:
    wide = compared([launch(1.25)], [launch(1.0)])
    hopeless = compared([launch(1.0)] * 3, [launch(1.0)] * 3)
    runs = assumed_runs(0.04)
    apart = compare_launches(
        [launch(1.05)] * 3, [launch(1.0)] * 3, prior_sd_a=0.01, prior_sd_b=0.01, runs=runs
    )
    open_row, lost_row, run_row = judge([wide, hopeless, apart])

    assert words(open_row, lost_row, run_row) == ["inconclusive"] * 3
    assert re.fullmatch(r"the interval is too wide: needs about \d+ launches a side", open_row.reason)
    too_close = "a difference too close to 1 % to call"
    assert lost_row.reason == f"{too_close}: it takes more than 20 launches a side"
    assert run_row.reason == f"{too_close}: runs of one box differ by more than that"


def test_blocks_that_follow_each_other_widen_the_interval() -> None:
    calm = [1 + 0.001 * (-1) ** i * (i % 3) for i in range(16)]
    drifting = sorted(calm)

    flat = compared([calm], [calm], 0.0)
    drift = compared([drifting], [drifting], 0.0)

    assert drift.autocorrelation > 0.5
    assert drift.high > 1 + 1.5 * (flat.high - 1)


def test_the_geometric_mean_weighs_rows_equally_and_is_narrower_than_a_row_but_no_surer_than_the_worst() -> (
    None
):
    faster, slower = compared([launch(2.0)], [launch(1.0)]), compared([launch(1.0)], [launch(2.0)])
    mean, alone = geometric_mean([faster, slower]), geometric_mean([faster])
    of_three = geometric_mean([replace(faster, df=df) for df in (9.0, 2.0, 30.0)])

    assert isinstance(mean, GeometricMean)
    assert isinstance(alone, GeometricMean)
    assert isinstance(of_three, GeometricMean)
    assert mean.ratio == pytest.approx(1.0)
    assert mean.rows == 2
    half = math.log(faster.high / faster.ratio) * math.sqrt(0.75)
    assert math.log(mean.high) == pytest.approx(half, rel=0.01)
    assert (alone.ratio, alone.low, alone.high) == pytest.approx((faster.ratio, faster.low, faster.high))
    assert of_three.df == 2.0
    assert isinstance(geometric_mean([]), Missing)


def test_speed_is_the_inverse_of_the_time_per_unit_with_its_interval() -> None:
    runs = assumed_runs(0.04)
    for times in ((0.01,), (0.01, 0.0101, 0.0099)):
        found = estimate_speed([launch(t) for t in times], prior_sd=0.1, runs=runs)
        assert isinstance(found, SpeedEstimate)
        assert found.units_per_s == pytest.approx(100, rel=1e-3)
        of_launches = replace(known(*times), variance=known(*times).variance / len(times))
        total = together((of_launches, runs))
        half = t_quantile(0.975, total.df) * math.sqrt(total.variance)
        assert math.log(found.high / found.units_per_s) == pytest.approx(half, rel=1e-3)
        assert math.log(found.units_per_s / found.low) == pytest.approx(half, rel=1e-3)
    assert estimate_speed([[]], prior_sd=0.1) == Missing("no block")


def test_every_kind_of_work_has_priors_and_an_unknown_one_gets_the_widest_of_its_table() -> None:
    classes = {(d, w) for d in ("cpu", "gpu") for w in ("ceiling", "training", "inference", "host")}
    kinds = classes | {("cpu", "copy"), ("gpu", "copy"), ("gpu", "launch-bound")}

    assert set(INSTANCE_SD) == classes
    assert set(LAUNCH_SD) == kinds | {("host", "inference")}, "and loads on a server"
    assert launch_prior_sd("cpu", "training") == LAUNCH_SD["cpu", "training"]
    assert launch_prior_sd("tpu", "training") == max(LAUNCH_SD[one] for one in kinds)
    assert instance_prior_sd("gpu", "unheard of") == max(INSTANCE_SD.values())
    assert run_prior_sd("tpu") == max(RUN_SD.values())


def test_a_gpu_that_waits_for_the_host_is_another_kind_of_work() -> None:
    assert kind_of_work("gpu", "training", "gpt_train", "large") == "training"
    assert kind_of_work("gpu", "training", "gpt_train", "mini") == "launch-bound"
    assert kind_of_work("gpu", "inference", "decode", "large") == "launch-bound"
    assert kind_of_work("cpu", "inference", "decode", "mini") == "inference"
    assert kind_of_work("gpu", "ceiling", "gemm", "mini") == "ceiling"
    assert {kind_of_work(device, "ceiling", "membw") for device in ("cpu", "gpu")} == {"copy"}


def test_a_claim_about_models_of_gpu_has_a_wider_band() -> None:
    assert band_between_models(0.01, 0.0) == pytest.approx(0.01)
    assert band_between_models(0.01, 0.018) == pytest.approx(0.0509, abs=1e-3)


def test_runs_are_needed_until_their_interval_no_longer_holds_the_limit() -> None:
    wide = replace(estimated(0.2, 1.1), df=8.0)
    times = runs_needed(wide, 1.01)
    assert isinstance(times, int)

    def half(runs: int) -> float:
        error = wide.half_width / t_quantile(0.975, 8.0) / math.sqrt(runs)
        return t_quantile(0.975, 8.0 + runs - 1) * error

    assert half(times) < math.log(1.1 / 1.01) <= half(times - 1)
    assert isinstance(runs_needed(wide, 1.099), Missing)


@pytest.mark.parametrize(
    ("ratio", "clock_a_mhz", "clock_b_mhz", "is_explained"),
    [
        (1.2, 1000, 1200, True),
        (1 / 1.2, 1800, 1500, True),
        (1.2, 1500, 1500, False),
        (1.2, 1800, 1500, False),  # opposite to the clock
        (2.0, 1500, 1800, False),  # far more than the clock explains
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
    alone, own, of_the_box = paired(1.5), paired(1.49, 1.5, 1.51), paired(1.5, spread=Spread(0.02**2, 10.0))

    assert alone.method == "t on launch medians, assumed spread, of ratios of paired blocks"
    assert own.method == of_the_box.method == "moderated t on launch medians, of ratios of paired blocks"
    for found, spread, launches in (
        (alone, known(prior=0.06), 1),
        (own, known(1.49, 1.5, 1.51, prior=0.06), 3),
        (of_the_box, Spread(0.02**2, 10.0), 1),
    ):
        half = t_quantile(0.975, spread.df) * math.sqrt(spread.variance / launches)
        assert found.half_width == pytest.approx(half, rel=1e-3)
        assert found.resolvable == pytest.approx(math.exp(half) * 1.01, rel=1e-3)


def test_pairs_have_the_ratio_of_the_speeds_around_which_their_interval_is_widened() -> None:
    pairs = paired(1.49, 1.5, 1.51)
    speeds = [estimate_speed([launch(seconds)] * 3, prior_sd=0.1) for seconds in (1.6, 1.0)]
    a, b = speeds
    assert not isinstance(a, Missing)
    assert not isinstance(b, Missing)
    found = with_ratio_of_speeds(pairs, a, b)

    assert found.ratio == pytest.approx(1.6)
    assert found.low <= pairs.low * (1 + 1e-9)
    assert found.high > pairs.high
    assert math.log(found.high / found.ratio) == pytest.approx(math.log(found.ratio / found.low))
    assert found.resolvable == pytest.approx(math.exp(found.half_width) * 1.01)
