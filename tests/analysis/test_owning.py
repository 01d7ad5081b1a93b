from __future__ import annotations

import pytest

from gputui.analysis.owning import HOURS_PER_MONTH, Owning, rent_or_buy
from gputui.model.absent import Missing


def test_800k_against_20k_of_rent_and_5k_of_owning_pays_after_53_months() -> None:
    found = rent_or_buy(800_000, 20_000, 5_000)

    assert found.months == pytest.approx(53.3, abs=0.05)


@pytest.mark.parametrize("own", [20_000.0, 25_000.0])
def test_owning_that_costs_as_much_as_renting_never_pays(own: float) -> None:
    found = rent_or_buy(1_000, 20_000, own)

    assert isinstance(found.months, Missing)
    assert "never pays" in found.months.reason


def test_a_box_that_is_a_gift_pays_at_once() -> None:
    assert rent_or_buy(0, 100, 50).months == 0


def test_owning_is_power_with_its_cooling_and_staff() -> None:
    # 2 kW for 730 h are 1460 kWh; a quarter more for cooling, 1825 kWh at $0.20 are $365
    owning = Owning(power_w=2000, usd_per_kwh=0.20, cooling=0.25, staff_usd_per_month=1000)

    assert owning.usd_per_month(HOURS_PER_MONTH) == pytest.approx(1365)
    assert owning.usd_per_month(0) == 1000
