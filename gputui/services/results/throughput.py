"""From stored blocks to speeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gputui.analysis.contention import Waiting, effect_of_waiting
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
    log_time,
    widened_by_contention,
    with_ratio_of_speeds,
)
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import Block, Price
from gputui.model.plan import MIN_BLOCKS
from gputui.model.result import CaseResult, Spread
from gputui.model.units import TIME_UNIT
from gputui.services.results.load_times import is_load, late_share
from gputui.store.reading import CaseTimes

CROWDED_SHARE = 0.05
"""Of the time its threads wanted a CPU: from here a case counts as disturbed. A quiet box shows < 1 %."""


_CUT_SHORT = f"every launch was cut short: none has {MIN_BLOCKS} blocks"


def launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """Block times in seconds per unit of work, one tuple per launch that measured the case."""
    units = case.case.units_per_step
    return tuple(tuple([_seconds(block, units) for block in blocks]) for blocks in _measured_blocks(case))


def own_launches_of(case: CaseResult, waiting: Waiting) -> tuple[tuple[float, ...], ...]:
    """`launches_of`, without what others on its CPUs added to each block, if they disturbed the case."""
    if not contention_of(case):
        return launches_of(case)
    return tuple(
        tuple([time * waiting.own_share(waited) for time, waited in launch])
        for launch in _waited_launches(case)
    )


def rate_of(times: CaseTimes) -> float | Missing:
    """Units of work per second as `speed_of` gives them, without an interval."""
    least = _fewest_blocks(times.case)
    centres = [
        math.log(launch_centre([ns / steps for ns, steps in zip(one.block_ns, one.steps, strict=True)]))
        for one in times.launches
        if len(one.steps) >= least
    ]
    if not centres:
        return Missing(_CUT_SHORT)
    return times.case.units_per_step * 1e9 * math.exp(-mean(centres))


def waiting_of(*cases: CaseResult) -> Waiting:
    """What waiting for CPUs did to cases of the same work, as the blocks of disturbed ones show."""
    threads = 1 if all(case.case.variant.threads == "1" for case in cases) else 2
    disturbed = [case for case in cases if contention_of(case)]
    return effect_of_waiting([one for case in disturbed for one in _waited_launches(case)], threads=threads)


def _waited_launches(case: CaseResult) -> Iterator[list[tuple[float, float]]]:
    """The blocks of each launch with the share that they waited, 0 where the system does not tell."""
    units = case.case.units_per_step
    for blocks in _measured_blocks(case):
        shares = [(block, waited_of(block)) for block in blocks]
        yield [(_seconds(b, units), 0.0 if isinstance(share, Missing) else share) for b, share in shares]


def _measured_blocks(case: CaseResult) -> Iterator[Sequence[Block]]:
    least = _fewest_blocks(case.case)
    for measurement in case.measurements:
        if measurement.outcome == "ok" and len(measurement.blocks) >= least:
            yield measurement.blocks


def _fewest_blocks(case: Case) -> int:
    return 1 if case.is_whole else MIN_BLOCKS


def paired_launches(a: CaseResult, b: CaseResult) -> tuple[tuple[tuple[float, float], ...], ...] | Missing:
    """Neighbouring blocks of two cases that were interleaved in the same launches of one run.

    In seconds per unit of work, one tuple per launch. Missing if the sides were not measured in
    the same launches, or if their blocks did not alternate: such blocks share no conditions.
    """
    by_launch = [
        {m.launch_id: m for m in case.measurements if m.outcome == "ok" and len(m.blocks) >= MIN_BLOCKS}
        for case in (a, b)
    ]
    common = by_launch[0].keys() & by_launch[1].keys()
    if not common or len(common) < min(map(len, by_launch)):
        return Missing("they were not measured in the same launches")
    found = []
    for launch_id in sorted(common):
        pairs = _neighbours(*(mine[launch_id].blocks for mine in by_launch))
        if len(pairs) < MIN_BLOCKS:
            return Missing("their blocks did not alternate")
        units = a.case.units_per_step, b.case.units_per_step
        found.append(tuple((_seconds(x, units[0]), _seconds(y, units[1])) for x, y in pairs))
    return tuple(found)


def _neighbours(a: Sequence[Block], b: Sequence[Block]) -> list[tuple[Block, Block]]:
    """Each block of A with an adjacent one of B, none used twice; in time order."""
    ordered = sorted(
        [(block.start_ns, 0, block) for block in a] + [(block.start_ns, 1, block) for block in b],
        key=lambda entry: entry[:2],
    )
    pairs = []
    index = 0
    while index + 1 < len(ordered):
        (start_ns, side, block), (next_ns, next_side, following) = ordered[index], ordered[index + 1]
        if side != next_side and next_ns >= start_ns + block.wall_ns:
            pairs.append((block, following) if side == 0 else (following, block))
            index += 2
        else:
            index += 1
    return pairs


def _seconds(block: Block, units: float) -> float:
    return block.block_ns * 1e-9 / (block.steps * units)


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
    own = own_launches_of(case, waiting_of(case)) if contention_of(case) else None
    return estimate_speed(launches, prior_sd=prior_of(case), own=own, spread=spread)


def speed_of_launch(case: Case, blocks: Sequence[Block]) -> float:
    """Units of work per second of one launch, as `speed_of` weighs it."""
    return 1 / launch_centre([_seconds(block, case.units_per_step) for block in blocks])


def waited_share(case: CaseResult) -> float | Missing:
    """Share of the time in which threads were ready but waited for a CPU, over all blocks; 0 to 1."""
    waited_ns = wanted_ns = 0
    for measurement in case.measurements:
        for block in measurement.blocks if measurement.outcome == "ok" else ():
            if block.waited_ns is not None and block.cpu_ns is not None:
                waited_ns += block.waited_ns
                wanted_ns += block.waited_ns + block.cpu_ns
    return waited_ns / wanted_ns if wanted_ns else Missing("this system does not report it")


def waited_of(block: Block) -> float | Missing:
    """`waited_share` of one block."""
    if block.waited_ns is None or block.cpu_ns is None:
        return Missing("this system does not report it")
    wanted_ns = block.waited_ns + block.cpu_ns
    return block.waited_ns / wanted_ns if wanted_ns else 0.0


def is_crowded(case: CaseResult) -> bool:
    """Whether CPU contention was high enough to distort the result."""
    share = waited_share(case)
    return not isinstance(share, Missing) and share > CROWDED_SHARE


def contention_of(case: CaseResult) -> float:
    """`waited_share` if it is high enough to disturb a case, otherwise 0.

    A GPU's clock does not stop for a busy host, so it is always 0 on a GPU.
    """
    share = waited_share(case) if case.case.variant.device_class == "cpu" else 0.0
    return 0.0 if isinstance(share, Missing) or share <= CROWDED_SHARE else share


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
    pairs = paired_launches(a, b) if is_one_run else Missing("two runs")
    speed_a, speed_b = speed_of(a), speed_of(b)
    if not (isinstance(pairs, Missing) or isinstance(speed_a, Missing) or isinstance(speed_b, Missing)):
        prior_sd = max(paired_prior_of(a), paired_prior_of(b))
        found = compare_pairs(pairs, prior_sd=prior_sd, spread=paired)
        return found if isinstance(found, Missing) else with_ratio_of_speeds(found, speed_a, speed_b)
    waited_a, waited_b = contention_of(a), contention_of(b)
    waiting = waiting_of(a, b)
    if waited_a or waited_b:
        runs = together((runs, Spread(waiting.log_sd(waited_a, waited_b) ** 2, math.inf)))
    estimate = compare_launches(
        own_launches_of(a, waiting),
        own_launches_of(b, waiting),
        prior_sd_a=prior_of(a),
        prior_sd_b=prior_of(b),
        launch_is_block=a.case.is_whole,
        spread_a=spreads[0],
        spread_b=spreads[1],
        runs=runs,
    )
    if isinstance(estimate, Missing) or not (waited_a or waited_b):
        return estimate
    times = [log_time(launches_of(side), prior_sd=prior_of(side)) for side in (a, b)]
    if isinstance(times[0], Missing) or isinstance(times[1], Missing):
        return estimate
    return widened_by_contention(estimate, math.exp(times[0] - times[1]))


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
