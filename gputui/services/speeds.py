"""From stored blocks to a speed: what every table is made of."""

from __future__ import annotations

from gputui.analysis.cost import Cost, cost_per_million
from gputui.analysis.priors import launch_prior_sd
from gputui.analysis.verdict import SpeedEstimate, estimate_speed
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.result import CaseResult

MIN_BLOCKS = 5
"""A launch with fewer blocks was cut short and does not count."""


CROWDED_SHARE = 0.05
"""Of the time its threads wanted a CPU: from here a case counts as disturbed. A quiet box shows < 1 %."""


def launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """Block times in seconds per unit of work, one tuple per launch that measured the case."""
    units = case.case.units_per_step
    return tuple(
        tuple(block.block_ns * 1e-9 / (block.steps * units) for block in measurement.blocks)
        for measurement in case.measurements
        if measurement.outcome == "ok"
        and len(measurement.blocks) >= (1 if case.case.is_whole else MIN_BLOCKS)
    )


def speed_of(case: CaseResult) -> SpeedEstimate | Missing:
    """Units of work per second with its 95 % interval; Missing with the outcome's reason."""
    launches = launches_of(case)
    if not launches:
        return Missing(f"{case.outcome}: {case.reason}" if case.reason else case.outcome)
    return estimate_speed(launches, prior_sd=prior_of(case))


def waited_share(case: CaseResult) -> float | Missing:
    """Share of the time its threads wanted a CPU in which others had it, over all blocks; 0 to 1."""
    waited_ns = wanted_ns = 0
    for measurement in case.measurements:
        for block in measurement.blocks if measurement.outcome == "ok" else ():
            if block.waited_ns is not None and block.cpu_ns is not None:
                waited_ns += block.waited_ns
                wanted_ns += block.waited_ns + block.cpu_ns
    return waited_ns / wanted_ns if wanted_ns else Missing("this system does not tell")


def is_crowded(case: CaseResult) -> bool:
    """Whether others held the CPUs so long that the figure is theirs as much as the box's."""
    share = waited_share(case)
    return not isinstance(share, Missing) and share > CROWDED_SHARE


def prior_of(case: CaseResult) -> float:
    """How much launches of such a case vary, as sd of the log time; that of a whole program is the host's."""
    workload_class = "host" if case.case.is_whole else case.case.workload_class
    return launch_prior_sd(case.case.variant.device_class, workload_class)


def cost_of(case: CaseResult, price: Price | Missing) -> Cost | Missing:
    """What a million units of its work cost on a box of this price."""
    gpus = int(dict(case.case.work.parameters).get("ranks", 1))
    return cost_per_million(speed_of(case), case.case.unit, price, case.case.variant.device_class, gpus)
