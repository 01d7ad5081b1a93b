"""The burn-in detects what it is for: changing results, and speed that drops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any  # torch's own types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gputui.worker.contract import Request, Step
from gputui.worker.steps import resolve
from gputui.worker.workloads import burn


class Products(TorchDispatchMode):  # type: ignore[misc]  # mypy does not read torch
    """A device, or a library, whose products come out as `spoil` makes them."""

    def __init__(self, spoil: Callable[[Any], object]) -> None:
        super().__init__()
        self.spoil = spoil

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        done = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == "mm":
            self.spoil(done)
        return done


def flip_a_bit(product: Any) -> None:
    """The last one of one number."""
    product.view(torch.int16 if product.dtype.itemsize == 2 else torch.int32)[7, 5] ^= 1


def spoil_bfloat16(product: Any) -> None:
    if product.dtype == torch.bfloat16:
        product[33, 4] = torch.nan


def built(precision: str = "fp32") -> Step:
    return burn.build(Request({"n": 96}, "cpu", resolve(precision, "cpu"), 1, seed=1))


def wrong_in(step: Step) -> tuple[float | None, int]:
    assert step.figures is not None
    found = step.figures([1.0] * 8)["wrong_count"]
    return found.value, found.observations


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_products_that_repeat_bit_by_bit_are_no_fault(precision: str) -> None:
    step = built(precision)
    for _ in range(20):
        step.run()
    assert wrong_in(step) == (0.0, 20)
    assert step.fault is not None
    assert step.fault() == ""


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_a_single_wrong_bit_is_counted_and_fails_the_case(precision: str) -> None:
    step = built(precision)
    step.run()
    with Products(flip_a_bit):
        step.run()
        step.run()
    step.run()
    assert wrong_in(step) == (2.0, 4)
    assert step.fault is not None
    assert step.fault() == (
        "2 numbers in 4 products differ from the first, and not by the order of sums: a fault of the device"
    )


class AddsInAnyOrder(TorchDispatchMode):  # type: ignore[misc]
    """A library that adds the products of a number in another order each time, as with atomics."""

    is_ever_steady = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_steady = self.is_ever_steady and torch.are_deterministic_algorithms_enabled()
        if func.overloadpacket.__name__ != "mm" or is_steady:
            return func(*args, **(kwargs or {}))
        order = torch.randperm(args[0].shape[1])
        return func(args[0][:, order], args[1][order], **(kwargs or {}))


class NeverSteady(AddsInAnyOrder):
    """A device that varies whatever the algorithm."""

    is_ever_steady = False


def test_a_sum_whose_order_is_free_is_no_fault_and_its_bits_are_not_compared() -> None:
    with AddsInAnyOrder():
        step = built()
        for _ in range(4):
            step.run()
        assert step.figures is not None
        found = step.figures([1.0] * 8)["wrong_count"]
        assert (found.value, found.reason) == (None, burn.ANY_ORDER)
        assert step.fault is not None
        assert step.fault() == ""
    assert not torch.are_deterministic_algorithms_enabled()


def test_numbers_that_vary_with_deterministic_algorithms_too_are_the_devices_fault() -> None:
    with NeverSteady():
        step = built()
        for _ in range(4):
            step.run()
        assert step.fault is not None
        assert step.fault().endswith("a fault of the device")
        assert wrong_in(step)[0]


def test_a_number_that_is_far_off_is_the_devices_fault_even_where_the_order_of_sums_is_free() -> None:
    with AddsInAnyOrder():
        step = built()
        step.run()
    with Products(lambda product: product[5, 7].add_(1.0)), AddsInAnyOrder():
        step.run()
        assert step.fault is not None
        assert step.fault().endswith("a fault of the device")


@pytest.mark.parametrize("is_always", [True, False], ids=["always", "now and then"])
def test_nan_in_one_type_is_the_librarys_fault(is_always: bool) -> None:
    with Products(spoil_bfloat16) if is_always else contextlib.nullcontext():
        step = built("amp")
    with Products(spoil_bfloat16):
        step.run()
        assert step.fault is not None
        assert step.fault() == (
            "products in torch.bfloat16 are not finite, and right in float32: a fault of the library"
        )


def test_nan_in_every_type_is_not_called_the_librarys() -> None:
    with Products(lambda product: product[3, 4].fill_(torch.nan)):
        step = built("amp")
        step.run()
        assert step.fault is not None
        assert step.fault() == "products in torch.bfloat16 are not finite"


def test_a_device_that_is_wrong_the_same_way_every_time_is_found_too() -> None:
    with Products(lambda product: product[3].zero_()):
        step = built()
        step.run()
    assert wrong_in(step) == (0.0, 1)
    assert step.fault is not None
    assert "the first product is off by" in step.fault()


@pytest.mark.parametrize(
    ("step_ns", "kept"),
    [
        ([100.0] * 8, 1.0),
        ([100.0, 100.0, 100.0, 100.0, 125.0, 125.0, 125.0, 125.0], 0.8),
        ([100.0] * 7, None),
    ],
)
def test_the_last_quarter_is_held_against_the_first(step_ns: list[float], kept: float | None) -> None:
    step = built()
    assert step.figures is not None
    assert step.figures(step_ns)["kept_ratio"].value == kept
