"""Speeds of language models by formula, against public results and against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decode_results import results

from gputui.analysis.fit import NO_TRICK, PRECISIONS, Training, Tricks
from gputui.analysis.inference_fit import (
    WEIGHT_FORMATS,
    ServedModel,
    cache_bytes,
    decode_speed,
    prompt_speed,
    step_bytes,
    train_speed,
)
from gputui.analysis.statistics import Estimated
from gputui.model.absent import Missing
from gputui.services.advise.published_models import model_named


def served(name: str = "Llama 3.1 8B", precision: str = "bf16", batch: int = 1) -> ServedModel:
    model = model_named(name)
    return ServedModel(model.parameters, WEIGHT_FORMATS[precision], "bf16", model, batch, 1024)


def value(found: Estimated | Missing) -> float:
    assert isinstance(found, Estimated)
    assert found.low < found.value < found.high
    return found.value


def test_of_public_results_kept_aside_two_of_three_are_within_20_percent_and_nine_of_ten_in_the_range() -> (
    None
):
    aside = [one for one in results() if one.is_aside]
    assert len(aside) >= 30
    assert sum(one.is_close for one in aside) >= 2 / 3 * len(aside)
    inside = [one for one in aside if one.predicted.low <= one.seen <= one.predicted.high]
    assert len(inside) >= 0.9 * len(aside)
    assert all(one.row["source"] and one.row["engine"] for one in aside)


def test_a_token_reads_all_weights_but_the_embedding_and_the_cache_of_its_sequence() -> None:
    model = model_named("Llama 3.1 8B")
    read = 2 * (model.parameters - model.vocabulary * model.width)
    assert step_bytes(served()) == read + cache_bytes(served())
    assert step_bytes(served(batch=8)) == read + 8 * cache_bytes(served())
    tied = model_named("Llama 3.2 1B")
    assert step_bytes(served(tied.name)) == 2 * tied.parameters + cache_bytes(served(tied.name))


def test_of_experts_a_token_reads_those_it_chose_and_many_tokens_nearly_all() -> None:
    one, many = (step_bytes(served("gpt-oss-120b", "mxfp4", batch)) for batch in (1, 256))
    model = model_named("gpt-oss-120b")
    assert one - cache_bytes(served("gpt-oss-120b")) == pytest.approx(
        model.expert_weights * 4 / 128 * 4.25 / 8
        + 2 * (model.block_weights - model.expert_weights)
        + 2 * model.vocabulary * model.width,
        rel=0.01,
    )
    assert many > 10 * one


def test_more_sequences_are_faster_together_until_arithmetic_bounds_them() -> None:
    alone, some, many = (value(decode_speed(served(batch=b), "NVIDIA", 3e12, 1e15)) for b in (1, 16, 4096))
    assert 10 * alone < some < 16 * alone
    assert many < 0.4 * 1e15 / (2 * served().model.active_parameters)


def test_prompts_and_training_take_two_and_six_flops_a_weight_and_attention() -> None:
    model = model_named("Llama 3.1 8B")
    short = replace(served(), context=2)
    assert value(prompt_speed(short, 1e15)) == pytest.approx(0.4e15 / (2 * model.active_parameters), rel=0.01)
    training = Training(model.parameters, "adamw", PRECISIONS["amp"], model, 1, 1)
    one = value(train_speed(training, NO_TRICK, "NVIDIA", 1e15))
    assert one == pytest.approx(0.45e15 / (6 * model.parameters), rel=0.01)
    assert value(train_speed(training, Tricks(gpus=8), "NVIDIA", 1e15)) == pytest.approx(8 * one)
    assert value(train_speed(replace(training, context=65536), NO_TRICK, "NVIDIA", 1e15)) < one


def test_what_no_public_result_is_like_has_no_speed_but_a_reason() -> None:
    dense, routed = model_named("Llama 3.1 8B"), model_named("Mixtral 8x7B")
    fp32 = Training(dense.parameters, "adamw", PRECISIONS["fp32"], dense, 1, 1)
    bf16 = replace(fp32, precision=PRECISIONS["bf16"])
    experts = Training(routed.parameters, "adamw", PRECISIONS["amp"], routed, 1, 1)
    unknown = Missing("no peak known for it")
    for found, reason in (
        (train_speed(fp32, NO_TRICK, "NVIDIA", 1e15), "16-bit"),
        (train_speed(experts, NO_TRICK, "NVIDIA", 1e15), "dense"),
        (train_speed(bf16, Tricks(offload=True), "NVIDIA", 1e15), "offloading"),
        (train_speed(experts, NO_TRICK, "NVIDIA", unknown), "no peak"),
        (train_speed(bf16, NO_TRICK, "AMD", 1e15), "NVIDIA"),
        (decode_speed(served(), "NVIDIA", Missing("no memory bandwidth"), 1e15), "no memory bandwidth"),
        (decode_speed(served(), "NVIDIA", 1e12, unknown), "no peak"),
        (prompt_speed(served(), unknown), "no peak"),
    ):
        assert isinstance(found, Missing)
        assert reason in found.reason
