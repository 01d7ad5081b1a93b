"""Plays the telemetry of a stored run like live telemetry."""

from __future__ import annotations

import math
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from gputui.analysis.health import CAUSES
from gputui.errors import GputuiError
from gputui.metrics import STORED, limits_of, metric_named
from gputui.model.absent import Missing
from gputui.model.result import RunSummary
from gputui.model.telemetry import HOST, DeviceSample, LiveSample, Value, sane
from gputui.services.playback.demo_gpus import TimedFeed
from gputui.services.results.selectors import locate_run
from gputui.store.reading import TelemetrySeries, open_result

PIECES = 3600
"""Resolution of a run in memory: a piece per second of an hour, or per 8 s of 8 hours. 2 MB with 8 GPUs."""
SLOWEST, FASTEST = 0.1, 1000.0
_STEPS_S: tuple[tuple[float, float], ...] = ((300.0, 1.0), (1800.0, 5.0), (3600.0, 15.0), (math.inf, 25.0))
"""Up to which age charts and sums are filled in which steps: as fine as charts keep them."""
_HOLDS_S = 3.0
"""How long a value is shown if its metric is read less often than its device: 1 Hz among 10 Hz."""

_NOT_YET = Missing("not sampled yet at this time")
_NOT_MEASURED = Missing("not measured")
_NOT_STORED = Missing("a stored run does not hold it")
_COUNTERS = frozenset(metric.key for metric in STORED if metric.code == "Q")
_CPU = metric_named("cpu_busy_pct", HOST)


class Replay:
    """The telemetry of one run, by the time since its first reading. Does not keep the file open."""

    NAME = "replay"

    def __init__(self, summary: RunSummary, series: tuple[TelemetrySeries, ...]) -> None:
        self.summary = summary
        self.interval_s = max((_usual_gap_s(one.t_us) for one in series), default=0.0)
        """Typical time between two readings of the device that was read least often."""
        held = tuple(_held(one) for one in series)
        self._gpus = tuple(one for one in held if one.device_index != HOST)
        self._host = next((one for one in held if one.device_index == HOST), None)
        self.started_utc_us = min((one.first_us for one in series), default=0)
        self._last_us = max((one.t_us[-1] for one in series), default=0)
        self._known = {gpu.index: limits_of(summary.machine, gpu.index) for gpu in summary.machine.gpus}
        self._host_known = limits_of(summary.machine, HOST)
        busiest = max(self._host.of(_CPU.key).known, default=0.0) if self._host else 0.0
        if _CPU.top(self._host_known, busiest) != _CPU.full_scale(self._host_known):
            # an older version recorded what the whole host did, also in a container
            self._host_known["cpu_limit_cores"] = float(summary.machine.cpu.host_threads)
        self._absent = {} if self._gpus else {self.NAME: Missing("no GPU was sampled in this run")}
        self._number = 0

    @property
    def duration_s(self) -> float:
        """From the first reading to the last."""
        return (self._last_us - self.started_utc_us) / 1e6

    def at(self, position_s: float) -> LiveSample:
        """The state at this position. Its times are nanoseconds since the first reading, so that the age
        of a value is the sample's time minus the value's own."""
        position_us = round(min(max(position_s, 0.0), self.duration_s) * 1e6)
        self._number += 1
        host = self._host
        return LiveSample(
            number=self._number,
            t_ns=position_us * 1000,
            host=DeviceSample(
                HOST, self.NAME, position_us * 1000, {}, problem=Missing("the host was not sampled")
            )
            if host is None
            else self._device(host, self._host_known, position_us),
            gpus=tuple(
                self._device(one, self._known.get(one.device_index, {"name": _NOT_STORED}), position_us)
                for one in self._gpus
            ),
            processes=Missing("a recording holds no process lists"),
            absent=self._absent,
        )

    def leading_to(self, after_s: float | None, end_s: float) -> Iterator[LiveSample]:
        """The samples that charts and sums need between two positions, the last one at the end itself.

        `after_s` None starts at the first reading.
        """
        positions: list[float] = []
        at_s = end_s
        for until_s, step_s in _STEPS_S:
            while at_s > (after_s or 0.0) and end_s - at_s < until_s:
                positions.append(at_s)
                at_s -= max(step_s, self.interval_s)
        if after_s is None:
            positions.append(0.0)
        return map(self.at, reversed(positions))

    def _device(self, series: TelemetrySeries, known: Mapping[str, Value], position_us: int) -> DeviceSample:
        now_us = self.started_utc_us + position_us
        # The first piece starts at its first reading, although its values are those of its last.
        place = max(bisect_right(series.t_us, now_us) - 1, 0)
        if now_us < series.first_us:
            return DeviceSample(series.device_index, self.NAME, 0, known, problem=_NOT_YET)
        values: dict[str, Value] = dict(known)
        for key, column in series.columns.items():
            values[key] = _value(key, column[place])
        t_ns = (min(series.t_us[place], now_us) - self.started_utc_us) * 1000
        return DeviceSample(series.device_index, self.NAME, t_ns, values)


class Playback(TimedFeed):
    """A replay in the panes. Its clock is the position of the sample shown: it runs, stops and jumps with the
    recording."""

    def __init__(
        self,
        replay: Replay,
        interval_s: float = 1.0,
        *,
        speed: float = 1.0,
        on_sample: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.replay = replay
        self.position_s = 0.0  # of the sample shown, seconds since the first reading
        self.speed = 1.0  # seconds of the recording per second
        self.is_paused = False
        self._clock = clock
        self._go_on(0.0, speed=speed)
        self._shown = replay.at(0.0)
        super().__init__(self._at_position, interval_s, on_sample)

    @property
    def has_ended(self) -> bool:
        """Whether the last reading is shown."""
        return self.position_s >= self.replay.duration_s

    def seek(self, position_s: float) -> None:
        """Show this position now, and continue from here."""
        self.move(lambda: self._go_on(position_s))

    def set_speed(self, speed: float) -> None:
        """Clamped to SLOWEST and FASTEST."""
        self.move(lambda: self._go_on(self._reached_s(), speed=speed))

    def pause_or_go_on(self) -> None:
        """Pause or go on; at its end, start again."""
        if self.has_ended:
            self.move(lambda: self._go_on(0.0, is_paused=False))
        else:
            self.move(lambda: self._go_on(self._reached_s(), is_paused=not self.is_paused))

    def _go_on(self, from_s: float, *, speed: float | None = None, is_paused: bool | None = None) -> None:
        """Let time pass from this position on; None changes nothing."""
        self._from_s, self._since_ns = from_s, self._clock()
        if speed is not None:
            self.speed = min(max(speed, SLOWEST), FASTEST)
        if is_paused is not None:
            self.is_paused = is_paused

    def _reached_s(self) -> float:
        """The position now; stays at the end."""
        passed_s = 0.0 if self.is_paused else (self._clock() - self._since_ns) / 1e9
        return min(max(self._from_s + passed_s * self.speed, 0.0), self.replay.duration_s)

    def _at_position(self) -> LiveSample:
        position_s = self._reached_s()
        if position_s != self.position_s:
            self._shown, self.position_s = self.replay.at(position_s), position_s
        return self._shown


def open_replay(run: str, file: Path | None = None) -> Replay:
    """The telemetry of the run named by `RUN [F]` or `F@RUN`.

    Raises GputuiError if the file cannot be read, the run is unknown, or it has no telemetry.
    """
    path, summary = locate_run(run, file)
    with open_result(path) as opened:
        series = opened.telemetry_series(summary.run_id, PIECES)
    if not series:
        raise GputuiError(
            f"run {summary.short_id} of {path} holds no telemetry: there is nothing to play",
            f"what it measured: gputui show {path}@{summary.short_id}",
        )
    return Replay(summary, series)


def _usual_gap_s(t_us: Sequence[int]) -> float:
    """0 for a single reading."""
    gaps = [later - earlier for earlier, later in pairwise(t_us)]
    return median(gaps) / 1e6 if gaps else 0.0


def _held(series: TelemetrySeries) -> TelemetrySeries:
    """The series with each value held until the next of its metric, but no longer than is usual for it.

    Throttled time is accumulated over all readings: samples use only a few of them.
    """
    columns = {key: _standing(series.t_us, column) for key, column in series.columns.items()}
    bits = columns.get("throttle_bits", array("d"))
    if not all(map(math.isnan, bits)):
        columns |= {key: _slowed_ns(series.t_us, bits, mask) for _, key, mask in CAUSES}
    return replace(series, columns=columns)


def _slowed_ns(t_us: Sequence[int], bits: Sequence[float], mask: int) -> array[float]:
    """For how long any bit of the mask was set, up to each reading."""
    longest_us = 2.5 * max(_usual_gap_s(t_us), 1.0) * 1e6
    total_us, sums = 0, array("d", [0.0])
    for (earlier, later), now in zip(pairwise(t_us), bits[1:], strict=True):
        if later - earlier <= longest_us and math.isfinite(now) and int(now) & mask:
            total_us += later - earlier
        sums.append(total_us * 1e3)
    return sums


def _standing(t_us: Sequence[int], column: array[float]) -> array[float]:
    read = [place for place, number in enumerate(column) if not math.isnan(number)]
    if not read or len(read) == len(column):
        return column
    longest_us = max(_HOLDS_S, 2.5 * _usual_gap_s([t_us[place] for place in read])) * 1e6
    held = array("d", column)
    last = None
    for place, number in enumerate(column):
        if not math.isnan(number):
            last = place
        elif last is not None and t_us[place] - t_us[last] <= longest_us:
            held[place] = column[last]
    return held


def _value(key: str, number: float) -> Value:
    if math.isnan(number):
        return _NOT_MEASURED
    value = sane(key, number, "the file")
    return round(value) if isinstance(value, float) and key in _COUNTERS else value
