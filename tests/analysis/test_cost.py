from __future__ import annotations

import pytest

from gputui.analysis.cost import Cost, cost_per_million, share_of_price
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.journal import Price

SPEED = SpeedEstimate(
    units_per_s=1000.0, low=800.0, high=1250.0, blocks=30, independent=30, launches=3, method=""
)


def price(usd_per_hour: float = 3.6, gpu_count: float = 1) -> Price:
    return Price(usd_per_hour, gpu_count, "stated", "", "", "", "")


@pytest.mark.parametrize(
    ("unit", "gpu_count", "gpus_used", "usd", "share"),
    [
        ("tok", 1, 1, 1.0, 1.0),
        ("run", 1, 1, 1e-6, 1.0),
        ("tok", 8, 1, 1 / 8, 1 / 8),
        ("tok", 8, 8, 1.0, 1.0),
        ("tok", 0.125, 1, 1.0, 1.0),  # a slice of a GPU is the whole box
        ("flop", 1, 1, 1e12, 1.0),  # by the million TFLOP
        ("B", 1, 1, 1e9, 1.0),  # by the million GB
    ],
)
def test_a_million_units_cost_the_time_they_take_with_the_interval_of_the_speed_turned_round(
    unit: str, gpu_count: float, gpus_used: int, usd: float, share: float
) -> None:
    found = cost_per_million(SPEED, unit, price(gpu_count=gpu_count), "gpu", gpus_used)

    assert isinstance(found, Cost)
    assert (found.usd_per_million, found.low, found.high) == pytest.approx((usd, 0.8 * usd, 1.25 * usd))
    assert (found.share, found.is_share) == (share, share < 1)
    if unit in ("tok", "run"):
        millions = usd if unit == "tok" else 1e6 * usd
        bought = (1e6 / millions, 0.8e6 / millions, 1.25e6 / millions)
        assert found.units_per_usd(unit) == pytest.approx(bought)


def test_what_has_no_price_says_why_and_a_box_that_is_free_sells_no_units() -> None:
    no_price, no_speed = Missing("no price"), Missing("ran out of memory")
    assert cost_per_million(SPEED, "tok", no_price, "gpu") == no_price
    assert cost_per_million(no_speed, "tok", price(), "gpu") == no_speed
    assert cost_per_million(SPEED, "tok", price(gpu_count=8), "cpu") == Missing(
        "the price buys 8 GPUs: a CPU row needs a price of a CPU box"
    )
    assert share_of_price(price(gpu_count=0), "cpu") == 1
    assert isinstance(share_of_price(price(gpu_count=0), "gpu"), Missing)
    free = cost_per_million(SPEED, "tok", price(0.0), "gpu")
    assert isinstance(free, Cost)
    assert isinstance(free.units_per_usd("tok"), Missing)
