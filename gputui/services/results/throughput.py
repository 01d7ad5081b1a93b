"""What is known of a case, from its stored blocks: speed, also without waiting for CPUs, cost and energy, and
whether its speed is that of the host.

It is computed once, when a run is loaded. A form that averaged blocks itself would show another speed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from gputui.analysis.cost import Cost, Energy, PoweredLaunch, cost_per_million, energy_per_unit
from gputui.analysis.spread import (
    ASSUMED,
    LATE_LOAD_SD,
    LATE_PART,
    LATE_RUN_SD,
    LOAD_SD,
    OF_WHOLE_PROGRAM,
    PAIRED_LOAD_SD,
    PAIRED_RUN_SHARE,
    SURPRISING,
    UNDISTURBED,
    Waiting,
    assumed_runs,
    effect_of_waiting,
    kind_of_work,
    launch_prior_sd,
    paired_prior_sd,
    run_prior_sd,
    together,
)
from gputui.analysis.statistics import mean
from gputui.analysis.verdict import (
    LAUNCHES_MEASURED,
    RatioEstimate,
    SpeedEstimate,
    compare_launches,
    compare_pairs,
    estimate_speed,
    launch_centre,
    launch_scatter,
    with_ratio_of_speeds,
)
from gputui.facts.tables import is_slice
from gputui.model.absent import Missing, known
from gputui.model.journal import Block, Price
from gputui.model.plan import WHOLE_BOX, Case
from gputui.model.result import CaseResult, Run, Spread, worked_out_once
from gputui.model.telemetry import LaunchPower
from gputui.model.units import format_percent, format_rate
from gputui.services.results.metrics import is_limit, late_by, late_share
from gputui.worker import MIN_BLOCKS
from gputui.worker.steps import STEP_TIMES


def launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """Block times in seconds per unit of work, one tuple per launch that measured the case."""
    units = case.case.units_per_step
    return tuple(tuple([seconds_per_unit(b, units) for b in blocks]) for blocks in measured_blocks(case))


def measured_blocks(case: CaseResult) -> Iterator[Sequence[Block]]:
    """The blocks of each launch that measured the case and was not cut short."""
    least = 1 if case.case.is_whole else MIN_BLOCKS
    for measurement in case.measurements:
        if measurement.outcome == "ok" and len(measurement.blocks) >= least:
            yield measurement.blocks


def seconds_per_unit(block: Block, units: float) -> float:
    """Time of a block by unit of its work; a step holds `units`."""
    return block.block_ns * 1e-9 / (block.steps * units)


def paired_blocks(a: CaseResult, b: CaseResult) -> tuple[tuple[tuple[Block, Block], ...], ...] | Missing:
    """Neighbouring blocks of two cases that were interleaved in the same launches of one run, by launch.

    Missing if the sides were not measured in the same launches, or if their blocks did not alternate: such
    blocks share no conditions.
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
        found.append(tuple(pairs))
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


BY_CLOCK = "rates without an interval are what the box gave"
"""Said where any case is undecidable: its rate has the waiting in it, and its interval is unknown."""
CROWDED_SHARE = 0.05
"""Of the time of its threads: from here a case counts as disturbed. A quiet box shows < 1 %."""


def contention_of(case: CaseResult) -> float:
    """`waited_share` if it is high enough to disturb a case, otherwise 0.

    A GPU's clock does not stop for a busy host, so it is always 0 on a GPU; so it is of loads on a server,
    which wait for that.
    """
    is_told = case.case.variant.device_class == "cpu" or is_recorded(case.case)
    share = waited_share(case) if is_told else 0.0
    return 0.0 if isinstance(share, Missing) or share <= CROWDED_SHARE else share


def is_recorded(case: Case) -> bool:
    """Whether it is the program of a recording."""
    return case.variant.device_class == WHOLE_BOX and not case.is_load


def is_crowded(case: CaseResult) -> bool:
    """Whether CPU contention was high enough to distort the result."""
    return (known(waited_share(case)) or 0.0) > CROWDED_SHARE


@worked_out_once
def waited_share(case: CaseResult) -> float | Missing:
    """Of the time of its threads in all blocks, what they were ready and waited for a CPU; 0 to 1."""
    return _share_of_all([b for m in case.measurements if m.outcome == "ok" for b in m.blocks])


def _share_of_all(blocks: Sequence[Block]) -> float | Missing:
    waits = [(b.waited_ns, b.thread_ns) for b in blocks if b.waited_ns is not None and b.cpu_ns is not None]
    thread_ns = sum(ns for _, ns in waits)
    return sum(ns for ns, _ in waits) / thread_ns if thread_ns else Missing("this system does not report it")


def waited_of(block: Block) -> float | Missing:
    """`waited_share` of one block."""
    return _share_of_all([block])


def is_undecidable(case: CaseResult) -> bool:
    """Whether others had the CPUs for so long that nobody knows how fast the case is without them.

    Its times are then those of the clock.
    """
    return _effect_on(case).is_unknown


def is_by_clock(case: CaseResult) -> bool:
    """Whether its times are those of the clock though it waited: so it is undecidable, or a recording."""
    return _effect_on(case).is_by_clock


def undecidable_reason(case: CaseResult) -> str:
    """Why nothing can be said of it, and what its rate is."""
    had = f"{format_percent(contention_of(case))} of the time for CPUs that others had"
    return f"its threads waited {had}, and its rate is the clock's"


@worked_out_once
def own_launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """`launches_of`, without what others on its CPUs added to each block, if they disturbed the case."""
    effect, units = _effect_on(case), case.case.units_per_step
    if effect is UNDISTURBED:
        return launches_of(case)
    return tuple(tuple([_own_time(b, units, effect) for b in blocks]) for blocks in measured_blocks(case))


def step_times_of(case: CaseResult | None) -> tuple[tuple[float, ...], ...]:
    """The same in seconds per step; none of a load, which lasts as long as it shall."""
    if case is None or not case.case.has_steps:
        return ()
    units = case.case.units_per_step
    return tuple(tuple([seconds * units for seconds in launch]) for launch in own_launches_of(case))


def own_times(case: Case, blocks: Sequence[Block]) -> list[float]:
    """Likewise of the blocks of a launch of which no more is known, in seconds per unit."""
    effect = _effect_on_launch(case, blocks)
    return [_own_time(block, case.units_per_step, effect) for block in blocks]


def is_launch_undecidable(case: Case, blocks: Sequence[Block]) -> bool:
    """`is_undecidable` of such a launch."""
    return _effect_on_launch(case, blocks).is_unknown


def _effect_on_launch(case: Case, blocks: Sequence[Block]) -> Waiting:
    share = _share_of_all(blocks) if case.variant.device_class == "cpu" else 0.0
    if isinstance(share, Missing) or share <= CROWDED_SHARE:
        return UNDISTURBED
    return _effect_on_blocks(case, blocks, share)


def own_paired_launches(
    a: CaseResult, b: CaseResult
) -> tuple[tuple[tuple[float, float], ...], ...] | Missing:
    """`paired_blocks` in the times of `own_launches_of`."""
    launches = paired_blocks(a, b)
    if isinstance(launches, Missing):
        return launches
    of_a, of_b = ((case.case.units_per_step, _effect_on(case)) for case in (a, b))
    return tuple(tuple([(_own_time(x, *of_a), _own_time(y, *of_b)) for x, y in pairs]) for pairs in launches)


@worked_out_once
def own_sd(case: CaseResult) -> float:
    """The standard deviation of the log of those times that all launches share, as waiting is known badly."""
    shares = _shares(case)
    return _effect_on(case).log_sd(shares) if shares else 0.0


def own_ratio_sd(a: CaseResult, b: CaseResult) -> float:
    """Likewise of the log ratio of two cases, with what waiting does to both falling out of it."""
    effect, shares = _effect_on(a), (_shares(a), _shares(b))
    if effect != _effect_on(b) or not all(shares):
        return math.hypot(own_sd(a), own_sd(b))
    return effect.log_sd_of_ratio(*shares)


@worked_out_once
def _effect_on(case: CaseResult) -> Waiting:
    """What waiting for CPUs does to a case."""
    share = contention_of(case)
    if not share:
        return UNDISTURBED
    return _effect_on_blocks(case.case, [b for m in case.measurements for b in m.blocks], share)


def _effect_on_blocks(case: Case, blocks: Sequence[Block], share: float) -> Waiting:
    if is_recorded(case):
        return OF_WHOLE_PROGRAM.at(share)
    threads = sum(block.thread_ns for block in blocks) / sum(block.wall_ns for block in blocks)
    return effect_of_waiting(case.workload_class, threads).at(share)


def _own_time(block: Block, units: float, effect: Waiting) -> float:
    return seconds_per_unit(block, units) * effect.own_share(_share(block))


def _shares(case: CaseResult) -> list[float]:
    return [_share(block) for blocks in measured_blocks(case) for block in blocks]


def _share(block: Block) -> float:
    """`waited_of`; 0 where the system does not tell."""
    return known(waited_of(block)) or 0.0


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

    Where that cannot be known (`is_undecidable`) it is what the box gave, and its interval unknown.
    Every form takes it from here. The interval is of the box: it holds what launches and runs differ by, as
    far as the case carries what its file shows of them (`variation.with_spreads`). Missing with the
    outcome's reason.
    """
    launches = own_launches_of(case)
    if not launches:
        ended = f"{case.outcome}: {case.reason}" if case.reason else case.outcome
        return Missing(_CUT_SHORT if case.outcome == "ok" else ended)
    beyond = together((between_runs(case), Spread(own_sd(case) ** 2, math.inf)))
    return estimate_speed(launches, prior_sd=prior_of(case), spread=case.launch_spread, runs=beyond)


Speeds = Sequence[tuple[CaseResult, SpeedEstimate]]


def speeds_of(run: Run) -> list[tuple[CaseResult, SpeedEstimate]]:
    """The cases of a run that have a speed, in their order."""
    return [(case, speed) for case in run.cases if isinstance(speed := speed_of(case), SpeedEstimate)]


def between_runs(case: CaseResult) -> Spread:
    """Of its log time, what its launches do not average out: what runs or boxes differ by."""
    runs = run_spread_of(case)
    return replace(runs, variance=runs.variance * _share_of_runs(case))


def _share_of_runs(case: CaseResult) -> float:
    """Of the variance between runs, what so many of them do not average out."""
    counts = Counter(m.launch_id // LAUNCH_IDS_OF_A_RUN for m in case.measurements if m.outcome == "ok")
    return math.fsum(count**2 for count in counts.values()) / max(counts.total(), 1) ** 2


def run_spread_of(case: CaseResult) -> Spread:
    """Of one run of this case; more where others had the CPUs of a load's client."""
    spread = case.run_spread or assumed_runs(run_prior_sd(case.case.variant.device_class))
    return replace(spread, variance=spread.variance + LATE_RUN_SD**2) if late_share(case) else spread


def speed_of_launch(case: Case, blocks: Sequence[Block]) -> float:
    """Units of work per second of one launch, as `speed_of` weighs it."""
    return 1 / launch_centre(own_times(case, blocks))


def prior_of(case: CaseResult) -> float:
    """Prior sd of the log time between launches of such a case.

    Whole programs use that of the host, except for what the whole box does, as a load on a server.
    """
    if late_share(case):
        return LATE_LOAD_SD
    if case.case.is_load and not is_limit(case.case):
        return LOAD_SD
    device = case.case.variant.device_class
    is_program = case.case.is_whole and device != WHOLE_BOX
    return launch_prior_sd(device, "host" if is_program else _kind_of(case))


def paired_prior_of(case: CaseResult) -> float:
    """Prior sd of the log ratio of two interleaved cases between launches."""
    return paired_prior_sd(case.case.variant.device_class, _kind_of(case))


def _kind_of(case: CaseResult) -> str:
    of, work = case.case, case.case.work
    return kind_of_work(of.variant.device_class, of.workload_class, work.workload, work.size)


def speed_ratio(
    a: CaseResult, b: CaseResult, *, is_one_run: bool, pair_sd: float = 0.0
) -> RatioEstimate | Missing:
    """How many times as fast as A B is, both measured in the same unit; Missing without an interval.

    Cases that one run interleaved are compared block by block, and loads launch by launch if `pair_sd` says
    what is expected of the log ratio of two that did the same. How much launches and runs vary is else what
    the cases carry, as in `speed_of`.
    """
    pairs: tuple[tuple[tuple[float, float], ...], ...] | Missing = Missing("two runs")
    waiting = Spread(own_ratio_sd(a, b) ** 2, math.inf)
    spread, beyond = dict(a.pair_spreads).get(b.case_id), waiting
    if is_one_run:
        pairs = own_paired_launches(a, b)
    elif pair_sd:
        pairs = loads_in_pairs(a, b)
        spread = _between_pairs(a, b, pair_sd)
        beyond = _between_paired_runs(a, b, spread)
    speed_a, speed_b = speed_of(a), speed_of(b)
    if not (isinstance(pairs, Missing) or isinstance(speed_a, Missing) or isinstance(speed_b, Missing)):
        prior_sd = max(paired_prior_of(a), paired_prior_of(b))
        found = compare_pairs(pairs, prior_sd=prior_sd, spread=spread, beyond=beyond)
        return found if isinstance(found, Missing) else with_ratio_of_speeds(found, speed_a, speed_b)
    runs = () if is_one_run else (between_runs(a), between_runs(b))
    return compare_launches(
        own_launches_of(a),
        own_launches_of(b),
        prior_sd_a=prior_of(a),
        prior_sd_b=prior_of(b),
        launch_is_block=a.case.is_whole,
        spread_a=a.launch_spread,
        spread_b=b.launch_spread,
        runs=together((*runs, waiting)),
    )


def loads_in_pairs(a: CaseResult, b: CaseResult) -> tuple[tuple[tuple[float, float], ...], ...] | Missing:
    """The launches of one load in two runs with one seed, in pairs: both got the same requests at the same
    instants, or from as many users. In seconds per unit of work.

    Missing for other cases, and where fewer launches than measure a spread have a partner.
    """
    if not a.case.is_load or is_limit(a.case):
        return Missing("they are not loads with the same arrivals")
    of_a, of_b = (
        {
            (m.launch_id // LAUNCH_IDS_OF_A_RUN, m.replicate): seconds_per_unit(m.blocks[0], 1.0)
            for m in case.measurements
            if m.outcome == "ok" and m.blocks
        }
        for case in (a, b)
    )
    common = sorted(of_a.keys() & of_b.keys())
    if len(common) < LAUNCHES_MEASURED:
        return Missing("too few launches have a partner")
    return tuple(((of_a[place], of_b[place]),) for place in common)


def typical_pair_sd(pairs: Iterable[tuple[CaseResult, CaseResult]]) -> float:
    """Of the log ratio between launches of loads in pairs, the median of these; at least the table's."""
    found = [_pair_scatter(a, b) for a, b in pairs]
    seen = [math.sqrt(scatter.variance) for scatter in found if scatter is not None]
    return max(median(seen), PAIRED_LOAD_SD) if seen else PAIRED_LOAD_SD


def _pair_scatter(a: CaseResult, b: CaseResult) -> Spread | None:
    pairs = loads_in_pairs(a, b)
    if isinstance(pairs, Missing):
        return None
    return known(launch_scatter([[x / y for x, y in launch] for launch in pairs]))


def _between_pairs(a: CaseResult, b: CaseResult, pair_sd: float) -> Spread:
    """Of the log ratio of one pair of launches: at least what these show, and what others lead to expect
    unless these differ by far more."""
    seen = _pair_scatter(a, b)
    expected = ASSUMED.of_row(seen, pair_sd)
    if seen is None:
        return expected
    if seen.variance > SURPRISING * pair_sd**2:
        return replace(seen, source="pairs")
    return replace(expected, variance=max(expected.variance, seen.variance))


def _between_paired_runs(a: CaseResult, b: CaseResult, pair: Spread) -> Spread:
    """Of their log ratio, what the launches of these runs do not average out."""
    runs = replace(pair, variance=pair.variance * PAIRED_RUN_SHARE * _share_of_runs(a))
    late = math.fsum((LATE_PART * late_by(one)) ** 2 for one in (a, b))
    return together((runs, Spread(late, math.inf)))


def cost_of(case: CaseResult, price: Price | Missing) -> Cost | Missing:
    """The cost of a million units of work on a box of this price."""
    if case.case.is_time:
        return Missing("a time has no cost")
    if is_host_bound(case):
        return Missing(NOT_OF_GPU)
    speed, gpus = speed_of(case), devices_of(case.case)
    return cost_per_million(speed, case.case.unit, price, case.case.variant.device_class, gpus)


def energy_of(case: CaseResult, powers: Sequence[LaunchPower] | Missing) -> Energy | Missing:
    """Joules per unit on the GPU of a case; Missing where its power is not known to be its own."""
    if case.case.variant.device_class != "gpu":
        return Missing("power is read from GPUs only")
    if devices_of(case.case) > 1:
        return Missing("it used several GPUs")
    if is_slice(case.device_name):
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


HOST_BOUND = "host-bound"
LIFTS = "A larger batch, torch.compile or a CUDA graph may lift that; the rule is not yet tried on a GPU"
NOT_OF_GPU = f"{HOST_BOUND}: the rate is not the GPU's"
BUSY_SHARE = 0.9
"""A GPU that needs less of a step waits for its host. A queue that never runs empty keeps it busier."""
STEP_KEYS = tuple(figure.key for figure in STEP_TIMES)


@worked_out_once
def is_host_bound(case: CaseResult) -> bool:
    """Whether even the fastest block of a launch leaves the GPU idle, as enqueuing its steps takes longer.

    By the median launch. False where host and device time were not measured, and of work that is the host's.
    """
    launches = list(_step_times_s(case))
    if not launches or case.case.workload_class == "host":
        return False
    busy = median(device_s / min(steps_s) for device_s, _, steps_s in launches)
    return busy < BUSY_SHARE and median(host_s - device_s for device_s, host_s, _ in launches) > 0


@worked_out_once
def busy_share(case: CaseResult) -> float | Missing:
    """Of a step as it was timed, what the GPU needs for it; at most 1."""
    shares = [device_s / median(steps_s) for device_s, _, steps_s in _step_times_s(case)]
    return min(median(shares), 1.0) if shares else Missing("host and device time of a step are not known")


def busy_words(case: CaseResult) -> str:
    """`GPU busy 37 %` of a case that is host-bound; empty for others."""
    share = busy_share(case) if is_host_bound(case) else Missing("it is not")
    return "" if isinstance(share, Missing) else f"GPU busy {format_percent(share)}"


def _step_times_s(case: CaseResult) -> Iterator[tuple[float, float, list[float]]]:
    """Of each launch that has them, device and host time of a step, and a step's time in each block."""
    for one in case.measurements:
        found = {figure.key: figure.value for figure in one.figures}
        device_s, host_s = (found.get(key, Missing("not measured")) for key in STEP_KEYS)
        if one.outcome == "ok" and one.blocks and isinstance(device_s, float) and isinstance(host_s, float):
            yield device_s, host_s, [block.block_ns * 1e-9 / block.steps for block in one.blocks]
