"""The memory of a training step by formula: against the textbook, and against measured steps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.analysis.fit import (
    GIB,
    NO_TRICK,
    PRECISIONS,
    STATES_PER_WEIGHT,
    Shape,
    Training,
    Tricks,
    _moments,
    activation_parts,
    fit,
    largest_batch,
    layer_bytes_per_token,
    needed_bytes,
    peak_of,
    state_bytes,
)
from gputui.errors import GputuiError
from gputui.services.advise.gpu_choice import Wish, report, whole_number
from gputui.services.advise.published_models import model_named, typical_shape
from gputui.worker.workloads.text_training import BASE, MEDIUM, MINI

PROGRAM = Path(__file__).parents[2] / "makers" / "measured_steps.py"
NARROW = {"layers": 3, "heads": 4, "width": 256, "context": 128, "vocabulary": 2048, "batch": 4}
FEW_TOKENS = {"layers": 4, "heads": 4, "width": 256, "context": 16, "vocabulary": 512, "batch": 1}
MINI_OF_2 = {**{name: getattr(MINI, name, 2) for name in NARROW}, "layers": 2}
GATED = {**NARROW, "layers": 4, "vocabulary": 512, "hidden": 688}


def gpt_shape(layers: int, width: int, vocabulary: int, context: int) -> Shape:
    """Blocks as in GPT-2: an MLP four times as wide, heads of 64 numbers where they fill the width."""
    head_dim = 64 if width % 64 == 0 else width
    heads = width // head_dim
    return Shape("", layers, width, heads, heads, head_dim, 4 * width, vocabulary, context, False, True)


GPT2_XL = gpt_shape(48, 1600, 50257, 1024)
TRICKS = {"none": NO_TRICK, "checkpoint": Tricks(checkpoint=True), "accumulate": Tricks(pieces=4)}


def step(workload: str, precision: str, parameters: dict[str, int], trick: str = "") -> dict[str, Any]:
    extra = {"trick": trick, "parts": TRICKS[trick].pieces} if trick else {}
    return {"workload": workload, "precision": precision, "parameters": {**parameters, **extra}}


WORKLOAD_STEPS = (
    *(step("gpt_train", p, shape) for shape in (MINI_OF_2, NARROW, FEW_TOKENS) for p in ("fp32", "amp")),
    step("memory_tricks", "fp32", MINI_OF_2, "checkpoint"),
    step("memory_tricks", "amp", NARROW, "checkpoint"),
    step("memory_tricks", "fp32", NARROW, "accumulate"),
    step("memory_tricks", "amp", NARROW, "accumulate"),
)
MODEL_STEPS: tuple[dict[str, Any], ...] = (
    *(
        {"optimizer": name, "precision": precision, "parameters": FEW_TOKENS}
        for name in STATES_PER_WEIGHT
        for precision in ("fp32", "bf16")
    ),
    {"optimizer": "adamw", "precision": "bf16", "parameters": NARROW},
    *({"optimizer": "adamw", "precision": p, "parameters": GATED} for p in ("fp32", "amp", "bf16")),
)


def measured(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """These steps, in one process: most of the time goes to starting torch."""
    words = map(json.dumps, steps)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def training_of(request: dict[str, Any]) -> tuple[Training, Tricks]:
    p = request["parameters"]
    heads, width, gated = p["heads"], p["width"], "hidden" in p
    ends = (width // heads, p.get("hidden", 4 * width), p["vocabulary"], p["context"])
    blocks = Shape("", p["layers"], width, heads, heads, *ends, gated, not gated)
    optimizer, precision = request.get("optimizer", "adamw"), PRECISIONS[request["precision"]]
    training = Training(blocks.parameters, optimizer, precision, blocks, p["batch"], p["context"])
    return training, TRICKS[p.get("trick", "none")]


@pytest.mark.slow
def test_the_formula_is_within_10_percent_of_a_measured_step_and_exact_for_what_every_optimizer_keeps() -> (
    None
):
    steps = (*WORKLOAD_STEPS, *MODEL_STEPS)
    for request, found in zip(steps, measured(steps), strict=True):
        training, tricks = training_of(request)
        state = state_bytes(training.params, training.optimizer, training.precision)
        if "kept" in found:
            assert found["kept"] == {
                "parameters": training.blocks.parameters,
                "weights": state.weights,
                "gradients": state.gradients,
                "optimizer": state.optimizer,
            }, request
        else:
            start, tensors = found["start"], 12 * training.blocks.layers + 4
            assert start["weights"] == state.weights, request
            assert start["gradients"] == state.gradients, request
            assert start["optimizer"] == state.optimizer + 4 * tensors  # one step count for each
        if training.optimizer in ("adam", "adamw"):  # the fused ones, which need no temporaries
            total = peak_of(training, tricks).parts.total
            assert total == pytest.approx(sum(found["peak"].values()), rel=0.1), request
        if "after_forward" in found and tricks == NO_TRICK:
            whole = activation_parts(training)
            kept = whole.activations + whole.copies + whole.loss
            assert kept == pytest.approx(found["after_forward"]["activations"], rel=0.01), request


def test_mixed_precision_with_a_master_copy_takes_the_16_bytes_per_weight_of_zero() -> None:
    parts = state_bytes(1000, "adam", PRECISIONS["mixed"])
    assert (parts.weights, parts.gradients, parts.optimizer) == (2000, 2000, 12000)


def test_a_16_bit_block_keeps_what_korthikanti_counts_but_for_dropout_masks_and_the_square() -> None:
    blocks = gpt_shape(1, 12288, 50257, 2048)
    statistics = 16 + 4 * blocks.heads
    kept = layer_bytes_per_token(blocks, PRECISIONS["bf16"]) - statistics
    masks = 2 * blocks.width
    assert kept + masks == 34 * blocks.width


@pytest.mark.parametrize("shape", [BASE, MEDIUM])
def test_a_stated_shape_has_the_weights_of_the_model_of_gpt_train(shape: Any) -> None:
    blocks = gpt_shape(shape.layers, shape.width, shape.vocabulary, shape.context)
    assert blocks.heads == shape.heads
    layer = 12 * shape.width**2 + 13 * shape.width
    ends = (shape.vocabulary + shape.context + 2) * shape.width
    assert blocks.parameters == shape.layers * layer + ends


trainings = st.builds(
    lambda shape, precision, optimizer, batch, context: Training(
        shape.parameters, optimizer, PRECISIONS[precision], shape, batch, context
    ),
    st.sampled_from([GPT2_XL, *map(model_named, ("SmolLM2 135M", "Llama 2 7B", "Qwen3 30B-A3B"))]),
    st.sampled_from(list(PRECISIONS)),
    st.sampled_from(list(STATES_PER_WEIGHT)),
    st.integers(1, 64),
    st.integers(1, 8192),
)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(trainings, st.integers(6, 288))
def test_what_is_reported_to_fit_does_and_one_sequence_more_than_the_largest_batch_does_not(
    training: Training, gib: int
) -> None:
    verdict = fit(training, gib * GIB)
    low, high = verdict.needed_bytes
    assert low < high
    if verdict.word in ("fits", "with tricks", "several GPUs") or verdict.tricks != NO_TRICK:
        assert high <= gib * GIB
    if verdict.word == "fits":
        assert verdict.tricks == NO_TRICK
        assert verdict.largest_batch >= training.batch
    else:
        assert verdict.largest_batch < training.batch
    if verdict.word == "does not fit":
        assert low > gib * GIB
    one_more = replace(training, batch=verdict.largest_batch + 1)
    assert needed_bytes(one_more)[1] > gib * GIB
    if verdict.largest_batch >= 8:  # activations are what counts
        assert largest_batch(training, gib * GIB, Tricks(checkpoint=True)) >= verdict.largest_batch


@settings(deadline=None, derandomize=True, max_examples=50)
@given(trainings)
def test_more_of_a_trick_never_needs_more(training: Training) -> None:
    spread = [needed_bytes(training, Tricks(gpus=n))[1] for n in (2, 3, 8, 64, 1024)]
    assert spread == sorted(spread, reverse=True)
    cut = [needed_bytes(training, Tricks(pieces=n))[1] for n in (2, 4, training.batch * 2)]
    assert cut == sorted(cut, reverse=True)
    batches = [needed_bytes(replace(training, batch=n))[1] for n in (1, 2, 5, 100)]
    assert batches == sorted(batches)


@pytest.mark.parametrize("gated", [False, True])
def test_the_backward_pass_of_a_block_holds_its_gradients_and_its_mlp(gated: bool) -> None:
    blocks = Shape("", 3, 64, 1, 1, 64, 172, 1000, 128, gated, not gated)
    training = Training(blocks.parameters, "adamw", PRECISIONS["fp32"], blocks, 2, 128)
    found = {peak.moment: peak.parts for peak in _moments(training, NO_TRICK)}
    first, last = found["the first block, backward"], found["the last block, backward"]
    hidden_at_once, products_to_come = (3, 2) if gated else (1, 1)
    assert first.temporary == last.temporary == 2 * 128 * (64 + hidden_at_once * 172) * 4
    to_come = (4 * 64**2 + products_to_come * 64 * 172) * 4
    assert first.gradients == 4 * blocks.parameters - to_come
    assert last.gradients == (1000 * 64 + 64 * 172) * 4


def test_the_tricks_are_tried_in_the_order_of_what_they_cost() -> None:
    shape = GPT2_XL
    training = Training(shape.parameters, "adamw", PRECISIONS["amp"], shape, 16, 1024)
    words = [(fit(training, gib * GIB).word, fit(training, gib * GIB).tricks) for gib in (8, 32, 141)]
    assert words[0][0] == "several GPUs"
    assert words[1] == ("with tricks", replace(words[1][1], checkpoint=False, offload=False, gpus=1))
    assert words[1][1].pieces > 1
    assert words[2] == ("fits", NO_TRICK)


def test_a_trick_that_only_perhaps_suffices_is_not_taken() -> None:
    training = Training(GPT2_XL.parameters, "adamw", PRECISIONS["fp32"], GPT2_XL, 1, 8192)
    surely = needed_bytes(training, Tricks(checkpoint=True))[1]

    assert fit(training, surely).tricks == Tricks(checkpoint=True)
    assert fit(training, surely - 1).tricks != Tricks(checkpoint=True)


def test_before_a_model_is_spread_activations_are_recomputed_and_the_fewest_gpus_are_taken() -> None:
    shape = GPT2_XL
    alone = Training(shape.parameters, "adamw", PRECISIONS["amp"], shape, 1, 4096)
    high = needed_bytes(alone, Tricks(checkpoint=True))[1]
    assert fit(alone, high).tricks == Tricks(checkpoint=True)

    wide = Training(shape.parameters, "adamw", PRECISIONS["amp"], shape, 64, 4096)
    spread = fit(wide, 16 * GIB)
    assert spread.word == "several GPUs"
    fewer = replace(spread.tricks, gpus=spread.tricks.gpus - 1)
    assert needed_bytes(wide, fewer)[1] > 16 * GIB
    assert (spread.tricks.checkpoint, spread.tricks.pieces) == (True, 64)


def test_nothing_can_be_done_for_a_model_that_a_thousand_gpus_do_not_hold() -> None:
    training = Training(10**14, "adamw", PRECISIONS["fp32"], typical_shape(10**14), 1, 2048)
    verdict = fit(training, 80 * GIB)
    assert verdict.word == "does not fit"
    assert verdict.largest_batch == 0


def test_amounts_are_read_as_people_write_them() -> None:
    texts = {"7e9": 7 * 10**9, "7B": 7 * 10**9, "1.5b": 15 * 10**8, "124M": 124 * 10**6, "8": 8}
    assert {text: whole_number("--params", text, 10**14) for text in texts} == texts


@pytest.mark.parametrize(
    ("most", "expected"),
    [(2**20, "from 1 to 1048576"), (10**7, "from 1 to 10000000"), (10**14, "from 1 to 1e14")],
)
def test_a_limit_is_shown_with_every_digit_and_can_be_typed(most: int, expected: str) -> None:
    with pytest.raises(GputuiError) as caught:
        whole_number("--batch", "0", most)
    assert caught.value.hint == expected
    assert whole_number("--batch", expected.split()[-1], most) == most


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_an_error_of_ours(text: str) -> None:
    try:
        value = whole_number("--batch", text, 10**6)
    except GputuiError:
        value = 1
    assert 1 <= value <= 10**6


def test_without_a_shape_the_nearest_usual_one_is_taken_and_reported() -> None:
    found = report(Wish(params="7e9"))
    assert found.work.blocks.name == "Llama 2 7B"
    assert found.work.params == 7 * 10**9
    assert found.work.context == 4096
    assert found.notes == ("32 layers x 32 KV heads x 128 as in Llama 2 7B", "4096 tokens")
