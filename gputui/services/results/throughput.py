"""From stored blocks to a speed: what every table is made of."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.cost import Cost, cost_per_million
from gputui.analysis.priors import launch_prior_sd, paired_prior_sd
from gputui.analysis.verdict import SpeedEstimate, estimate_speed, launch_centre
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import Block, Price
from gputui.model.plan import MIN_BLOCKS
from gputui.model.result import CaseResult

CROWDED_SHARE = 0.05
"""Of the time its threads wanted a CPU: from here a case counts as disturbed. A quiet box shows < 1 %."""


def launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """Block times in seconds per unit of work, one tuple per launch that measured the case."""
    units = case.case.units_per_step
    return tuple(
        tuple([block.block_ns * 1e-9 / (block.steps * units) for block in measurement.blocks])
        for measurement in case.measurements
        if measurement.outcome == "ok"
        and len(measurement.blocks) >= (1 if case.case.is_whole else MIN_BLOCKS)
    )


def paired_launches(a: CaseResult, b: CaseResult) -> tuple[tuple[tuple[float, float], ...], ...] | Missing:
    """Neighbouring blocks of two cases that were interleaved in the same launches of one run.

    In seconds per unit of work, one tuple per launch. Missing where both sides have launches of their own,
    or where their blocks come one after the other: such blocks share no moment.
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
    """Each block of A with one of B that comes right before or after it, none twice; in the order of time."""
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


def speed_of(case: CaseResult) -> SpeedEstimate | Missing:
    """Units of work per second with its 95 % interval; Missing with the outcome's reason."""
    launches = launches_of(case)
    if not launches and case.outcome == "ok":
        return Missing(f"every launch was cut short: none has {MIN_BLOCKS} blocks")
    if not launches:
        return Missing(f"{case.outcome}: {case.reason}" if case.reason else case.outcome)
    return estimate_speed(launches, prior_sd=prior_of(case), waited=contention_of(case))


def speed_of_launch(case: Case, blocks: Sequence[Block]) -> float:
    """Units of work per second by blocks of one launch: what it counts for in `speed_of`."""
    return 1 / launch_centre([_seconds(block, case.units_per_step) for block in blocks])


def waited_share(case: CaseResult) -> float | Missing:
    """Share of the time its threads wanted a CPU in which others had it, over all blocks; 0 to 1."""
    waited_ns = wanted_ns = 0
    for measurement in case.measurements:
        for block in measurement.blocks if measurement.outcome == "ok" else ():
            if block.waited_ns is not None and block.cpu_ns is not None:
                waited_ns += block.waited_ns
                wanted_ns += block.waited_ns + block.cpu_ns
    return waited_ns / wanted_ns if wanted_ns else Missing("this system does not tell")


def waited_of(block: Block) -> float | Missing:
    """The same of one block."""
    if block.waited_ns is None or block.cpu_ns is None:
        return Missing("this system does not tell")
    wanted_ns = block.waited_ns + block.cpu_ns
    return block.waited_ns / wanted_ns if wanted_ns else 0.0


def is_crowded(case: CaseResult) -> bool:
    """Whether others held the CPUs so long that the figure is theirs as much as the box's."""
    share = waited_share(case)
    return not isinstance(share, Missing) and share > CROWDED_SHARE


def contention_of(case: CaseResult) -> float:
    """Share of the time in which others held the CPUs of a case, where that is enough to disturb it; else 0.

    A GPU's clock does not stop for a busy host, so cases on a GPU have none.
    """
    share = waited_share(case) if case.case.variant.device_class == "cpu" else 0.0
    return 0.0 if isinstance(share, Missing) or share <= CROWDED_SHARE else share


def prior_of(case: CaseResult) -> float:
    """How much launches of such a case vary, as sd of the log time; that of a whole program is the host's."""
    workload_class = "host" if case.case.is_whole else case.case.workload_class
    return launch_prior_sd(case.case.variant.device_class, workload_class, contention_of(case))


def paired_prior_of(case: CaseResult) -> float:
    """How much the ratio of two interleaved cases varies between launches, as sd of its log."""
    return paired_prior_sd(case.case.variant.device_class, case.case.workload_class)


def cost_of(case: CaseResult, price: Price | Missing) -> Cost | Missing:
    """What a million units of its work cost on a box of this price."""
    gpus = devices_of(case.case)
    return cost_per_million(speed_of(case), case.case.unit, price, case.case.variant.device_class, gpus)


def devices_of(case: Case) -> int:
    """How many GPUs a case runs on at once; 1 on a CPU, which all of its processes share.

    Only `ddp` runs on several. A parameter of that name in a user's own step means what its author likes.
    """
    ranks = dict(case.work.parameters).get("ranks", 1) if case.work.workload == "ddp" else 1
    return max(1, ranks) if isinstance(ranks, int) and case.variant.device_class == "gpu" else 1
