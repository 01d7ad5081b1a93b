"""From stored power to joules per unit of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputui.analysis.energy import Energy, PoweredLaunch, energy_per_unit
from gputui.model.absent import Missing
from gputui.model.result import CaseResult
from gputui.model.telemetry import LaunchPower
from gputui.services.results.block_times import fewest_blocks
from gputui.services.results.throughput import devices_of

PowerOf = Callable[[str, int], Sequence[LaunchPower] | Missing]
"""By run and case."""


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
    for measurement in case.measurements:
        power = by_launch.get(measurement.launch_id)
        least = fewest_blocks(case.case)
        if power is None or measurement.outcome != "ok" or len(measurement.blocks) < least:
            continue
        wall_s = sum(block.wall_ns for block in measurement.blocks) * 1e-9
        units = sum(block.steps for block in measurement.blocks) * case.case.units_per_step
        launches.append(PoweredLaunch(power.mean_w, power.samples, wall_s / units, wall_s))
    return energy_per_unit(launches)
