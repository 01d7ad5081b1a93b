"""Times of a case without its waiting for CPUs that others held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_case, measured, steady

from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.services.results.block_times import launches_of
from gputui.services.results.throughput import rate_of, speed_of, speed_of_launch
from gputui.services.results.waiting import (
    contention_of,
    is_undecidable,
    own_launches_of,
    own_ratio_sd,
    own_sd,
    undecidable_reason,
)

GEMM, ALONE, TRAIN = make_case(), make_case(threads="1"), make_case("gpt_train", workload_class="training")
DECODE = make_case("decode", workload_class="inference")


@pytest.mark.parametrize("share", [None, 0.0, 0.04])
def test_a_case_that_hardly_waited_is_left_as_it_is(share: float | None) -> None:
    case = measured(TRAIN, steady(0.1), waited_share=share)

    assert own_launches_of(case) == launches_of(case)
    assert own_sd(case) == own_ratio_sd(case, case) == contention_of(case) == 0
    assert not is_undecidable(case)


@pytest.mark.parametrize(("case", "power"), [(ALONE, 1.0), (GEMM, 1.1), (TRAIN, 1.95)])
def test_threads_that_meet_often_lose_more_than_their_waiting(case: Case, power: float) -> None:
    quiet, busy = measured(case, [0.1] * 5), measured(case, [0.1 / 0.65**power] * 5, waited_share=0.35)

    assert own_launches_of(busy)[0] == pytest.approx(launches_of(quiet)[0])
    assert 0 < own_sd(busy) < 0.4
    assert own_ratio_sd(busy, busy) < own_sd(busy) == own_ratio_sd(busy, quiet)


def test_time_in_which_a_step_sleeps_is_not_taken_for_waiting() -> None:
    case = measured(ALONE, [1.08] * 5)
    (launch,) = case.measurements
    blocks = [replace(block, cpu_ns=200_000_000, waited_ns=85_000_000) for block in launch.blocks]
    sleeping = replace(case, measurements=(replace(launch, blocks=tuple(blocks)),))

    assert contention_of(sleeping) > 0.25
    assert min(own_launches_of(sleeping)[0]) >= (1.08 - 0.085) / case.case.units_per_step


@pytest.mark.parametrize("share", [None, 0.0, 0.5, 0.85])
def test_a_launch_in_progress_has_the_speed_that_the_table_will_show(share: float | None) -> None:
    case = measured(TRAIN, [0.1, 0.12, 0.11, 0.1, 0.13], waited_share=share)

    assert speed_of_launch(case.case, case.measurements[0].blocks) == pytest.approx(rate_of(case))


@pytest.mark.parametrize(("case", "percent"), [(ALONE, 67), (GEMM, 67), (TRAIN, 40), (DECODE, 40)])
def test_above_a_share_of_the_time_waited_nothing_is_known(case: Case, percent: int) -> None:
    just, beyond = (measured(case, steady(0.1), waited_share=(percent + more) / 100) for more in (-1, 1))

    assert not is_undecidable(just)
    assert is_undecidable(beyond)
    assert (
        undecidable_reason(beyond)
        == f"its threads waited {percent + 1} % of the time for CPUs that others had"
    )


@pytest.mark.parametrize("case", [TRAIN, DECODE])
def test_the_interval_of_threads_that_may_have_taken_turns_holds_the_quiet_rate(case: Case) -> None:
    """Threads that have half of their CPUs, one after the other: 89 times as long was seen."""
    quiet, busy = measured(case, [0.1] * 5), measured(case, [8.9] * 5, waited_share=0.5)
    speed, rate = speed_of(busy), rate_of(quiet)

    assert isinstance(speed, SpeedEstimate)
    assert not isinstance(rate, Missing)
    assert speed.low < rate < speed.high
