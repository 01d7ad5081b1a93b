"""The stored blocks of a case as times of a unit of its work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.model.absent import Missing
from gputui.model.journal import Block
from gputui.model.plan import MIN_BLOCKS
from gputui.model.result import CaseResult


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
