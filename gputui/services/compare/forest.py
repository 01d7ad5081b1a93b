"""Intervals of a comparison as a drawing in cells, on one logarithmic axis for all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
from gputui.model.units import format_change

_TICKS = (
    0.01,
    0.1,
    0.2,
    0.3,
    0.5,
    0.7,
    0.8,
    0.9,
    0.95,
    1.05,
    1.1,
    1.25,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    100.0,
)
_NARROWEST = math.log(1.05)
_WIDEST = math.log(100)


@dataclass(frozen=True, slots=True)
class ForestAxis:
    """Changes from `low` to `high`, both logarithms of ratios, over so many cells."""

    low: float
    high: float
    cells: int

    def cell(self, log_ratio: float) -> int:
        """Where a change lies; one that is off the axis lies at its end."""
        share = (log_ratio - self.low) / (self.high - self.low)
        return min(max(round(share * (self.cells - 1)), 0), self.cells - 1)

    def heading(self) -> str:
        """The zero and, where they have room, one change to each side."""
        text = [" "] * self.cells
        zero = self.cell(0.0)
        text[zero] = "0"
        for tick in sorted(_TICKS, key=lambda tick: -abs(math.log(tick))):
            label = f"{tick:g}x" if tick >= 3 else format_change(tick).removesuffix(" %")
            place = self.cell(math.log(tick))
            start = place - (0 if tick < 1 else len(label) - 1)
            fits = self.low <= math.log(tick) <= self.high and 0 <= start <= self.cells - len(label)
            around = text[max(start - 1, 0) : start + len(label) + 1]
            if fits and not any(c != " " for c in around):
                text[start : start + len(label)] = label
        return "".join(text)

    def drawn(self, judgement: Judgement) -> str:
        """`━━●━` for a decided row, `━━○━` for an undecided one; the zero line where nothing covers it."""
        text = [" "] * self.cells
        zero = self.cell(0.0)
        text[zero] = "│"
        if judgement.ratio is None:
            return "".join(text)
        ratio, low, high = (math.log(value) for value in judgement.ratio)
        first, last = self.cell(low), self.cell(high)
        if low > 0:  # an interval without 0 stops before the line, whatever rounding says
            first = max(first, zero + 1)
        if high < 0:
            last = min(last, zero - 1)
        for place in range(max(first, 0), min(last, self.cells - 1) + 1):
            text[place] = "┿" if place == zero else "━"
        point = min(max(self.cell(ratio), first), last)
        if 0 <= point < self.cells:
            text[point] = "●" if judgement.is_decided else "○"
        return "".join(text)


def forest_axis(judgements: Sequence[Judgement], cells: int) -> ForestAxis:
    """An axis that holds 0 and all of these, as far as a hundredth and a hundred times."""
    ends = [math.log(end) for j in judgements if j.ratio is not None for end in j.ratio[1:]]
    low = max(min([-_NARROWEST, *ends]), -_WIDEST)
    high = min(max([_NARROWEST, *ends]), _WIDEST)
    return ForestAxis(low, high, cells)
