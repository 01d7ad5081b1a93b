"""Every number of a printed table follows from the stored rows, by arithmetic that shares no code with it."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pytest
from journals import CASES, make_journal
from numpy.typing import NDArray
from scipy import stats

from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

Floats = NDArray[np.float64]
PRIOR = 0.10  # of CPU launches, docs/measuring.md
RUNS = 0.02 * 2**0.5  # of the difference of two runs on a CPU, docs/measuring.md
Z = float(stats.norm.ppf(0.975))
USD_PER_H = 0.42  # journals.PRICE
ROUNDING = 0.0051  # three significant digits
PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@pytest.fixture(scope="module", params=[1, 3], ids=["one launch a side", "three launches a side"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("files")
    made = []
    for number, (name, scale) in enumerate((("a", 1.0), ("b", 1.3))):
        run_dir = make_journal(
            place / name,
            run_id=f"0194b5a0-0000-7000-8000-0000000000{number:02d}",
            scale=scale,
            launches=request.param,
            blocks=9,
            seed=number + 5,
        )
        store_run(place / f"{name}.db", read_journal(run_dir), read_telemetry(run_dir))
        made.append(place / f"{name}.db")
    return made[0], made[1]


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


def speed(launches: Sequence[Floats]) -> Estimate:
    if len(launches) == 1:
        error = center_error(launches[0])
        return Estimate(-center(launches[0]), Z * float(np.hypot(error, PRIOR)))
    centers = np.array([center(launch) for launch in launches])
    variance = max(centers.var(ddof=1), np.mean([center_error(launch) ** 2 for launch in launches]))
    half = stats.t.ppf(0.975, len(centers) - 1) * np.sqrt(variance / len(centers))
    return Estimate(-float(centers.mean()), float(half))


def ratio(a: Sequence[Floats], b: Sequence[Floats]) -> tuple[float, float, float, float]:
    """B against A with the ends of its interval, as logs, and the share of runs in its variance."""
    if len(a) == 1:
        pairs = np.sort((a[0][:, None] - b[0][None, :]).ravel())
        ways = np.ones(1)
        for extra in range(1, len(a[0]) + 1):  # Gaussian binomial: Mann–Whitney's statistic
            ways = np.convolve(ways, np.r_[1.0, np.zeros(len(b[0]) + extra - 1), -1.0])
        for extra in range(1, len(a[0]) + 1):
            ways = divided(ways, extra)
        outside = tail_count(ways[: len(pairs) + 1])
        factor = max(widened(a[0]), widened(b[0]))
        middle, shift = center(a[0]) - center(b[0]), float(np.median(pairs))
        between = Z * np.hypot(PRIOR * np.sqrt(2), RUNS)
        below = float(np.hypot((shift - pairs[outside - 1]) * factor, between))
        above = float(np.hypot((pairs[-outside] - shift) * factor, between))
        return middle, middle - below, middle + above, (RUNS * Z / max(below, above)) ** 2
    sides = []
    for launches in (a, b):
        centers = np.array([center(launch) for launch in launches])
        least = np.mean([center_error(launch) ** 2 for launch in launches])
        sides.append((centers.mean(), max(centers.var(ddof=1), least) / len(centers), len(centers)))
    (mean_a, var_a, n_a), (mean_b, var_b, n_b) = sides
    total = var_a + var_b + RUNS**2
    df = total**2 / (var_a**2 / (n_a - 1) + var_b**2 / (n_b - 1))
    half = float(stats.t.ppf(0.975, df) * np.sqrt(total))
    middle = float(mean_a - mean_b)
    return middle, middle - half, middle + half, RUNS**2 / total


def divided(ways: Floats, gap: int) -> Floats:
    """The polynomial over 1 - x^gap."""
    out = ways.copy()
    for index in range(gap, len(out)):
        out[index] += out[index - gap]
    return out


def printed(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gputui", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "110"},
    )
    return done.stdout


def numbers(text: str) -> float:
    digits, prefix = re.fullmatch(r"([\d.]+) ?([kMGTP]?)", text).groups()  # type: ignore[union-attr]
    return float(digits) * PREFIX[prefix]


def close(shown: float, truth: float) -> bool:
    return abs(shown / truth - 1) <= ROUNDING


def as_percent(shown: str, truth: float) -> bool:
    """Printed without decimals from 1 % on."""
    return abs(float(shown) - 100 * truth) <= (0.5 if abs(float(shown)) >= 1 else 0.05) + 1e-9


def test_rates_steps_intervals_and_costs_of_a_run_follow_from_its_blocks(files: tuple[Path, Path]) -> None:
    text = printed("show", "latest", str(files[0]), "--verbose")
    for case_id, case in enumerate(CASES):
        truth = speed(launches_of(files[0], case_id))
        per_s = float(np.exp(truth.center))
        row = next(line for line in text.split("\n") if line.startswith(case.name))
        found = re.search(
            r"([\d.]+ [kMGTP]?)FLOP/s +([\d.]+) (s|ms|µs) +(?:±|-([\d.]+) to \+)([\d.]+) %"
            r" +.*\$([\d.]+) per ([A-Z])FLOP",
            row,
        )
        assert found, row
        rate, step, unit, below, above, usd, prefix = found.groups()
        assert close(numbers(rate.strip()), per_s)
        step_s = float(step) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
        assert close(step_s, case.units_per_step / per_s)
        assert as_percent(above, np.expm1(truth.half))
        assert as_percent(below or above, -np.expm1(-truth.half))
        assert close(float(usd), USD_PER_H / 3600 / per_s * {"T": 1e12, "P": 1e15, "E": 1e18}[prefix])


def test_ratios_their_intervals_and_their_mean_follow_from_the_blocks_of_both(
    files: tuple[Path, Path],
) -> None:
    text = printed("compare", "--verbose", *map(str, files))
    logs = []
    for case_id, case in enumerate(CASES):
        a, b = launches_of(files[0], case_id), launches_of(files[1], case_id)
        middle, low, high, share = ratio(a, b)
        logs.append((middle, low, high, share))
        row = next(line for line in text.split("\n") if line.startswith(case.work.workload))
        found = re.search(
            r"([\d.]+ [kMGTP]?)FLOP/s +([\d.]+ [kMGTP]?)FLOP/s +"
            r"([-+\d.]+) % \(([-+\d.]+) to ([-+\d.]+)\)",
            row,
        )
        assert found, row
        on_a, on_b, *shown = found.groups()
        assert close(numbers(on_a.strip()), float(np.exp(speed(a).center)))
        assert close(numbers(on_b.strip()), float(np.exp(speed(b).center)))
        assert all(map(as_percent, shown, np.expm1([middle, low, high])))
        divided_as_printed = numbers(on_b.strip()) / numbers(on_a.strip()) - 1
        assert abs(float(shown[0]) / 100 - divided_as_printed) <= 0.005 + 2 * ROUNDING
    row = next(line for line in text.split("\n") if line.startswith("peak tests, mean of 2"))
    middles = np.array([m for m, *_ in logs])
    widths = np.array([[m - low, high - m] for m, low, high, _ in logs])
    shares = np.array([[share] for *_, share in logs])
    launches, runs = widths * np.sqrt(1 - shares), widths * np.sqrt(shares)
    both = (launches**2).sum(axis=0) + launches.prod(axis=0)  # correlation 0.5 between two rows
    both = np.sqrt(both + runs.sum(axis=0) ** 2) / 2
    ends = [middles.mean(), middles.mean() - both[0], middles.mean() + both[1]]
    if ends[2] < 0:  # significant
        found = re.search(r"  ([-+\d.]+) % \(([-+\d.]+) to ([-+\d.]+)\) +slower", row)
    else:  # a verdict that is not significant shows no number
        found, ends = re.search(r"  ([-+\d.]+) to ([-+\d.]+) % +inconclusive", row), ends[1:]
    assert found, row
    assert all(map(as_percent, found.groups(), np.expm1(ends)))
