"""Controls and position of a replay in the Monitor."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gputui.model.units import format_clock
from gputui.tui.monitor.settings import stepped
from gputui.tui.terminal.lines import Span

if TYPE_CHECKING:
    from gputui.services.playback.replay import Playback

SPEEDS: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_SEEK_S, _LEAP_SHARE = 10.0, 0.1
_TIME_OF_DAY_FROM = 110
"""Width from which on the header includes the time of day."""


def controls(recording: Playback) -> dict[str, Callable[[], None]]:
    """What the keys of a recording do, by the ids of their actions."""

    def leap(share: float) -> None:
        recording.seek(recording.position_s + share * recording.replay.duration_s)

    return {
        "pause": recording.pause_or_go_on,
        "seek-back": lambda: recording.seek(recording.position_s - _SEEK_S),
        "seek-forward": lambda: recording.seek(recording.position_s + _SEEK_S),
        "leap-back": lambda: leap(-_LEAP_SHARE),
        "leap-forward": lambda: leap(_LEAP_SHARE),
        "seek-start": lambda: leap(-1.0),
        "seek-end": lambda: leap(1.0),
        "play-faster": lambda: recording.set_speed(stepped(SPEEDS, recording.speed, 1)),
        "play-slower": lambda: recording.set_speed(stepped(SPEEDS, recording.speed, -1)),
    }


def position_spans(recording: Playback, width: int) -> list[Span]:
    """`playing 1:23 of 4:56 · 10x`, or `PAUSED`, or `ENDED`; with the time of day if it fits."""
    whole_s = recording.replay.duration_s
    place = f"{format_clock(recording.position_s, whole_s)} of {format_clock(whole_s)}"
    words = [f"{recording.speed:g}x"]
    if width >= _TIME_OF_DAY_FROM:
        instant_s = recording.replay.started_utc_us / 1e6 + recording.position_s
        words.insert(0, datetime.fromtimestamp(instant_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"))
    state, style = "playing", "good"
    if recording.has_ended:
        state, style = "ENDED", "warn"
    elif recording.is_paused:
        state, style = "PAUSED", "warn"
    return [Span(state, style), Span(f" {place}"), Span("".join(f" · {word}" for word in words), "dim")]
