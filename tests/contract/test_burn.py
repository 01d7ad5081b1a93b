"""The burn-in detects what it is for: changing results, and speed that drops."""

from __future__ import annotations

from typing import Any  # torch's own types

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gputui.worker.contract import Request, Step
from gputui.worker.steps import resolve
from gputui.worker.workloads import burn


class FlipsABit(TorchDispatchMode):  # type: ignore[misc]  # mypy does not read torch
    """A device that gets the last bit of one number of every product wrong."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        done = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == "mm":
            bits = kwargs["out"].view(torch.int16 if done.dtype.itemsize == 2 else torch.int32)
            bits[7, 5] ^= 1
        return done


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
    with FlipsABit():
        step.run()
        step.run()
    step.run()
    assert wrong_in(step) == (2.0, 4)
    assert step.fault is not None
    assert step.fault() == "2 numbers in 4 products came out otherwise than the first time"


def test_a_device_that_is_wrong_the_same_way_every_time_is_found_too() -> None:
    class Zeroes(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            done = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ == "mm":
                kwargs["out"][3].zero_()
            return done

    with Zeroes():
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
