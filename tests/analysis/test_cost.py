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


def cost(unit: str = "tok", gpu_count: float = 1, gpus_used: int = 1) -> Cost:
    result = cost_per_million(SPEED, unit, price(gpu_count=gpu_count), "gpu", gpus_used)
    assert isinstance(result, Cost), result
    return result


def test_a_million_units_cost_the_time_they_take() -> None:
    assert cost().usd_per_million == pytest.approx(1.0)


def test_the_interval_of_the_cost_is_that_of_the_speed_turned_round() -> None:
    assert (cost().low, cost().high) == pytest.approx((0.8, 1.25))


def test_a_dollar_buys_what_it_costs_turned_round_with_its_interval() -> None:
    assert cost().units_per_usd("tok") == pytest.approx((1e6, 0.8e6, 1.25e6))
    assert cost("run").units_per_usd("run") == pytest.approx((1e6, 0.8e6, 1.25e6))


def test_a_box_that_is_free_sells_no_units() -> None:
    free = cost_per_million(SPEED, "tok", price(0.0), "gpu")

    assert isinstance(free, Cost)
    assert isinstance(free.units_per_usd("tok"), Missing)


def test_one_gpu_of_eight_carries_an_eighth_and_is_marked() -> None:
    eighth = cost(gpu_count=8)

    assert eighth.usd_per_million == pytest.approx(1 / 8)
    assert eighth.is_share
    assert not cost(gpu_count=8, gpus_used=8).is_share


def test_a_slice_of_a_gpu_is_the_whole_box() -> None:
    assert cost(gpu_count=0.125).share == 1


def test_flops_are_priced_by_the_million_tflop_and_bytes_by_the_million_gb() -> None:
    assert cost(unit="flop").usd_per_million == pytest.approx(1e12)
    assert cost(unit="B").usd_per_million == pytest.approx(1e9)


def test_a_cpu_row_has_no_price_on_a_box_whose_price_buys_gpus() -> None:
    result = cost_per_million(SPEED, "tok", price(gpu_count=8), "cpu")

    assert result == Missing("the price buys 8 GPUs: a CPU row needs a price of a CPU box")


def test_a_cpu_row_carries_the_whole_price_of_a_cpu_box() -> None:
    assert share_of_price(price(gpu_count=0), "cpu") == 1


def test_a_gpu_row_has_no_price_on_a_box_without_a_gpu() -> None:
    assert isinstance(share_of_price(price(gpu_count=0), "gpu"), Missing)


def test_an_unknown_price_or_speed_is_the_reason() -> None:
    no_price, no_speed = Missing("no price"), Missing("ran out of memory")

    assert cost_per_million(SPEED, "tok", no_price, "gpu") == no_price
    assert cost_per_million(no_speed, "tok", price(), "gpu") == no_speed
