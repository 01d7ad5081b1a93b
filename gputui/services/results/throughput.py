"""From stored blocks to speeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputui.analysis.cost import Cost, cost_per_million
from gputui.analysis.priors import LATE_LOAD_SD, launch_prior_sd, paired_prior_sd
from gputui.analysis.spread import together
from gputui.analysis.statistics import mean
from gputui.analysis.verdict import (
    ONE_RUN,
    RatioEstimate,
    SpeedEstimate,
    compare_launches,
    compare_pairs,
    estimate_speed,
    launch_centre,
    with_ratio_of_speeds,
)
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import Block, Price
from gputui.model.plan import MIN_BLOCKS
from gputui.model.result import CaseResult, Spread
from gputui.model.units import TIME_UNIT
from gputui.services.results.block_times import fewest_blocks, launches_of, seconds_per_unit
from gputui.services.results.load_times import is_load, late_share
from gputui.services.results.waiting import contention_of, own_launches_of, own_paired_launches, own_sd
from gputui.store.reading import CaseTimes

_CUT_SHORT = f"every launch was cut short: none has {MIN_BLOCKS} blocks"


def rate_of(times: CaseTimes) -> float | Missing:
    """Units of work per second as `speed_of` gives them, without an interval."""
    least = fewest_blocks(times.case)
    centres = [
        math.log(launch_centre([ns / steps for ns, steps in zip(one.block_ns, one.steps, strict=True)]))
        for one in times.launches
        if len(one.steps) >= least
    ]
    if not centres:
        return Missing(_CUT_SHORT)
    return times.case.units_per_step * 1e9 * math.exp(-mean(centres))


def speed_of(case: CaseResult, spread: Spread | None = None) -> SpeedEstimate | Missing:
    """Units of work per second with its 95 % interval; Missing with the outcome's reason.

    `spread`: of one launch, if other rows of the box show it; without it the one that the case holds.
    """
    spread = spread or case.launch_spread
    launches = launches_of(case)
    if not launches and case.outcome == "ok":
        return Missing(_CUT_SHORT)
    if not launches:
        return Missing(f"{case.outcome}: {case.reason}" if case.reason else case.outcome)
    own = own_launches_of(case) if contention_of(case) else None
    return estimate_speed(launches, prior_sd=prior_of(case), own=own, spread=spread)


def speed_of_launch(case: Case, blocks: Sequence[Block]) -> float:
    """Units of work per second of one launch, as `speed_of` weighs it."""
    return 1 / launch_centre([seconds_per_unit(block, case.units_per_step) for block in blocks])


def prior_of(case: CaseResult) -> float:
    """Prior sd of the log time between launches of such a case.

    Whole programs use that of the host, except for loads on a server, which are inference by the whole box.
    """
    if late_share(case):
        return LATE_LOAD_SD
    device, workload_class = case.case.variant.device_class, case.case.workload_class
    is_program = case.case.is_whole and not is_load(case.case)
    return launch_prior_sd(device, "host" if is_program else workload_class)


def paired_prior_of(case: CaseResult) -> float:
    """Prior sd of the log ratio of two interleaved cases between launches."""
    return paired_prior_sd(case.case.variant.device_class, case.case.workload_class)


def speed_ratio(
    a: CaseResult,
    b: CaseResult,
    *,
    is_one_run: bool,
    spreads: tuple[Spread | None, Spread | None] = (None, None),
    paired: Spread | None = None,
    runs: Spread = ONE_RUN,
) -> RatioEstimate | Missing:
    """How many times as fast as A B is, both measured in the same unit; Missing without an interval.

    Cases that one run interleaved are compared block by block. CPU contention widens the interval, except of
    such pairs, which share it. `spreads` of one launch on each side and `runs` between them: see
    `compare_launches`; `paired`: of the log ratio of such pairs in one launch, see `compare_pairs`.
    """
    pairs = own_paired_launches(a, b) if is_one_run else Missing("two runs")
    speed_a, speed_b = speed_of(a), speed_of(b)
    if not (isinstance(pairs, Missing) or isinstance(speed_a, Missing) or isinstance(speed_b, Missing)):
        prior_sd = max(paired_prior_of(a), paired_prior_of(b))
        found = compare_pairs(pairs, prior_sd=prior_sd, spread=paired)
        return found if isinstance(found, Missing) else with_ratio_of_speeds(found, speed_a, speed_b)
    if contention_of(a) or contention_of(b):
        runs = together((runs, Spread(own_sd(a) ** 2 + own_sd(b) ** 2, math.inf)))
    return compare_launches(
        own_launches_of(a),
        own_launches_of(b),
        prior_sd_a=prior_of(a),
        prior_sd_b=prior_of(b),
        launch_is_block=a.case.is_whole,
        spread_a=spreads[0],
        spread_b=spreads[1],
        runs=runs,
    )


def cost_of(case: CaseResult, price: Price | Missing, spread: Spread | None = None) -> Cost | Missing:
    """The cost of a million units of work on a box of this price; `spread` as in `speed_of`."""
    if case.case.unit == TIME_UNIT:
        return Missing("a time has no cost")
    speed, gpus = speed_of(case, spread), devices_of(case.case)
    return cost_per_million(speed, case.case.unit, price, case.case.variant.device_class, gpus)


def devices_of(case: Case) -> int:
    """How many GPUs a case runs on at once; 1 on a CPU.

    Only `ddp` runs on several. A user's own step may use a parameter of that name for anything.
    """
    ranks = dict(case.work.parameters).get("ranks", 1) if case.work.workload == "ddp" else 1
    return max(1, ranks) if isinstance(ranks, int) and case.variant.device_class == "gpu" else 1
