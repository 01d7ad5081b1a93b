"""The visible part of a recording stays within it, and the cursor within that part."""

from __future__ import annotations

from array import array

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.store.reading import MeasuredSpan, TelemetrySeries
from gputui.tui.screens.timeline import LEAST_US, TimeWindow

S = 1_000_000
WHOLE = TimeWindow(0, 100 * S, 0, 100 * S, 50 * S)
CHANGES = st.one_of(
    st.sampled_from([0.5, 2.0]).map(lambda factor: lambda w: w.zoomed(factor)),
    st.floats(-2, 2).map(lambda share: lambda w: w.stepped(share)),
    st.floats(-1, 2).map(lambda share: lambda w: w.at(share)),
    st.tuples(st.integers(-S, 120 * S), st.integers(0, 50 * S)).map(
        lambda ends: lambda w: w.over(MeasuredSpan(0, 0, ends[0], ends[0] + ends[1]))
    ),
    st.just(lambda w: w.whole()),
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # how fast a crowded box draws says nothing
@given(st.lists(CHANGES, max_size=20))
def test_whatever_is_pressed_the_window_stays_in_the_whole_and_the_cursor_in_the_window(changes) -> None:  # type: ignore[no-untyped-def]
    window = WHOLE
    for change in changes:
        window = change(window)
        assert 0 <= window.from_us <= window.cursor_us <= window.to_us <= 100 * S
        assert window.span_us >= LEAST_US


def test_zooming_keeps_the_cursor_in_its_place_of_the_picture() -> None:
    window = WHOLE.at(0.25).zoomed(0.5)

    assert (window.from_us, window.to_us, window.cursor_us) == (12_500_000, 62_500_000, 25 * S)
    assert window.zoomed(2.0) == WHOLE.at(0.25)


def test_a_cursor_that_leaves_the_picture_takes_it_along() -> None:
    window = WHOLE.zoomed(0.1).at(1.0).stepped(0.1)

    assert window.cursor_us == 56 * S
    assert window.from_us < window.cursor_us < window.to_us
    assert window.span_us == 10 * S


def test_timed_cases_are_gone_through_in_the_order_of_time_round_and_round() -> None:
    spans = (MeasuredSpan(0, 1, 40 * S, 50 * S), MeasuredSpan(1, 0, 10 * S, 20 * S))
    window, firsts = WHOLE.at(0.0), []
    for step in (1, 1, 1, -1):
        window = window.next_span(spans, step)
        firsts.append(window.cursor_us // S)
        assert window.from_us < window.cursor_us

    assert firsts == [10, 40, 10, 40]
    assert (window.from_us, window.to_us) == (39_500_000, 50_500_000)


def test_a_recording_of_one_reading_has_a_window() -> None:
    window = TimeWindow.over_all([TelemetrySeries(0, 7, array("q", [7]), {})])

    assert window.is_whole
    assert window.zoomed(0.5).span_us == window.span_us == LEAST_US
