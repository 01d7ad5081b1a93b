"""How much launches and runs vary: a prior of finite worth, pooled with what a box shows."""

from __future__ import annotations

import math
from collections.abc import Hashable

import pytest

from gputui.analysis.spread import (
    ASSUMED,
    BOX_DF,
    LEAST_OWN_SHARE,
    ROW_CORRELATION,
    ROW_DF,
    RUN_DF,
    BoxSpread,
    Waiting,
    assumed_runs,
    effect_of_waiting,
    learn_launches,
    learn_runs,
    pooled,
    together,
)
from gputui.model.result import Spread
from gputui.worker import WORKLOAD_CLASSES

SD = 0.1


def rows_of(*variances: float, df: float = 2.0) -> dict[Hashable, Spread]:
    return {place: Spread(variance, df) for place, variance in enumerate(variances)}


# Between launches


def test_other_rows_of_a_box_move_what_is_expected_of_a_row() -> None:
    calm, wild = (learn_launches([rows_of(*[x] * 8)]) for x in (0.1, 10.0))
    assert 0.1 < calm.factor < 1 < wild.factor < 10
    assert calm.df == wild.df > BOX_DF
    row = wild.of_row(None, SD)
    assert row.variance == pytest.approx(wild.factor * SD**2)
    assert (calm.rows, calm.launches) == (8, 0)


def test_of_a_box_without_launches_the_table_is_taken_and_not_as_known_and_a_row_is_pooled_with_it() -> None:
    assert learn_launches([]) == learn_launches([{}]) == ASSUMED
    alone, seen = ASSUMED.of_row(None, SD), ASSUMED.of_row(Spread(4 * SD**2, 2), SD)
    assert alone.variance == pytest.approx(SD**2)
    assert alone.df == pytest.approx(1 / (1 / BOX_DF + 1 / ROW_DF))
    assert seen.df == pytest.approx(alone.df + 2)
    assert seen.variance == pytest.approx((alone.df + 2 * 4) / (alone.df + 2) * SD**2)
    assert ASSUMED.of_row(Spread(0.0, 2), SD).variance > 0, "launches that agree by chance prove nothing"
    many = BoxSpread(1.0, 1e9).of_row(None, SD)
    assert many.df == pytest.approx(ROW_DF), "how alike rows are bounds what they tell of one"
    assert pooled([Spread(1.0, 2), Spread(4.0, 1)]) == Spread(2.0, 3)


def test_many_rows_of_one_run_never_count_as_if_they_had_been_measured_apart() -> None:
    few, many, apart = (
        learn_launches(runs)
        for runs in (
            [rows_of(*[1.0] * 4)],
            [rows_of(*[1.0] * 400)],
            [rows_of(*[1.0] * 400)] * 3,
        )
    )
    assert few.df == pytest.approx(BOX_DF + 8 / (1 + 3 * ROW_CORRELATION**2))
    assert few.df < many.df < BOX_DF + 2 / ROW_CORRELATION**2
    assert apart.df - BOX_DF == pytest.approx(3 * (many.df - BOX_DF))


# Sums of variances


def test_a_sum_has_degrees_of_freedom_by_welch_and_satterthwaite_unless_both_learnt_from_the_same() -> None:
    total = together([Spread(3.0, 4), Spread(1.0, 9)])

    assert total.variance == 4
    assert total.df == pytest.approx(16 / (9 / 4 + 1 / 9))
    assert together([Spread(1.0, math.inf), Spread(1.0, math.inf)]).df == math.inf
    assert together([Spread(0.0, 4), Spread(0.0, math.inf)]) == Spread(0.0, 4)
    for other, df in (("b", 16), ("a", 8)):
        assert together([Spread(1.0, 8, "a"), Spread(1.0, 8, other)]).df == pytest.approx(df)


# Between runs


def runs_of(*log_times: float, error_variance: float = 0.0) -> list[tuple[float, float]]:
    return [(log_time, error_variance) for log_time in log_times]


def test_a_box_that_was_run_once_varies_from_run_to_run_by_the_table_and_not_as_known() -> None:
    for cases in ([runs_of(1.0)], []):
        once = learn_runs(cases, rows=len(cases), table_sd=0.02)
        assert once == assumed_runs(0.02)
        assert once.variance == pytest.approx(4e-4)
        assert once.df == RUN_DF


def test_runs_of_a_box_draw_the_tables_variance_towards_their_own() -> None:
    nine = runs_of(*[0.01, -0.01] * 4, 0.0)

    spread = learn_runs([nine], rows=1, table_sd=0.02)
    assert spread.df == RUN_DF + 8
    assert spread.variance == pytest.approx((RUN_DF * 4e-4 + 8 * 1e-4) / (RUN_DF + 8))
    assert learn_runs([nine] * 20, rows=20, table_sd=0.02) == spread, "the same runs"


def test_what_launches_explain_is_not_laid_on_runs() -> None:
    noisy = runs_of(*[0.01, -0.01] * 4, 0.0, error_variance=1e-4)

    spread = learn_runs([noisy], rows=1, table_sd=0.02)
    assert spread.df < RUN_DF + 8
    assert spread.variance < (RUN_DF * 4e-4 + 8 * 1e-4) / (RUN_DF + 8)
    hopeless = learn_runs([runs_of(*[1.0, -1.0] * 4, error_variance=1.2)], rows=1, table_sd=0.02)
    assert hopeless.df == pytest.approx(RUN_DF, abs=0.01)
    assert hopeless.variance == pytest.approx(4e-4, rel=0.01)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.5])
def test_blocks_that_wait_for_different_shares_have_one_own_time(power: float) -> None:
    waiting = Waiting(power, 0.1, 0.1)
    times = [(1 - waited) ** -power * waiting.own_share(waited) for waited in (0.0, 0.1, 0.45, 0.9)]
    assert times == pytest.approx([1.0] * 4)
    assert waiting.own_share(1.0) > 0


def test_of_more_threads_than_were_measured_no_more_than_eight_ninths_is_taken_off() -> None:
    assert effect_of_waiting("training", 16.0).own_share(0.5) == LEAST_OWN_SHARE
    assert effect_of_waiting("training", 2.0).own_share(0.85) < LEAST_OWN_SHARE


@pytest.mark.parametrize("workload_class", WORKLOAD_CLASSES)
def test_the_more_threads_want_a_cpu_the_more_they_wait_for_one_another(workload_class: str) -> None:
    one, two, many = (effect_of_waiting(workload_class, threads) for threads in (1.0, 1.98, 26.0))
    assert one.power == 1 <= two.power < many.power
    assert one.sd < two.sd < many.sd


def test_the_more_blocks_waited_the_less_is_known_but_what_both_sides_waited_mostly_falls_out() -> None:
    waiting = Waiting(1.0, 0.5, 0.1)
    assert waiting.log_sd([0.0]) == 0
    assert waiting.log_sd([0.5, 0.5]) == pytest.approx(0.5 * math.log(2))
    assert waiting.log_sd([0.5, 0.0]) == pytest.approx(0.25 * math.log(2))
    assert math.isfinite(waiting.log_sd([1.0]))
    assert waiting.log_sd_of_ratio([0.5], [0.5]) == pytest.approx(0.1 * math.log(2))
    assert waiting.log_sd_of_ratio([0.5], [0.0]) == pytest.approx(math.hypot(0.5, 0.1) * math.log(2))
