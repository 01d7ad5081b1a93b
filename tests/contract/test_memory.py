"""Memory of a step by part: against a step whose every byte is known, and the savings of tricks."""

from __future__ import annotations

import pytest
import torch
from test_workloads import losses

from gputui.worker.contract import Parameter, Request, Step, Unsupported
from gputui.worker.profiling.allocations import Phase, points_of_a_step, split_at_points
from gputui.worker.steps import resolve
from gputui.worker.workloads import memory_tricks

FORWARD, BACKWARD, OPTIMIZER = ("forward", 0, 9), ("backward", 10, 19), ("optimizer", 20, 29)
PHASES = (FORWARD, BACKWARD, OPTIMIZER)


def split(*events: tuple[int, int, int], phases: tuple[Phase, ...] = PHASES) -> dict[str, int]:
    """Memory by part at the peak; events are (instant, address, bytes)."""
    found = split_at_points(events, phases, {})["peak"]
    return {part: size for part, size in found.items() if size}


def test_what_the_forward_pass_leaves_is_activations_and_what_it_drops_is_not() -> None:
    assert split((1, 1, 100), (2, 2, 30), (3, 2, -30), (15, 1, -100)) == {"activations": 100, "other": 30}


def test_what_the_backward_pass_leaves_is_gradients() -> None:
    assert split((11, 1, 100), (12, 2, 30), (13, 2, -30), (40, 1, -100)) == {"gradients": 100, "other": 30}


def test_gradients_of_the_first_part_of_a_batch_are_gradients_too() -> None:
    phases = (("forward", 0, 1), ("backward", 2, 3), ("forward", 4, 5), ("backward", 6, 9))
    found = split((2, 1, 100), (3, 2, 7), (7, 2, -7), (8, 3, 50), phases=phases)
    assert found == {"gradients": 150}


def test_the_peak_is_one_instant_and_not_the_sum_of_the_highest_of_each() -> None:
    found = split((1, 1, 100), (11, 2, 40), (12, 1, -100), (13, 3, 50), (14, 3, -50))
    assert found == {"activations": 100, "gradients": 40}


def test_state_that_an_optimizer_makes_and_keeps_is_its_own() -> None:
    assert split((21, 1, 80), (22, 2, 5), (23, 2, -5)) == {"optimizer": 80, "other": 5}


def test_an_address_that_is_given_out_again_is_another_allocation() -> None:
    assert split((1, 1, 10), (2, 1, -10), (3, 1, 20), (12, 1, -20)) == {"activations": 20}


def test_what_was_there_before_the_step_is_nobodys_when_it_goes() -> None:
    assert split((1, 77, -1000), (2, 1, 10)) == {"activations": 10}


def test_every_byte_of_a_plain_step_is_found() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))
    inputs = torch.ones(1000)

    def step() -> None:
        weight.grad = None
        kept = weight * inputs  # 4000 bytes that stay allocated
        total = (kept * kept).sum()  # 4000 that are freed, and 4, with as many for its gradient
        total.backward()

    found = points_of_a_step("cpu", step)["peak"]
    assert found["weights"] >= 4000
    assert found["inputs"] >= 4000
    assert found["optimizer"] == 0
    assert found["activations"] == 4008
    assert weight.grad is not None


def built(trick: str, **more: Parameter) -> Step:
    shape: dict[str, Parameter] = {"layers": 6, "heads": 2, "width": 64, "context": 64, "vocabulary": 64}
    parts = 4 if trick == "accumulate" else 1
    parameters = {**shape, "batch": 8, "trick": trick, "parts": parts, **more}
    return memory_tricks.build(Request(parameters, "cpu", resolve("fp32", "cpu"), 1, seed=1))


def figures(step: Step) -> dict[str, float]:
    assert step.figures is not None
    step.run()  # the optimizer creates its state
    return {key: v.value for key, v in step.figures([]).items() if v.value is not None}


def test_the_parts_sum_to_the_peak_and_those_that_are_counted_are_exact() -> None:
    found = figures(built("none"))
    parts = [value for key, value in found.items() if key.endswith("_at_peak_bytes")]
    weights = 64 * 64 + 64 * 64 + 6 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    assert sum(parts) == found["peak_bytes"]
    assert found["weights_at_peak_bytes"] == 4 * weights
    assert found["optimizer_at_peak_bytes"] == pytest.approx(8 * weights, rel=0.001)
    assert found["inputs_at_peak_bytes"] >= 8 * 8 * 65


def test_checkpointing_and_smaller_parts_keep_fewer_activations_than_nothing() -> None:
    kept = {
        trick: figures(built(trick))["activations_at_peak_bytes"]
        for trick in ("none", "checkpoint", "accumulate")
    }
    assert kept["checkpoint"] < 0.5 * kept["none"]
    assert kept["accumulate"] < 0.5 * kept["none"]


def test_every_trick_trains_the_same_model() -> None:
    plain = losses(built("none"), 4)
    assert losses(built("checkpoint"), 4) == pytest.approx(plain, rel=1e-6)
    assert losses(built("accumulate"), 4) == pytest.approx(plain, rel=1e-4)


@pytest.mark.slow
def test_the_memory_of_a_step_is_not_changed_by_looking_at_it_twice() -> None:
    step = built("none")
    assert figures(step) == figures(step)


def test_offloading_what_is_on_the_host_already_is_no_trick() -> None:
    with pytest.raises(Unsupported, match="in the host's memory already"):
        built("offload")
