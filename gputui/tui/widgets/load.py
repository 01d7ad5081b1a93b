"""How loaded something is, in four steps of colour that change only when the state does."""

from __future__ import annotations

from enum import IntEnum

from gputui.document.drawings import gauge, gauge_of, halves_of
from gputui.tui.widgets.history import SECOND_NS

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
        """The style of figures and gauges of a family of hue."""
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
        """The step to show for the figure with this key; `now_ns` never goes back, except in a replay."""
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
