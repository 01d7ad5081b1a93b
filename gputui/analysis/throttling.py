"""For how long a GPU was throttled lately: by the driver's counters, or by the reasons at each reading."""

from __future__ import annotations

import copy
from collections import deque
from typing import NamedTuple

from gputui.analysis.health import CAUSES, NOW_S, Cause, Slowed
from gputui.metrics import Values, number

WINDOW_NS, _MINUTE_NS = 300 * 1_000_000_000, 60 * 1_000_000_000
"""Throttling is reported for the last five minutes; the last one decides about alarms."""
LONGEST_STEP_NS = 30 * 1_000_000_000
"""The time between readings further apart than this counts as unknown."""
_CREEP = 0.05
"""A counter that grows by a smaller share of the time counts moments that slow nothing."""


_PLACES = {cause: place for place, (cause, _, _) in enumerate(CAUSES)}


class _Counts(NamedTuple):
    """Time throttled until then, by cause in the order of CAUSES: as the driver counts it, and summed up from
    the reasons at each reading."""

    t_ns: int
    counted_ns: tuple[float | None, ...]
    seen_ns: tuple[float, ...]


class Throttling:
    """What slowed one GPU in the last five minutes."""

    def __init__(self) -> None:
        self._seen_ns = (0.0,) * len(CAUSES)
        self._slowed_at_ns: dict[Cause, int] = {}
        """When each cause was last seen, by the reasons or because the driver's counter grew."""
        self._counts: deque[_Counts] = deque()

    def add(self, t_ns: int, values: Values) -> None:
        """Add a reading; adding it again changes nothing."""
        step_ns = t_ns - self._counts[-1].t_ns if self._counts else 0
        if self._counts and not step_ns:
            return
        counted = tuple(number(values, key) for _, key, _ in CAUSES)
        reasons = number(values, "throttle_bits")
        if reasons is None and all(count is None for count in counted):
            return
        if not 0 <= step_ns <= LONGEST_STEP_NS:
            self._counts.clear()
            step_ns = 0
        bits = int(reasons or 0)
        self._seen_ns = tuple(
            seen + (step_ns if bits & mask else 0)
            for seen, (_, _, mask) in zip(self._seen_ns, CAUSES, strict=True)
        )
        before = self._counts[-1].counted_ns if self._counts else counted
        for (cause, _, mask), was, now in zip(CAUSES, before, counted, strict=True):
            has_grown = was is not None and now is not None and now - was > _CREEP * step_ns
            if has_grown or bits & mask:
                self._slowed_at_ns[cause] = t_ns
        kept = self._counts
        kept.append(_Counts(t_ns, counted, self._seen_ns))
        while len(kept) > 2 and t_ns - kept[1].t_ns >= WINDOW_NS:
            kept.popleft()
        # Readings five times a second are no better here than one a second.
        if len(kept) > 2 and kept[-2].t_ns - kept[-3].t_ns < 900_000_000:
            del kept[-2]

    @property
    def span_s(self) -> float:
        """The time that shares refer to, at most five minutes."""
        if len(self._counts) < 2:
            return 0.0
        return min(self._counts[-1].t_ns - self._counts[0].t_ns, WINDOW_NS) / 1e9

    @property
    def slowed(self) -> Slowed:
        """Shares of the last five minutes, or of the known part of them; as of the last reading."""
        now_ns = self._counts[-1].t_ns if self._counts else 0
        since_s = {cause: (now_ns - t_ns) / 1e9 for cause, t_ns in self._slowed_at_ns.items()}
        shares = {cause: self.share(cause) for cause, _, _ in CAUSES if self._counts}
        recent = [cause for cause, seconds in since_s.items() if seconds < NOW_S]
        if not recent:
            return Slowed(self.span_s, shares, since_s)
        begin = next(
            (one for one in reversed(self._counts) if now_ns - one.t_ns >= _MINUTE_NS), self._counts[0]
        )
        # A driver may report a reason that it does not count.
        seen_ns = {cause: self._seen_ns[at] - begin.seen_ns[at] for at, (cause, _, _) in enumerate(CAUSES)}
        last_minute_s = {
            cause: max(self._throttled_ns(cause, begin) or 0.0, seen_ns[cause]) / 1e9 for cause in recent
        }
        return Slowed(self.span_s, shares, since_s, last_minute_s)

    def share(self, cause: Cause) -> float | None:
        """Share of the last five minutes, or of the known part of them, in which a cause slowed the GPU.

        None if nothing is known yet, or the driver's counter was reset.
        """
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        throttled_ns = self._throttled_ns(cause, first)
        return None if throttled_ns is None else min(throttled_ns / (last.t_ns - first.t_ns), 1.0)

    def _throttled_ns(self, cause: Cause, first: _Counts) -> float | None:
        """Since then; None if the driver's counter was reset."""
        which = _PLACES[cause]
        last = self._counts[-1]
        start, end = first.counted_ns[which], last.counted_ns[which]
        if start is None or end is None:
            start, end = first.seen_ns[which], last.seen_ns[which]
        return None if end < start else end - start

    def __deepcopy__(self, memo: object) -> Throttling:
        """Counts never change, so that copies share them."""
        twin = copy.copy(self)
        twin._counts = self._counts.copy()
        twin._slowed_at_ns = self._slowed_at_ns.copy()
        return twin
