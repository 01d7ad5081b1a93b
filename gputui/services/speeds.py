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


def launches_of(case: CaseResult) -> tuple[tuple[float, ...], ...]:
    """Block times in seconds per unit of work, one tuple per launch that measured the case."""
    units = case.case.units_per_step
    return tuple(
        tuple(block.block_ns * 1e-9 / (block.steps * units) for block in measurement.blocks)
        for measurement in case.measurements
        if measurement.outcome == "ok" and len(measurement.blocks) >= MIN_BLOCKS
    )


def speed_of(case: CaseResult) -> SpeedEstimate | Missing:
    """Units of work per second with its 95 % interval; Missing with the outcome's reason."""
    launches = launches_of(case)
    if not launches:
        return Missing(f"{case.outcome}: {case.reason}" if case.reason else case.outcome)
    return estimate_speed(launches, prior_sd=prior_of(case))


def prior_of(case: CaseResult) -> float:
    """How much launches of such a case vary, as sd of the log time."""
    return launch_prior_sd(case.case.variant.device_class, case.case.workload_class)


def cost_of(case: CaseResult, price: Price | Missing) -> Cost | Missing:
    """What a million units of its work cost on a box of this price."""
    return cost_per_million(speed_of(case), case.case.unit, price, case.case.variant.device_class)
