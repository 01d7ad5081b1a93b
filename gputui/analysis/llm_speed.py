"""How fast a language model should generate, read prompts and train on GPUs nobody measured it on.

A roofline (Williams et al. 2009, doi 10.1145/1498765.1498785): a generated token reads every weight it is
multiplied with and the whole KV cache, so that memory bandwidth bounds it, and the peak the arithmetic of
many sequences; each layer adds a fixed time for launches and for what GPUs tell each other. The
constants are those of public results, whose spread is the range: `tests/benchmarks/decode_speeds.py`.
"""

from __future__ import annotations

from dataclasses import replace

from gputui.analysis.cost import Estimated
from gputui.analysis.fit import Shape, Training, Tricks
from gputui.analysis.inference_fit import ServedModel, cache_bytes, weight_bytes
from gputui.model.absent import Missing

_BANDWIDTH_SHARE, _AMD_SHARE = 0.9, 0.6
_LAYER_S = 90e-6
"""This and the share of the bandwidth fit every second of 78 public results on NVIDIA GPUs best; the share of
AMD's GPUs is the middle of all six."""
_DECODE_ENDS = (0.6, 1.35)
"""Multiples of what is predicted: all of these results are between them, but for one of each half."""
_PROMPT_MFU = (0.4, 0.13, 1.0)
"""Share of the peak, between its ends: llama.cpp on an H100 PCIe and on an RTX 3090, prompts of 512 tokens
(XiongjieDai/GPU-Benchmarks-on-LLM-Inference)."""
_TRAIN_MFU = (0.45, 0.26, 0.64)
"""The middle and the ends of 120 dense models on A100 and H100 (mosaicml/llm-foundry, train/benchmarking)."""


def decode_speed(
    serving: ServedModel,
    vendor: str,
    bandwidth_bytes_per_s: float | Missing,
    peak_flops_per_s: float | Missing,
) -> Estimated | Missing:
    """Generated tokens per second of all sequences together; Missing where a data sheet lacks something."""
    if isinstance(bandwidth_bytes_per_s, Missing):
        return bandwidth_bytes_per_s
    if isinstance(peak_flops_per_s, Missing):
        return peak_flops_per_s
    share = _AMD_SHARE if vendor == "AMD" else _BANDWIDTH_SHARE
    moved_s = step_bytes(serving) / (share * bandwidth_bytes_per_s)
    flops = 2 * serving.model.active_parameters * serving.batch / serving.gpus
    step_s = max(moved_s, flops / (_PROMPT_MFU[0] * peak_flops_per_s)) + serving.model.layers * _LAYER_S
    per_s = serving.batch / step_s
    return Estimated(per_s, *(per_s * end for end in _DECODE_ENDS))


def step_bytes(serving: ServedModel) -> int:
    """What each GPU reads for one more token of each sequence: weights and the KV cache.

    Of the embedding a token reads one row; of experts those that any sequence chose, as many as if each chose
    at random.
    """
    model = serving.model
    if model.experts:
        idle = (1 - model.active_experts / model.experts) ** serving.batch
        model = replace(model, experts=max(round(model.experts * (1 - idle)), model.active_experts))
    model = replace(model, is_tied=True)
    params = round(model.parameters * serving.params / serving.model.parameters)
    return weight_bytes(replace(serving, model=model, params=params)) + cache_bytes(serving)


def prompt_speed(serving: ServedModel, peak_flops_per_s: float | Missing) -> Estimated | Missing:
    """Tokens per second of a prompt that fills half of the context."""
    if isinstance(peak_flops_per_s, Missing):
        return peak_flops_per_s
    per_token = 2 * serving.model.active_parameters + _attention_flops(serving.model, serving.context // 2)
    per_s = serving.gpus * peak_flops_per_s / per_token
    return Estimated(*(per_s * share for share in _PROMPT_MFU))


def train_speed(
    training: Training, tricks: Tricks, vendor: str, peak_flops_per_s: float | Missing
) -> Estimated | Missing:
    """Tokens per second of a training with 16-bit products, on all GPUs together."""
    if isinstance(peak_flops_per_s, Missing):
        return peak_flops_per_s
    if training.precision.product > 2:
        return Missing("public rates are of 16-bit products: --precision amp, bf16 or mixed")
    if tricks.offload:
        return Missing("offloading waits for the host")
    if training.blocks.experts or vendor != "NVIDIA":
        return Missing("public rates are of dense models on NVIDIA GPUs")
    per_token = 6 * training.params + 3 * _attention_flops(training.blocks, training.context)
    per_s = tricks.gpus * peak_flops_per_s / per_token
    return Estimated(*(per_s * share for share in _TRAIN_MFU))


def _attention_flops(model: Shape, tokens: int) -> int:
    """Of scores and their products with values, for each token, as public shares of the peak count them."""
    return 4 * model.layers * model.heads * model.head_dim * tokens
