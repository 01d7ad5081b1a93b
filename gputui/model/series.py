"""A metric over time, wherever it was read: what charts, overlays and reports are drawn from."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

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

    def means(self, cell_s: float, cells: int) -> list[float | None]:
        """The mean in each cell of time; one without a reading repeats the one before if that is recent."""
        sums: list[list[float]] = [[] for _ in range(cells)]
        read_s = []
        for second, value in zip(self.seconds, self.values, strict=True):
            if math.isfinite(value):
                read_s.append(second)
                sums[min(int(second / cell_s), cells - 1)].append(value)
        gaps = [later - earlier for earlier, later in pairwise(read_s)]
        hold_s = max(2.5 * median(gaps), _LEAST_HOLD_S) if gaps else _LEAST_HOLD_S
        columns: list[float | None] = []
        for place, cell in enumerate(sums):
            before = bisect_right(read_s, place * cell_s) - 1
            is_held = before >= 0 and columns and place * cell_s - read_s[before] <= hold_s
            columns.append(sum(cell) / len(cell) if cell else columns[-1] if is_held else None)
        return columns
