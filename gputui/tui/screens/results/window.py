"""The visible part of a recording, and a cursor in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gputui.store.reading import MeasuredSpan, TelemetrySeries

LEAST_US = 1_000_000
"""The shortest part: samples are at least a tenth of a second apart."""
BETWEEN_READINGS_US = 1_500_000
"""Readings so far outside of a part tell what its ends were like: outside of blocks there is one a second."""
_MARGIN = 0.05
"""Around a span that is jumped to, as a share of it."""

_ALL_BUT = 0.999
"""From this share of the whole on, all of it is shown, so that doubling ends at the whole."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A part of the whole, never beyond its ends; all in UTC epoch microseconds."""

    whole_from_us: int
    whole_to_us: int
    from_us: int
    to_us: int
    cursor_us: int

    @classmethod
    def over_all(cls, series: Sequence[TelemetrySeries], spans: Sequence[MeasuredSpan] = ()) -> TimeWindow:
        """The whole of what was sampled and timed, of which there is some; at least LEAST_US long.

        The cursor is in the middle of what was timed then, if anything was.
        """
        first_us = min([s.first_us for s in series] + [s.first_utc_us for s in spans])
        lasts_us = [s.t_us[-1] for s in series] + [s.last_utc_us for s in spans]
        last_us = max(*lasts_us, first_us + LEAST_US)
        middle = spans[len(spans) // 2] if spans else MeasuredSpan(0, 0, first_us, last_us)
        cursor_us = (middle.first_utc_us + middle.last_utc_us) // 2
        return cls(first_us, last_us, first_us, last_us, cursor_us)

    @property
    def span_us(self) -> int:
        return self.to_us - self.from_us

    @property
    def is_whole(self) -> bool:
        return (self.from_us, self.to_us) == (self.whole_from_us, self.whole_to_us)

    def zoomed(self, factor: float) -> TimeWindow:
        """This many times as long, with the cursor at the same place on the screen."""
        span_us = max(round(self.span_us * factor), LEAST_US)
        if factor > 1 and span_us >= _ALL_BUT * (self.whole_to_us - self.whole_from_us):
            return self.whole()
        before_us = round((self.cursor_us - self.from_us) * span_us / self.span_us)
        return self._placed(self.cursor_us - before_us, span_us)

    def moved(self, share: float) -> TimeWindow:
        """Moved by a share of its length, positive for later; the cursor moves with it."""
        step_us = round(self.span_us * share)
        return replace(self, cursor_us=self.cursor_us + step_us)._placed(self.from_us + step_us, self.span_us)

    def stepped(self, share: float) -> TimeWindow:
        """The cursor moved by a share of the length, positive for later; past an end the window follows."""
        wanted_us = self.cursor_us + round(self.span_us * share)
        cursor_us = min(max(wanted_us, self.whole_from_us), self.whole_to_us)
        there = replace(self, cursor_us=cursor_us)
        if self.from_us <= cursor_us <= self.to_us:
            return there
        return there._placed(cursor_us - self.span_us // 2, self.span_us)

    def at(self, share: float) -> TimeWindow:
        """The cursor at a share of the window, from its left."""
        return replace(self, cursor_us=self.from_us + round(self.span_us * min(max(share, 0.0), 1.0)))

    def between(self, first_us: int, last_us: int) -> TimeWindow:
        """From one instant to another, the cursor at the first."""
        first_us = min(max(first_us, self.whole_from_us), self.whole_to_us)
        return replace(self, cursor_us=first_us)._placed(first_us, max(last_us - first_us, LEAST_US))

    def over(self, span: MeasuredSpan) -> TimeWindow:
        """A whole span with a small margin, the cursor at its beginning."""
        margin_us = round((span.last_utc_us - span.first_utc_us) * _MARGIN)
        shown = self.between(span.first_utc_us - margin_us, span.last_utc_us + margin_us)
        return replace(shown, cursor_us=min(max(span.first_utc_us, shown.from_us), shown.to_us))

    def whole(self) -> TimeWindow:
        """All of it; the cursor stays."""
        return replace(self, from_us=self.whole_from_us, to_us=self.whole_to_us)

    def next_span(self, spans: Sequence[MeasuredSpan], step: int) -> TimeWindow:
        """The next of these spans after the cursor, or the one before it, wrapping around."""
        firsts = sorted(spans, key=lambda span: span.first_utc_us)
        if step > 0:
            found = next((s for s in firsts if s.first_utc_us > self.cursor_us), firsts[0])
        else:
            before = [s for s in firsts if s.first_utc_us < self.cursor_us]
            found = (before or firsts)[-1]
        return self.over(found)

    def _placed(self, from_us: int, span_us: int) -> TimeWindow:
        span_us = min(span_us, self.whole_to_us - self.whole_from_us)
        from_us = min(max(from_us, self.whole_from_us), self.whole_to_us - span_us)
        cursor_us = min(max(self.cursor_us, from_us), from_us + span_us)
        return replace(self, from_us=from_us, to_us=from_us + span_us, cursor_us=cursor_us)
