"""Curves of telemetry over the blocks of a case, its launches one after another."""

from __future__ import annotations

import math
from array import array

from gputui.services.compare.evidence import _joined
from gputui.store.reading import LaunchSeries, MeasuredSpan, TelemetrySeries


def series(first_us: int, *watts: float) -> LaunchSeries:
    """One reading a second, the first half a second after the first block began."""
    times = array("q", (first_us + 500_000 + second * 1_000_000 for second in range(len(watts))))
    one = TelemetrySeries(0, times[0], times, {"power_w": array("d", watts)})
    return MeasuredSpan(0, 0, first_us, first_us + len(watts) * 1_000_000), (one,)


def test_readings_lie_where_they_were_taken_in_their_launch_and_gaps_are_gaps() -> None:
    launches = [series(7_000_000, 100.0, 110.0), series(90_000_000, 200.0, 210.0)]
    curve = _joined(launches, (0.0, 10.0), 0, "power_w")

    assert list(curve.seconds) == [0.0, 0.0, 1.5, 10.0, 10.0, 11.5]
    assert [value for value in curve.values if not math.isnan(value)] == [100.0, 110.0, 200.0, 210.0]
    assert math.isnan(curve.values[0])
    assert math.isnan(curve.values[3])
    assert _joined(launches, (0.0, 10.0), 1, "power_w").known == []
    assert _joined(launches, (0.0, 10.0), 0, "sm_clock_mhz").known == []
