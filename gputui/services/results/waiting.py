"""The times of a case by unit of its work, and what they would be without waiting for CPUs of others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gputui.analysis.contention import UNDISTURBED, Waiting, effect_of_waiting
from gputui.model.absent import Missing
from gputui.model.journal import Block
from gputui.model.plan import Case
from gputui.model.result import CaseResult, worked_out_once
from gputui.model.units import format_percent
from gputui.worker import MIN_BLOCKS


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


BY_CLOCK = "rates of unknown interval are what the box gave"
"""Said where any case is undecidable: its rate has the waiting in it, and its interval is unknown."""
CROWDED_SHARE = 0.05
"""Of the time of its threads: from here a case counts as disturbed. A quiet box shows < 1 %."""


def contention_of(case: CaseResult) -> float:
    """`waited_share` if it is high enough to disturb a case, otherwise 0.

    A GPU's clock does not stop for a busy host, so it is always 0 on a GPU.
    """
    share = waited_share(case) if case.case.variant.device_class == "cpu" else 0.0
    return 0.0 if isinstance(share, Missing) or share <= CROWDED_SHARE else share


def is_crowded(case: CaseResult) -> bool:
    """Whether CPU contention was high enough to distort the result."""
    share = waited_share(case)
    return not isinstance(share, Missing) and share > CROWDED_SHARE


@worked_out_once
def waited_share(case: CaseResult) -> float | Missing:
    """Of the time of its threads in all blocks, what they were ready and waited for a CPU; 0 to 1."""
    return _share_of_all([b for m in case.measurements if m.outcome == "ok" for b in m.blocks])


def _share_of_all(blocks: Sequence[Block]) -> float | Missing:
    known = [(b.waited_ns, b.thread_ns) for b in blocks if b.waited_ns is not None and b.cpu_ns is not None]
    thread_ns = sum(ns for _, ns in known)
    return sum(ns for ns, _ in known) / thread_ns if thread_ns else Missing("this system does not report it")


def waited_of(block: Block) -> float | Missing:
    """`waited_share` of one block."""
    return _share_of_all([block])


def is_undecidable(case: CaseResult) -> bool:
    """Whether others had the CPUs for so long that nobody knows how fast the case is without them.

    Its times are then those of the clock.
    """
    return _effect_on(case).is_unknown


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
    """The same in seconds per step; none of a load, which lasts as long as it shall, or of a reference."""
    if case is None or not case.case.has_steps or case.between_boxes is not None:
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
    threads = sum(block.thread_ns for block in blocks) / sum(block.wall_ns for block in blocks)
    return effect_of_waiting(case.workload_class, threads).at(share)


def _own_time(block: Block, units: float, effect: Waiting) -> float:
    return seconds_per_unit(block, units) * effect.own_share(_share(block))


def _shares(case: CaseResult) -> list[float]:
    return [_share(block) for blocks in measured_blocks(case) for block in blocks]


def _share(block: Block) -> float:
    """`waited_of`; 0 where the system does not tell."""
    share = waited_of(block)
    return 0.0 if isinstance(share, Missing) else share
