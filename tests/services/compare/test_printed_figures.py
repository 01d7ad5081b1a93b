"""Every number of a printed table follows from the stored rows, by arithmetic that shares no code with it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from command_line import gputui_here
from journals import CASES, make_journal
from numpy.typing import NDArray
from scipy import stats

from gputui.analysis.spread import BOX_DF, ROW_DF, RUN_DF, RUN_SD
from gputui.services.results.labels import plain_case_name, plain_name
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

Floats = NDArray[np.float64]
PRIOR = 0.10  # of CPU launches, docs/measuring.md
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


def printed(*words: str) -> str:
    return gputui_here(*words, env={"COLUMNS": "110"}).stdout


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
    cases = [launches_of(files[0], case_id) for case_id in range(len(CASES))]
    for case_id, case in enumerate(CASES):
        truth = speed(cases, case_id)
        per_s = float(np.exp(truth.center))
        row = next(line for line in text.split("\n") if line.startswith(plain_case_name(case)))
        found = re.search(
            r"([\d.]+ [kMGTP]?)FLOP/s +(?:±|-([\d.]+) to \+)([\d.]+) %"
            r" +.*\$([\d.]+) per ([A-Z])FLOP +([\d.]+) (s|ms|µs)",
            row,
        )
        assert found, row
        rate, below, above, usd, prefix, step, unit = found.groups()
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
    a, b = ([launches_of(file, case_id) for case_id in range(len(CASES))] for file in files)
    logs = np.array([ratio(a, b, case_id) for case_id in range(len(CASES))])
    for case_id, case in enumerate(CASES):
        middle, half, _ = logs[case_id]
        row = next(line for line in text.split("\n") if line.startswith(f"{plain_name(case.work.workload)} "))
        found = re.search(
            r"([\d.]+)(?: ([kMGTP]?)FLOP/s)? +([\d.]+) +([kMGTP]?)FLOP/s +"
            r"([-+\d.]+) % \(([-+\d.]+) to ([-+\d.]+)\)",
            row,
        )
        assert found, row
        number, prefix, on_b, prefix_of_b, *shown = found.groups()
        on_a = f"{number} {prefix_of_b if prefix is None else prefix}"
        on_b = f"{on_b} {prefix_of_b}"
        assert close(numbers(on_a.strip()), float(np.exp(speed(a, case_id).center)))
        assert close(numbers(on_b.strip()), float(np.exp(speed(b, case_id).center)))
        assert all(map(as_percent, shown, np.expm1([middle, middle - half, middle + half])))
        divided_as_printed = numbers(on_b.strip()) / numbers(on_a.strip()) - 1
        assert abs(float(shown[0]) / 100 - divided_as_printed) <= 0.005 + 2 * ROUNDING
    row = next(line for line in text.split("\n") if line.startswith("average of 2 peak tests"))
    middles, halves, shares = logs.T
    launches, runs = halves * np.sqrt(1 - shares), halves * np.sqrt(shares)
    both = (launches**2).sum() + launches.prod()  # correlation 0.5 between two rows
    both = np.sqrt(both + runs.sum() ** 2) / 2
    ends = [middles.mean(), middles.mean() - both, middles.mean() + both]
    if ends[2] < 0:  # significant
        found = re.search(r"  ([-+\d.]+) % \(([-+\d.]+) to ([-+\d.]+)\) +slower", row)
    else:  # a verdict that is not significant shows no number
        found, ends = re.search(r"  ([-+\d.]+) to ([-+\d.]+) % +can't tell", row), ends[1:]
    assert found, row
    assert all(map(as_percent, found.groups(), np.expm1(ends)))
