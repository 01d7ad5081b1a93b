"""Rent or buy: what a machine costs per month either way, and when buying has paid off."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gputui.model.absent import Missing

HOURS_PER_MONTH = 730.0
"""8760 hours a year / 12."""


@dataclass(frozen=True, slots=True)
class Owning:
    """What owning costs besides the price; costs that are not stated are 0 and reported as left out."""

    power_w: float
    """Of all bought machines while they work."""
    usd_per_kwh: float
    cooling: float
    """Extra power for cooling, as a share; 0.1 to 0.3 in data centers."""
    staff_usd_per_month: float

    def usd_per_month(self, hours: float) -> float:
        """Power for this many hours of work, cooling, and staff."""
        kwh = self.power_w / 1000 * hours * (1 + self.cooling)
        return kwh * self.usd_per_kwh + self.staff_usd_per_month


@dataclass(frozen=True, slots=True)
class RentOrBuy:
    """Both ways compared."""

    buy_usd: float
    """For all machines together."""
    rent_usd_per_month: float
    own_usd_per_month: float
    months: float | Missing
    """After which buying has cost less; Missing if it never does."""


def rent_or_buy(buy_usd: float, rent_usd_per_month: float, own_usd_per_month: float) -> RentOrBuy:
    """Break-even: the price of buying over what each month of owning saves against renting.

    No interest, no resale value, and constant prices.
    """
    saved = rent_usd_per_month - own_usd_per_month
    months: float | Missing = buy_usd / saved if saved > 0 else math.inf
    if isinstance(months, float) and not math.isfinite(months):
        months = Missing("owning costs no less per month than renting: buying never pays")
    return RentOrBuy(buy_usd, rent_usd_per_month, own_usd_per_month, months)
