"""A metric over time, wherever it was read: what charts, overlays and reports are drawn from."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

_LEAST_HOLD_S = 1.5
"""Outside of blocks the sampler reads once a second."""


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """One metric of one device."""

    seconds: Sequence[float]
    """Ascending, since a beginning that all series of a chart share."""
    values: Sequence[float]
    """NaN where it was not measured."""

    @property
    def known(self) -> list[float]:
        """What was measured."""
        return [value for value in self.values if math.isfinite(value)]

    def at(self, second: float) -> float:
        """The last reading up to an instant; NaN before the first."""
        place = bisect_right(self.seconds, second) - 1
        return self.values[place] if place >= 0 else math.nan

    def cells(
        self, cell_s: float, cells: int, combine: Callable[[Sequence[float]], float] = fmean
    ) -> list[float | None]:
        """The values in each cell of time as one; a cell without any has the one before if that is recent."""
        known = [pair for pair in zip(self.seconds, self.values, strict=True) if math.isfinite(pair[1])]
        read_s, values = [second for second, _ in known], [value for _, value in known]
        gaps = [later - earlier for earlier, later in pairwise(read_s)]
        hold_s = max(2.5 * median(gaps), _LEAST_HOLD_S) if gaps else _LEAST_HOLD_S
        columns: list[float | None] = []
        for place in range(cells):
            start_s = place * cell_s
            end_s = start_s + cell_s + (place == cells - 1) * 1e-6  # the last reading lies at the very end
            first, end = bisect_left(read_s, start_s), bisect_left(read_s, end_s)
            is_held = first == end and first > 0 and start_s - read_s[first - 1] <= hold_s
            mine = values[first - is_held : end]
            columns.append(combine(mine) if mine else None)
        return columns
