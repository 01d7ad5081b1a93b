"""How much faster one side is, how certain that is, and the word for it.

One account of what is known holds for all: a variance comes from the table of priors and from what was
measured, with its degrees of freedom (`analysis.spread`), and every interval and p-value is Student's t on
them. So a row with one launch a side is judged like one with twenty, and none escapes the correction for
looking at many rows because less is known of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gputui.analysis.spread import ASSUMED, ASSUMED_DF, ROW_CORRELATION, together
from gputui.analysis.statistics import (
    hodges_lehmann,
    lag1_autocorrelation,
    location_error,
    mean,
    merged_until_independent,
    sample_variance,
    t_cdf,
    t_quantile,
)
from gputui.model.absent import Missing
from gputui.model.result import Spread
from gputui.model.units import counted

WORDS = ("faster", "slower", "same", "inconclusive", "not comparable")
BAND = 0.01  # criterion takes 1 %, nvbench's comparison 0.5 %
FALSE_DISCOVERY_RATE = 0.05
HEADLINE_ERROR_RATE = 0.01
"""Of what a sentence above the table claims: people repeat it without the table."""
LAUNCHES_MEASURED = 3  # from this many launches a side, their spread is measured rather than assumed
MOST_RUNS = 10
_ENDLESS = 10**9
MOST_LAUNCHES = 20  # more are not worth it: a difference that needs them is too small to matter
ONE_RUN = Spread(0.0, math.inf)
"""Between cases of one run nothing varies from run to run."""
_MOST_BLOCKS_KEPT = 1000  # of one side: 512 of them are 40 MiB at most
_Launches = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The ratio of B's speed to A's, of one case or of several, with its 95 % interval."""

    ratio: float
    """Time of A over time of B, so that 2 means that B does twice the work in the same time."""
    low: float
    high: float
    df: float
    """Degrees of freedom of the interval; infinite where it is normal."""
    run_share: float
    """Of the variance, 0 to 1: what launches of these runs do not average out."""
    doubt: str = field(default="", kw_only=True)
    """Why nothing may be decided, whatever the interval says; empty for most."""

    def is_beyond(self, band: float) -> bool:
        """Whether the whole interval lies outside of the band 1/(1 + band) to 1 + band."""
        return self.low > 1 + band or self.high < 1 / (1 + band)

    def is_within(self, band: float) -> bool:
        """Whether the whole interval lies inside of that band."""
        return 1 / (1 + band) <= self.low and self.high <= 1 + band

    @property
    def half_width(self) -> float:
        """Of the interval, on the log scale."""
        return math.log(self.high / self.low) / 2

    def p_beyond(self, band: float) -> float:
        """The two-sided p that the ratio is on the nearest edge of the band 1/(1 + band) to 1 + band.

        Below 0.05 exactly if the 95 % interval excludes the band; 1 where the estimate lies inside the band.
        """
        half = math.log(self.ratio / self.low if self.ratio > 1 else self.high / self.ratio)
        return self._p(abs(math.log(self.ratio)) - math.log1p(band), half)

    def p_slower(self, limit: float) -> float:
        """The two-sided p that the ratio is `limit`, against a smaller one."""
        return self._p(math.log(limit / self.ratio), math.log(self.high / self.ratio))

    def _p(self, distance: float, half: float) -> float:
        """The two-sided p of a distance on the log scale; 1 if it is not positive."""
        if distance <= 0:
            return 1.0
        return 2 * t_cdf(-t_quantile(0.975, self.df) * distance / half, self.df) if half > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RatioEstimate(Estimate):
    """The ratio of B's speed to A's on one case."""

    blocks_a: int
    """Timed blocks."""
    blocks_b: int
    independent_blocks_a: int
    """Blocks after correlated neighbors were merged; of pairs, pairs."""
    independent_blocks_b: int
    launches_a: int
    launches_b: int
    spread_a: Spread
    """Of one launch of A; of the log ratio in one launch, where both sides were measured in the same."""
    spread_b: Spread
    runs: Spread
    """What launches of these runs do not average out."""
    method: str
    """`t on launch medians, assumed spread` or `moderated t on launch medians`; of pairs, on their ratios."""
    autocorrelation: float
    """Lag-1, of the launch where it is furthest from 0, before merging."""
    paired: bool = False
    """Both sides were interleaved in the same launches, and their blocks compared in pairs."""

    @property
    def resolvable(self) -> float:
        """The smallest ratio above 1 that this comparison could have distinguished from the band of 1 %."""
        return math.exp(self.half_width) * (1 + BAND)

    def half_width_with(self, launches_a: int, launches_b: int, error_rate: float = 0.05) -> float:
        """Half the interval of the log ratio that so many launches a side would be expected to have."""
        total = together(
            (
                _of_launches(self.spread_a, launches_a, self.launches_a),
                _of_launches(self.spread_b, launches_b, self.launches_b),
                self.runs,
            )
        )
        return t_quantile(1 - error_rate / 2, total.df) * math.sqrt(total.variance)


def _of_launches(one: Spread, launches: int, measured: int) -> Spread:
    """Of the mean of so many launches: each tells of its spread, too."""
    return replace(one, variance=one.variance / launches, df=one.df + max(0, launches - measured))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said about B against A."""

    word: str
    """One of `WORDS`."""
    reason: str
    """Why nothing more can be said; empty for `faster`, `slower` and `same`."""
    is_sure: bool = False
    """`faster` or `slower`, and sure enough for a sentence without the table."""
    error_rate: float = 0.05
    """Of the interval that has to exclude the band: smaller for the one question that was asked."""


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
    autocorrelation: float

    @cached_property
    def blocks(self) -> int:
        return sum(len(launch) for launch in self.logs)

    @property
    def launches(self) -> int:
        return len(self.logs)

    @cached_property
    def centre(self) -> float:
        """Mean of the launches' centers: all launches weigh the same, however many blocks they have."""
        return mean(self.locations)

    @cached_property
    def error_variance(self) -> float:
        """Mean variance of a launch's center from its blocks alone: below it, launches agree only by
        chance."""
        return math.fsum(location_error(launch) ** 2 for launch in self.logs) / self.launches

    @cached_property
    def scatter(self) -> Spread | None:
        """Between the launches' centers, at least what their blocks show; None below 2 launches."""
        if self.launches < 2:
            return None
        return Spread(max(sample_variance(self.locations), self.error_variance), self.launches - 1.0)

    def one_launch(self, spread: Spread | None, prior_sd: float) -> Spread:
        """Of one launch: `spread`, or the prior with what these show; at least the error of their blocks."""
        one = spread or ASSUMED.of_row(self.scatter, prior_sd)
        return replace(one, variance=max(one.variance, self.error_variance))


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

    Student's t on the difference of the mean of the launches' Hodges–Lehmann centres of log block times.
    `spread_a` and `spread_b`: how much one launch varies, as all that is known of each box has it; without
    them the priors, with what these launches show. Missing if a side has no block or only one.

    `runs`: the variance of the difference because the sides are two runs; no number of launches lowers it.

    `launch_is_block`: whole programs were timed, one block per launch. Blocks tell nothing of the spread
    then, so one will do.
    """
    side_a, side_b = _prepare(a), _prepare(b)
    for name, side in (("a", side_a), ("b", side_b)):
        if side.blocks < (1 if launch_is_block else 2):
            return Missing(f"{'only 1 block' if side.blocks else 'no block'} in {name}")
    one_a, one_b = side_a.one_launch(spread_a, prior_sd_a), side_b.one_launch(spread_b, prior_sd_b)
    parts = _mean_of_launches(one_a, side_a.launches), _mean_of_launches(one_b, side_b.launches)
    # The difference of the sides' own centers, so that a printed ratio is that of printed speeds.
    center = side_a.centre - side_b.centre
    return _ratio(center, parts, runs, (side_a, side_b), (one_a, one_b), _method(one_a, one_b))


def _ratio(
    center: float,
    parts: Sequence[Spread],
    beyond: Spread,
    sides: tuple[_Side, _Side],
    spreads: tuple[Spread, Spread],
    method: str,
    *,
    paired: bool = False,
) -> RatioEstimate:
    """Around a log ratio, with a variance of these parts and what launches do not average out."""
    a, b = sides
    total = together((*parts, beyond))
    half = t_quantile(0.975, total.df) * math.sqrt(total.variance)
    return RatioEstimate(
        ratio=math.exp(center),
        low=math.exp(center - half),
        high=math.exp(center + half),
        df=total.df,
        run_share=beyond.variance / total.variance if total.variance else 0.0,
        blocks_a=a.timed,
        blocks_b=b.timed,
        independent_blocks_a=a.blocks,
        independent_blocks_b=b.blocks,
        launches_a=a.launches,
        launches_b=b.launches,
        spread_a=spreads[0],
        spread_b=spreads[1],
        runs=beyond,
        method=method,
        autocorrelation=max(a.autocorrelation, b.autocorrelation, key=abs),
        paired=paired,
    )


def launch_scatter(launches: Sequence[Sequence[float]]) -> Spread | Missing:
    """How far the launches of one case in one run lie from each other, by their log times.

    At least what their blocks show. Missing below 2 launches.
    """
    return _prepare(launches).scatter or Missing("fewer than 2 launches")


def log_time(launches: Sequence[Sequence[float]]) -> float | Missing:
    """The mean of the launches' log times; Missing if none has a block."""
    side = _prepare(launches)
    return side.centre if side.launches else Missing("no block")


def compare_pairs(
    launches: Sequence[Sequence[tuple[float, float]]],
    *,
    prior_sd: float,
    spread: Spread | None = None,
    beyond: Spread = ONE_RUN,
) -> RatioEstimate | Missing:
    """How fast B is against A where both did the same in pairs: block by block in the same launches, or
    launch by launch.

    Each launch is a sequence of pairs of A and B, in seconds per unit of work. What a launch does to both
    alike falls out of their ratio. Student's t on the launches' Hodges–Lehmann centres of log ratios.
    `spread`: how much the log ratio varies between launches, as all that is known of the box has it; without
    it `prior_sd`, with what these launches show. `beyond`: of the log ratio, what its launches do not average
    out. Missing below two pairs.
    """
    side = _prepare([[a / b for a, b in launch] for launch in launches])
    if side.blocks < 2:
        return Missing("fewer than 2 pairs of blocks")
    one = side.one_launch(spread, prior_sd)
    parts, spreads = (_mean_of_launches(one, side.launches),), (one, Spread(0.0, math.inf))
    method = f"{_method(one)}, of ratios of paired blocks"
    return _ratio(side.centre, parts, beyond, (side, side), spreads, method, paired=True)


def with_ratio_of_speeds(pairs: RatioEstimate, a: SpeedEstimate, b: SpeedEstimate) -> RatioEstimate:
    """Pairs with the ratio of the sides' own speeds, so that a table is consistent.

    The interval lies around that ratio, and holds the interval of the pairs.
    """
    ratio = b.units_per_s / a.units_per_s
    factor = math.exp(pairs.half_width + abs(math.log(ratio / pairs.ratio)))
    return replace(
        pairs, ratio=ratio, low=ratio / factor, high=ratio * factor, blocks_a=a.blocks, blocks_b=b.blocks
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


def judge(
    estimates: Sequence[Estimate | Missing], band: float = BAND, asked: int | None = None
) -> list[Verdict]:
    """The verdict of each row and mean of one table; a Missing is `not comparable` for its own reason.

    `faster` and `slower` (B against A) need the whole interval beyond the band, which is a fraction and
    reaches from 1/(1 + band) to 1 + band, and Benjamini–Hochberg's consent at 5 % among all rows; `same`
    needs the whole interval inside the band.

    `asked`: the place of the one question that was asked beforehand. It is judged by itself, at 1 %. Any
    other row is sure, which a sentence above the table requires, where Holm's steps consent at 1 % in all.
    """
    known = {
        row: e.p_beyond(band) for row, e in enumerate(estimates) if not isinstance(e, Missing) and not e.doubt
    }
    sure = {row for row, p in known.items() if row == asked and p <= HEADLINE_ERROR_RATE}
    others = {row: p for row, p in known.items() if row != asked}
    sure |= _holm(known, HEADLINE_ERROR_RATE) - {asked}
    in_order = enumerate(sorted(others.values()), start=1)  # Benjamini & Hochberg 1995
    finds = [p for rank, p in in_order if p <= FALSE_DISCOVERY_RATE * rank / len(others)]
    limit = max(finds, default=-1.0)
    verdicts = []
    for row, estimate in enumerate(estimates):
        rate = HEADLINE_ERROR_RATE if row == asked else 0.05
        if isinstance(estimate, Missing):
            verdicts.append(Verdict("not comparable", estimate.reason))
        elif row not in known:
            verdicts.append(Verdict("inconclusive", estimate.doubt, error_rate=rate))
        elif row in sure or (row in others and others[row] <= limit and estimate.is_beyond(band)):
            verdicts.append(Verdict("faster" if estimate.ratio > 1 else "slower", "", row in sure))
        elif estimate.is_within(band):
            verdicts.append(Verdict("same", ""))
        elif not estimate.is_beyond(band):
            verdicts.append(Verdict("inconclusive", _why_inconclusive(estimate, band, rate), error_rate=rate))
        elif row == asked:
            verdicts.append(Verdict("inconclusive", "a main result takes 99 % certainty", error_rate=rate))
        else:
            verdicts.append(Verdict("inconclusive", f"not clear enough among {counted(len(others), 'row')}"))
    return verdicts


def _holm(p_values: Mapping[int, float], error_rate: float) -> set[int]:
    """The rows that are found, with this chance of a single false one among all.

    Holm 1979, https://www.jstor.org/stable/4615733.
    """
    found = set[int]()
    for step, row in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[row] > error_rate / (len(p_values) - step):
            break
        found.add(row)
    return found


def are_slower(estimates: Sequence[Estimate], limit: float, error_rate: float = 0.05) -> list[bool]:
    """Which rows and means of a table are surely slower than `limit`, a ratio below 1.

    The whole interval lies below it, and Holm's steps keep the chance of a single false one in the whole
    table at `error_rate`. Holm 1979, https://www.jstor.org/stable/4615733.
    """
    known = {place: e.p_slower(limit) for place, e in enumerate(estimates) if not e.doubt}
    found = _holm(known, error_rate)
    return [place in found and estimate.high < limit for place, estimate in enumerate(estimates)]


def geometric_mean(estimates: Sequence[RatioEstimate]) -> GeometricMean | Missing:
    """The geometric mean of the ratios of rows that both sides have, each with equal weight.

    Half-widths on the log scale are combined as standard deviations are, with a correlation of 0.5 between
    rows: cases of one run share the box's clocks, heat and neighbours, so independence would be too narrow;
    that they err wholly together is too wide. What runs do to them they do to all together.
    """
    if not estimates:
        return Missing("no row in common")
    estimates = [estimate for estimate in estimates if not estimate.doubt]
    if not estimates:
        return Missing("each row is in doubt")
    count = len(estimates)
    center = math.fsum(math.log(e.ratio) for e in estimates) / count
    half, run_share = _combined([(e.half_width, e.run_share) for e in estimates])
    return GeometricMean(
        ratio=math.exp(center),
        low=math.exp(center - half),
        high=math.exp(center + half),
        df=min(e.df for e in estimates),
        run_share=run_share,
        rows=count,
    )


def launch_centre(block_times: Sequence[float]) -> float:
    """The block time that represents one launch, of one block or more, in their unit."""
    return math.exp(hodges_lehmann([math.log(t) for t in block_times]))


def estimate_speed(
    launches: Sequence[Sequence[float]],
    *,
    prior_sd: float,
    spread: Spread | None = None,
    runs: Spread = ONE_RUN,
) -> SpeedEstimate | Missing:
    """How fast one side is, from the block times of each launch in seconds per unit of work.

    Student's t on the mean of the launches' centres; `spread`, `prior_sd` and `runs` as in
    `compare_launches`.
    """
    side = _prepare(launches)
    if side.blocks == 0:
        return Missing("no block")
    one = side.one_launch(spread, prior_sd)
    total = together((_mean_of_launches(one, side.launches), runs))
    factor = math.exp(t_quantile(0.975, total.df) * math.sqrt(total.variance))
    speed = math.exp(-side.centre)
    return SpeedEstimate(
        units_per_s=speed,
        low=speed / factor,
        high=speed * factor,
        blocks=side.timed,
        independent=side.blocks,
        launches=side.launches,
        method=_method(one),
    )


def _mean_of_launches(one: Spread, launches: int) -> Spread:
    return replace(one, variance=one.variance / launches)


def _method(*sides: Spread) -> str:
    """By what is known of one launch of each side."""
    is_assumed = all(one.df <= ASSUMED_DF for one in sides)
    return "t on launch medians, assumed spread" if is_assumed else "moderated t on launch medians"


def _prepare(launches: Sequence[Sequence[float]]) -> _Side:
    """Cached: a baseline is compared with many others."""
    exact = tuple(tuple(launch) for launch in launches if launch)
    return _prepared(exact) if sum(map(len, exact)) > _MOST_BLOCKS_KEPT else _remembered(exact)


def _prepared(launches: _Launches) -> _Side:
    return _Side(
        timed=sum(map(len, launches)),
        logs=tuple(tuple(map(math.log, merged_until_independent(launch))) for launch in launches),
        locations=tuple(math.log(launch_centre(launch)) for launch in launches),
        autocorrelation=max((lag1_autocorrelation(launch) for launch in launches), key=abs, default=0.0),
    )


_remembered = functools.lru_cache(maxsize=512)(_prepared)


def _why_inconclusive(estimate: Estimate, band: float, error_rate: float) -> str:
    if not isinstance(estimate, RatioEstimate):
        return "the interval is too wide"
    needed = launches_needed(estimate, nearest_edge(estimate, band), error_rate)
    if isinstance(needed, Missing):
        return f"a difference too close to {_percent(band)} to call: {needed.reason}"
    return f"the interval is too wide: needs about {needed} launches a side"


def nearest_edge(estimate: Estimate, band: float = BAND) -> float:
    """The edge of the band 1/(1 + band) to 1 + band on the estimate's side of 1."""
    return 1 + band if estimate.ratio > 1 else 1 / (1 + band)


def launches_needed(estimate: RatioEstimate, limit: float, error_rate: float = 0.05) -> int | Missing:
    """Launches a side after which the interval would be expected not to hold `limit`, a ratio, any more.

    At least LAUNCHES_MEASURED: fewer say too little of where the ratio lies. With that many it is Missing if
    more are needed than anybody should wait for, or if what differs from run to run alone holds the limit.
    """
    distance = abs(math.log(estimate.ratio / limit))
    measured = max(estimate.launches_a, estimate.launches_b)
    least = max(measured + 1, LAUNCHES_MEASURED)
    for launches in range(least, MOST_LAUNCHES + 1):
        if estimate.half_width_with(launches, launches, error_rate) < distance:
            return launches
    if measured < LAUNCHES_MEASURED:
        return LAUNCHES_MEASURED
    if only_runs_help(estimate, limit, error_rate):
        return Missing("runs of one box differ by more than that")
    return Missing(f"it takes more than {MOST_LAUNCHES} launches a side")


def only_runs_help(estimate: RatioEstimate, limit: float, error_rate: float = 0.05) -> bool:
    """Whether no number of launches of these runs would tell the ratio from `limit`, while more runs may.

    Not before LAUNCHES_MEASURED, which show where the ratio lies.
    """
    distance = abs(math.log(estimate.ratio / limit))
    return (
        not estimate.doubt
        and max(estimate.launches_a, estimate.launches_b) >= LAUNCHES_MEASURED
        and estimate.run_share > 0
        and estimate.half_width_with(_ENDLESS, _ENDLESS, error_rate) >= distance
    )


def runs_needed(estimate: RatioEstimate, limit: float, error_rate: float = 0.05) -> int | Missing:
    """How many times the runs of each side, of as many launches, would tell the ratio from `limit`.

    Missing if that is more than anybody should wait for.
    """
    distance = abs(math.log(estimate.ratio / limit))
    error = estimate.half_width / t_quantile(0.975, estimate.df)
    for times in range(2, MOST_RUNS + 1):
        if t_quantile(1 - error_rate / 2, estimate.df + times - 1) * error / math.sqrt(times) < distance:
            return times
    return Missing(f"it takes more than {MOST_RUNS} times the runs")


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
