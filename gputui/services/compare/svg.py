"""Charts of the page as inline SVG: shapes only, since labels are text of the page, which can wrap.

A chart is as wide as its place: positions are percentages, or the drawing is stretched. No script, no style
attribute; the page's style sheet knows the classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.statistics import bin_of, histogram
from gputui.document.html import safe
from gputui.model.series import TimeSeries

_BINS = 90
_LOG_FROM = 4.0
"""Ratio of the longest to the shortest from which times are drawn on a log axis."""
_LEAST_SPAN = 0.2
"""Of the highest value that a chart over time is high, so that a watt or two does not look like a storm."""
_ACROSS, _DOWN = 1000, 100
"""Units of a drawing that is stretched to its place."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times of steps, from a little below the shortest to a little above the longest, in equal bins."""

    low_s: float
    high_s: float

    @property
    def is_log(self) -> bool:
        return self.high_s > _LOG_FROM * self.low_s

    def bin(self, seconds: float) -> int:
        return bin_of(seconds, self.low_s, self.high_s, _BINS, is_log=self.is_log)


def time_axis(times: Iterable[float]) -> TimeAxis | None:
    """None if there is no time above zero."""
    known = [one for one in times if one > 0]
    if not known:
        return None
    margin = 1 + max(0.02, 0.06 * (max(known) / min(known) - 1))
    return TimeAxis(min(known) / margin, max(known) * margin)


def time_histogram(side: str, launches: Sequence[Sequence[float]], axis: TimeAxis, label: str) -> str:
    """How many blocks took how long, with a tick below for the median of each launch."""
    times = [seconds for launch in launches for seconds in launch if seconds > 0]
    counts = histogram(times, axis.low_s, axis.high_s, _BINS, is_log=axis.is_log)
    most = max(counts) or 1
    width = _ACROSS / _BINS
    body = "".join(
        f"M{place * width:.0f} 84v-{max(84 * count / most, 4):.0f}h{width - 1:.0f}V84z"
        for place, count in enumerate(counts)
        if count
    )
    middles = [sorted(launch)[len(launch) // 2] for launch in launches if launch]
    ticks = "".join(f"M{(axis.bin(s) + 0.5) * width:.0f} 90v10" for s in middles if s > 0)
    return _stretched(
        "times",
        label,
        f'<path class="body {safe(side)}" d="{body}"/><path class="base" d="M0 85H{_ACROSS}"/>'
        f'<path class="tick {safe(side)}" d="{ticks}"/>',
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One device over time."""

    side: str
    label: str
    series: TimeSeries


def value_axis(lines: Sequence[Line]) -> tuple[float, float]:
    """The lowest and the highest value of a chart over time; a line at least must have a value."""
    known = [value for line in lines for value in line.series.known]
    low, high = min(known), max(known)
    margin = max(0.05 * (high - low), (_LEAST_SPAN * abs(high) - (high - low)) / 2, 0.5)
    return (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin


def line_chart(label: str, lines: Sequence[Line], longest_s: float) -> str:
    """A metric over the time since each run began; b is drawn in dashes."""
    low, high = value_axis(lines)
    drawn = []
    for line in lines:
        path, is_on = [], False
        for second, value in zip(line.series.seconds, line.series.values, strict=True):
            if math.isfinite(value):
                x, y = _ACROSS * second / (longest_s or 1.0), _DOWN * (high - value) / (high - low)
                path.append(f"{'L' if is_on else 'M'}{x:.0f} {y:.1f}")
            is_on = math.isfinite(value)
        title = f"<title>{safe(line.label)}</title>"
        drawn.append(f'<path class="line {safe(line.side)}" d="{"".join(path)}">{title}</path>')
    return _stretched("over-time", label, f'<path class="base" d="M0 100H{_ACROSS}"/>{"".join(drawn)}')


def _stretched(kind: str, label: str, parts: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {_ACROSS} {_DOWN}" preserveAspectRatio="none" role="img"'
        f' aria-label="{safe(label)}">{parts}</svg>'
    )
