"""How long a case waited for CPUs that others held, and what its blocks would have taken without."""

from __future__ import annotations

from collections.abc import Iterator

from gputui.analysis.contention import Waiting, effect_of_waiting
from gputui.model.absent import Missing
from gputui.model.journal import Block
from gputui.model.result import CaseResult
from gputui.services.results.block_times import (
    launches_of,
    measured_blocks,
    paired_launches,
    seconds_per_unit,
)

CROWDED_SHARE = 0.05
"""Of the time its threads wanted a CPU: from here a case counts as disturbed. A quiet box shows < 1 %."""


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


def own_launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """`launches_of`, without what others on its CPUs added to each block, if they disturbed the case."""
    if not contention_of(case):
        return launches_of(case)
    waiting = waiting_of(case)
    return tuple(
        tuple([time * waiting.own_share(waited) for time, waited in launch])
        for launch in _waited_launches(case)
    )


def waiting_of(*cases: CaseResult) -> Waiting:
    """What waiting for CPUs did to cases of the same work, as the blocks of disturbed ones show."""
    threads = 1 if all(case.case.variant.threads == "1" for case in cases) else 2
    disturbed = [case for case in cases if contention_of(case)]
    return effect_of_waiting([one for case in disturbed for one in _waited_launches(case)], threads=threads)


def _waited_launches(case: CaseResult) -> Iterator[list[tuple[float, float]]]:
    """The blocks of each launch with the share that they waited, 0 where the system does not tell."""
    units = case.case.units_per_step
    for blocks in measured_blocks(case):
        yield [(seconds_per_unit(block, units), _known(waited_of(block))) for block in blocks]


def _known(share: float | Missing) -> float:
    return 0.0 if isinstance(share, Missing) else share


def own_sd(case: CaseResult) -> float:
    share = contention_of(case)
    return waiting_of(case).log_sd(share, 0.0) if share else 0.0


def own_paired_launches(
    a: CaseResult, b: CaseResult
) -> tuple[tuple[tuple[float, float], ...], ...] | Missing:
    return paired_launches(a, b)


def is_undecidable(case: CaseResult) -> bool:
    return contention_of(case) > 2 / 3


def undecidable_reason(case: CaseResult) -> str:
    return f"its threads waited {contention_of(case):.0%} of the time"
