"""Time in which a supervisor was stopped does not count for its run."""

from __future__ import annotations

from gputui.recording.pacing import STOPPED_S, WakingClock


def test_a_long_gap_between_two_looks_is_no_time_and_a_short_one_is() -> None:
    instants = iter([100.0, 101.0, 101.0 + STOPPED_S / 2, 5000.0, 5001.5])
    clock = WakingClock(lambda: next(instants))
    assert clock.now_s() == 101.0
    assert clock.now_s() == 101.0 + STOPPED_S / 2
    assert clock.stopped_s == 0.0
    assert clock.now_s() == 101.0 + STOPPED_S / 2
    assert clock.stopped_s == 5000.0 - 101.0 - STOPPED_S / 2
    assert clock.now_s() == 101.0 + STOPPED_S / 2 + 1.5
