"""How much faster one side is, how certain that is, and the word for it.

Two families of rows share a table. Where the spread between launches is known on both sides, from 3 launches
or from the other rows of the box, p-values are calibrated, and Benjamini–Hochberg over these rows keeps the
share of false finds at 5 %. Elsewhere the spread is a worst-case prior; each such row is right at least 95
times in 100 by its interval alone, and does not enter Benjamini–Hochberg, since with an assumed sd of 10 % a
true 1.5 x among ten rows (p = 0.005) would be rejected every second time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar  # Any: a cache of several kinds of things

from gputui.analysis.quantiles import normal_quantile, t_cdf, t_quantile
from gputui.analysis.spread import ROW_CORRELATION, Scatter, together
from gputui.analysis.statistics import (
    dependence_factor,
    hodges_lehmann,
    hodges_lehmann_shift,
    lag1_autocorrelation,
    location_error,
    mean,
    merged_until_independent,
    sample_sd,
    sample_variance,
    welch,
)
from gputui.model.absent import Missing
from gputui.model.result import Spread

WORDS = ("faster", "slower", "same", "inconclusive", "not comparable")
BAND = 0.01  # criterion takes 1 %, nvbench's comparison 0.5 %
FALSE_DISCOVERY_RATE = 0.05
LAUNCHES_MEASURED = 3  # from this many launches a side, their spread is measured, not assumed
_BLOCKS_FOR_RANKS = 4  # 4 against 4 is the least that a rank interval of 95 % needs
MOST_RUNS = 10
MOST_LAUNCHES = 20  # more are not worth it: a difference that needs them is too small to matter
_Z = normal_quantile(0.975)
ONE_RUN = Spread(0.0, math.inf)
"""Between cases of one run nothing varies from run to run."""
_MOST_BLOCKS_KEPT = 1000  # of one side: 512 of them are 40 MiB at most
_Launches = tuple[tuple[float, ...], ...]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The ratio of B's speed to A's, of one case or of several, with its 95 % interval."""

    ratio: float
    """Time of A over time of B, so that 2 means that B does twice the work in the same time."""
    low: float
    high: float
    df: float
    """Degrees of freedom of the interval; infinite where it is normal."""
    replicated: bool
    """The spread between launches is known on both sides: from 3 launches, or from other rows of the box."""
    run_share: float
    """Of the variance, 0 to 1: what comes from run to run, which launches of one run do not average out."""
    contended_low: float
    """The factor by which CPU contention alone moves the lower end; see `widened_by_contention`."""
    contended_high: float
    """The same for the upper end."""

    def is_beyond(self, band: float) -> bool:
        """Whether the whole interval lies outside of the band 1/(1 + band) to 1 + band."""
        return self.low > 1 + band or self.high < 1 / (1 + band)

    def is_within(self, band: float) -> bool:
        """Whether the whole interval lies inside of that band."""
        return 1 / (1 + band) <= self.low and self.high <= 1 + band

    def p_beyond(self, band: float) -> float:
        """The two-sided p that the ratio is on the nearest edge of the band 1/(1 + band) to 1 + band.

        Below 0.05 exactly if the 95 % interval excludes the band; 1 where its middle lies inside the band.
        """
        middle, half = self._log_interval()
        return _p(abs(middle) - math.log1p(band), half, self.df)

    def p_slower(self, limit: float) -> float:
        """The two-sided p that the ratio is `limit`, against a smaller one."""
        middle, half = self._log_interval()
        return _p(math.log(limit) - middle, half, self.df)

    def at_error_rate(self, error_rate: float) -> Self:
        """The same with an interval that misses the truth in `error_rate` of cases, rather than in 0.05.

        Contention moves its ends as far as before: it is not chance.
        """
        wider = t_quantile(1 - error_rate / 2, self.df) / t_quantile(0.975, self.df)
        below = wider * math.log(self.low / self.contended_low / self.ratio)
        above = wider * math.log(self.high / self.contended_high / self.ratio)
        return replace(
            self,
            low=self.ratio * math.exp(below) * self.contended_low,
            high=self.ratio * math.exp(above) * self.contended_high,
        )

    def _log_interval(self) -> tuple[float, float]:
        """Middle and half-width of the interval on the log scale.

        The middle differs from the estimate if ranks or contention make the interval lopsided.
        """
        low, high = math.log(self.low), math.log(self.high)
        return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True, slots=True)
class RatioEstimate(Estimate):
    """The ratio of B's speed to A's on one case."""

    n_a: int
    """Timed blocks."""
    n_b: int
    independent_a: int
    """Blocks after correlated neighbors were merged; of pairs, pairs."""
    independent_b: int
    launches_a: int
    launches_b: int
    method: str
    """`welch on launch medians`, `moderated t on launch medians`, or `this run only, launch prior 10 %`."""
    autocorrelation: float
    """Lag-1, of the launch where it is furthest from 0, before merging."""
    resolvable: float
    """The smallest ratio above 1 that this comparison could have distinguished from the band of 1 %."""
    paired: bool = False
    """Both sides were interleaved in the same launches, and their blocks compared in pairs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said about B against A."""

    word: str
    """One of `WORDS`."""
    reason: str
    """Why nothing more can be said; empty for `faster`, `slower` and `same`."""


@dataclass(frozen=True, slots=True)
class GeometricMean(Estimate):
    """The mean of several ratios."""

    rows: int


@dataclass(frozen=True, slots=True)
class SpeedEstimate:
    """How fast one case is on one side, in units of work per second, with its 95 % interval."""

    units_per_s: float
    low: float
    high: float
    blocks: int
    """Timed blocks."""
    independent: int
    """Blocks after correlated neighbors were merged."""
    launches: int
    method: str


@dataclass(frozen=True)
class _Side:
    """One side's launches, prepared. Has no slots because it caches what is used repeatedly."""

    timed: int
    """Blocks before merging."""
    logs: tuple[tuple[float, ...], ...]
    """Log block times per launch, merged until independent."""
    locations: tuple[float, ...]
    """Hodges–Lehmann center of each launch, over all its blocks: merging must not move it."""
    factor: float
    """Widening for the remaining correlation of neighboring blocks."""
    autocorrelation: float
    prior_sd: float

    @cached_property
    def shown_variance(self) -> float:
        """Of a launch's center, as 2 launches or more show it; at least what their blocks do."""
        return max(sample_variance(self.locations), self.error_variance)

    @cached_property
    def blocks(self) -> int:
        return sum(len(launch) for launch in self.logs)

    @property
    def launches(self) -> int:
        return len(self.logs)

    @cached_property
    def pooled(self) -> tuple[float, ...]:
        return tuple(value for launch in self.logs for value in launch)

    @cached_property
    def centre(self) -> float:
        """Mean of the launches' centers: all launches weigh the same, however many blocks they have."""
        return mean(self.locations)

    @property
    def assumed_variance(self) -> float:
        """Variance of the side's center due to differing launches: the prior, or more if two launches show
        more."""
        sd = max(self.prior_sd, sample_sd(self.locations) if self.launches > 1 else 0.0)
        return sd**2 / self.launches

    def known(self, spread: Spread | None) -> Spread | None:
        """Variance of the side's center due to differing launches; None where it can only be assumed.

        `spread`: between launches, as the box's rows show it. Three launches that agree by luck do not make
        an interval of no width: at least the error of their blocks counts.
        """
        if spread is None and self.launches < LAUNCHES_MEASURED:
            return None
        one = Spread(self.shown_variance, self.launches - 1.0) if spread is None else spread
        return replace(one, variance=max(one.variance, self.error_variance) / self.launches)

    @cached_property
    def error_variance(self) -> float:
        """Mean variance of a launch's center from its blocks alone: below it, launches agree only by
        chance."""
        return math.fsum(location_error(launch) ** 2 for launch in self.logs) / self.launches

    @cached_property
    def within_variance(self) -> float:
        """Of the side's center, from the blocks of its launches alone."""
        return self.error_variance / self.launches


def compare_launches(
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    *,
    prior_sd_a: float,
    prior_sd_b: float,
    launch_is_block: bool = False,
    spread_a: Spread | None = None,
    spread_b: Spread | None = None,
    runs: Spread = ONE_RUN,
) -> RatioEstimate | Missing:
    """How fast B is against A, from the block times of each launch in seconds per unit of work.

    `spread_a` and `spread_b`: how much one launch varies, as the rows of each box show it; without them
    what 3 launches or more show. Then Student's t on the difference of the mean of the launches'
    Hodges–Lehmann centres of log block times. If neither is there on a side: Hodges–Lehmann shift of the
    pooled log block times (Welch's t where blocks are too few for ranks), its half-width and 1.96 times the
    sd of the launch priors in quadrature; the priors give way to launches that show more. Missing
    if a side has no block or only one.

    `runs`: the variance of the difference because the sides are two runs; no number of launches lowers it.

    `launch_is_block`: whole programs were timed, one block per launch. What blocks would tell of the spread
    is that of launches then, so one block will do; with fewer than 3 launches the priors are all there is.
    """
    side_a, side_b = _prepare(a, prior_sd_a), _prepare(b, prior_sd_b)
    for name, side in (("a", side_a), ("b", side_b)):
        if side.blocks < (1 if launch_is_block else 2):
            return Missing(f"{'only 1 block' if side.blocks else 'no block'} in {name}")
    known_a, known_b = side_a.known(spread_a), side_b.known(spread_b)
    replicated = known_a is not None and known_b is not None
    if known_a is not None and known_b is not None:
        total = together((together((known_a, known_b)), runs))
        center, df, variance = _centre(side_a, side_b), total.df, total.variance
        below = above = t_quantile(0.975, df) * math.sqrt(variance)
        method = f"{'welch' if spread_a is spread_b is None else 'moderated t'} on launch medians"
    else:
        if launch_is_block:
            center, within_below, within_above = _centre(side_a, side_b), 0.0, 0.0
        else:
            center, within_below, within_above = _within(side_a, side_b)
        assumed = [
            side.assumed_variance if known is None or spread is None else known.variance
            for side, known, spread in ((side_a, known_a, spread_a), (side_b, known_b, spread_b))
        ]
        between = _Z * math.sqrt(math.fsum(assumed) + runs.variance)
        below, above = math.hypot(within_below, between), math.hypot(within_above, between)
        df, method = math.inf, _prior_method(side_a, side_b)
        variance = (max(below, above) / _Z) ** 2
    return RatioEstimate(
        ratio=math.exp(center),
        low=math.exp(center - below),
        high=math.exp(center + above),
        df=df,
        replicated=replicated,
        run_share=runs.variance / variance if variance else 0.0,
        contended_low=1.0,
        contended_high=1.0,
        n_a=side_a.timed,
        n_b=side_b.timed,
        independent_a=side_a.blocks,
        independent_b=side_b.blocks,
        launches_a=side_a.launches,
        launches_b=side_b.launches,
        method=method,
        autocorrelation=max(side_a.autocorrelation, side_b.autocorrelation, key=abs),
        resolvable=math.exp(max(below, above)) * (1 + BAND),
    )


def launch_scatter(launches: Sequence[Sequence[float]], *, prior_sd: float) -> Scatter | Missing:
    """How far the launches of one case in one run lie from each other, by their log times.

    At least what their blocks show. `prior_sd` is that of `compare_launches`, which then finds the launches
    prepared. Missing below 2 launches.
    """
    side = _prepare(launches, prior_sd)
    if side.launches < 2:
        return Missing("fewer than 2 launches")
    return Scatter(side.shown_variance, side.launches - 1.0)


def log_time(launches: Sequence[Sequence[float]], *, prior_sd: float) -> float | Missing:
    """The mean of the launches' log times; Missing if none has a block."""
    side = _prepare(launches, prior_sd)
    return side.centre if side.launches else Missing("no block")


def compare_pairs(
    launches: Sequence[Sequence[tuple[float, float]]], *, prior_sd: float, spread: Spread | None = None
) -> RatioEstimate | Missing:
    """How fast B is against A where both were interleaved in the same launches, block by block.

    Each launch is a sequence of neighbouring blocks of A and B, in seconds per unit of work. What a launch
    and the moment do to both alike falls out of their ratio. From 3 launches: Student's t on the launches'
    Hodges–Lehmann centres of log ratios, their variance at least what their blocks show; with fewer
    their mean, its error widened in quadrature by `prior_sd`, how much the log ratio varies between such
    launches. `spread`: how much it varies as the box's paired rows show it, in place of both. Missing below
    two pairs.
    """
    measured = [[math.log(a / b) for a, b in launch] for launch in launches if launch]
    logs = [merged_until_independent(launch) for launch in measured]
    pairs = [ratio for launch in logs for ratio in launch]
    if len(pairs) < 2:
        return Missing("fewer than 2 pairs of blocks")
    locations = [hodges_lehmann(launch) for launch in measured]
    count = len(logs)
    error_variance = mean([location_error(launch) ** 2 for launch in logs])
    shown_variance = sample_variance(locations) if count > 1 else 0.0
    replicated = spread is not None or count >= LAUNCHES_MEASURED
    center = mean(locations)
    if replicated:
        known = spread or Spread(shown_variance, count - 1.0)
        df = known.df
        half = t_quantile(0.975, df) * math.sqrt(max(known.variance, error_variance) / count)
        method = f"{'t' if spread is None else 'moderated t'} on ratios of paired blocks by launch"
    else:
        half = _Z * math.sqrt((max(prior_sd**2, shown_variance) + error_variance) / count)
        df = math.inf
        of_runs = "this run only" if count == 1 else f"{count} launches"
        method = f"{of_runs}, blocks in pairs, launch prior {_percent(prior_sd)}"
    timed = sum(map(len, measured))
    return RatioEstimate(
        ratio=math.exp(center),
        low=math.exp(center - half),
        high=math.exp(center + half),
        df=df,
        replicated=replicated,
        run_share=0.0,
        contended_low=1.0,
        contended_high=1.0,
        n_a=timed,
        n_b=timed,
        independent_a=len(pairs),
        independent_b=len(pairs),
        launches_a=count,
        launches_b=count,
        method=method,
        autocorrelation=max((lag1_autocorrelation(launch) for launch in measured), key=abs, default=0.0),
        resolvable=math.exp(half) * (1 + BAND),
        paired=True,
    )


def with_ratio_of_speeds(pairs: RatioEstimate, a: SpeedEstimate, b: SpeedEstimate) -> RatioEstimate:
    """Pairs with the ratio of the sides' own speeds, so that a table is consistent.

    The interval stays that of the pairs, extended if necessary to contain that ratio.
    """
    ratio = b.units_per_s / a.units_per_s
    low, high = min(pairs.low, ratio), max(pairs.high, ratio)
    wider = (high / low) / (pairs.high / pairs.low)
    return replace(
        pairs,
        ratio=ratio,
        low=low,
        high=high,
        n_a=a.blocks,
        n_b=b.blocks,
        resolvable=pairs.resolvable * math.sqrt(wider),
    )


def is_explained_by_clock(
    estimate: RatioEstimate, clock_a_mhz: float, clock_b_mhz: float, band: float = BAND
) -> bool:
    """Whether the two take the same number of cycles, though not the same time.

    Only for two of one chip. The interval of the ratio of cycles must touch the band, and the clocks must
    account for more than half of the difference on the log scale.
    """
    if min(clock_a_mhz, clock_b_mhz) <= 0:
        return False
    clocks = clock_a_mhz / clock_b_mhz
    touches = estimate.low * clocks <= 1 + band and estimate.high * clocks >= 1 / (1 + band)
    return touches and abs(math.log(estimate.ratio * clocks)) < abs(math.log(estimate.ratio)) / 2


def widened_by_contention(own: RatioEstimate, measured: float) -> RatioEstimate:
    """An interval that holds both what was measured and what it would be without others on the CPUs.

    `own`: the estimate from times with the waiting for others taken out; `measured`: the ratio with it.
    """
    low, high = min(own.low, measured), max(own.high, measured)
    return replace(
        own,
        ratio=measured,
        low=low,
        high=high,
        contended_low=low / measured * own.ratio / own.low,
        contended_high=high / measured * own.ratio / own.high,
        resolvable=own.resolvable * max(own.ratio / measured, measured / own.ratio),
    )


def judge(
    estimates: Sequence[Estimate | Missing],
    band: float | Sequence[float] = BAND,
    false_discovery_rate: float = FALSE_DISCOVERY_RATE,
    shares_launches: Sequence[bool] = (),
) -> list[Verdict]:
    """The verdict of each row and mean of one table; a Missing is `not comparable` for its own reason.

    `faster` and `slower` (B against A) need the whole interval beyond the band and, among rows with
    measured launches, Benjamini–Hochberg's consent; `same` needs the whole interval inside the band. A
    band per row may be given; it is a fraction, and reaches from 1/(1 + band) to 1 + band.
    `shares_launches`: rows that tell of the same launches, as rate and times of a load do. They err together,
    so that Benjamini–Hochberg must consent also where the spread between launches is assumed.
    """
    bands = [band] * len(estimates) if isinstance(band, float | int) else list(band)
    replicated = {
        row: estimate
        for row, estimate in enumerate(estimates)
        if not isinstance(estimate, Missing) and (estimate.replicated or any(shares_launches[row : row + 1]))
    }
    tested = {row: estimate.p_beyond(bands[row]) for row, estimate in replicated.items()}
    limit = _benjamini_hochberg_limit(list(tested.values()), false_discovery_rate)
    verdicts = []
    for row, estimate in enumerate(estimates):
        if isinstance(estimate, Missing):
            verdicts.append(Verdict("not comparable", estimate.reason))
            continue
        beyond = estimate.is_beyond(bands[row])
        if beyond and (row not in tested or tested[row] <= limit):
            verdicts.append(Verdict("faster" if estimate.ratio > 1 else "slower", ""))
        elif beyond:
            rows = f"{len(tested)} row{'s' if len(tested) > 1 else ''}"
            verdicts.append(Verdict("inconclusive", f"not clear enough among {rows}"))
        elif estimate.is_within(bands[row]):
            verdicts.append(Verdict("same", ""))
        else:
            verdicts.append(Verdict("inconclusive", _why_inconclusive(estimate, bands[row])))
    return verdicts


def are_slower(estimates: Sequence[Estimate], limit: float, error_rate: float = 0.05) -> list[bool]:
    """Which rows and means of a table are surely slower than `limit`, a ratio below 1.

    The whole interval lies below it, and Holm's steps keep the chance of a single false one in the whole
    table at `error_rate`. Holm 1979, https://www.jstor.org/stable/4615733.
    """
    p_values = [estimate.p_slower(limit) for estimate in estimates]
    found = [False] * len(estimates)
    for step, place in enumerate(sorted(range(len(estimates)), key=p_values.__getitem__)):
        if p_values[place] > error_rate / (len(estimates) - step):
            break
        found[place] = estimates[place].high < limit
    return found


def geometric_mean(estimates: Sequence[RatioEstimate]) -> GeometricMean | Missing:
    """The geometric mean of the ratios of rows that both sides have, each with equal weight.

    Half-widths on the log scale are combined as standard deviations are, with a correlation of 0.5 between
    rows: cases of one run share the box's clocks, heat and neighbours, so independence would be too narrow;
    that they err wholly together is too wide. What runs and contention do to them they do to all together.
    """
    if not estimates:
        return Missing("no row in common")
    count = len(estimates)
    center = math.fsum(math.log(e.ratio) for e in estimates) / count
    below, _ = _combined([(math.log(e.ratio * e.contended_low / e.low), e.run_share) for e in estimates])
    above, run_share = _combined(
        [(math.log(e.high / e.contended_high / e.ratio), e.run_share) for e in estimates]
    )
    contended_low = math.fsum(math.log(e.contended_low) for e in estimates) / count
    contended_high = math.fsum(math.log(e.contended_high) for e in estimates) / count
    return GeometricMean(
        ratio=math.exp(center),
        low=math.exp(center - below + contended_low),
        high=math.exp(center + above + contended_high),
        df=min(e.df for e in estimates),
        replicated=all(e.replicated for e in estimates),
        run_share=run_share,
        contended_low=math.exp(contended_low),
        contended_high=math.exp(contended_high),
        rows=count,
    )


def launch_centre(block_times: Sequence[float]) -> float:
    """The block time that represents one launch, of one block or more, in their unit."""
    return math.exp(hodges_lehmann([math.log(t) for t in block_times]))


def estimate_speed(
    launches: Sequence[Sequence[float]],
    *,
    prior_sd: float,
    own: Sequence[Sequence[float]] | None = None,
    spread: Spread | None = None,
) -> SpeedEstimate | Missing:
    """How fast one side is, from the block times of each launch in seconds per unit of work.

    The median of the launches' centres would waste data at 3 to 5 launches, so it is their mean, with
    Student's t over launches; below 3 launches the pooled centre, widened by the launch prior. `spread`: how
    much one launch varies, as the rows of the box show it, in place of both. The interval is of this run.

    `own`: the times without those in which its threads waited for a CPU. It may be as much faster, as in
    `widened_by_contention`.
    """
    speed = _kept(_estimated, launches if own is None else own, prior_sd)
    if isinstance(speed, Missing):
        return speed
    known = None if spread is None else _prepare(launches if own is None else own, prior_sd).known(spread)
    if known is not None:
        factor = math.exp(t_quantile(0.975, known.df) * math.sqrt(known.variance))
        center = speed.units_per_s
        method = "moderated t on launch medians"
        speed = replace(speed, low=center / factor, high=center * factor, method=method)
    if own is None:
        return speed
    measured = math.exp(-_prepare(launches, prior_sd).centre)
    low = speed.low * min(1.0, measured / speed.units_per_s)
    return replace(speed, units_per_s=measured, low=low, high=max(speed.high, measured))


def _estimated(launches: _Launches, prior_sd: float) -> SpeedEstimate | Missing:
    side = _prepare(launches, prior_sd)
    if side.blocks == 0:
        return Missing("no block")
    if side.launches >= LAUNCHES_MEASURED:
        center = side.centre
        half = t_quantile(0.975, side.launches - 1) * math.sqrt(side.shown_variance / side.launches)
        method = "t on launch medians"
    else:
        center = side.centre
        within = max(location_error(side.pooled) ** 2, side.within_variance)
        half = _Z * math.sqrt(within + side.assumed_variance)
        method = _prior_method(side, side)
    return SpeedEstimate(
        units_per_s=math.exp(-center),
        low=math.exp(-center - half),
        high=math.exp(-center + half),
        blocks=side.timed,
        independent=side.blocks,
        launches=side.launches,
        method=method,
    )


def _prepare(launches: Sequence[Sequence[float]], prior_sd: float) -> _Side:
    return _kept(_prepared, launches, prior_sd)


def _prepared(launches: _Launches, prior_sd: float) -> _Side:
    measured = [launch for launch in launches if launch]
    logs = tuple(tuple(math.log(t) for t in merged_until_independent(launch)) for launch in measured)
    return _Side(
        timed=sum(map(len, measured)),
        logs=logs,
        locations=tuple(math.log(launch_centre(launch)) for launch in measured),
        factor=max((dependence_factor(launch) for launch in logs), default=1.0),
        autocorrelation=max((lag1_autocorrelation(launch) for launch in measured), key=abs, default=0.0),
        prior_sd=prior_sd,
    )


def _kept(
    made: Callable[[_Launches, float], _Result], launches: Sequence[Sequence[float]], prior_sd: float
) -> _Result:
    """A cached result for these launches: a baseline is compared with many others."""
    exact = tuple(map(tuple, launches))
    if sum(map(len, exact)) > _MOST_BLOCKS_KEPT:
        return made(exact, prior_sd)
    kept: _Result = _remembered(made, exact, prior_sd)
    return kept


@functools.lru_cache(maxsize=512)
def _remembered(made: Callable[[_Launches, float], Any], launches: _Launches, prior_sd: float) -> Any:
    return made(launches, prior_sd)


def _centre(a: _Side, b: _Side) -> float:
    """Of log(a) - log(b), as the difference of the sides' own: a printed ratio is that of printed speeds."""
    return a.centre - b.centre


def _within(a: _Side, b: _Side) -> tuple[float, float, float]:
    """Centre of log(a) - log(b), and the half-widths below and above it that blocks give it.

    The widths are those of the rank interval of the shift of all blocks; but at least what the launches'
    own blocks say of the launches' centres, where a short launch says less than its share of all blocks.
    """
    factor = max(a.factor, b.factor)
    center = _centre(a, b)
    ranks = hodges_lehmann_shift(b.pooled, a.pooled)
    if not isinstance(ranks, Missing):
        below, above = (ranks.estimate - ranks.low) * factor, (ranks.high - ranks.estimate) * factor
    else:
        by_t = welch(b.pooled, a.pooled)
        if isinstance(by_t, Missing):
            raise ValueError("a side with one block has no interval")
        below = above = by_t.half_width * factor
    if max(a.launches, b.launches) > 1:
        least = _Z * math.sqrt(a.within_variance + b.within_variance)
        below, above = max(below, least), max(above, least)
    return center, below, above


def _p(distance: float, half: float, df: float) -> float:
    """The two-sided p of a distance, given the half-width of its 95 % interval; 1 if it is not positive."""
    if distance <= 0:
        return 1.0
    return 2 * t_cdf(-t_quantile(0.975, df) * distance / half, df) if half > 0 else 0.0


def _benjamini_hochberg_limit(p_values: Sequence[float], rate: float) -> float:
    """The largest p that counts as a find; below 0 if none does. Benjamini & Hochberg 1995."""
    kept = -1.0
    for rank, p in enumerate(sorted(p_values), start=1):
        if p <= rate * rank / len(p_values):
            kept = p
    return kept


def _why_inconclusive(estimate: Estimate, band: float) -> str:
    if not isinstance(estimate, RatioEstimate):
        return "the interval is too wide"
    fewest = min(estimate.independent_a, estimate.independent_b)
    is_of_whole_launches = (estimate.n_a, estimate.n_b) == (estimate.launches_a, estimate.launches_b)
    if fewest < _BLOCKS_FOR_RANKS and not is_of_whole_launches:
        return f"only {fewest} blocks in {'a' if estimate.independent_a == fewest else 'b'}"
    needed = launches_needed(estimate, nearest_edge(estimate, band))
    if isinstance(needed, Missing):
        return f"too near to ±{_percent(band)} to tell: {needed.reason}"
    about = "about " if estimate.replicated else ""
    return f"the interval is too wide: needs {about}{needed} launches a side"


def nearest_edge(estimate: Estimate, band: float = BAND) -> float:
    """The edge of the band 1/(1 + band) to 1 + band on the estimate's side of 1."""
    return 1 + band if estimate.ratio > 1 else 1 / (1 + band)


def launches_needed(estimate: RatioEstimate, limit: float) -> int | Missing:
    """Launches a side after which the interval would be expected not to hold `limit`, a ratio, any more.

    Where the spread between launches is not known, as many as measure it. Missing if more are needed
    than anybody should wait for, or if what differs from run to run alone holds the limit.
    """
    if not estimate.replicated:
        return LAUNCHES_MEASURED
    launches = min(estimate.launches_a, estimate.launches_b)
    half = math.log(estimate.high / estimate.low) / 2
    left = math.log(estimate.ratio / limit) ** 2 - half**2 * estimate.run_share
    if left <= 0 and estimate.run_share > 0:
        return Missing("runs of one box differ by more than that")
    needed = half**2 * (1 - estimate.run_share)
    if left * MOST_LAUNCHES < launches * needed:
        return Missing(f"it takes more than {MOST_LAUNCHES} launches a side")
    return math.ceil(launches * needed / left)


def runs_needed(estimate: RatioEstimate, limit: float) -> int | Missing:
    """How many times the runs of each side, of as many launches, would tell the ratio from `limit`.

    Missing if that is more than anybody should wait for.
    """
    half = math.log(estimate.high / estimate.low) / 2
    distance = abs(math.log(estimate.ratio / limit))
    if distance * math.sqrt(MOST_RUNS) < half:
        return Missing(f"it takes more than {MOST_RUNS} times the runs")
    return math.ceil((half / distance) ** 2)


def _prior_method(a: _Side, b: _Side) -> str:
    runs = (
        "this run only"
        if a.launches == b.launches == 1
        else f"{a.launches} launches"
        if a.launches == b.launches
        else f"{a.launches} and {b.launches} launches"
    )
    if a.prior_sd == b.prior_sd:
        return f"{runs}, launch prior {_percent(a.prior_sd)}"
    return f"{runs}, launch priors {_percent(a.prior_sd)} and {_percent(b.prior_sd)}"


def _combined(halves: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The half-width of a mean from those of its rows, each with the share of runs in it; and that share."""
    runs = math.fsum(half * math.sqrt(share) for half, share in halves) ** 2
    launches = [half * math.sqrt(max(0.0, 1 - share)) for half, share in halves]
    squares = math.fsum(half * half for half in launches)
    total = runs + ROW_CORRELATION * math.fsum(launches) ** 2 + (1 - ROW_CORRELATION) * squares
    return math.sqrt(total) / len(halves), runs / total if total else 0.0


def _percent(fraction: float) -> str:
    """Two significant digits, since a prior of 2.6 % is not one of 3 %."""
    percent = 100 * fraction
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.2g} %"
