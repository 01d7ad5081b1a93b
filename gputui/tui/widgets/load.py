"""How loaded something is, in four steps of colour that change only when the state does."""

from __future__ import annotations

from enum import IntEnum
from math import isclose

SETTLED_NS = 3_000_000_000
"""A change counts after this time, or at once if it goes CLEARLY beyond."""
CLEARLY = 2.0
"""In points of the figure."""
SHAPE_KEPT_NS = 10_000_000_000
"""A gauge that has moved stays this long: the figure is exact, and a gauge takes many bytes."""
_ALIKE = 0.04
"""A gauge does not follow a figure that differs by a smaller share than this; it could hardly show it."""
_FAR = 0.6
FAR_KEPT_NS = 5_000_000_000
"""A gauge that is off by a larger share stays only this long: it would contradict the figure."""
_APART_NS = 617_000_000
"""Gauges move this long after each other."""
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
        self._shapes: dict[object, tuple[int, float]] = {}
        """What gauges show, and since when."""

    def shape(self, key: object, value: float | None, now_ns: int) -> float | None:
        """The value to draw the gauge with this key from: it follows at once, but seldom."""
        if value is None:
            self._shapes.pop(key, None)
            return None
        kept = self._shapes.get(key)
        if kept is None:
            kept = (now_ns - len(self._shapes) * _APART_NS % SHAPE_KEPT_NS, value)
        elif not isclose(value, kept[1], rel_tol=_ALIKE):
            stays_ns = SHAPE_KEPT_NS if isclose(value, kept[1], rel_tol=_FAR) else FAR_KEPT_NS
            if not 0 <= now_ns - kept[0] < stays_ns:
                kept = (now_ns, value)
        self._shapes[key] = kept
        return kept[1]

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
