"""Times of a case without its waiting for CPUs that others held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_case, measured, steady

from gputui.analysis.verdict import SpeedEstimate
from gputui.cli.record import recorded_case
from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.result import CaseResult
from gputui.model.units import format_rate
from gputui.services.results.conditions import RecordedUse
from gputui.services.results.labels import interval_words
from gputui.services.results.throughput import (
    contention_of,
    gave_of_launch,
    gave_text,
    is_by_clock,
    is_crowded,
    is_undecidable,
    launches_of,
    own_launches_of,
    own_ratio_sd,
    own_sd,
    rate_of,
    speed_of,
    speed_of_launch,
    speed_ratio,
    undecidable_reason,
    waited_of,
    waited_share,
)

GEMM, ALONE, TRAIN = make_case(), make_case(threads="1"), make_case("gpt_train", workload_class="training")
RECORDED = recorded_case("sweep", "")
DECODE = make_case("decode", workload_class="inference")


@pytest.mark.parametrize("share", [None, 0.0, 0.04])
def test_a_case_that_hardly_waited_or_of_which_it_is_unknown_is_left_as_it_is(share: float | None) -> None:
    case = measured(TRAIN, steady(0.1), waited_share=share)

    assert own_launches_of(case) == launches_of(case)
    assert own_sd(case) == own_ratio_sd(case, case) == contention_of(case) == 0
    assert not is_undecidable(case)
    if share is None:
        assert waited_share(case) == waited_of(case.measurements[0].blocks[0])
        assert waited_share(case) == Missing("this system does not report it")


@pytest.mark.parametrize(("case", "power"), [(ALONE, 1.0), (GEMM, 1.1), (TRAIN, 1.95)])
def test_threads_that_meet_often_lose_more_than_their_waiting(case: Case, power: float) -> None:
    quiet, busy = measured(case, [0.1] * 5), measured(case, [0.1 / 0.65**power] * 5, waited_share=0.35)

    assert own_launches_of(busy)[0] == pytest.approx(launches_of(quiet)[0])
    assert 0 < own_sd(busy) < 0.4
    assert own_ratio_sd(busy, busy) < own_sd(busy) == own_ratio_sd(busy, quiet)


def sleeping(step_s: float, cpu_ns: int, waited_ns: int) -> CaseResult:
    case = measured(ALONE, [step_s] * 5)
    (launch,) = case.measurements
    blocks = tuple(replace(block, cpu_ns=cpu_ns, waited_ns=waited_ns) for block in launch.blocks)
    return replace(case, measurements=(replace(launch, blocks=blocks),))


def test_time_in_which_a_step_sleeps_is_not_taken_for_waiting_nor_is_waking_late() -> None:
    case = sleeping(1.08, 2_000_000_000, 850_000_000)
    assert contention_of(case) == pytest.approx(0.085 / 1.08, rel=1e-3)
    assert min(own_launches_of(case)[0]) == pytest.approx((1.08 - 0.085) / case.case.units_per_step)
    late = sleeping(0.02, 100_000, 1_600_000)
    assert waited_share(late) == pytest.approx(0.0016 / 0.2, rel=1e-2)
    assert not is_crowded(late)
    assert own_launches_of(late) == launches_of(late)
    assert gave_text(late) == ""


@pytest.mark.parametrize(
    ("share", "told"), [(None, False), (0.0, False), (0.3, False), (0.4, True), (0.6, True)]
)
def test_a_rate_more_than_one_and_a_half_times_what_the_clock_saw_has_that_beside_it(
    share: float | None, told: bool
) -> None:
    case = measured(ALONE, steady(0.1), waited_share=share)
    by_clock = rate_of(case, by_clock=True)
    assert not isinstance(by_clock, Missing)

    assert by_clock == pytest.approx(case.case.units_per_step / 0.1, rel=1e-2)
    assert gave_text(case) == (format_rate(by_clock, case.case.unit) if told else "")
    assert gave_of_launch(case.case, case.measurements[0].blocks) == gave_text(case)


@pytest.mark.parametrize("share", [None, 0.0, 0.5, 0.85])
def test_a_launch_in_progress_has_the_speed_that_the_table_will_show(share: float | None) -> None:
    case = measured(TRAIN, [0.1, 0.12, 0.11, 0.1, 0.13], waited_share=share)

    assert speed_of_launch(case.case, case.measurements[0].blocks) == pytest.approx(rate_of(case))


@pytest.mark.parametrize(
    ("case", "percent", "beyond"), [(ALONE, 67, 68), (GEMM, 67, 90), (TRAIN, 40, 41), (DECODE, 40, 85)]
)
def test_above_a_share_of_the_time_waited_the_rate_is_the_clocks_and_its_interval_unknown(
    case: Case, percent: int, beyond: int
) -> None:
    just, over, found = (
        measured(case, steady(0.1), waited_share=share / 100) for share in (percent - 1, percent + 1, beyond)
    )
    speed = speed_of(found)

    assert not is_undecidable(just)
    assert undecidable_reason(over) == (
        f"its threads waited {percent + 1} % of the time for CPUs that others had,"
        " and its rate is the clock's"
    )
    assert is_undecidable(over)
    assert is_undecidable(found)
    assert own_launches_of(found) == launches_of(found)
    assert rate_of(found) == rate_of(found, by_clock=True)
    assert gave_text(found) == ""
    assert isinstance(speed, SpeedEstimate)
    assert interval_words(speed) == "unknown"
    assert own_ratio_sd(found, found) >= own_sd(found) > 1


def test_of_many_threads_the_rate_is_the_clocks_as_soon_as_they_may_have_waited_for_one_another() -> None:
    (launch,) = measured(TRAIN, steady(0.1)).measurements
    blocks = [replace(b, cpu_ns=16 * b.wall_ns, waited_ns=4 * b.wall_ns) for b in launch.blocks]
    case = replace(measured(TRAIN, []), measurements=(replace(launch, blocks=tuple(blocks)),))

    assert contention_of(case) == pytest.approx(0.2)
    assert is_undecidable(case)
    assert own_launches_of(case) == launches_of(case)


@pytest.mark.parametrize("case", [TRAIN, DECODE])
def test_the_interval_of_threads_that_may_have_taken_turns_holds_the_quiet_rate(case: Case) -> None:
    """Threads that have half of their CPUs, one after the other: 89 times as long was seen."""
    quiet, busy = measured(case, [0.1] * 5), measured(case, [8.9] * 5, waited_share=0.5)
    speed, rate = speed_of(busy), rate_of(quiet)

    assert isinstance(speed, SpeedEstimate)
    assert not isinstance(rate, Missing)
    assert speed.low < rate < speed.high


def test_a_recording_keeps_the_time_of_the_clock_and_its_interval_holds_what_it_waited() -> None:
    quiet, busy = measured(RECORDED, [33.0]), measured(RECORDED, [33.0], waited_share=0.4)

    assert contention_of(busy) == pytest.approx(0.4)
    assert is_by_clock(busy)
    assert not is_undecidable(busy)
    assert own_launches_of(busy) == launches_of(busy)
    found, wide = speed_of(quiet), speed_of(busy)
    assert isinstance(found, SpeedEstimate)
    assert isinstance(wide, SpeedEstimate)
    assert wide.units_per_s == found.units_per_s
    assert wide.high > max(found.high, found.units_per_s / 0.6)
    long = measured(RECORDED, [70.0], waited_share=0.75)
    ratio = speed_ratio(measured(RECORDED, [20.0]), long, is_one_run=False)
    assert is_undecidable(long)
    assert not isinstance(ratio, Missing)
    assert ratio.low < 1 < ratio.high, "not called slower"


def test_what_a_recorded_program_got_is_said_as_far_as_it_is_known() -> None:
    unknown = Missing("not sampled")
    assert RecordedUse(15.0, 0.53, 1.6, 2, {0: 62.0, 1: unknown}).text == (
        "15.0 s of CPU, waited 53 % of the time for a core, other programs took 1.6 of 2 cores,"
        " GPU 0 busy 62 % of it"
    )
    assert RecordedUse(0.2, unknown, unknown, 2, {}).text == "200 ms of CPU"
