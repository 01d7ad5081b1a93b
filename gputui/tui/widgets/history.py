"""The last hour of each metric, in ring buffers of fixed size.

Three rings per series: 5 minutes by seconds, half an hour by 5 seconds, an hour by 15 seconds; 912 buckets of
mean and maximum in 4 bytes each, so 13 kB a series. 8 GPUs with 12 metrics take 1.2 MB, however long it runs.
"""

from __future__ import annotations

import math
from array import array

SECOND_NS = 1_000_000_000
RINGS: tuple[tuple[int, int], ...] = (
    (SECOND_NS, 304),
    (5 * SECOND_NS, 364),
    (15 * SECOND_NS, 244),
)
"""Length of a bucket in nanoseconds and the number of buckets, finest first."""
NO_BUCKET = 2**32 - 1


class Ring:
    """Buckets of one length; the newest overwrites the oldest."""

    __slots__ = ("_greatest", "_mean", "_numbers", "_weights", "kept", "length_ns")

    def __init__(self, length_ns: int, kept: int) -> None:
        self.length_ns = length_ns
        self.kept = kept
        self._numbers = array("I", [NO_BUCKET]) * kept
        self._mean = array("f", [0.0]) * kept
        self._greatest = array("f", [0.0]) * kept
        self._weights = array("H", [0]) * kept

    def add(self, number: int, value: float) -> None:
        """Add a value to the bucket with this number, counted from the clock's zero."""
        slot = number % self.kept
        holder = self._numbers[slot]
        if holder != number:
            if holder != NO_BUCKET and holder > number:
                return  # older than anything kept
            self._numbers[slot] = number
            self._mean[slot] = self._greatest[slot] = value
            self._weights[slot] = 1
            return
        weight = self._weights[slot] = min(self._weights[slot] + 1, 65535)
        if value > self._greatest[slot]:
            self._greatest[slot] = value
        self._mean[slot] += (value - self._mean[slot]) / weight

    def over(self, start_ns: int, end_ns: int) -> tuple[float, float] | None:
        """Mean and greatest of all buckets that begin in [start, end), or of the one start lies in; None
        without values."""
        first, end = self._numbers_in(start_ns, end_ns)
        greatest, total, count = -math.inf, 0.0, 0
        for number in range(max(first, end - self.kept), end):
            slot = number % self.kept
            if self._numbers[slot] == number:
                greatest = max(greatest, self._greatest[slot])
                total += self._mean[slot]
                count += 1
        return (total / count, greatest) if count else None

    def mean_over(self, start_ns: int, end_ns: int) -> float | None:
        """The mean of `over`; charts call it a hundred times per frame, mostly for one bucket."""
        first, end = self._numbers_in(start_ns, end_ns)
        if end - first > 1:
            found = self.over(start_ns, end_ns)
            return None if found is None else found[0]
        slot = first % self.kept
        return self._mean[slot] if self._numbers[slot] == first else None

    def _numbers_in(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """The first bucket and the one after the last that begin in [start, end), or the one start lies
        in."""
        first = -(-start_ns // self.length_ns)
        end = -(-end_ns // self.length_ns)
        return (first - 1, first) if end <= first else (first, end)


class Series:
    """One metric of one device."""

    __slots__ = ("first_ns", "last_ns", "rings")

    def __init__(self) -> None:
        self.rings = tuple(Ring(*ring) for ring in RINGS)
        self.first_ns: int | None = None
        """Time of the first value."""
        self.last_ns: int | None = None
        """Time of the newest value; None after a gap."""

    def add(self, t_ns: int, value: float, hold_ns: int) -> None:
        """Add a value; it also fills the time since the last one, if that is at most `hold_ns` ago."""
        since = self.last_ns if self.last_ns is not None and t_ns - self.last_ns <= hold_ns else None
        for ring in self.rings:
            number = t_ns // ring.length_ns
            if since is not None:
                for between in range(since // ring.length_ns + 1, number):
                    ring.add(between, value)
            ring.add(number, value)
        self.last_ns = t_ns
        if self.first_ns is None:
            self.first_ns = t_ns

    def gap(self) -> None:
        """Mark a missing value; the next one does not reach back over it."""
        self.last_ns = None

    def ring_for(self, span_ns: int) -> Ring:
        """The finest ring that reaches back far enough for a chart that is so long."""
        for ring in self.rings:
            if ring.length_ns * (ring.kept - 2) >= span_ns:
                return ring
        return self.rings[-1]


class History:
    """The series of all devices."""

    def __init__(self) -> None:
        self._series: dict[int, dict[str, Series]] = {}
        self._last_ns: dict[int, int] = {}
        self.first_ns: int | None = None
        """Time of the first values of any device."""

    def add(self, device: int, t_ns: int, values: dict[str, float | None], hold_ns: int) -> None:
        """Add a device's values at one instant; None is a gap. Does nothing if that instant was added
        before."""
        if self._last_ns.get(device) == t_ns:
            return
        self._last_ns[device] = t_ns
        self.first_ns = t_ns if self.first_ns is None else min(self.first_ns, t_ns)
        series = self._series.setdefault(device, {})
        for key, value in values.items():
            if value is not None and math.isfinite(value):
                if key not in series:
                    series[key] = Series()
                series[key].add(t_ns, value, hold_ns)
            elif key in series:
                series[key].gap()

    def series(self, device: int, key: str) -> Series | None:
        """One metric of one device, None if it never had a value."""
        return self._series.get(device, {}).get(key)
