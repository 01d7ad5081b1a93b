"""What a unit of work costs on a machine: money, and energy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.analysis.statistics import sample_variance, t_quantile
from gputui.analysis.verdict import LAUNCHES_MEASURED, SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import WHOLE_BOX
from gputui.model.units import PRICE_SCALE


@dataclass(frozen=True, slots=True)
class Cost:
    """USD for a million units of work, with the 95 % interval that the speed gives it."""

    usd_per_million: float
    """A million img or tok; of FLOP and bytes, a million TFLOP and GB; of runs, one (`units.PRICE_SCALE`)."""
    low: float
    high: float
    share: float
    """The part of the price that the case carries, 0 to 1: it used k of the n GPUs that the price buys."""

    @property
    def is_share(self) -> bool:
        """Whether the case carries only a part of the price; the row is then marked `share`."""
        return self.share < 1

    def units_per_usd(self, unit: str) -> tuple[float, float, float] | Missing:
        """Units of work per dollar, and the ends of the interval; Missing if the machine is free."""
        if self.low <= 0:
            return Missing("the box costs nothing")
        millions = 1e6 * PRICE_SCALE.get(unit, 1.0)
        return millions / self.usd_per_million, millions / self.high, millions / self.low


def share_of_price(price: Price, device_class: str, gpus_used: int = 1) -> float | Missing:
    """The part of a machine's price that a case carries: k of the n GPUs that the price buys.

    A CPU case carries a price only if the price buys no GPU. A slice of a GPU counts as the whole machine. A
    recording uses the whole machine.
    """
    if device_class == WHOLE_BOX:
        return 1.0
    if device_class == "cpu":
        if price.gpu_count > 0:
            return Missing(f"the price buys {_gpus(price.gpu_count)}: a CPU row needs a price of a CPU box")
        return 1.0
    if price.gpu_count <= 0:
        return Missing("the price is of a box without a GPU")
    return min(1.0, gpus_used / price.gpu_count)


def cost_per_million(
    speed: SpeedEstimate | Missing,
    unit: str,
    price: Price | Missing,
    device_class: str,
    gpus_used: int = 1,
) -> Cost | Missing:
    """What a million units cost at the measured speed; Missing without a price or a speed."""
    if isinstance(price, Missing):
        return price
    if isinstance(speed, Missing):
        return speed
    share = share_of_price(price, device_class, gpus_used)
    if isinstance(share, Missing):
        return share
    usd_per_s = price.usd_per_hour * share / 3600
    millions = 1e6 * PRICE_SCALE.get(unit, 1.0)
    return Cost(
        usd_per_million=usd_per_s * millions / speed.units_per_s,
        low=usd_per_s * millions / speed.high,
        high=usd_per_s * millions / speed.low,
        share=share,
    )


def _gpus(count: float) -> str:
    return "1 GPU" if count == 1 else f"{count:g} GPUs" if count > 1 else f"{count:g} of a GPU"


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
        half = t_quantile(0.975, len(logs) - 1) * math.sqrt(sample_variance(logs) / len(logs))
        low, high = math.exp(center - half), math.exp(center + half)
    samples = sum(launch.samples for launch in seen)
    power_w = math.fsum(launch.mean_power_w * launch.samples for launch in seen) / samples
    return Energy(math.exp(center), low, high, power_w, len(seen), samples)
