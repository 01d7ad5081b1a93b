"""The progress of a run follows from its journal alone, whenever one starts to read it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_plan
from journals import make_case
from run_screen_golden import RUN, lines_of, plan

from gputui.analysis.health import throttle_words
from gputui.analysis.statistics import Interval
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CaseWarm,
    LaunchEnd,
    LaunchStart,
    Line,
    RunEnd,
    RunStart,
)
from gputui.model.telemetry import CURRENT, HOST, Reading
from gputui.services.runs.progress import (
    EVENTS_KEPT,
    INTERVAL_BLOCKS,
    ProgressTracker,
    box_now,
    expected_s,
)

SECOND = 10**9


def received(*lines: Line, launches: int = 2) -> ProgressTracker:
    """A run of one case in this many launches, and these lines of it."""
    progress = ProgressTracker([make_plan(*[[0]] * launches)])
    progress.hear(0, RunStart(JOURNAL_SCHEMA, RUN.run_ids[0], 0, 0, 0, "0", "p", 1, 1, 1, 6.0, "", None))
    for line in lines:
        progress.hear(0, line)
    return progress


def blocks(launch: int, count: int, step_ns: int = SECOND // 10) -> list[Block]:
    return [Block(launch, 0, index, 10, 0, 10 * step_ns, None, None) for index in range(count)]


def test_last_words_of_a_worker_are_kept_with_the_launch_and_its_cases() -> None:
    progress = received(
        LaunchStart(0, 0, (0,), 1, 3.0, SECOND),
        LaunchEnd(0, "failed", "it died\x1b[31m", -11, "Traceback:\n  in build\x07\n温度", 3 * SECOND),
        LaunchStart(1, 0, (0,), 1, 3.0, 4 * SECOND),
        LaunchEnd(1, "ok", "", 0, "", 5 * SECOND),
    )
    (log_end,) = progress.picture().last_words
    assert log_end.launch == f"launch 1, {progress.picture().cases[0].name}"
    assert (log_end.at_s, log_end.outcome, log_end.reason) == (3.0, "failed", r"it died\x1b[31m")
    assert log_end.lines == ("Traceback:", r"  in build\x07", "温度")


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
    assert (case.launches_done, case.launches, case.blocks) == (1, 2, 2)
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
    (event,) = seen.events
    assert event.message.endswith(r"failed: it broke\x1b[31m")
    assert event.at_s == 2.0


def test_a_worker_that_dies_is_reported_and_its_case_does_not_stay_in_progress() -> None:
    seen = received(
        LaunchStart(0, 0, (0,), 1, 3.0, SECOND),
        LaunchEnd(0, "failed", "it was killed", -9, "", 2 * SECOND),
    ).picture()
    assert (seen.cases[0].state, seen.cases[0].is_now) == ("failed", False)
    assert "launch 1 failed: it was killed" in seen.events[0].message


def test_the_interval_comes_with_the_sixth_block_and_is_of_this_launch_alone() -> None:
    few = received(*blocks(0, 5)).picture().strip
    assert few is not None
    assert isinstance(few.interval, Missing)
    more = received(*blocks(0, 30, SECOND), *blocks(1, 6, SECOND // 2)).picture().strip
    assert more is not None
    assert isinstance(more.interval, Interval)
    assert (more.blocks, more.centre_s, more.interval.low) == (6, 0.5, 0.5)


def test_what_is_kept_is_bounded() -> None:
    ends = [CaseEnd(0, 0, "failed", str(number), 0, SECOND) for number in range(3 * EVENTS_KEPT)]
    seen = received(*blocks(0, 3 * INTERVAL_BLOCKS), *ends).picture()
    assert len(seen.events) == EVENTS_KEPT
    assert seen.strip is not None
    assert (len(seen.strip.step_s), seen.strip.blocks) == (INTERVAL_BLOCKS, 3 * INTERVAL_BLOCKS)


def test_who_begins_to_listen_late_sees_what_others_see() -> None:
    made = plan()
    lines = lines_of(made)
    pictures = []
    for begins in (0, len(lines)):
        progress = ProgressTracker([made], is_of_this_clock=True)
        for count, line in enumerate(lines):
            progress.hear(0, line)
            if count >= begins:
                progress.picture()
        pictures.append(progress.picture())
    one, two = pictures
    assert (one.begun_ns, one.cases, one.strip, one.events) == (
        two.begun_ns,
        two.cases,
        two.strip,
        two.events,
    )


def test_time_that_is_left_follows_the_pace_and_never_exceeds_the_budget() -> None:
    progress = received(LaunchStart(0, 0, (0,), 1, 3.0, 0), LaunchEnd(0, "ok", "", 0, "", 2 * SECOND))
    left_s = progress.picture().left_s
    assert left_s is not None
    assert 1.9 < left_s <= 6.0 - 2.0
    assert ProgressTracker([make_plan([0], budget_s=0.0)]).picture().left_s is None


def test_what_is_left_is_what_remains_to_be_done_not_what_remains_of_the_budget() -> None:
    case = make_case()
    few = replace(make_plan([0], [0], [0], cases=[case], budget_s=3600.0), most_blocks=5)
    left_s = ProgressTracker([few]).picture().left_s
    assert left_s is not None
    assert left_s < 60
    assert expected_s(few, few.launches[0]) * 3 == pytest.approx(left_s, abs=0.5)
    many = replace(few, most_blocks=10_000)
    assert expected_s(many, many.launches[0]) == pytest.approx(1200.0)


def test_on_the_clock_of_this_boot_a_long_silence_is_counted() -> None:
    progress = ProgressTracker([make_plan([0])], is_of_this_clock=True)
    began_ns = time.monotonic_ns() - 1000 * SECOND
    progress.hear(
        0, RunStart(JOURNAL_SCHEMA, RUN.run_ids[0], 0, began_ns, 0, "0", "p", 1, 1, 1, 6.0, "", None)
    )
    progress.hear(0, LaunchStart(0, 0, (0,), 1, 3.0, began_ns + SECOND))
    assert progress.picture().begun_ns == began_ns
    assert progress.pace.elapsed_s() >= 1000


@pytest.mark.parametrize("status", ["finished", "interrupted"])
def test_after_the_last_line_it_is_being_stored(status: str) -> None:
    seen = received(*blocks(0, 3), RunEnd(status, "why", 0, 3 * SECOND)).picture()
    assert seen.is_storing
    assert seen.strip is None
    assert bool(seen.events) == (status != "finished")


def test_the_box_is_described_by_the_newest_readings_of_each_device(tmp_path: Path) -> None:
    assert box_now(tmp_path) == ()
    old = Reading(0, SECOND, {"power_w": 1.0})
    rows = [Reading(0, 60 * SECOND + n, {"power_w": 100.0 + n, "throttle_bits": 4}) for n in range(900)]
    host = Reading(HOST, 60 * SECOND, {"cpu_busy_pct": 101.4, "cpu_steal_pct": 7.0})
    path = tmp_path / TELEMETRY_NAME
    path.write_bytes(CURRENT.header() + CURRENT.encode(host))
    assert box_now(tmp_path, 61 * SECOND) == ("host · CPU 101 % · 7 % taken by the hypervisor",)
    whole = b"".join(map(CURRENT.encode, (old, host, *rows)))
    path.write_bytes(CURRENT.header() + whole + CURRENT.encode(old)[:20])
    assert box_now(tmp_path, 61 * SECOND) == (f"GPU 0 · 999 W · {throttle_words(4)[0]}",)
    assert box_now(tmp_path, 90 * SECOND) == ()
