"""What the Monitor remembers of each device: the last hour of each metric, its chart, and how loaded it is.

Three rings per series: 5 minutes by seconds, half an hour by 5 seconds, an hour by 15 seconds; 912 buckets of
mean and maximum in 4 bytes each, so 13 kB a series. 8 GPUs with 12 metrics take 1.2 MB, however long it runs.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from enum import IntEnum

from gputui.document.drawings import gauge, gauge_of, halves_of, level_of
from gputui.tui.widgets.charts import column

SECOND_NS = 1_000_000_000
RINGS: tuple[tuple[int, int], ...] = ((SECOND_NS, 304), (5 * SECOND_NS, 364), (15 * SECOND_NS, 244))
"""Length of a bucket in nanoseconds and the number of buckets, finest first."""
NO_BUCKET = 2**32 - 1
STEP_NS = 5 * SECOND_NS
"""A chart moves at most this often once it is half full: moving it sends all of it again."""
_STEPS_OF_SHORT = 12
"""A chart too short for that moves by this part of its length; a row of a table does not, as its figure is
beside it."""


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
    __slots__ = ("first_ns", "last_ns", "rings")

    def __init__(self) -> None:
        self.rings = tuple(Ring(*ring) for ring in RINGS)
        self.first_ns: int | None = None
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


class Chart:
    """The recent past of one series as an area, newest at the right.

    Cells lie on a fixed time grid, so a past cell never changes: it is drawn once and kept.
    """

    def __init__(self, width: int, rows: int, span_ns: int, late_ns: int = 0) -> None:
        """`late_ns` moves the grid: charts side by side then move at different times."""
        self.width = width
        self.rows = rows
        self.span_ns = span_ns
        self._late_ns = late_ns
        self._levels = 8 * rows - 1
        self._kept = 0
        """How many cells of the last drawing will not change any more, from the left."""
        self._first = 0
        """The number of its first cell."""
        self._high = 0.0
        self._seen: tuple[int, int | None, float] | None = None
        self._drawn: tuple[str, ...] = ()

    def draw(self, series: Series | None, now_ns: int, high: float) -> tuple[str, ...]:
        """The rows, top first; values at or above `high` fill it."""
        if series is None or self.width <= 0 or series.first_ns is None:
            return (" " * max(self.width, 0),) * self.rows
        last, is_open = self._last_cell(series.first_ns, now_ns)
        until_ns = self._until_ns(series, last) if is_open else None
        seen = (last, until_ns, high)
        if seen == self._seen:
            return self._drawn
        ring = series.ring_for(self.span_ns)
        ring_ns = ring.length_ns
        settled_ns = (now_ns if series.last_ns is None else series.last_ns) // ring_ns * ring_ns
        first = last - self.width + 1
        gone = first - self._first
        kept = max(self._kept - gone, 0) if gone >= 0 and high == self._high else 0
        columns = []
        for cell in range(first + kept, last + 1):
            begin_ns, end_ns = self._begin_ns(cell), self._begin_ns(cell + 1)
            if until_ns is not None and until_ns > begin_ns:
                end_ns = min(end_ns, until_ns)
            mean = ring.mean_over(begin_ns, end_ns)
            columns.append(column(0 if mean is None else level_of(mean, high, self._levels), self.rows))
        new: Iterable[str] = map("".join, zip(*columns, strict=True)) if columns else ("",) * self.rows
        if kept:
            new = (row[gone : gone + kept] + end for row, end in zip(self._drawn, new, strict=True))
        self._drawn = tuple(new)
        after_ns = settled_ns + self._late_ns + 1
        settled = -(-after_ns * self.width // self.span_ns) - 2  # the last cell that ends before this
        self._kept = min(max(settled - first + 1, 0), self.width)
        self._first, self._high = first, high
        self._seen = seen
        return self._drawn

    def _until_ns(self, series: Series, last: int) -> int | None:
        """Up to when an open cell counts: a long one is drawn anew every STEP_NS only, as it moves little."""
        if series.last_ns is None or self.span_ns < STEP_NS * self.width:
            return series.last_ns
        bucket_ns = series.ring_for(self.span_ns).length_ns
        step_ns, late_ns = max(STEP_NS, bucket_ns), self._late_ns // bucket_ns * bucket_ns
        until_ns = (series.last_ns + late_ns) // step_ns * step_ns - late_ns  # no bucket is open then
        return until_ns if until_ns > self._begin_ns(last) else series.last_ns

    def _begin_ns(self, cell: int) -> int:
        return cell * self.span_ns // self.width - self._late_ns

    def _last_cell(self, first_ns: int, now_ns: int) -> tuple[int, bool]:
        """The newest cell to draw, and whether its interval is still open."""
        current = (now_ns + self._late_ns) * self.width // self.span_ns
        is_short = self.rows > 1 and self.span_ns < STEP_NS * _STEPS_OF_SHORT
        step_ns = self.span_ns // _STEPS_OF_SHORT if is_short else STEP_NS
        step = -(-step_ns * self.width // self.span_ns)
        if step <= 1 or now_ns - first_ns < self.span_ns // 2:
            return current, True
        return current // step * step - 1, False


SETTLED_NS = 3_000_000_000
"""A change counts after this time, or at once if it goes CLEARLY beyond."""
CLEARLY = 2.0
"""In points of the figure."""
HALVES_AFTER_NS = 5_000_000_000
"""A gauge that has moved shows half cells only after this time: moving by whole ones takes fewer bytes, and
the figure beside it is exact."""
REST_NS = 2_000_000_000
"""With `gauges_rest`, a gauge that has moved stays so long, unless it is off by over half of its length."""
_SLACK_NS = SECOND_NS // 10
IDLE_BELOW = 5.0
"""Per cent; a gauge below it is idle."""
FULL_FROM = 90.0
"""Per cent of a memory, from which on it is near its limit."""


class LoadLevel(IntEnum):
    """Steps of load. Busy is not near a limit: it is what one pays for."""

    IDLE = 0
    WORKING = 1
    NEAR_LIMIT = 2
    FAILED = 3

    def style(self, family: str) -> str:
        return ("dim", family, "warn", "alarm")[self]


def load_of(value: float, idle_below: float = IDLE_BELOW, limit_from: float | None = None) -> LoadLevel:
    """The step of a figure; without a limit, it is never near one."""
    if limit_from is not None and value >= limit_from:
        return LoadLevel.NEAR_LIMIT
    return LoadLevel.IDLE if value < idle_below else LoadLevel.WORKING


class SteadyLoads:
    """The steps of several figures; each keeps its step until another lasts or is clearly reached."""

    def __init__(self) -> None:
        self._kept: dict[object, LoadLevel] = {}
        self._other_since_ns: dict[object, int] = {}
        self._gauges: dict[object, tuple[int, int, int]] = {}
        """The half cells of gauges that are filled, the width, and since when."""
        self.gauges_rest = False
        """Whether gauges follow figures that jump every second only every two, which takes fewer bytes."""

    def gauge(
        self, key: object, value: float | None, high: float, width: int, now_ns: int
    ) -> tuple[str, str]:
        """The gauge with this key, as `charts.gauge` draws it, but by whole cells while its figure moves."""
        if value is None or high <= 0 or width <= 0:
            self._gauges.pop(key, None)
            return gauge(None, high, width)
        halves = halves_of(value, high, width)
        shown, its_width, since_ns = self._gauges.get(key, (halves, width, now_ns))
        rested_ns = now_ns - since_ns
        if its_width == width and 0 <= rested_ns < HALVES_AFTER_NS:
            is_resting = self.gauges_rest and rested_ns < REST_NS - _SLACK_NS
            if abs(halves - shown) <= (width if is_resting else 1):
                halves = shown
            elif halves % 2:
                halves += 1 if halves < shown else -1
        if halves != shown or its_width != width:
            since_ns = now_ns
        self._gauges[key] = (halves, width, since_ns)
        return gauge_of(halves, width)

    def at(
        self,
        key: object,
        value: float,
        now_ns: int,
        idle_below: float = IDLE_BELOW,
        limit_from: float | None = None,
    ) -> LoadLevel:
        """The step to show for the figure with this key; `now_ns` never goes back."""
        found = load_of(value, idle_below, limit_from)
        kept = self._kept.setdefault(key, found)
        if found is kept:
            self._other_since_ns.pop(key, None)
            return kept
        since_ns = self._other_since_ns.setdefault(key, now_ns)
        towards = -CLEARLY if found > kept else CLEARLY
        is_clear = load_of(value + towards, idle_below, limit_from) is found
        if is_clear or not 0 <= now_ns - since_ns < SETTLED_NS:
            self._kept[key] = found
            del self._other_since_ns[key]
        return self._kept[key]
