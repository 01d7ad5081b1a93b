"""What slowed a GPU lately, from readings."""

from __future__ import annotations

import pytest

from gputui.analysis.health import Throttling

SECOND = 10**9


def after(seconds: int, *, thermal_share: float, bits: int = 0) -> Throttling:
    """Readings once a second of a counter that grows by this share of the time."""
    seen = Throttling()
    for second in range(seconds + 1):
        counted = int(thermal_share * second * SECOND)
        seen.add(second * SECOND, {"throttle_bits": bits, "throttled_thermal_ns": counted})
    return seen


def test_a_counter_that_creeps_is_never_seen() -> None:
    assert after(300, thermal_share=0.01).slowed.since_s == {}
    assert after(300, thermal_share=0.06).slowed.since_s == {"thermal": 0.0}


def test_the_last_minute_is_counted_apart_from_the_last_five() -> None:
    seen = after(240, thermal_share=0.5)
    assert seen.slowed.last_minute_s == {"thermal": 30.0}
    for second in range(241, 246):
        seen.add(second * SECOND, {"throttled_thermal_ns": 120 * SECOND})
    assert seen.slowed.last_minute_s == {"thermal": 27.5}
    assert seen.slowed.since_s == {"thermal": 5.0}
    for second in range(246, 300):
        seen.add(second * SECOND, {"throttled_thermal_ns": 120 * SECOND})
    assert seen.slowed.last_minute_s == {}
    assert seen.slowed.shares["thermal"] == pytest.approx(120 / 299)


def test_a_reason_that_the_driver_does_not_count_is_added_up() -> None:
    assert after(30, thermal_share=0.0, bits=0x20).slowed.last_minute_s == {"thermal": 30.0}


def test_a_reading_that_comes_twice_counts_once_and_a_clock_that_went_back_begins_anew() -> None:
    seen = Throttling()
    for second in (100, 101, 101):
        seen.add(second * SECOND, {"throttle_bits": 0x20})
    assert seen.slowed.last_minute_s == {"thermal": 1.0}
    seen.add(5 * SECOND, {"throttle_bits": 0})
    assert seen.span_s == 0.0
