"""How much launches and runs vary, learnt from the rows of a box."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping

import pytest
from scipy import special, stats

from gputui.analysis.spread import (
    FEW_ROWS_DF,
    MOST_PRIOR_DF,
    RUN_PRIOR_DF,
    LaunchPrior,
    RunMean,
    Scatter,
    _digamma,
    _f_tail,
    _trigamma,
    learn_launches,
    learn_runs,
    pooled,
    together,
)
from gputui.model.absent import Missing
from gputui.model.result import Spread

SD = 0.1


def learnt(*runs: Mapping[Hashable, Scatter]) -> LaunchPrior:
    prior = learn_launches("box", runs)
    assert isinstance(prior, LaunchPrior)
    return prior


def rows_of(*variances: float, df: float = 2.0) -> dict[Hashable, Scatter]:
    return {place: Scatter(variance, df) for place, variance in enumerate(variances)}


def drawn(rng: random.Random, rows: int, factor: float, prior_df: float, df: int) -> dict[Hashable, Scatter]:
    """Sample variances of rows whose true ones are of an inverse chi-squared distribution."""

    def chi_squared(freedom: float) -> float:
        return rng.gammavariate(freedom / 2, 2)

    true = [factor * prior_df / chi_squared(prior_df) for _ in range(rows)]
    return rows_of(*(variance * chi_squared(df) / df for variance in true), df=float(df))


def test_fewer_than_four_rows_tell_too_little_of_a_box() -> None:
    assert isinstance(learn_launches("box", [rows_of(1, 2, 3)]), Missing)
    assert isinstance(learn_launches("box", [rows_of(1, 2, 3)] * 5), Missing)
    assert learnt(rows_of(1, 2, 3, 4)).rows == 4


@pytest.mark.parametrize("prior_df", [2.0, 4.0, 10.0])
def test_the_prior_is_found_again_in_many_rows_drawn_from_it(prior_df: float) -> None:
    found = learnt(drawn(random.Random(1), 4000, 0.09, prior_df, 4))

    assert found.factor == pytest.approx(0.09, rel=0.1)
    assert found.df == pytest.approx(prior_df, rel=0.2)


def test_rows_that_vary_alike_are_trusted_up_to_a_cap() -> None:
    assert learnt(rows_of(*[0.5] * 8)).df == pytest.approx(MOST_PRIOR_DF)
    assert learnt(rows_of(*[1e-3, 1e3] * 4)).df < 2


def test_how_alike_a_few_rows_are_is_assumed_and_their_middle_is_not() -> None:
    alike, unlike = learnt(rows_of(*[0.5] * 7)), learnt(rows_of(1e-3, 1e3, 1e-3, 1e3))
    assert alike.df == unlike.df == FEW_ROWS_DF
    assert alike.factor == pytest.approx(0.5 * learnt(rows_of(*[1.0] * 7)).factor)


def test_many_rows_of_one_run_never_count_as_if_they_had_been_measured_apart() -> None:
    few, many = learnt(rows_of(*[1.0] * 4)), learnt(rows_of(*[1.0] * 400))

    assert few.most_df == pytest.approx(8 / 1.75)
    assert many.most_df < 8 < learnt(*[rows_of(*[1.0] * 400)] * 3).most_df
    assert many.moderated(Scatter(SD**2, 2), SD).df == many.most_df


def test_a_row_is_drawn_towards_the_others_by_their_degrees_of_freedom() -> None:
    prior = LaunchPrior("box", 0.04, 6.0, 100.0, 8, 24)

    spread = prior.moderated(Scatter(0.08 * SD**2, 2), SD)
    assert spread.variance == pytest.approx((6 * 0.04 + 2 * 0.08) / 8 * SD**2)
    assert (spread.df, spread.box) == (8, "box")
    alone = prior.moderated(None, SD)
    assert (alone.df, alone.box) == (6, "box")
    assert alone.variance == pytest.approx(0.04 * SD**2)


def test_a_row_far_noisier_than_the_others_keeps_its_own() -> None:
    prior = LaunchPrior("box", 0.04, 20.0, 100.0, 8, 24)
    limit = float(stats.f.ppf(0.975, 2, 20)) * 0.04 * SD**2

    assert prior.moderated(Scatter(1.01 * limit, 2), SD) == Spread(1.01 * limit, 2)
    assert prior.moderated(Scatter(0.99 * limit, 2), SD).df == 22
    assert prior.moderated(Scatter(0.0, 2), SD).df == 22


def test_functions_are_scipys() -> None:
    for x in (0.5, 1.0, 1.7, 4.0, 12.3, 40.0):
        assert _digamma(x) == pytest.approx(float(special.digamma(x)), abs=1e-9)
        assert _trigamma(x) == pytest.approx(float(special.polygamma(1, x)), rel=1e-8)
        assert _f_tail(x, 2, 7.5) == pytest.approx(float(stats.f.sf(x, 2, 7.5)), rel=1e-9)


def test_scatters_are_pooled_by_their_degrees_of_freedom() -> None:
    assert pooled([Scatter(1.0, 2), Scatter(4.0, 1)]) == Scatter(2.0, 3)


# Sums of variances


def test_a_sum_has_degrees_of_freedom_by_welch_and_satterthwaite() -> None:
    total = together([Spread(3.0, 4), Spread(1.0, 9)])

    assert total.variance == 4
    assert total.df == pytest.approx(16 / (9 / 4 + 1 / 9))
    assert together([Spread(1.0, math.inf), Spread(1.0, math.inf)]).df == math.inf
    assert together([Spread(0.0, 4), Spread(0.0, math.inf)]) == Spread(0.0, 4)


def test_two_sides_that_learnt_from_the_same_rows_err_together() -> None:
    apart = together([Spread(1.0, 8, "a"), Spread(1.0, 8, "b")])
    shared = together([Spread(1.0, 8, "a"), Spread(1.0, 8, "a")])

    assert apart.df == pytest.approx(16)
    assert shared.df == pytest.approx(8)


# Between runs


def runs_of(*log_times: float, error_variance: float = 0.0) -> list[RunMean]:
    return [RunMean(log_time, error_variance) for log_time in log_times]


def test_a_box_that_was_run_once_varies_from_run_to_run_by_the_table() -> None:
    once = learn_runs("box", [runs_of(1.0)], rows=1, table_sd=0.02)
    assert once.variance == pytest.approx(4e-4)
    assert once.df == math.inf
    assert learn_runs("box", [], rows=0, table_sd=0.02).df == math.inf


def test_runs_of_a_box_draw_the_tables_variance_towards_their_own() -> None:
    nine = runs_of(*[0.01, -0.01] * 4, 0.0)

    spread = learn_runs("box", [nine], rows=1, table_sd=0.02)
    assert spread.df == RUN_PRIOR_DF + 8
    assert spread.variance == pytest.approx((4 * 4e-4 + 8 * 1e-4) / 12)
    assert learn_runs("box", [nine] * 20, rows=20, table_sd=0.02) == spread  # the same runs


def test_what_launches_explain_is_not_laid_on_runs() -> None:
    noisy = runs_of(*[0.01, -0.01] * 4, 0.0, error_variance=1e-4)

    spread = learn_runs("box", [noisy], rows=1, table_sd=0.02)
    assert spread.df < RUN_PRIOR_DF + 8
    assert spread.variance < (4 * 4e-4 + 8 * 1e-4) / 12
    hopeless = learn_runs("box", [runs_of(*[1.0, -1.0] * 4, error_variance=1.2)], rows=1, table_sd=0.02)
    assert hopeless.df == pytest.approx(RUN_PRIOR_DF, abs=0.01)
    assert hopeless.variance == pytest.approx(4e-4, rel=0.01)
