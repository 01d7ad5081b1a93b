"""What is known of a case, from its stored blocks: its speed, what a unit of its work costs, its energy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from gputui.analysis.cost import Cost, cost_per_million
from gputui.analysis.energy import Energy, PoweredLaunch, energy_per_unit
from gputui.analysis.priors import (
    LATE_LOAD_SD,
    LATE_RUN_SD,
    kind_of_work,
    launch_prior_sd,
    paired_prior_sd,
    run_prior_sd,
)
from gputui.analysis.spread import assumed_runs, together
from gputui.analysis.statistics import mean
from gputui.analysis.verdict import (
    RatioEstimate,
    SpeedEstimate,
    compare_launches,
    compare_pairs,
    estimate_speed,
    launch_centre,
    with_ratio_of_speeds,
)
from gputui.model.absent import Missing
from gputui.model.journal import Block, Price
from gputui.model.plan import WHOLE_BOX, Case
from gputui.model.result import CaseResult, Run, Spread, worked_out_once
from gputui.model.telemetry import LaunchPower
from gputui.model.units import format_rate
from gputui.services.results.load_times import late_share
from gputui.services.results.waiting import (
    launches_of,
    measured_blocks,
    own_launches_of,
    own_paired_launches,
    own_ratio_sd,
    own_sd,
    own_times,
    seconds_per_unit,
)
from gputui.worker import MIN_BLOCKS

PowerOf = Callable[[str, int], Sequence[LaunchPower] | Missing]
"""By run and case."""
LAUNCH_IDS_OF_A_RUN = 2**32
"""Keeps the launches of several runs apart where they were pooled."""
GAVE, HELD_BY_OTHERS = "the box gave", "other programs held its CPUs"
"""What a rate of the clock is called, beside one without the waiting or alone, and why they differ."""
TOLD_FACTOR = 1.5
"""A rate that is more than so many times what the clock saw never stands alone."""
_CUT_SHORT = f"every launch was cut short: none has {MIN_BLOCKS} blocks"


def rate_of(case: CaseResult, *, by_clock: bool = False) -> float | Missing:
    """Units of work per second as `speed_of` gives them, without an interval.

    `by_clock`: what the box gave, with the waiting for CPUs that others held.
    """
    launches = launches_of(case) if by_clock else own_launches_of(case)
    return _rate(launches) if launches else Missing(_CUT_SHORT)


def _rate(launches: Sequence[Sequence[float]]) -> float:
    return math.exp(-mean([math.log(launch_centre(launch)) for launch in launches]))


def gave_text(case: CaseResult) -> str:
    """What the box gave, as `195 tok/s`, where its rate is more than TOLD_FACTOR times that; else empty."""
    return _gave(case.case, own_launches_of(case), launches_of(case))


def gave_of_launch(case: Case, blocks: Sequence[Block]) -> str:
    """`gave_text` of one launch."""
    by_clock = [seconds_per_unit(block, case.units_per_step) for block in blocks]
    return _gave(case, [own_times(case, blocks)], [by_clock])


def _gave(case: Case, own: Sequence[Sequence[float]], by_clock: Sequence[Sequence[float]]) -> str:
    is_told = own != by_clock and _rate(own) > TOLD_FACTOR * _rate(by_clock)
    return format_rate(_rate(by_clock), case.unit) if is_told else ""


def told_rate(rate: str, gave: str, *, is_by_clock: bool = False) -> str:
    """`3.9k tok/s, the box gave 195 tok/s: other programs held its CPUs`, where `gave_text` is not empty.

    `is_by_clock`: the rate itself is what the box gave, and nobody knows how fast it would be alone.
    """
    if is_by_clock:
        return f"{GAVE} {rate}: {HELD_BY_OTHERS}"
    return f"{rate}, {GAVE} {gave}: {HELD_BY_OTHERS}" if gave else rate


@worked_out_once
def speed_of(case: CaseResult) -> SpeedEstimate | Missing:
    """Units of work per second with its 95 % interval, without what others on its CPUs cost it.

    Where that cannot be known (`waiting.is_undecidable`) it is what the box gave, and its interval unknown.
    Every form takes it from here. The interval is of the box: it holds what launches and runs differ by, as
    far as the case carries what its file shows of them (`variation.with_spreads`). That of a reference is of
    the typical box. Missing with the outcome's reason.
    """
    launches = own_launches_of(case)
    if not launches:
        ended = f"{case.outcome}: {case.reason}" if case.reason else case.outcome
        return Missing(_CUT_SHORT if case.outcome == "ok" else ended)
    if case.between_boxes is not None:
        return estimate_speed(launches, prior_sd=prior_of(case), spread=case.launch_spread)
    beyond = together((between_runs(case), Spread(own_sd(case) ** 2, math.inf)))
    return estimate_speed(launches, prior_sd=prior_of(case), spread=case.launch_spread, runs=beyond)


Speeds = Sequence[tuple[CaseResult, SpeedEstimate]]


def speeds_of(run: Run) -> list[tuple[CaseResult, SpeedEstimate]]:
    """The cases of a run that have a speed, in their order."""
    return [(case, speed) for case in run.cases if isinstance(speed := speed_of(case), SpeedEstimate)]


def between_runs(case: CaseResult) -> Spread:
    """Of its log time, what its launches do not average out: what runs or boxes differ by."""
    if case.between_boxes is not None:
        return case.between_boxes
    runs, counts = run_spread_of(case), launches_by_run(case)
    share = math.fsum(count**2 for count in counts.values()) / max(counts.total(), 1) ** 2
    return replace(runs, variance=runs.variance * share)


def run_spread_of(case: CaseResult) -> Spread:
    """Of one run of this case; more where others had the CPUs of a load's client."""
    spread = case.run_spread or assumed_runs(run_prior_sd(case.case.variant.device_class))
    return replace(spread, variance=spread.variance + LATE_RUN_SD**2) if late_share(case) else spread


def launches_by_run(case: CaseResult) -> Counter[int]:
    """How many launches each run measured it in; of several where they were pooled."""
    return Counter(m.launch_id // LAUNCH_IDS_OF_A_RUN for m in case.measurements if m.outcome == "ok")


def speed_of_launch(case: Case, blocks: Sequence[Block]) -> float:
    """Units of work per second of one launch, as `speed_of` weighs it."""
    return 1 / launch_centre(own_times(case, blocks))


def prior_of(case: CaseResult) -> float:
    """Prior sd of the log time between launches of such a case.

    Whole programs use that of the host, except for what the whole box does, as a load on a server.
    """
    if late_share(case):
        return LATE_LOAD_SD
    device = case.case.variant.device_class
    is_program = case.case.is_whole and device != WHOLE_BOX
    return launch_prior_sd(device, "host" if is_program else _kind_of(case))


def paired_prior_of(case: CaseResult) -> float:
    """Prior sd of the log ratio of two interleaved cases between launches."""
    return paired_prior_sd(case.case.variant.device_class, _kind_of(case))


def _kind_of(case: CaseResult) -> str:
    of, work = case.case, case.case.work
    return kind_of_work(of.variant.device_class, of.workload_class, work.workload, work.size)


def speed_ratio(a: CaseResult, b: CaseResult, *, is_one_run: bool) -> RatioEstimate | Missing:
    """How many times as fast as A B is, both measured in the same unit; Missing without an interval.

    Cases that one run interleaved are compared block by block. How much launches and runs vary is what the
    cases carry, as in `speed_of`.
    """
    pairs = own_paired_launches(a, b) if is_one_run else Missing("two runs")
    speed_a, speed_b, waiting_sd = speed_of(a), speed_of(b), own_ratio_sd(a, b)
    if not (isinstance(pairs, Missing) or isinstance(speed_a, Missing) or isinstance(speed_b, Missing)):
        found = compare_pairs(
            pairs,
            prior_sd=max(paired_prior_of(a), paired_prior_of(b)),
            spread=dict(a.pair_spreads).get(b.case_id),
            waiting_sd=waiting_sd,
        )
        return found if isinstance(found, Missing) else with_ratio_of_speeds(found, speed_a, speed_b)
    runs = () if is_one_run else (between_runs(a), between_runs(b))
    return compare_launches(
        own_launches_of(a),
        own_launches_of(b),
        prior_sd_a=prior_of(a),
        prior_sd_b=prior_of(b),
        launch_is_block=a.case.is_whole,
        spread_a=_between_launches(a),
        spread_b=_between_launches(b),
        runs=together((*runs, Spread(waiting_sd**2, math.inf))),
    )


def _between_launches(case: CaseResult) -> Spread | None:
    """What adds to the spread between runs, or between boxes of a reference, which has no launches."""
    return Spread(0.0, math.inf) if case.between_boxes is not None else case.launch_spread


def cost_of(case: CaseResult, price: Price | Missing) -> Cost | Missing:
    """The cost of a million units of work on a box of this price."""
    if case.case.is_time:
        return Missing("a time has no cost")
    speed, gpus = speed_of(case), devices_of(case.case)
    return cost_per_million(speed, case.case.unit, price, case.case.variant.device_class, gpus)


def energy_of(case: CaseResult, powers: Sequence[LaunchPower] | Missing) -> Energy | Missing:
    """Joules per unit on the GPU of a case; Missing where its power is not known to be its own."""
    if case.case.variant.device_class != "gpu":
        return Missing("power is read from GPUs only")
    if devices_of(case.case) > 1:
        return Missing("it used several GPUs")
    if " MIG " in case.device_name:
        return Missing("drivers do not report power per GPU slice")
    if isinstance(powers, Missing):
        return powers
    by_launch = {power.launch_id: power for power in powers}
    launches = []
    for blocks in measured_blocks(case):
        power = by_launch.get(blocks[0].launch_id)
        if power is not None:
            wall_s = sum(block.wall_ns for block in blocks) * 1e-9
            units = sum(block.steps for block in blocks) * case.case.units_per_step
            launches.append(PoweredLaunch(power.mean_w, power.samples, wall_s / units, wall_s))
    return energy_per_unit(launches)


def devices_of(case: Case) -> int:
    """How many GPUs a case runs on at once; 1 on a CPU.

    Only `ddp` runs on several. A user's own step may use a parameter of that name for anything.
    """
    ranks = dict(case.work.parameters).get("ranks", 1) if case.work.workload == "ddp" else 1
    return max(1, ranks) if isinstance(ranks, int) and case.variant.device_class == "gpu" else 1
