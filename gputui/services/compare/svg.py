"""Charts of the page as inline SVG: shapes only, since labels are text of the page, which can wrap.

A chart is as wide as its place: positions are percentages, or the drawing is stretched. No script, no style
attribute; the page's style sheet knows the classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
from gputui.analysis.verdict import GeometricMean
from gputui.document.html import safe
from gputui.model.series import TimeSeries
from gputui.model.units import format_change
from gputui.services.compare.row_text import style_of

_TICKS = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_TICKS_BELOW = (0.99, 0.98, 0.95, 0.9, 0.8, 0.65, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
_BETWEEN_TICKS_PCT = 14.0
"""Of the axis: a label has room in it on a phone."""
_AT_THE_END_PCT = 6.0
"""A label nearer to an end of the axis would stick out."""
_NARROWEST, _WIDEST = math.log(1.02), math.log(100)
_BINS = 90
_LOG_FROM = 4.0
"""Ratio of the longest to the shortest from which times are drawn on a log axis."""
_LEAST_SPAN = 0.2
"""Of the highest value that a chart over time is high, so that a watt or two does not look like a storm."""
_ACROSS, _DOWN = 1000, 100
"""Units of a drawing that is stretched to its place."""


def kind_of(judgement: Judgement) -> str:
    """The class that colours a judgement: `good`, `warn`, `accent`, `same` or `none`."""
    style = style_of(judgement)
    return style if style != "dim" else "same" if judgement.word == "same" else "none"


@dataclass(frozen=True, slots=True)
class ChangeAxis:
    """Changes from `low` to `high`, both logarithms of ratios: equal factors are equally far apart."""

    low: float
    high: float

    def at(self, ratio: float) -> float:
        """Where a ratio lies, in percent of the width; one that is off the axis lies at its end."""
        share = (math.log(ratio) - self.low) / (self.high - self.low)
        return 100 * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """1 and, to each side, the outermost round changes that leave room for their labels."""
        chosen = [1.0]
        for side in (_TICKS_BELOW, _TICKS):
            for tick in reversed(side):
                x = self.at(tick)
                is_inside = self.low < math.log(tick) < self.high
                has_room = all(abs(x - self.at(other)) >= _BETWEEN_TICKS_PCT for other in chosen)
                if is_inside and has_room and _AT_THE_END_PCT <= x <= 100 - _AT_THE_END_PCT:
                    chosen.append(tick)
        return sorted(chosen)

    def labels(self) -> str:
        """The changes at the ticks, as a row above the rows."""
        words = "".join(
            f'<text x="{self.at(tick):.1f}%" y="14" text-anchor="middle">{format_change(tick)}</text>'
            for tick in self.ticks()
        )
        return f'<svg class="labels" aria-hidden="true">{words}</svg>'

    def grid(self) -> str:
        """A line for each tick, the one of no change stronger."""
        return "".join(
            f'<line class="{"zero" if tick == 1 else "grid"}" {_x(self.at(tick))} y2="100%"/>'
            for tick in self.ticks()
        )


def change_axis(judgements: Iterable[Judgement]) -> ChangeAxis:
    """An axis that holds no change and all of these."""
    return axis_over(end for one in judgements if one.ratio is not None for end in one.ratio[1:])


def axis_over(ratios: Iterable[float]) -> ChangeAxis:
    """An axis that holds 1 and all of these, as far as a hundredth and a hundred times."""
    ends = [math.log(ratio) for ratio in ratios]
    low = max(min([-_NARROWEST, *ends]), -_WIDEST)
    high = min(max([_NARROWEST, *ends]), _WIDEST)
    margin = 0.08 * (high - low)  # so that the label of no change is not cut off where it is the end
    return ChangeAxis(low - margin, high + margin)


def interval_plot(judgement: Judgement, axis: ChangeAxis) -> str:
    """The interval of a row and its middle: filled where it is decided, a diamond for a mean."""
    if judgement.ratio is None:
        return ""
    ratio, low, high = judgement.ratio
    kind = kind_of(judgement)
    drawn = f'<line class="interval {kind}" {_x(axis.at(low), axis.at(high))} y1="50%" y2="50%"/>'
    if isinstance(judgement.estimate, GeometricMean):
        diamond = f'<path class="point {kind}" d="M-7 0L0-7 7 0 0 7z"/>'
        drawn += f'<svg x="{axis.at(ratio):.2f}%" y="50%">{diamond}</svg>'
    else:
        drawn += f'<circle class="point {kind}" cx="{axis.at(ratio):.2f}%" cy="50%" r="5.5"/>'
    return f'<svg class="plot" aria-hidden="true">{axis.grid()}{drawn}</svg>'


def change_bar(judgement: Judgement, axis: ChangeAxis) -> str:
    """A bar from no change to the change, with its interval as a thin line."""
    drawn = ""
    if judgement.ratio is not None:
        ratio, low, high = judgement.ratio
        drawn = (
            _bar(kind_of(judgement), axis.at(1.0), axis.at(ratio))
            + f'<line class="whisker" {_x(axis.at(low), axis.at(high))} y1="50%" y2="50%"/>'
        )
    zero = f'<line class="zero" {_x(axis.at(1.0))} y2="100%"/>'
    return f'<svg class="plot bars" aria-hidden="true">{drawn}{zero}</svg>'


def part_bar(value: float, least: float, most: float) -> str:
    """A bar from zero to a value, on an axis from `least`, at most 0, to `most`, at least 0."""
    span = (most - least) or 1.0
    zero, end = -100 * least / span, 100 * (value - least) / span
    return (
        '<svg class="plot bars" aria-hidden="true">'
        '<rect class="track" width="100%" y="25%" height="50%" rx="2"/>'
        f"{_bar('good' if value < 0 else 'warn', zero, end)}</svg>"
    )


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times of steps, from a little below the shortest to a little above the longest, in equal bins."""

    low_s: float
    high_s: float

    @property
    def is_log(self) -> bool:
        return self.high_s > _LOG_FROM * self.low_s

    def bin(self, seconds: float) -> int:
        place: Callable[[float], float] = math.log if self.is_log else float
        low, high = place(self.low_s), place(self.high_s)
        share = (place(seconds) - low) / (high - low)
        return min(int(share * _BINS), _BINS - 1)


def time_axis(times: Iterable[float]) -> TimeAxis | None:
    """None if there is no time above zero."""
    known = [one for one in times if one > 0]
    if not known:
        return None
    margin = 1 + max(0.02, 0.06 * (max(known) / min(known) - 1))
    return TimeAxis(min(known) / margin, max(known) * margin)


def time_histogram(side: str, launches: Sequence[Sequence[float]], axis: TimeAxis, label: str) -> str:
    """How many blocks took how long, with a tick below for the median of each launch."""
    counts = [0] * _BINS
    for launch in launches:
        for seconds in launch:
            if seconds > 0:
                counts[axis.bin(seconds)] += 1
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


def _x(left: float, right: float | None = None) -> str:
    return f'x1="{left:.2f}%" x2="{left if right is None else right:.2f}%"'


def _bar(kind: str, zero: float, end: float) -> str:
    left, width = min(zero, end), abs(end - zero)
    return f'<rect class="{kind}" x="{left:.2f}%" width="{width:.2f}%" y="25%" height="50%" rx="2"/>'


def _stretched(kind: str, label: str, parts: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {_ACROSS} {_DOWN}" preserveAspectRatio="none" role="img"'
        f' aria-label="{safe(label)}">{parts}</svg>'
    )
