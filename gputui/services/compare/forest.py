"""Intervals of a comparison as a drawing in cells, on one logarithmic axis for all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
from gputui.analysis.verdict import GeometricMean
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
ZERO = "│"

Piece = tuple[str, Judgement | None]
"""Some cells, and the judgement that they draw; None of blanks and of the zero line."""


@dataclass(frozen=True, slots=True)
class ForestAxis:
    """Changes from `low` to `high`, both logarithms of ratios, over so many cells."""

    low: float
    high: float
    cells: int

    def cell(self, log_ratio: float) -> int:
        """Where a change lies; one that is off the axis lies at its end."""
        return self._half(log_ratio) // 2

    def heading(self) -> str:
        """The zero and, where they have room, changes to each side, the outermost first."""
        text = [" "] * self.cells
        zero = self.cell(0.0)
        text[zero] = "0"
        for tick in sorted(_TICKS, key=lambda tick: -abs(math.log(tick))):
            label = f"{tick:g}x" if tick >= 3 else format_change(tick).removesuffix(" %")
            place = self.cell(math.log(tick))
            start = place - len(label) // 2
            fits = self.low <= math.log(tick) <= self.high and 0 <= start <= self.cells - len(label)
            around = text[max(start - 2, 0) : start + len(label) + 2]
            if fits and not any(c != " " for c in around):
                text[start : start + len(label)] = label
        return "".join(text)

    def drawn(self, judgement: Judgement) -> str:
        """`━●╸` for a decided row, `━○╸` for an undecided one; the zero line where nothing covers it."""
        return "".join(text for text, _ in self.lines([(mark_of(judgement), judgement)])[0])

    def lines(self, marked: Sequence[tuple[str, Judgement]]) -> list[tuple[Piece, ...]]:
        """Several judgements with their marks; one that would cover another is drawn on a line below."""
        lines: list[list[Piece]] = []
        for mark, judgement in marked:
            if judgement.ratio is None:
                continue
            first, cells = self._interval(mark, judgement)
            around = range(max(first - 1, 0), min(first + len(cells) + 1, self.cells))
            line = next((line for line in lines if all(line[place][1] is None for place in around)), None)
            if line is None:
                line = self._empty()
                lines.append(line)
            line[first : first + len(cells)] = [(text, judgement) for text in cells]
        return [_joined(line) for line in lines or [self._empty()]]

    def _empty(self) -> list[Piece]:
        line: list[Piece] = [(" ", None)] * self.cells
        line[self.cell(0.0)] = (ZERO, None)
        return line

    def _half(self, log_ratio: float) -> int:
        """The half of a cell in which a change lies."""
        last = 2 * self.cells - 1
        share = (log_ratio - self.low) / (self.high - self.low)
        return min(max(round(share * last), 0), last)

    def _interval(self, mark: str, judgement: Judgement) -> tuple[int, list[str]]:
        """The first cell of an interval with its mark, and its cells."""
        assert judgement.ratio is not None
        ratio, low, high = (math.log(value) for value in judgement.ratio)
        zero = self.cell(0.0)
        begin, end = self._half(low), self._half(high)
        if low > 0:  # an interval without 0 stops before the line, whatever rounding says
            begin = min(max(begin, 2 * zero + 2), 2 * self.cells - 1)
            end = max(begin, end)
        if high < 0:
            end = max(min(end, 2 * zero - 1), 0)
            begin = min(begin, end)
        first, last = begin // 2, end // 2
        cells = ["┿" if place == zero else "━" for place in range(first, last + 1)]
        if end % 2 == 0 and last != zero:
            cells[-1] = "╸"
        if begin % 2 == 1 and first != zero:
            cells[0] = "╺"
        point = min(max(self.cell(ratio), first), last)
        cells[point - first] = mark
        return first, cells


def mark_of(judgement: Judgement) -> str:
    """`●`, hollow where it is undecided; a diamond of a mean."""
    marks = "◆◇" if isinstance(judgement.estimate, GeometricMean) else "●○"
    return marks[not judgement.is_decided]


def forest_axis(judgements: Sequence[Judgement], cells: int) -> ForestAxis:
    """An axis that holds 0 and all of these, as far as a hundredth and a hundred times.

    On either side of 0 there are two cells at least, so that no interval lies on the zero line by rounding.
    """
    ends = [math.log(end) for j in judgements if j.ratio is not None for end in j.ratio[1:]]
    low = max(min([-_NARROWEST, *ends]), -_WIDEST)
    high = min(max([_NARROWEST, *ends]), _WIDEST)
    least = 2.5 / max(cells - 3, 3)
    return ForestAxis(min(low, -least * high), max(high, -least * low), cells)


def _joined(line: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbouring cells of one judgement as one piece."""
    pieces: list[Piece] = []
    for text, judgement in line:
        if pieces and pieces[-1][1] is judgement:
            pieces[-1] = (pieces[-1][0] + text, judgement)
        else:
            pieces.append((text, judgement))
    return tuple(pieces)
