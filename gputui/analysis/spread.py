"""How much launches and runs of one box vary: the table of priors, and what was measured on the box.

Nothing is ever taken as known. The table of priors counts as measurements do: of one row it is worth
1 / (1 / BOX_DF + 1 / ROW_DF) = 5 degrees of freedom, and what launches show is pooled with it. Other rows of
the box tell how its launches vary compared with the table; how alike rows are bounds what they tell of one
row. That is a moderated variance (Smyth 2004, https://doi.org/10.2202/1544-6115.1027) with fixed weights:
with the 4 to 15 rows that a box has, how alike they are cannot be told from their variances.

Variances are of log times. Those of different kinds of work are put on one scale by the table: it says how
kinds relate, the box how much it varies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from gputui.analysis.statistics import mean, sample_variance
from gputui.model.result import Spread

BOX_DF = 10.0
"""Of the table, for how much a box varies."""
ROW_DF = 10.0
"""Of what is known of a box, for one of its rows."""
RUN_DF = 4.0
"""Of the table, for how much runs of a box differ."""
_TABLE = "table"
"""The source of errors: boxes unlike those of the table are so on both sides, in launches and in runs."""
ROW_CORRELATION = 0.5
"""Assumed between rows of one run: they share the box's clocks, heat and neighbors."""


@dataclass(frozen=True, slots=True)
class BoxSpread:
    """What is known of the variance between launches of any row on a box."""

    factor: float
    """Variance of its launches over that of the table of priors."""
    df: float
    """Of the factor."""
    rows: int = 0
    launches: int = 0

    def of_row(self, own: Spread | None, table_sd: float) -> Spread:
        """The variance between launches of one row; `own` is what its own launches show, if anything."""
        df = 1 / (1 / self.df + 1 / ROW_DF)
        expected = Spread(self.factor * table_sd**2, df, _TABLE)
        if own is None:
            return expected
        variance = (df * expected.variance + own.df * own.variance) / (df + own.df)
        return Spread(variance, df + own.df, _TABLE)


ASSUMED = BoxSpread(1.0, BOX_DF)
"""Of a box of which nothing was measured."""
ASSUMED_DF = ASSUMED.of_row(None, 1.0).df
"""Of one row of it."""


@dataclass(frozen=True, slots=True)
class RunMean:
    """One case in one run."""

    log_time: float
    """The mean of its launches."""
    error_variance: float
    """Of that mean, because launches vary."""


def learn_launches(runs: Sequence[Mapping[Hashable, Spread]], launches: int = 0) -> BoxSpread:
    """How a box's launches vary, from the scatter of its rows in each run, over the table's variance.

    Rows that were interleaved in the same launches are one row here. Rows of one run are taken to be
    correlated, so that a table of many rows never has as many degrees of freedom as they would have apart.
    `launches` is only passed on.
    """
    found = [scatter for run in runs for scatter in run.values()]
    if not found:
        return ASSUMED
    df = math.fsum(map(_df_together, runs))
    factor = (BOX_DF + df * pooled(found).variance) / (BOX_DF + df)
    return BoxSpread(factor, BOX_DF + df, len({row for run in runs for row in run}), launches)


def learn_runs(cases: Sequence[Sequence[RunMean]], *, rows: int, table_sd: float) -> Spread:
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
        return assumed_runs(table_sd)
    weight = sum(df for df, _, _ in seen)
    found = math.fsum(df * (variance - error) for df, variance, error in seen) / weight
    error = math.fsum(df * error for df, _, error in seen) / weight
    df = max(df for df, _, _ in seen) / (1 + error / table / math.sqrt(rows)) ** 2
    variance = (RUN_DF * table + df * max(found, 0.0)) / (RUN_DF + df)
    return Spread(variance, RUN_DF + df, _TABLE)


def assumed_runs(table_sd: float) -> Spread:
    """The variance between runs of a box of which nothing was measured."""
    return Spread(table_sd**2, RUN_DF, _TABLE)


def pooled(scatters: Sequence[Spread]) -> Spread:
    """The scatter of several groups, each around its own mean."""
    df = math.fsum(one.df for one in scatters)
    return Spread(math.fsum(one.df * one.variance for one in scatters) / df, df)


def together(parts: Sequence[Spread]) -> Spread:
    """The variance of a sum of independent values, with degrees of freedom by Welch–Satterthwaite.

    Where parts have one source, so have the errors of their variances: they add up rather than average out.
    """
    total = math.fsum(part.variance for part in parts)
    if total == 0:
        return Spread(0.0, min((part.df for part in parts), default=math.inf))
    errors: dict[str | int, float] = {}
    for place, part in enumerate(parts):
        if part.variance and not math.isinf(part.df):
            key = part.source or place
            errors[key] = errors.get(key, 0.0) + part.variance / total / math.sqrt(part.df)
    lost = math.fsum(error**2 for error in errors.values())
    (source,) = errors if len(errors) == 1 else ("",)
    return Spread(total, 1 / lost if lost else math.inf, source if isinstance(source, str) else "")


def _df_together(run: Mapping[Hashable, Spread]) -> float:
    """Of all rows of a run: sample variances of values correlated by r are correlated by r squared."""
    return math.fsum(row.df for row in run.values()) / (1 + (len(run) - 1) * ROW_CORRELATION**2)


def _mean_error(runs: Sequence[RunMean]) -> float:
    return mean([run.error_variance for run in runs])
