"""The progress of a run follows from its journal alone, whenever one starts to read it."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import pytest
from builders import make_plan
from hand_made import measured
from journals import GPU_MACHINE, make_case
from run_screen_golden import RUN_ID, lines_of, plan

from gputui.analysis.statistics import Estimated
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    RunEnd,
    RunStart,
    without_result,
)
from gputui.model.plan import Plan, PlannedCase
from gputui.model.result import CaseResult, Measurement
from gputui.model.telemetry import HOST
from gputui.model.units import format_rate
from gputui.services.results.labels import interval_words
from gputui.services.results.throughput import own_times, speed_of, speed_of_launch
from gputui.services.runs.progress import (
    EVENTS_KEPT,
    INTERVAL_BLOCKS,
    ProgressTracker,
    expected_s,
)

SECOND = 10**9


def received(*lines: Line, launches: int = 2) -> ProgressTracker:
    """A run of one case in this many launches, and these lines of it."""
    return told(make_plan(*[[0]] * launches), *lines)


def told(plan: Plan, *lines: Line, began_ns: int | None = None) -> ProgressTracker:
    """A run that began then on the clock of this boot, if that is stated, and these lines of it."""
    progress = ProgressTracker([plan], is_of_this_clock=began_ns is not None)
    start = RunStart(JOURNAL_SCHEMA, RUN_ID, 0, began_ns or 0, 0, "0", "p", 1, 1, 1, plan.budget_s, "", None)
    for line in (start, *lines):
        progress.hear(0, line)
    return progress


def blocks(launch: int, count: int, step_ns: int = SECOND // 10) -> list[Block]:
    return [Block(launch, 0, index, 10, 0, 10 * step_ns, None, None) for index in range(count)]


def test_a_worker_that_dies_is_reported_with_its_last_words_and_its_case_is_not_in_progress() -> None:
    seen = received(
        LaunchStart(0, 0, (0,), 1, 3.0, SECOND),
        LaunchEnd(0, "failed", "it died\x1b[31m", -11, "Traceback:\n  in build\x07\n温度", 3 * SECOND),
    ).picture()
    (log_end,) = seen.last_words
    assert log_end.launch == f"launch 1 of {seen.cases[0].name}"
    assert (log_end.at_s, log_end.outcome, log_end.reason) == (3.0, "failed", r"it died\x1b[31m")
    assert log_end.lines == ("Traceback:", r"  in build\x07", "温度")
    assert (seen.cases[0].state, seen.cases[0].is_now) == ("failed", False)
    assert seen.events[0].message == rf"{log_end.launch} failed: it died\x1b[31m"


def test_a_case_goes_from_waiting_to_its_outcome() -> None:
    lines: list[Line] = [
        LaunchStart(0, 0, (0,), 1, 3.0, SECOND),
        CaseWarm(0, 0, "fp32", 1, 1, 1, 3, True, 10, SECOND),
        *blocks(0, 2),
        CaseEnd(0, 0, "ok", "", 2, SECOND),
        LaunchEnd(0, "ok", "", 0, "", SECOND),
    ]
    states = [received(*lines[:count]).picture().cases[0].state for count in range(len(lines) + 1)]
    assert states == ["waiting", "starting", "warm", "timing", "timing", "ok", "ok"]
    (case,) = received(*lines).picture().cases
    assert (case.launches_done, case.launches) == (1, 2)
    assert case.rate


def test_one_good_launch_is_a_result_whatever_the_next_does() -> None:
    progress = received(
        LaunchStart(0, 0, (0,), 1, 3.0, SECOND),
        CaseEnd(0, 0, "ok", "", 5, SECOND),
        LaunchEnd(0, "ok", "", 0, "", SECOND),
        LaunchStart(1, 1, (0,), 1, 3.0, SECOND),
        CaseEnd(1, 0, "failed", "it broke\x1b[31m", 0, 2 * SECOND),
        LaunchEnd(1, "ok", "", 0, "", 2 * SECOND),
    )
    seen = progress.picture()
    assert seen.cases[0].state == "ok"
    ended, event = seen.events
    assert ended.message.endswith(": launch 1 of 2 ok")
    assert event.message.endswith(r"failed: it broke\x1b[31m")
    assert event.at_s == 2.0


def test_the_interval_comes_with_the_sixth_block_and_is_of_this_launch_alone() -> None:
    few = received(*blocks(0, 5)).picture().strip
    assert few is not None
    assert isinstance(few.interval, Missing)
    more = received(*blocks(0, 30, SECOND), *blocks(1, 6, SECOND // 2)).picture().strip
    assert more is not None
    assert isinstance(more.interval, Estimated)
    assert (more.blocks, more.centre_s, more.interval.low) == (6, 0.5, 0.5)


def test_what_is_kept_is_bounded() -> None:
    ends = [CaseEnd(0, 0, "failed", str(number), 0, SECOND) for number in range(3 * EVENTS_KEPT)]
    seen = received(*blocks(0, 3 * INTERVAL_BLOCKS), *ends).picture()
    assert len(seen.events) == EVENTS_KEPT
    assert seen.strip is not None
    assert (len(seen.strip.step_s[-1]), seen.strip.blocks) == (INTERVAL_BLOCKS, 3 * INTERVAL_BLOCKS)


def test_who_begins_to_listen_late_sees_what_others_see() -> None:
    made = plan()
    early, late = (ProgressTracker([made], is_of_this_clock=True) for _ in range(2))
    for line in lines_of(made):
        early.hear(0, line)
        late.hear(0, line)
        early.picture()
    one, two = early.picture(), late.picture()
    for part in ("begun_ns", "cases", "strip", "events"):
        assert getattr(one, part) == getattr(two, part)


def test_time_that_is_left_follows_the_pace_within_the_budget_and_with_what_is_done_is_the_whole() -> None:
    seen = received(LaunchStart(0, 0, (0,), 1, 3.0, 0), LaunchEnd(0, "ok", "", 0, "", 2 * SECOND)).picture()
    assert seen.left_s is not None
    assert seen.share_done is not None
    assert 1.9 < seen.left_s <= 6.0 - 2.0
    assert 0.0 <= seen.share_done < 1.0
    assert received(RunEnd("finished", "", 0, SECOND)).picture().share_done == 1.0
    without_budget = ProgressTracker([make_plan([0], budget_s=0.0)]).picture()
    assert without_budget.left_s is without_budget.share_done is None


def test_a_killed_worker_takes_no_more_from_the_time_left_than_was_expected_of_its_launch() -> None:
    plan = make_plan(*[[0, 1]] * 6, cases=[make_case("gemm"), make_case("membw")], budget_s=600.0)
    began_ns = time.monotonic_ns() - 130 * SECOND
    progress = told(plan, began_ns=began_ns)
    assert (progress.picture().begun_ns, progress.pace.elapsed_s() >= 130) == (began_ns, True)
    each_s = expected_s(plan, plan.launches[0])

    def left_s(*lines: Line) -> float:
        for line in lines:
            progress.hear(0, line)
        found = progress.picture().left_s
        assert found is not None
        return found

    at_pace = left_s(
        LaunchStart(0, 0, (0, 1), 1, each_s, began_ns),
        LaunchEnd(0, "ok", "", 0, "", began_ns + round(each_s * SECOND)),
        LaunchStart(1, 1, (0, 1), 1, each_s, time.monotonic_ns()),
    )
    assert at_pace == pytest.approx(5 * each_s, abs=1)
    killed = left_s(LaunchEnd(1, "failed", "it was killed", -9, "", time.monotonic_ns()))
    assert killed == pytest.approx(4 * each_s, abs=1)
    alone = left_s(LaunchStart(6, 1, (0,), 1, each_s, time.monotonic_ns()))
    assert alone == pytest.approx(4.5 * each_s, abs=1)


def test_what_is_left_is_what_remains_to_be_done_not_what_remains_of_the_budget() -> None:
    case = make_case()
    few = replace(make_plan([0], [0], [0], cases=[case], budget_s=3600.0), most_blocks=5)
    left_s = ProgressTracker([few]).picture().left_s
    assert left_s is not None
    assert left_s < 60
    assert expected_s(few, few.launches[0]) * 3 == pytest.approx(left_s, abs=0.5)
    many = replace(few, most_blocks=10_000)
    assert expected_s(many, many.launches[0]) == pytest.approx(1200.0)


@pytest.mark.parametrize("status", ["finished", "interrupted"])
def test_after_the_last_line_it_is_being_stored(status: str) -> None:
    seen = received(*blocks(0, 3), RunEnd(status, "why", 0, 3 * SECOND)).picture()
    assert seen.is_storing
    assert seen.strip is None
    assert bool(seen.events) == (status != "finished")


def test_a_case_shows_the_rate_and_the_interval_that_the_table_of_results_will_show() -> None:
    made = make_plan([0], [0], cases=[make_case("membw")])
    tracker = ProgressTracker([made])
    case = made.cases[0].case
    stored: list[Measurement] = []
    for launch in range(2):
        timed = blocks(launch, 12, SECOND // (10 + launch))
        for block in timed:
            tracker.hear(0, block)
        tracker.hear(0, CaseEnd(launch, 0, "ok", "", 12, SECOND))
        stored.append(_measurement(launch, tuple(timed)))
        (shown,) = tracker.picture().cases
        speed = speed_of(CaseResult(0, case, None, "", "ok", "", tuple(stored)))
        assert not isinstance(speed, Missing)
        assert shown.rate == format_rate(speed.units_per_s, case.unit)
        assert shown.spread == interval_words(speed)
    assert shown.share_done == 1.0


def _measurement(launch: int, timed: tuple[Block, ...]) -> Measurement:
    return Measurement(launch, 0, "ok", "", "fp32", False, None, None, None, None, timed)


def test_a_launch_that_died_or_was_too_short_for_a_case_counts_for_none() -> None:
    def ended(launch: int, outcome: str = "ok") -> tuple[Line, ...]:
        return CaseEnd(launch, 0, outcome, "", 8, SECOND), LaunchEnd(launch, "ok", "", 0, "", SECOND)

    died = LaunchEnd(1, "failed", "it was killed", -9, "", 3 * SECOND)
    starts = [LaunchStart(launch, launch, (0,), 1, 3.0, 0) for launch in (0, 1)]
    alone = received(*blocks(0, 8), CaseEnd(0, 0, "ok", "", 8, SECOND)).picture().cases[0]
    for lines in (
        (starts[0], *blocks(0, 8), *ended(0), starts[1], *blocks(1, 8, SECOND // 1000), died),
        (starts[0], *ended(0, "skipped"), starts[1], *blocks(1, 8), *ended(1)),
    ):
        (case,) = received(*lines).picture().cases
        assert (case.rate, case.launches) == (alone.rate, 2)
    assert (case.state, case.launches_done) == ("ok", 1)


def test_the_share_of_a_case_grows_with_its_blocks_and_its_launches() -> None:
    start = LaunchStart(0, 0, (0,), 1, 3.0, 0)
    most = make_plan([0]).most_blocks
    shares = [received(start, *blocks(0, count)).picture().cases[0].share_done for count in (0, 1, 2 * most)]
    assert shares == [0.0, 0.5 / most, 0.5]
    ended = received(
        start, *blocks(0, 6), CaseEnd(0, 0, "ok", "", 6, SECOND), LaunchEnd(0, "ok", "", 0, "", 1)
    )
    assert ended.picture().cases[0].share_done == 0.5


def test_of_cases_that_take_turns_one_is_followed_until_it_ends() -> None:
    made = make_plan([0, 1], cases=[make_case("gemm"), make_case("membw")])
    tracker = ProgressTracker([made])
    followed = []
    for line in (
        Block(0, 0, 0, 10, 0, SECOND, None, None),
        Block(0, 1, 0, 10, 0, SECOND, None, None),
        Block(0, 0, 1, 10, 0, SECOND, None, None),
        CaseEnd(0, 0, "ok", "", 2, SECOND),
        Block(0, 1, 1, 10, 0, SECOND, None, None),
    ):
        tracker.hear(0, line)
        strip = tracker.picture().strip
        assert strip is not None
        followed.append(strip.name.split()[0])
    assert followed == ["matmul", "matmul", "matmul", "matmul", "memory"]


def test_the_device_under_test_is_that_of_the_worker_at_work() -> None:
    case = make_case("gemm", device_class="gpu")
    tracker = ProgressTracker([make_plan([0], cases=[case])])
    tracker.hear(0, MachineFound(GPU_MACHINE))
    tracker.hear(0, CasePlanned(PlannedCase(0, case, None, ""), 1, "NVIDIA H200"))
    assert tracker.picture().under_test is None
    tracker.hear(0, LaunchStart(0, 0, (0,), 1, 3.0, 0))
    assert tracker.picture().under_test == 1
    assert tracker.picture().machine == GPU_MACHINE
    assert received(LaunchStart(0, 0, (0,), 1, 3.0, 0)).picture().under_test == HOST


def test_a_case_that_was_timed_is_being_profiled_until_its_pass_has_come() -> None:
    plan = make_plan([0])
    tracker = ProgressTracker([replace(plan, launches=(replace(plan.launches[0], profiled=(0,)),))])
    states = []
    lines: tuple[Line, ...] = (
        LaunchStart(0, 0, (0,), 1, 9.0, 0),
        *blocks(0, 8),
        CaseEnd(0, 0, "ok", "", 8, SECOND),
        without_result(0, 0, "a reason"),
        LaunchEnd(0, "ok", "", 0, "", SECOND),
    )
    for line in lines:
        tracker.hear(0, line)
        states.append(tracker.picture().cases[0].state)
    assert list(dict.fromkeys(states)) == ["starting", "timing", "profiling", "ok"]


def test_on_a_busy_box_every_speed_of_a_run_in_progress_is_without_the_waiting_for_cpus() -> None:
    case = make_case("gemm")
    (busy,) = measured(case, (0.1, 0.13, 0.1, 0.2, 0.11, 0.17), waited_share=0.4).measurements
    plan = make_plan([0], cases=[case])
    for count in (3, 6):  # with too few blocks for an interval, and with enough
        progress = ProgressTracker([plan])
        for block in busy.blocks[:count]:
            progress.hear(0, block)
        seen = progress.picture()
        assert seen.strip is not None
        own = format_rate(speed_of_launch(case, busy.blocks[:count]), case.unit)
        raw = case.units_per_step / median([b.block_ns * 1e-9 / b.steps for b in busy.blocks[:count]])
        assert seen.cases[0].rate == own != format_rate(raw, case.unit)
        step_s = own_times(case, busy.blocks[:count])
        assert seen.strip.step_s[-1] == tuple(case.units_per_step * second for second in step_s)
        assert seen.waited_share == pytest.approx(0.4, abs=0.01)


def test_a_bar_is_the_share_of_the_fastest_case_that_does_the_same_work() -> None:
    slow, fast = (make_case("gemm", precision=precision) for precision in ("fp32", "amp"))
    progress = ProgressTracker([make_plan([0, 1, 2], cases=[slow, fast, make_case("membw")])])
    for case_id, step_ns in enumerate((4 * SECOND, SECOND, 9 * SECOND)):
        progress.hear(0, Block(0, case_id, 0, 1, 0, step_ns, None, None))
    first, second, alone = progress.picture().cases
    assert [first.of_fastest, second.of_fastest, alone.of_fastest] == pytest.approx([0.25, 1.0, 1.0])
