"""Charts as inline SVG: no script, no network, and a label wherever there is a colour.

All are 360 units wide, the width of a phone; a page scales them. Classes are styled by the page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gputui.model.units import format_change, format_seconds, three_digits
from gputui.store.text import clean_text

WIDTH = 360
_LEFT, _RIGHT = 6.0, WIDTH - 6.0
_RATIO_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0, 1e4)
_MOST_TICKS = 150
"""Of one launch: more would hide each other."""
_LOG_FROM = 4.0
"""Ratio of the longest to the shortest from which times are drawn on a log axis."""
_LEAST_SPAN = 0.2
"""Of the highest value that a chart over time is high, so that a watt or two does not look like a storm."""


@dataclass(frozen=True, slots=True)
class IntervalMark:
    """One row of the chart of intervals."""

    name: str
    verdict: str
    """Its word: drawn as text, and as the class that colours the mark."""
    told: str
    """The change in words."""
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Strip:
    """Block times of one launch."""

    side: str
    """`a` or `b`."""
    label: str
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a difference; below zero to the left."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Line:
    """One device over time; NaN where nothing was measured."""

    side: str
    label: str
    seconds: Sequence[float]
    values: Sequence[float]


def safe(text: str) -> str:
    """Text escaped for HTML."""
    return html.escape(clean_text(text), quote=True)


def interval_chart(marks: Sequence[IntervalMark]) -> str:
    """An interval for each row on one log axis, with a line where both sides are equally fast."""
    if not marks:
        return ""
    low = math.log(min(1 / 1.02, *(mark.low for mark in marks)))
    high = math.log(max(1.02, *(mark.high for mark in marks)))
    margin = 0.04 * (high - low)
    scale = _Scale(low - margin, high + margin)
    top, step = 18, 34
    height = top + step * len(marks)
    parts = []
    for ratio in _ratio_ticks(math.exp(scale.low), math.exp(scale.high)):
        x = scale.at(math.log(ratio))
        parts.append(f'<path class="{"one" if ratio == 1 else "grid"}" d="M{x:.1f} {top - 4}V{height}"/>')
        parts.append(
            f'<text class="axis" x="{x:.1f}" y="10" text-anchor="middle">{format_change(ratio)}</text>'
        )
    for number, mark in enumerate(marks):
        y = top + step * number + 12
        ends = [scale.at(math.log(value)) for value in (mark.low, mark.high)]
        kind = "told" if mark.verdict in ("faster", "slower") else "untold"
        parts.append(
            f'<text x="{_LEFT}" y="{y}">{safe(mark.name)}</text>'
            f'<text class="{kind}" x="{_RIGHT}" y="{y}" text-anchor="end">{safe(mark.told)}:'
            f" {safe(mark.verdict)}</text>"
            f'<path class="bar {safe(mark.verdict)}" d="M{ends[0]:.1f} {y + 10}H{ends[1]:.1f}"/>'
            f'<path class="end" d="M{ends[0]:.1f} {y + 6}v8M{ends[1]:.1f} {y + 6}v8"/>'
            f"{_mark(mark.verdict, scale.at(math.log(mark.ratio)), y + 10)}"
        )
    return _svg(height, "intervals of b vs a, by row", parts)


def strip_chart(strips: Sequence[Strip]) -> str:
    """A tick for each block, a row for each launch, both sides on one time axis."""
    values = [value for strip in strips for value in strip.seconds if value > 0]
    if not values:
        return ""
    is_log = max(values) > _LOG_FROM * min(values)
    place: Callable[[float], float] = math.log if is_log else float
    low, high = place(min(values)), place(max(values))
    margin = 0.03 * (high - low) or abs(low) * 0.01 or 1.0
    scale = _Scale(low - margin, high + margin, left=66.0)
    parts = []
    y = 4.0
    for strip in strips:
        shown = _thinned(sorted(value for value in strip.seconds if value > 0))
        path = "".join(f"M{scale.at(place(value)):.1f} {y:.0f}v9" for value in shown)
        parts.append(f'<text class="axis" x="{_LEFT}" y="{y + 8:.0f}">{safe(strip.label)}</text>')
        parts.append(f'<path class="tick {safe(strip.side)}" d="{path}"/>')
        y += 13
    parts.append(f'<path class="grid" d="M{scale.left} {y:.0f}H{_RIGHT}"/>')
    for value, anchor in ((min(values), "start"), (max(values), "end")):
        x = scale.at(place(value))
        parts.append(
            f'<text class="axis" x="{x:.1f}" y="{y + 12:.0f}" text-anchor="{anchor}">'
            f"{format_seconds(value)}</text>"
        )
    return _svg(y + 16, f"times of blocks, {'log' if is_log else 'linear'} axis", parts)


def bar_chart(bars: Sequence[Bar]) -> str:
    """A labelled bar for each part, from a common zero line."""
    largest = max((abs(bar.value) for bar in bars), default=0.0)
    if largest == 0:
        return ""
    scale = _Scale(min(0.0, *(b.value for b in bars)), max(0.0, *(b.value for b in bars)))
    zero = scale.at(0.0)
    parts = []
    for number, bar in enumerate(bars):
        y = 28 * number
        x = scale.at(bar.value)
        parts.append(
            f'<text x="{_LEFT}" y="{y + 12}">{safe(bar.label)}</text>'
            f'<rect class="{"less" if bar.value < 0 else "more"}" x="{min(x, zero):.1f}" y="{y + 16}"'
            f' width="{abs(x - zero):.1f}" height="8"/>'
        )
    height = 28 * len(bars)
    parts.append(f'<path class="one" d="M{zero:.1f} 0V{height}"/>')
    return _svg(height, "parts of the difference of a step", parts)


def line_chart(title: str, unit: str, lines: Sequence[Line]) -> str:
    """One metric over the time since each run began; a is drawn whole, b in dashes."""
    known = [v for line in lines for v in line.values if math.isfinite(v)]
    if not known:
        return ""
    low, high = min(known), max(known)
    margin = max(0.05 * (high - low), (_LEAST_SPAN * abs(high) - (high - low)) / 2, 0.5)
    longest = max((s for line in lines for s in line.seconds), default=0.0) or 1.0
    across = _Scale(0.0, longest)
    top, bottom = 20.0, 96.0

    def at(value: float) -> float:
        return bottom - (value - low + margin) / (high - low + 2 * margin) * (bottom - top)

    parts = [
        f'<text x="{_LEFT}" y="11">{safe(title)}: {_amount(low)} to {_amount(high)} {safe(unit)}</text>',
        f'<path class="grid" d="M{_LEFT} {bottom}H{_RIGHT}M{_LEFT} {top}H{_RIGHT}"/>',
        f'<text class="axis" x="{_LEFT}" y="{bottom + 12}">0 s</text>',
        (
            f'<text class="axis" x="{_RIGHT}" y="{bottom + 12}" text-anchor="end">'
            f"{format_seconds(longest)}</text>"
        ),
    ]
    for line in lines:
        path, is_on = [], False
        for second, value in zip(line.seconds, line.values, strict=True):
            if math.isfinite(value):
                path.append(f"{'L' if is_on else 'M'}{across.at(second):.1f} {at(value):.1f}")
            is_on = math.isfinite(value)
        said = f"<title>{safe(line.label)}</title>"
        parts.append(f'<path class="line {safe(line.side)}" d="{"".join(path)}">{said}</path>')
    return _svg(bottom + 16, f"{title} over time", parts)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    left: float = _LEFT

    def at(self, value: float) -> float:
        span = self.high - self.low
        return self.left + (value - self.low) / span * (_RIGHT - self.left) if span else self.left


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{safe(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _mark(verdict: str, x: float, y: float) -> str:
    """Sides differ by shape as well as by colour."""
    shapes = {
        "faster": f"M{x - 5:.1f} {y - 6}l11 6l-11 6z",
        "slower": f"M{x + 5:.1f} {y - 6}l-11 6l11 6z",
        "same": f"M{x - 4:.1f} {y - 4}h8v8h-8z",
    }
    if verdict in shapes:
        return f'<path class="mark {safe(verdict)}" d="{shapes[verdict]}"/>'
    return f'<circle class="mark open" cx="{x:.1f}" cy="{y}" r="4"/>'


def _ratio_ticks(low: float, high: float) -> Sequence[float]:
    """1 and what lies about it in round steps; not so many that their labels touch."""
    span = max(high, 1 / low)
    least = next((tick for tick in _RATIO_TICKS if tick**3 >= span), _RATIO_TICKS[-1])
    above = [tick for tick in _RATIO_TICKS if tick >= least and tick <= high]
    below = [1 / tick for tick in _RATIO_TICKS if tick >= least and 1 / tick >= low]
    ticks, last = [1.0], 0.0
    room = 0.13 * math.log(high / low)
    for side in (above, below):
        last = 0.0
        for tick in side:
            if abs(math.log(tick)) - last >= room:
                ticks.append(tick)
                last = abs(math.log(tick))
    return sorted(ticks)


def _thinned(ordered: Sequence[float]) -> Sequence[float]:
    """At most this many, spread evenly by rank, including the first and the last."""
    if len(ordered) <= _MOST_TICKS:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(place * last / (_MOST_TICKS - 1))] for place in range(_MOST_TICKS)]


def _amount(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else three_digits(value)
