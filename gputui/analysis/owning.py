"""Rent or buy: what a box costs per month either way, and when buying has paid for itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gputui.model.absent import Missing

HOURS_PER_MONTH = 730.0
"""8760 hours of a year by 12."""


@dataclass(frozen=True, slots=True)
class Owning:
    """What owning costs besides the price; all that is not stated is 0 and said to be left out."""

    power_w: float
    """Of all bought boxes while they work."""
    usd_per_kwh: float
    cooling: float
    """What cooling adds to the power, as a share of it; 0.1 to 0.3 in machine rooms."""
    staff_usd_per_month: float

    def usd_per_month(self, hours: float) -> float:
        """Power for so many hours of work, cooling, and staff."""
        kwh = self.power_w / 1000 * hours * (1 + self.cooling)
        return kwh * self.usd_per_kwh + self.staff_usd_per_month


@dataclass(frozen=True, slots=True)
class RentOrBuy:
    """The two ways side by side."""

    buy_usd: float
    """Of all boxes together."""
    rent_usd_per_month: float
    own_usd_per_month: float
    months: float | Missing
    """After which buying has cost less; Missing where that never happens."""


def rent_or_buy(buy_usd: float, rent_usd_per_month: float, own_usd_per_month: float) -> RentOrBuy:
    """Break-even: the price of buying by what each month of owning saves against renting.

    No interest, no resale value, and prices that stay as they are.
    """
    saved = rent_usd_per_month - own_usd_per_month
    months: float | Missing = buy_usd / saved if saved > 0 else math.inf
    if isinstance(months, float) and not math.isfinite(months):
        months = Missing("owning costs no less per month than renting: buying never pays")
    return RentOrBuy(buy_usd, rent_usd_per_month, own_usd_per_month, months)
