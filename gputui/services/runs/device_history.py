"""What the sampler of a run in progress has read of each device: the newest values, and the run so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gputui.analysis.health import Slowed, Throttling
from gputui.metrics import STORED, live_values
from gputui.model.absent import Missing
from gputui.model.result import TimeSeries
from gputui.model.telemetry import HOST, Reading

READING_HOLDS_S = 10.0
"""Older values are not shown as those of now."""
MOST_BINS = 240
_CHARTED = frozenset(metric.key for metric in STORED if metric.hue)


@dataclass(frozen=True, slots=True)
class DeviceHistory:
    """One device while a run measures."""

    device: int
    """Index of the GPU among the machine's GPUs; HOST for the host."""
    now: Mapping[str, float | int]
    """The newest value of each metric, none older than 10 s."""
    bin_s: float
    bins: Mapping[str, tuple[float | None, ...]]
    """Means by metric since sampling began, oldest first; None where nothing was read."""
    slowed: Slowed = field(default_factory=Slowed)

    def series(self, key: str) -> TimeSeries:
        """A metric since sampling began."""
        bins = self.bins.get(key, ())
        return TimeSeries(
            [place * self.bin_s for place in range(len(bins))],
            [math.nan if value is None else value for value in bins],
        )

    @property
    def is_host(self) -> bool:
        return self.device == HOST


class HistoryReader:
    """Follows the telemetry of a run. For one thread."""

    def __init__(self, poll: Callable[[], Sequence[Reading] | Missing]) -> None:
        """`poll` returns what was read since it was called last, as that of a `TelemetryTail` does."""
        self._poll = poll
        self._began_ns: int | None = None
        self._devices: dict[int, _BinnedMeans] = {}

    def poll(self, now_ns: int) -> tuple[DeviceHistory, ...] | Missing:
        """Every device, the host first; `now_ns` is the monotonic time. Missing with the reason."""
        readings = self._poll()
        if isinstance(readings, Missing):
            return readings
        for reading in readings:
            if self._began_ns is None:
                self._began_ns = reading.t_ns
            self._devices.setdefault(reading.device, _BinnedMeans(self._began_ns)).add(reading)
        return tuple(self._devices[device].shown(device, now_ns) for device in sorted(self._devices))


class _BinnedMeans:
    """Means in bins whose length doubles when there are too many."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._bin_s = 1
        self._sums: dict[str, list[tuple[float, int]]] = {}
        """Sum and number of values of each bin."""
        self._newest: dict[str, tuple[int, float | int]] = {}
        self._throttling = Throttling()

    def add(self, reading: Reading) -> None:
        place = max(reading.t_ns - self._began_ns, 0) // (self._bin_s * 10**9)
        while place >= MOST_BINS:
            self._bin_s *= 2
            place //= 2
            self._sums = {key: _halved(bins) for key, bins in self._sums.items()}
        for key, value in live_values(reading.values).items():
            self._newest[key] = reading.t_ns, value
            if key in _CHARTED:
                bins = self._sums.setdefault(key, [])
                bins.extend([(0.0, 0)] * (place + 1 - len(bins)))
                total, count = bins[place]
                bins[place] = total + value, count + 1
        self._throttling.add(reading.t_ns, reading.values)

    def shown(self, device: int, now_ns: int) -> DeviceHistory:
        holds_ns = READING_HOLDS_S * 1e9
        return DeviceHistory(
            device,
            {key: value for key, (t_ns, value) in self._newest.items() if now_ns - t_ns < holds_ns},
            float(self._bin_s),
            {
                key: tuple([total / count if count else None for total, count in bins])
                for key, bins in self._sums.items()
            },
            self._throttling.slowed,
        )


def _halved(bins: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Bins of twice the length."""
    even = bins if len(bins) % 2 == 0 else [*bins, (0.0, 0)]
    pairs = zip(even[::2], even[1::2], strict=True)
    return [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]
