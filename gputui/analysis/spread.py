"""How much launches and runs of one box vary, learnt from what was measured on it.

Three launches alone know the spread between them badly: with 2 degrees of freedom a 95 % interval is 4.3
standard errors wide. All rows of a box together know it well. So the variance of a row is moderated: it is
drawn towards that of the box's rows, the more so the more alike those are. Smyth 2004,
https://doi.org/10.2202/1544-6115.1027.

Variances are of log times. Those of different classes of work are put on one scale by the table of priors:
the table says how classes relate, the box how much it varies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from gputui.analysis.quantiles import incomplete_beta
from gputui.analysis.statistics import mean, sample_variance
from gputui.model.absent import Missing
from gputui.model.result import Spread

LEAST_ROWS = 4
"""Rows measured in launches apart from each other, below which they say too little of a box."""
ROWS_FOR_DF = 8
"""Below, how alike rows are cannot be told from their variances: the few are as often all alike by chance."""
FEW_ROWS_DF = 2.0
"""Of the prior then: five kinds of CPU work on one box, each known by 25 launches and more, differ by 3.3 to
15 %, as variances of 2 degrees of freedom do."""
ROW_CORRELATION = 0.5
"""Assumed between rows of one run: they share the box's clocks, heat and neighbors."""
MOST_PRIOR_DF = 40.0
"""Rows that look exactly alike are trusted no further than this."""
RUN_PRIOR_DF = 4.0
"""What the table of priors counts for beside runs of the box itself."""
_LEAST_PRIOR_DF = 1.0
_FAR = 0.025
_LEAST_VARIANCE = 1e-14  # of log times; equal launches have a logarithm too


@dataclass(frozen=True, slots=True)
class Scatter:
    """The sample variance of something, with its degrees of freedom."""

    variance: float
    df: float


@dataclass(frozen=True, slots=True)
class LaunchPrior:
    """What a box's rows tell of the variance between launches of any row on it."""

    box: str
    factor: float
    """Variance of its launches over that of the table of priors."""
    df: float
    """Of the prior: a row with as many degrees of freedom from its launches counts as much as the prior."""
    most_df: float
    """What all rows together have; no row can know more."""
    rows: int
    launches: int

    def moderated(self, own: Scatter | None, table_sd: float) -> Spread:
        """The variance between launches of one row; `own` is what its own launches show, if anything.

        A row far noisier than the prior lets expect (p < 0.025) keeps its own.
        """
        expected = self.factor * table_sd**2
        if own is None:
            return Spread(expected, min(self.df, self.most_df), self.box)
        if _f_tail(own.variance / expected, own.df, self.df) < _FAR:
            return Spread(own.variance, own.df)
        df = self.df + own.df
        variance = (self.df * expected + own.df * own.variance) / df
        return Spread(variance, min(df, self.most_df), self.box)


@dataclass(frozen=True, slots=True)
class RunMean:
    """One case in one run."""

    log_time: float
    """The mean of its launches."""
    error_variance: float
    """Of that mean, because launches vary."""


def learn_launches(
    box: str, runs: Sequence[Mapping[Hashable, Scatter]], launches: int = 0
) -> LaunchPrior | Missing:
    """The prior for launches of a box, from the scatter of its rows in each run, over the table's variance.

    Rows that were interleaved in the same launches are one row here. Rows of one run are taken to be
    correlated, so that a table of many rows never has as many degrees of freedom as they would have apart.
    `launches` is only passed on. Missing below four rows; below eight how alike they are is assumed.
    """
    own: dict[Hashable, list[Scatter]] = {}
    for run in runs:
        for row, scatter in run.items():
            own.setdefault(row, []).append(scatter)
    rows = [pooled(found) for found in own.values()]
    if len(rows) < LEAST_ROWS:
        return Missing(f"fewer than {LEAST_ROWS} rows with two launches")
    logs = [
        math.log(max(row.variance, _LEAST_VARIANCE)) - _digamma(row.df / 2) + math.log(row.df / 2)
        for row in rows
    ]
    if len(rows) < ROWS_FOR_DF:
        df, factor = FEW_ROWS_DF, math.exp(mean(logs))
    else:
        chance = mean([_trigamma(row.df / 2) for row in rows])
        df = 2 * _trigamma_inverse(sample_variance(logs) - chance, _LEAST_PRIOR_DF / 2, MOST_PRIOR_DF / 2)
        factor = math.exp(mean(logs) + _digamma(df / 2) - math.log(df / 2))
    return LaunchPrior(box, factor, df, math.fsum(map(_df_together, runs)), len(rows), launches)


def learn_runs(box: str, cases: Sequence[Sequence[RunMean]], *, rows: int, table_sd: float) -> Spread:
    """The variance between runs of a box, common to their rows: the table's, moderated by the box's runs.

    `cases` holds the runs of each case, `rows` how many of them were measured in launches apart. A
    case whose launches vary much says little of runs, and all cases of a few runs no more than the runs.
    """
    table = table_sd**2
    seen = [
        (len(runs) - 1, sample_variance([run.log_time for run in runs]), _mean_error(runs))
        for runs in cases
        if len(runs) > 1
    ]
    if not seen:
        return Spread(table, math.inf)
    weight = sum(df for df, _, _ in seen)
    found = math.fsum(df * (variance - error) for df, variance, error in seen) / weight
    error = math.fsum(df * error for df, _, error in seen) / weight
    df = max(df for df, _, _ in seen) / (1 + error / table / math.sqrt(rows)) ** 2
    variance = (RUN_PRIOR_DF * table + df * max(found, 0.0)) / (RUN_PRIOR_DF + df)
    return Spread(variance, RUN_PRIOR_DF + df, box)


def pooled(scatters: Sequence[Scatter]) -> Scatter:
    """The scatter of several groups, each around its own mean."""
    df = math.fsum(one.df for one in scatters)
    return Scatter(math.fsum(one.df * one.variance for one in scatters) / df, df)


def together(parts: Sequence[Spread]) -> Spread:
    """The variance of a sum of independent values, with degrees of freedom by Welch–Satterthwaite.

    Where parts share a box, so do the errors of their variances: they add up rather than average out.
    """
    total = math.fsum(part.variance for part in parts)
    if total == 0:
        return Spread(0.0, min((part.df for part in parts), default=math.inf))
    errors: dict[object, float] = {}
    for place, part in enumerate(parts):
        key = part.box or place
        errors[key] = errors.get(key, 0.0) + part.variance / total / math.sqrt(part.df)
    lost = math.fsum(error**2 for error in errors.values())
    return Spread(total, 1 / lost if lost else math.inf)


def _df_together(run: Mapping[Hashable, Scatter]) -> float:
    """Of all rows of a run: sample variances of values correlated by r are correlated by r squared."""
    return math.fsum(row.df for row in run.values()) / (1 + (len(run) - 1) * ROW_CORRELATION**2)


def _mean_error(runs: Sequence[RunMean]) -> float:
    return mean([run.error_variance for run in runs])


def _f_tail(f: float, df_above: float, df_below: float) -> float:
    """The share of the F distribution beyond f. Abramowitz & Stegun 26.6.2."""
    return incomplete_beta(df_below / 2, df_above / 2, df_below / (df_below + df_above * f)) if f > 0 else 1.0


def _digamma(x: float) -> float:
    """Abramowitz & Stegun 6.3.5 and 6.3.18."""
    below = 0.0
    while x < 8:
        below += 1 / x
        x += 1
    square = 1 / (x * x)
    return math.log(x) - 1 / (2 * x) - square * (1 / 12 - square * (1 / 120 - square / 252)) - below


def _trigamma(x: float) -> float:
    """Abramowitz & Stegun 6.4.6 and 6.4.12."""
    below = 0.0
    while x < 8:
        below += 1 / (x * x)
        x += 1
    square = 1 / (x * x)
    return 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42)) + below


def _trigamma_inverse(value: float, low: float, high: float) -> float:
    """The x from `low` to `high` whose trigamma is nearest to the value; it falls as x grows."""
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
