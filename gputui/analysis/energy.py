"""The energy per unit of work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.quantiles import t_quantile
from gputui.analysis.statistics import sample_sd
from gputui.analysis.verdict import LAUNCHES_MEASURED
from gputui.model.absent import Missing

LEAST_SAMPLES = 5
"""Of power, per launch: half a second at 10 Hz; NVML itself averages over up to a second."""
LEAST_S = 5.0
"""Of blocks in all launches: the sensors of A100 and H100 sample only a quarter of the time, and shorter
windows are wrong by more than their launches show (https://arxiv.org/abs/2312.02741)."""


@dataclass(frozen=True, slots=True)
class PoweredLaunch:
    """One launch of a case on one device."""

    mean_power_w: float
    """Over the samples within its blocks."""
    samples: int
    s_per_unit: float
    """Wall time of its blocks per unit of work."""
    wall_s: float
    """Of its blocks."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules per unit of work, of the whole device and nothing else in the machine."""

    joules_per_unit: float
    low: float | None
    """The 95 % interval, from the spread of launches; None with fewer than 3 launches, as `high`."""
    high: float | None
    mean_power_w: float
    launches: int
    samples: int


def energy_per_unit(launches: Sequence[PoweredLaunch]) -> Energy | Missing:
    """Mean power times seconds per unit, as the geometric mean of launches; Student's t on their logs.

    Launches with fewer than LEAST_SAMPLES samples do not count; Missing if the others were timed for less
    than LEAST_S. The error of the sensor itself, a few percent, is the same in every launch and not in the
    interval.
    """
    seen = [launch for launch in launches if launch.samples >= LEAST_SAMPLES and launch.mean_power_w > 0]
    if not seen:
        most = max((launch.samples for launch in launches), default=0)
        return Missing(
            f"at most {most} samples of power in a launch, {LEAST_SAMPLES} are needed"
            if most
            else "no power was sampled in its blocks"
        )
    wall_s = math.fsum(launch.wall_s for launch in seen)
    if wall_s < LEAST_S:
        return Missing(f"power was sampled for {wall_s:.1f} s of its blocks, {LEAST_S:g} s are needed")
    logs = [math.log(launch.mean_power_w * launch.s_per_unit) for launch in seen]
    center = math.fsum(logs) / len(logs)
    low = high = None
    if len(logs) >= LAUNCHES_MEASURED:
        half = t_quantile(0.975, len(logs) - 1) * sample_sd(logs) / math.sqrt(len(logs))
        low, high = math.exp(center - half), math.exp(center + half)
    samples = sum(launch.samples for launch in seen)
    power_w = math.fsum(launch.mean_power_w * launch.samples for launch in seen) / samples
    return Energy(math.exp(center), low, high, power_w, len(seen), samples)
