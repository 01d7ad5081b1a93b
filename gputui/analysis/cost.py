"""What a unit of work costs on a machine."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import WHOLE_BOX
from gputui.model.units import PRICE_SCALE


@dataclass(frozen=True, slots=True)
class Estimated:
    """A value with the interval that the speed gives it."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimated:
        return Estimated(self.value * factor, self.low * factor, self.high * factor)


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
