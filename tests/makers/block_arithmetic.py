"""Speeds and ratios of stored blocks with their intervals, by arithmetic of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gputui.analysis.spread import BOX_DF, ROW_DF, RUN_DF, RUN_SD

Floats = NDArray[np.float64]
PRIOR = 0.10  # of CPU launches, docs/measuring.md
Z = float(stats.norm.ppf(0.975))


@dataclass(frozen=True)
class Estimate:
    center: float
    """Log of a speed or of a ratio of speeds."""
    half: float


def launches_of(file: Path, case_id: int) -> list[Floats]:
    """Log seconds per unit of each launch's blocks, straight from the tables."""
    with duckdb.connect(str(file), read_only=True) as connection:
        rows = connection.execute(
            "SELECT b.launch_id, coalesce(b.device_ns, b.wall_ns) / 1e9 / b.steps / c.units_per_step"
            " FROM blocks b JOIN cases c USING (run_id, case_id) WHERE b.case_id = ? ORDER BY b.start_ns",
            [case_id],
        ).fetchall()
    groups = itertools.groupby(rows, key=lambda row: row[0])
    return [np.log([seconds for _, seconds in group]) for _, group in groups]


def center(values: Floats) -> float:
    i, j = np.triu_indices(len(values))
    return float(np.median((values[i] + values[j]) / 2))


def widened(values: Floats) -> float:
    """By the autocorrelation of neighbouring blocks; at most 9 blocks here, so nothing is merged."""
    away = stats.rankdata(values) - (len(values) + 1) / 2
    r = float((away[1:] * away[:-1]).sum() / (away * away).sum())
    r = min((len(values) * r + 1) / (len(values) - 4), 0.9)  # a short series underestimates it
    return float(np.sqrt((1 + r) / (1 - r))) if r > 0 else 1.0


def tail_count(ways: Floats) -> int:
    """How many of a statistic's smallest values together have at most 2.5 %."""
    return int(np.searchsorted(np.cumsum(ways) / ways.sum(), 0.025, side="right"))


def center_error(values: Floats) -> float:
    ways = np.ones(1)
    for rank in range(1, len(values) + 1):  # Wilcoxon's signed ranks
        step = np.zeros(rank + 1)
        step[[0, rank]] = 1
        ways = np.convolve(ways, step)
    outside = tail_count(ways)
    i, j = np.triu_indices(len(values))
    averages = np.sort((values[i] + values[j]) / 2)
    return float((averages[-outside] - averages[outside - 1]) / (2 * Z)) * widened(values)


@dataclass(frozen=True)
class Part:
    """A variance of a log time, with how well it is known."""

    variance: float
    df: float


RUN = Part(RUN_SD["cpu"] ** 2, RUN_DF)


def between_launches(cases: Sequence[Sequence[Floats]], case_id: int) -> Part:
    """Of one launch of a case: the table, with what the launches of both cases of the run show."""
    if len(cases[case_id]) == 1:
        return Part(PRIOR**2, 1 / (1 / BOX_DF + 1 / ROW_DF))
    least = [np.mean([center_error(launch) ** 2 for launch in case]) for case in cases]
    centers = [np.array([center(launch) for launch in case]) for case in cases]
    own = [max(c.var(ddof=1), e) for c, e in zip(centers, least, strict=True)]
    df = len(centers[0]) - 1
    together = 2 * df / (1 + 0.5**2)  # rows of one run are correlated by 0.5
    box = (BOX_DF + together * np.mean(own) / PRIOR**2) / (BOX_DF + together)
    known = 1 / (1 / (BOX_DF + together) + 1 / ROW_DF)
    pooled = (known * box * PRIOR**2 + df * own[case_id]) / (known + df)
    return Part(float(max(pooled, least[case_id])), known + df)


def mean_of(cases: Sequence[Sequence[Floats]], case_id: int) -> tuple[float, Part]:
    """The log time of a case, and its variance as launches have it."""
    launches, one = cases[case_id], between_launches(cases, case_id)
    return float(np.mean([center(launch) for launch in launches])), replace(
        one, variance=one.variance / len(launches)
    )


def half_of(launches: Sequence[Part], runs: int) -> float:
    """Half the 95 % interval. Where the table is wrong, it is so for all parts: their errors add up."""
    parts = [*launches, *[RUN] * runs]
    total = sum(part.variance for part in parts)
    error = sum(part.variance / total / part.df**0.5 for part in parts)
    return float(stats.t.ppf(0.975, 1 / error**2) * total**0.5)


def speed(cases: Sequence[Sequence[Floats]], case_id: int) -> Estimate:
    log_time, launches = mean_of(cases, case_id)
    return Estimate(-log_time, half_of([launches], 1))


def ratio(
    a: Sequence[Sequence[Floats]], b: Sequence[Sequence[Floats]], case_id: int
) -> tuple[float, float, float]:
    """B against A and half its interval, as logs, and the share of runs in its variance."""
    (on_a, part_a), (on_b, part_b) = mean_of(a, case_id), mean_of(b, case_id)
    share = 2 * RUN.variance / (part_a.variance + part_b.variance + 2 * RUN.variance)
    return on_a - on_b, half_of([part_a, part_b], 2), share
