"""Memory of inference by formula: against published figures, and against the model that `decode` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.analysis.fit import GIB, Shape
from gputui.analysis.inference_fit import (
    CACHE_BYTES,
    MOST_BATCH,
    MOST_CONTEXT,
    WEIGHT_FORMATS,
    ServedModel,
    activation_bytes,
    cache_bytes,
    fit_inference,
    inference_parts,
    needed_for_inference,
    possible_gpus,
    weight_bytes,
)
from gputui.services.advise.gpu_choice import Wish, inference_report
from gputui.services.advise.published_models import model_named, published_shapes, typical_shape
from gputui.worker.workloads.decode import WORKLOAD

PROGRAM = Path(__file__).parents[2] / "makers" / "measured_decode.py"
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
SIZES = {name: dict(size.parameters) for name, size in WORKLOAD.sizes.items()}
KEPT = [(size, dtype) for size in SIZES for dtype in DTYPES]
_SIX = {"layers": 4, "heads": 8, "width": 512, "hidden": 1376, "vocabulary": 4000, "batch": 4}
NARROW = {**_SIX, "cache": 512, "prompt": 512}
PASSES: tuple[tuple[dict[str, Any], str], ...] = tuple(
    (parameters, dtype) for parameters in (SIZES["mini"], NARROW) for dtype in DTYPES
)


def measured() -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """What the model keeps at every size of `decode`, and of PASSES what a prompt needs, in one process."""
    asked: list[dict[str, Any]] = [
        {"parameters": SIZES[size], "dtype": dtype, "device": "meta"} for size, dtype in KEPT
    ]
    asked += [{"parameters": parameters, "dtype": dtype} for parameters, dtype in PASSES]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(json.dumps, asked)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return found[: len(KEPT)], found[len(KEPT) :]


def serving_of(p: dict[str, Any], dtype: str) -> ServedModel:
    heads, width = p["heads"], p["width"]
    ends = (width // heads, p["hidden"], p["vocabulary"], p["cache"])
    model = Shape("", p["layers"], width, heads, heads, *ends)
    name = DTYPES[dtype]
    return ServedModel(model.parameters, WEIGHT_FORMATS[name], name, model, p["batch"], p["cache"])


@pytest.mark.slow
def test_weights_cache_and_activations_are_those_of_the_model_of_decode() -> None:
    kept, passes = measured()
    for (size, dtype), found in zip(KEPT, kept, strict=True):
        serving = serving_of(SIZES[size], dtype)
        assert weight_bytes(serving) == found["weights"], (size, dtype)
        assert cache_bytes(serving) == found["cache"], (size, dtype)
    for (p, dtype), found in zip(PASSES, passes, strict=True):
        serving = serving_of(p, dtype)
        assert found["weights"] == weight_bytes(serving), (p, dtype)
        assert found["cache"] == cache_bytes(serving), (p, dtype)
        # `decode` masks its static cache, which no fused causal attention does: a row of it for each token
        rows = p["prompt"] * (p["cache"] + serving.model.head_dim) * serving.weights.other_bytes
        computed = activation_bytes(serving, p["batch"] * p["prompt"])
        assert computed + rows == pytest.approx(found["temporary"], rel=0.01), (p, dtype)


@pytest.mark.parametrize(
    ("name", "billions", "cache_kib_per_token"),
    [
        ("Llama 2 7B", 6.738, 512),
        ("Llama 3.1 8B", 8.030, 128),
        ("Llama 2 13B", 13.016, 800),  # as OPT-13B, the example of arXiv 2309.06180, section 3
        ("Llama 3.1 70B", 70.554, 320),
        ("Llama 3.1 405B", 405.854, 504),
        ("Qwen2.5 32B", 32.764, 256),
    ],
)
def test_published_shapes_have_the_weights_and_the_cache_that_are_published(
    name: str, billions: float, cache_kib_per_token: int
) -> None:
    model = model_named(name)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=1e-4)
    assert typical_shape(model.parameters) is model
    assert model.small_weights == (2 * model.layers + 1) * model.width
    one = ServedModel(model.parameters, WEIGHT_FORMATS["bf16"], "bf16", model, 1, 1)
    assert cache_bytes(one) == cache_kib_per_token * 1024


def serving(name: str = "Llama 3.1 8B", precision: str = "bf16", **more: Any) -> ServedModel:
    model = model_named(name)
    made = ServedModel(model.parameters, WEIGHT_FORMATS[precision], "bf16", model, 1, 8192)
    return replace(made, **more)


def test_scales_of_int4_take_the_extra_bits_that_gptq_counts_and_of_int8_far_fewer() -> None:
    one = serving()
    products = one.model.block_weights

    def bits_per_weight(precision: str) -> float:
        others = 2 * (one.params - products)
        return 8 * (weight_bytes(serving(precision=precision)) - others) / products

    assert bits_per_weight("int4") == pytest.approx(4 + 20 / 128)
    assert 8 < bits_per_weight("int8") == bits_per_weight("fp8") < 8.02
    assert bits_per_weight("bf16") == 16


def test_activations_of_llama_3_1_8b_are_those_of_one_mlp_or_of_the_scores_of_many_last_tokens() -> None:
    a_token = 2 * 4096 + (2 * 32 + 2 * 8) * 128 + 4 * 14336
    assert activation_bytes(serving(), 100) == 100 * a_token * 2
    assert activation_bytes(serving(batch=8), 1) == 8 * 128_256 * 4


def test_grouped_queries_and_bytes_of_the_cache_scale_it() -> None:
    grouped = serving()
    ungrouped = replace(grouped, model=replace(grouped.model, kv_heads=grouped.model.heads))
    assert cache_bytes(ungrouped) == 4 * cache_bytes(grouped)
    assert 2 * cache_bytes(replace(grouped, cache="fp8")) == cache_bytes(grouped)
    assert cache_bytes(replace(grouped, batch=3, context=5)) == 15 * 128 * 1024


def test_tensor_parallel_gpus_share_weights_and_cache_but_not_norms_and_single_heads() -> None:
    whole = serving()
    norms = 2 * whole.model.small_weights
    for gpus in (2, 4, 8):
        part = replace(whole, gpus=gpus)
        assert weight_bytes(part) - norms == pytest.approx((weight_bytes(whole) - norms) / gpus, abs=1)
        assert cache_bytes(part) == cache_bytes(whole) // gpus
    sixteen, eight = replace(whole, gpus=16), replace(whole, gpus=8)
    assert cache_bytes(sixteen) == cache_bytes(eight)  # 8 KV heads: each is on two GPUs
    assert weight_bytes(sixteen) > weight_bytes(eight) / 2


servings = st.builds(
    lambda model, precision, cache, batch, context: ServedModel(
        model.parameters, WEIGHT_FORMATS[precision], cache, model, batch, context
    ),
    st.sampled_from(published_shapes()),
    st.sampled_from(list(WEIGHT_FORMATS)),
    st.sampled_from(list(CACHE_BYTES)),
    st.integers(1, 256),
    st.integers(1, 131072),
)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(servings, st.integers(6, 288))
def test_what_fits_does_and_one_more_sequence_or_token_does_not(wanted: ServedModel, gib: int) -> None:
    memory = gib * GIB
    found = fit_inference(wanted, memory)
    on = replace(wanted, gpus=found.gpus)
    low, high = found.needed_bytes
    assert (low, high) == needed_for_inference(on)
    assert inference_parts(on).total < low < high
    assert isinstance(found.longest_context, int)
    assert found.gpus in possible_gpus(wanted.model)
    if found.word in ("fits", "several GPUs"):
        assert high <= memory
        assert found.largest_batch >= wanted.batch
        assert found.longest_context >= wanted.context
    else:
        assert high > memory
        assert found.largest_batch < wanted.batch
    assert (found.gpus > 1) == (found.word == "several GPUs")
    one_more = replace(on, batch=found.largest_batch + 1)
    assert found.largest_batch == MOST_BATCH or needed_for_inference(one_more)[1] > memory
    one_longer = replace(on, context=found.longest_context + 1)
    assert found.longest_context == MOST_CONTEXT or needed_for_inference(one_longer)[1] > memory


def test_what_was_not_stated_is_taken_from_a_published_model_and_noted() -> None:
    found = inference_report(Wish(params="8B"))
    assert found.work.model.name == "Llama 3.1 8B"
    assert found.work.params == 8 * 10**9
    assert found.notes == ("32 layers x 8 KV heads x 128 as in Llama 3.1 8B", "8192 tokens")
    long = inference_report(Wish(params="8B", context="1e6"))
    assert "trained for 131072 tokens" in long.notes[-1]
    far = inference_report(Wish(params="1e13"))
    assert any("a guess" in note for note in far.notes)


def test_heads_of_keys_and_values_that_are_fewer_than_the_gpus_are_on_several() -> None:
    shape = Shape("", 2, 1024, 8, 2, 128, 2816, 1000, 8192)
    params = shape.block_weights + shape.end_weights + shape.small_weights
    served = ServedModel(params, WEIGHT_FORMATS["bf16"], "bf16", shape, 1, 128)
    keys_and_values = 2 * 2 * 1024 * 2 * 128

    evenly = (shape.block_weights + shape.end_weights) / 4 + shape.small_weights
    assert weight_bytes(replace(served, gpus=4)) == pytest.approx(2 * (evenly + keys_and_values / 4), abs=1)
