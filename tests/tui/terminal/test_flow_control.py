"""When frames may be written, on a manual clock."""

from __future__ import annotations

from gputui.tui.terminal.renderer import QUERY_AGAIN_S, FrameGate


def test_the_first_frame_goes_at_once_and_a_second_waits_for_the_answer_to_it() -> None:
    gate = FrameGate(0)
    assert gate.may_write(0, False)
    gate.sent(0)
    assert not gate.may_write(1, False)
    gate.answered(1.1)
    assert gate.may_write(2.2, False)
    assert gate.round_trip_s == 1.1


def test_a_quick_link_is_used_at_once_and_a_slow_one_half_of_the_time() -> None:
    gate = FrameGate(0)
    gate.sent(0)
    gate.answered(0.2)
    assert gate.may_write(0.2, False)
    gate.sent(1)
    gate.answered(4)
    assert gate.may_write(4, False)
    gate.sent(4)
    gate.answered(7)
    assert not gate.may_write(9.9, False)
    assert gate.retry_in_s(9) == 1
    assert gate.may_write(10, False)


def test_a_reader_that_stood_still_once_is_shown_the_present_at_once_and_a_slow_one_in_five_seconds() -> None:
    gate = FrameGate(0)
    gate.sent(0)
    gate.answered(0.01)
    gate.sent(1)
    gate.answered(31)
    assert gate.may_write(31, False)
    gate.sent(31)
    gate.answered(61)
    assert not gate.may_write(65.9, False)
    assert gate.may_write(66, False)


def test_a_terminal_that_never_answers_is_painted_as_fast_as_it_takes_until_a_late_answer() -> None:
    gate = FrameGate(0)
    gate.sent(0)
    assert not gate.may_write(1.9, False)
    assert gate.retry_in_s(1.9) < 0.2
    assert gate.may_write(2.1, False)
    assert not gate.may_write(2.1, True)
    assert gate.is_deaf(3)
    gate.answered(4)
    assert not gate.is_deaf(4)
    assert gate.may_write(4, True)


def test_a_terminal_that_answered_once_is_waited_for_and_queried_again_unless_it_is_another() -> None:
    gate = FrameGate(0)
    gate.answered(0)
    gate.sent(0)
    assert not gate.may_write(20, False)
    assert not gate.query_again(20)
    late = QUERY_AGAIN_S + 1
    assert gate.query_again(late)
    gate.sent(late)
    assert not gate.query_again(late + 1)
    gate.answered(late + 0.01)
    assert gate.may_write(late + 0.01, False)
    gate.sent(late + 1)
    gate.reopen(late + 2)
    assert gate.may_write(late + 2, False)
