"""Blocks of boxes that vary as they are told to, and the table of two of them."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable

from gputui.analysis.spread import RUN_SD, assumed_runs, learn_launches, together
from gputui.analysis.verdict import (
    RatioEstimate,
    compare_launches,
    launch_scatter,
)
from gputui.model.result import Spread

ROWS = 10


CPU_PRIOR = 0.10


def launch(rng: random.Random, launch_sd: float, scale: float) -> list[float]:
    """15 blocks that scatter by 1 % with autocorrelation 0.4 around the level of their launch."""
    level = scale * math.exp(rng.gauss(0, launch_sd))
    away = rng.gauss(0, 1)
    blocks = []
    for _ in range(15):
        away = 0.4 * away + math.sqrt(1 - 0.4**2) * rng.gauss(0, 1)
        blocks.append(level * math.exp(0.01 * away))
    return blocks


Rows = list[list[list[float]]]
"""Blocks by row and launch."""


def table(a: Rows, b: Rows) -> list[RatioEstimate]:
    """Runs of two boxes, each of whose rows tell how much its launches vary."""
    runs = together([assumed_runs(RUN_SD["cpu"])] * 2)
    estimates = []
    for mine, other, *spreads in zip(a, b, spreads_of(a), spreads_of(b), strict=True):
        found = compare_launches(
            mine,
            other,
            prior_sd_a=CPU_PRIOR,
            prior_sd_b=CPU_PRIOR,
            spread_a=spreads[0],
            spread_b=spreads[1],
            runs=runs,
        )
        assert isinstance(found, RatioEstimate)
        estimates.append(found)
    return estimates


def spreads_of(rows: Rows) -> list[Spread]:
    scatters = [launch_scatter(row) for row in rows]
    known = {place: s for place, s in enumerate(scatters) if isinstance(s, Spread)}
    relative: dict[Hashable, Spread] = {
        place: Spread(s.variance / CPU_PRIOR**2, s.df) for place, s in known.items()
    }
    prior = learn_launches([relative])
    return [prior.of_row(known.get(place), CPU_PRIOR) for place in range(len(rows))]


MODELS = {
    "independent": (0.0, 0.0),
    "one in ten a fifth longer": (0.0, 0.1),
    "following 0.8": (0.8, 0.0),
}
"""Autocorrelation of the blocks, and the share of outliers."""


BLOCKS = 30


def blocks_of(
    rng: random.Random, model: str, launch_sd: float = 0.0, scale: float = 1.0, blocks: int = BLOCKS
) -> list[float]:
    """A launch of blocks that scatter by 1 %."""
    follows, outliers = MODELS[model]
    level = scale * math.exp(rng.gauss(0, launch_sd))
    away = rng.gauss(0, 1)
    times = []
    for _ in range(blocks):
        away = follows * away + math.sqrt(1 - follows**2) * rng.gauss(0, 1)
        times.append(level * math.exp(0.01 * away) * (1.2 if rng.random() < outliers else 1.0))
    return times


LAUNCHES = (1, 2, 3, 5, 7)


def tables_by_launches(rows: int, slower: float, tables: int) -> list[list[list[RatioEstimate]]]:
    """By number of launches, tables of two boxes; more launches hold those of fewer."""
    rng = random.Random(rows)
    found: list[list[list[RatioEstimate]]] = [[] for _ in LAUNCHES]
    for _ in range(tables):
        a, b = (
            [[[scale * math.exp(rng.gauss(0, CPU_PRIOR))] * 2 for _ in range(7)] for _ in range(rows)]
            for scale in (1.0, slower)
        )
        for place, launches in enumerate(LAUNCHES):
            found[place].append(table(*([row[:launches] for row in side] for side in (a, b))))
    return found
