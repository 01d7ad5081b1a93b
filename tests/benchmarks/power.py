"""False calls, coverage and power of `compare` by simulation: moderated variances beside what they replaced.

Tables of twelve rows of two boxes; blocks scatter within launches, launches within runs, and runs within a
box, where a run moves all its rows alike. Before: Welch's t from three launches, else an assumed launch sd of
10 %, and nothing for runs.

    python tests/benchmarks/power.py [--tables 300] [--rows 12] [--only 'three launches']
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gputui.analysis.quantiles import t_cdf, t_quantile
from gputui.analysis.spread import (
    LaunchPrior,
    RunMean,
    Scatter,
    learn_launches,
    learn_runs,
    pooled,
    together,
)
from gputui.analysis.verdict import RatioEstimate, compare_launches, judge, launch_scatter, log_time
from gputui.model.absent import Missing
from gputui.model.result import Spread

ROWS, BLOCKS = 12, 6
BLOCK_SD = 0.005
TABLE_SD = 0.10
BAND = math.log1p(0.01)
Times = NDArray[np.float64]
Spreads = Callable[[np.random.Generator], Times]


def equal(rng: np.random.Generator) -> Times:
    """All rows vary alike."""
    return np.full(ROWS, 0.03)


def unequal(rng: np.random.Generator) -> Times:
    """Variances scatter as Smyth's model has it, with 4 degrees of freedom."""
    return 0.03 * np.sqrt(4 / rng.chisquare(4, ROWS))


def groups(rng: np.random.Generator) -> Times:
    """Three kinds of rows, which is not Smyth's model."""
    return np.repeat((0.01, 0.03, 0.08), ROWS // 3)


def one_wild(rng: np.random.Generator) -> Times:
    """One row is far noisier than the others."""
    return np.array([0.02] * (ROWS - 1) + [0.15])


@dataclass(frozen=True)
class Setting:
    """A world and a habit of measuring."""

    name: str
    launches: int = 3
    spreads: Spreads = equal
    outliers: float = 0.0
    """Share of launches that take a fifth longer."""
    run_sd: float = 0.0
    """Of the world."""
    assumed_run_sd: float = 0.0
    """Of the table of priors."""
    earlier_runs: int = 0
    """That the file of each box holds, of 3 launches."""
    in_step: float = 0.0
    """Correlation of the rows of one run in the same launch."""
    changes: tuple[float, ...] = (0.10,)


SETTINGS = (
    Setting("three launches, rows alike"),
    Setting("three launches, rows unlike", spreads=unequal),
    Setting("three launches, three kinds of rows", spreads=groups),
    Setting("three launches, one row wild", spreads=one_wild),
    Setting("three launches, 5 % are slow by a fifth", outliers=0.05),
    Setting("three launches, rows in step by 0.5", in_step=0.5),
    Setting("three launches, runs of sd 1 %", run_sd=0.01, assumed_run_sd=0.01),
    Setting("three launches, runs of sd 2 %", run_sd=0.02, assumed_run_sd=0.02),
    Setting("three launches, runs of sd 2 %, 1 % assumed", run_sd=0.02, assumed_run_sd=0.01),
    Setting("three launches, runs of sd 1 %, 2 % assumed", run_sd=0.01, assumed_run_sd=0.02),
    Setting(
        "the same, eight earlier runs", run_sd=0.01, assumed_run_sd=0.02, earlier_runs=8, changes=(0.05, 0.10)
    ),
    Setting("three launches, two earlier runs, rows unlike", spreads=unequal, earlier_runs=2),
    Setting("two launches, rows alike", launches=2),
    Setting("two launches, rows unlike", launches=2, spreads=unequal),
    Setting("two launches, two earlier runs, rows unlike", launches=2, spreads=unequal, earlier_runs=2),
    Setting("one launch, nothing known", launches=1, changes=(0.30,)),
    Setting("one launch, an earlier run", launches=1, earlier_runs=1, changes=(0.30,)),
    Setting("one launch, an earlier run, rows unlike", 1, unequal, earlier_runs=1, changes=(0.30,)),
    Setting("one launch, three earlier runs, rows unlike", 1, unequal, earlier_runs=3, changes=(0.30,)),
    Setting(
        "one launch, three earlier runs of sd 2 %",
        1,
        unequal,
        run_sd=0.02,
        assumed_run_sd=0.02,
        earlier_runs=3,
        changes=(0.30,),
    ),
)


@dataclass
class Counts:
    """Of one method in one setting, summed over tables."""

    covered: int = 0
    called: int = 0
    tables: int = 0
    right: int = 0
    right_in_table: int = 0
    right_together: int = 0

    def add(self, *, nulls: tuple[int, int], alone: tuple[bool, bool], together: int) -> None:
        """One table of equals, the same with one row planted, and with all rows planted."""
        self.covered += nulls[0]
        self.called += nulls[1]
        self.tables += nulls[1] > 0
        self.right += alone[0]
        self.right_in_table += alone[1]
        self.right_together += together

    def text(self, tables: int) -> str:
        """Seven columns."""
        rows = tables * ROWS
        return (
            f"{self.covered / rows:8.1%}{self.called / rows:8.2%}{self.tables / tables:8.1%}"
            f"{self.right / tables:8.0%}{self.right_in_table / tables:8.0%}{self.right_together / rows:8.0%}"
        )


Box = list[Times]
"""Blocks by row, launch and block: of the run that is compared, then of each earlier one."""


def box(rng: np.random.Generator, setting: Setting, spreads: Times) -> Box:
    """What was measured on one box; all rows take one second."""

    def run(launches: int) -> Times:
        shared = rng.standard_normal((1, launches))
        apart = rng.standard_normal((ROWS, launches))
        logs = math.sqrt(setting.in_step) * shared + math.sqrt(1 - setting.in_step) * apart
        logs = spreads[:, None] * logs + setting.run_sd * rng.standard_normal()
        logs += math.log(1.2) * (rng.random(logs.shape) < setting.outliers)
        return np.exp(logs[:, :, None] + BLOCK_SD * rng.standard_normal((ROWS, launches, BLOCKS)))

    return [run(setting.launches), *(run(3) for _ in range(setting.earlier_runs))]


Judged = list[tuple[float, float, bool]]
"""The interval of the log ratio of each row, and whether it was called different."""


def now(a: Box, b: Box, setting: Setting) -> Judged:
    """As `compare` does it."""
    known = [_known(one, setting, name) for one, name in ((a, "a"), (b, "b"))]
    runs = together([run for _, run in known])
    estimates = [
        compare_launches(
            a[0][row].tolist(),
            b[0][row].tolist(),
            prior_sd_a=TABLE_SD,
            prior_sd_b=TABLE_SD,
            spread_a=known[0][0][row],
            spread_b=known[1][0][row],
            runs=runs,
        )
        for row in range(ROWS)
    ]
    words = [verdict.word in ("faster", "slower") for verdict in judge(estimates)]
    assert all(isinstance(e, RatioEstimate) for e in estimates)
    return [(math.log(e.low), math.log(e.high), w) for e, w in zip(estimates, words, strict=True)]  # type: ignore[union-attr]


def _known(one: Box, setting: Setting, name: str) -> tuple[list[Spread | None], Spread]:
    scatters = [[launch_scatter(row.tolist(), prior_sd=TABLE_SD) for row in run] for run in one]
    by_run = [{row: s for row, s in enumerate(of_run) if isinstance(s, Scatter)} for of_run in scatters]
    relative: list[Mapping[Hashable, Scatter]] = [
        {row: replace(s, variance=s.variance / TABLE_SD**2) for row, s in of_run.items()}
        for of_run in by_run
        if of_run
    ]
    prior = learn_launches(name, relative)
    assumed = Spread(setting.assumed_run_sd**2, math.inf)
    if isinstance(prior, Missing):
        return [None] * ROWS, assumed
    spreads = [_moderated(prior, [of_run[row] for of_run in by_run if row in of_run]) for row in range(ROWS)]
    if len(one) < 2 or not setting.assumed_run_sd:
        return list(spreads), assumed
    means = [
        [RunMean(_log_time(run[row]), spread.variance / len(run[row])) for run in one]
        for row, spread in enumerate(spreads)
    ]
    return list(spreads), learn_runs(name, means, rows=ROWS, table_sd=setting.assumed_run_sd)


def _moderated(prior: LaunchPrior, own: list[Scatter]) -> Spread:
    return prior.moderated(pooled(own) if own else None, TABLE_SD)


def _log_time(launches: Times) -> float:
    found = log_time(launches.tolist(), prior_sd=TABLE_SD)
    assert not isinstance(found, Missing)
    return found


def before(a: Box, b: Box, setting: Setting) -> Judged:
    """What it replaced, from the means of launches alone."""
    means = [np.log(one[0]).mean(-1) for one in (a, b)]
    centers = means[0].mean(1) - means[1].mean(1)
    count = setting.launches
    if count < 3:
        shown = [np.maximum(m.var(1, ddof=1), TABLE_SD**2) if count > 1 else TABLE_SD**2 for m in means]
        halves = 1.96 * np.sqrt((shown[0] + shown[1]) / count) + np.zeros(ROWS)
        return [(c - h, c + h, abs(c) - h > BAND) for c, h in zip(centers, halves, strict=True)]
    parts = [m.var(1, ddof=1) / count for m in means]
    total = parts[0] + parts[1]
    dfs = total**2 / ((parts[0] ** 2 + parts[1] ** 2) / (count - 1))
    errors = np.sqrt(total)
    assumed = TABLE_SD * math.sqrt(2 / count)
    scale = math.sqrt(max(1.0, float(np.median((errors / assumed) ** 2 / (1 - 2 / (9 * dfs)) ** 3))))
    halves = np.array([t_quantile(0.975, _rounded(df)) for df in dfs]) * errors
    beyond = np.abs(centers) - BAND
    p_values = np.array(
        [
            min(1.0, 2 * min(_p(far / e, df), _p(far / max(scale * assumed, e), math.inf)))
            for far, e, df in zip(beyond, errors, dfs, strict=True)
        ]
    )
    ordered = np.sort(p_values)
    passed = ordered[ordered <= 0.05 * np.arange(1, ROWS + 1) / ROWS]
    limit = passed[-1] if len(passed) else -1.0
    return [
        (c - h, c + h, bool(abs(c) - h > BAND and p <= limit))
        for c, h, p in zip(centers, halves, p_values, strict=True)
    ]


@functools.cache
def _rounded(df: float) -> float:
    return round(df, 2)


def _p(t: float, df: float) -> float:
    return 2 * t_cdf(-t, df) if t > 0 else 1.0


def simulated(setting: Setting, change: float, tables: int, seed: int) -> Iterator[str]:
    """A line for each method."""
    rng = np.random.default_rng(seed)
    counts = {"before": Counts(), "now": Counts()}
    for _ in range(tables):
        spreads = setting.spreads(rng)
        boxes = box(rng, setting, spreads), box(rng, setting, spreads)
        planted = rng.integers(ROWS)
        one, every = _slower(boxes[1], change, [planted]), _slower(boxes[1], change, range(ROWS))
        for name, method in (("before", before), ("now", now)):
            nulls, alone, all_of_them = (method(boxes[0], other, setting) for other in (boxes[1], one, every))
            counts[name].add(
                nulls=(sum(low <= 0 <= high for low, high, _ in nulls), sum(word for *_, word in nulls)),
                alone=(alone[planted][1] < -BAND, alone[planted][2] and alone[planted][1] < 0),
                together=sum(word and high < 0 for _, high, word in all_of_them),
            )
    for name, found in counts.items():
        yield f"{setting.name if name == 'before' else '':48}{change:5.0%} {name:7}{found.text(tables)}"


def _slower(one: Box, change: float, rows: object) -> Box:
    slow = [run.copy() for run in one]
    for run in slow:
        run[list(rows)] *= 1 + change  # type: ignore[call-overload]
    return slow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="settings whose name begins so")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a table; below 8 less is learnt")
    options = parser.parse_args()
    globals()["ROWS"] = options.rows
    print(f"{'':61}{'covered':>8}{'false':>8}{'tables':>8}{'power:':>8}{'1 of':>8}{'all':>8}")
    print(f"{'':48}{'true':>5} {'':7}{'':8}{'rows':>8}{'':8}{'alone':>8}{ROWS:8}{ROWS:8}")
    for setting in SETTINGS:
        if setting.name.startswith(options.only):
            for change in setting.changes:
                for line in simulated(setting, change, options.tables, options.seed):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
