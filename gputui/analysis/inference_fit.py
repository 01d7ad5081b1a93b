"""Will a language model fit for inference, and how fast it should be on GPUs nobody measured it on.

The model is a decoder of LLaMA's blocks, as `gputui.worker.models` has them, with grouped queries
(Ainslie et al. 2023, arXiv 2305.13245). Weights and cache stay where they are, so that only activations
come and go.

Speeds are a roofline (Williams et al. 2009, doi 10.1145/1498765.1498785): a generated token reads every
weight it is multiplied with and the whole KV cache, so that memory bandwidth bounds it, and the peak the
arithmetic of many sequences; each layer adds a fixed time for launches and for what GPUs tell each other. The
constants are those of public results, whose spread is the range: `tests/benchmarks/decode_speeds.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from gputui.analysis.fit import (
    FRAGMENTED,
    NO_TRICK,
    OVERHEAD_BYTES,
    Fit,
    Parts,
    Shape,
    Training,
    Tricks,
    greatest,
)
from gputui.analysis.statistics import Estimated
from gputui.model.absent import Missing

PREFILL_TOKENS = 8192
"""Most tokens in one forward pass: vLLM's server cuts prompts into chunks (`max_num_batched_tokens`), by
default of 8192 tokens on GPUs of 70 GiB and more, of 2048 on others."""
MOST_BATCH = 2**20
MOST_CONTEXT = 2**24
INT4_GROUP = 128
"""Weights that share a scale in int4: GPTQ (arXiv 2210.17323) and AWQ (arXiv 2306.00978)."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    name: str
    title: str
    bits: int
    other_bytes: int
    """Of each number that is not quantized: embedding, head, norms and activations."""
    scale_bits: int = 0
    """Of the scale, and zero point, that a group of weights shares; 0 without quantization."""
    group: int | None = None
    """Weights of one output that share a scale; None: all of them."""
    of_experts_only: bool = False
    """True: in a mixture of experts, all other weights stay in 16 bits."""


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    f.name: f
    for f in (
        WeightFormat("fp32", "32-bit weights", 32, 4),
        WeightFormat("fp16", "16-bit weights", 16, 2),
        WeightFormat("bf16", "16-bit weights", 16, 2),
        WeightFormat("fp8", "8-bit weights with a scale per output", 8, 2, 32),
        WeightFormat("int8", "8-bit weights with a scale per output", 8, 2, 32),
        WeightFormat("int4", "4-bit weights with a scale per 128", 4, 2, 20, INT4_GROUP),
        WeightFormat("mxfp4", "4-bit weights of experts with a scale per 32", 4, 2, 8, 32, True),
        WeightFormat("nvfp4", "4-bit weights with a scale per 16", 4, 2, 8, 16),
    )
}
"""fp8 and int8 have one scale per output, as torch's rowwise `scaled_mm` takes them (ScaledBlas.cpp) and
LLM.int8() has them (arXiv 2208.07339). int4 has a 16-bit scale and a 4-bit zero point per group, 0.16 bits
per weight, as GPTQ counts. mxfp4 has an 8-bit scale per 32 (OCP Microscaling 1.0), nvfp4 one per 16.
Embedding, head, norms and routers stay in 16 bits, as these methods leave them."""
CACHE_BYTES: dict[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Of one number of the KV cache."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    params: int
    weights: WeightFormat
    cache: str
    """One of CACHE_BYTES."""
    model: Shape
    batch: int
    """Sequences at a time."""
    context: int
    """Tokens of each, prompt and answer together."""
    gpus: int = 1
    """Over which products and heads are split (tensor parallelism)."""


INFERENCE_PART_TITLES: dict[str, str] = {
    "weights": "weights",
    "cache": "KV cache",
    "activations": "activations",
}


def weight_bytes(serving: ServedModel) -> int:
    """Weights and their scales on each GPU.

    Products, embedding and head are split evenly over the GPUs and norms are on each, as Megatron-LM does
    it (Shoeybi et al. 2019, arXiv 1909.08053, section 3). Heads of keys and values that are fewer than the
    GPUs are on several. Scales are in proportion where `params` is not the shape's number.
    """
    return _weight_bytes(serving.params, serving.weights, serving.model, serving.gpus)


@lru_cache(maxsize=1024)  # a search for the largest batch asks for the same weights again and again
def _weight_bytes(params: int, form: WeightFormat, model: Shape, gpus: int) -> int:
    only_experts = form.of_experts_only and model.experts > 0
    blocks = max(params - model.end_weights - model.small_weights, 0)
    quantized = model.expert_weights if only_experts else model.block_weights
    bits: float = quantized * form.bits + (model.block_weights - quantized) * 8 * form.other_bytes
    if form.scale_bits:
        bits += model.scales(form.group, only_experts) * form.scale_bits
    bits *= blocks / model.block_weights * (1 + model.copied_weights(gpus) / model.block_weights)
    others = (params - blocks - model.small_weights) / gpus + model.small_weights
    return math.ceil(bits / 8 / gpus + max(others, 0) * form.other_bytes)


def cache_bytes(serving: ServedModel) -> int:
    """Keys and values of all tokens on each GPU: 2 x layers x KV heads x head size x bytes x tokens x batch.

    Kwon et al. 2023, arXiv 2309.06180, section 3, with KV heads in place of heads. A GPU has its share of the
    KV heads and no less than one. A layer with a window keeps no more tokens than that; one with compressed
    keys and values (MLA) keeps those, on each GPU; one with linear attention keeps a state, whatever the
    context. A paged cache rounds each sequence up to its page, of 16 tokens in vLLM, which is left out.
    """
    model = serving.model
    numbers = model.latent or 2 * math.ceil(model.kv_heads / serving.gpus) * model.head_dim
    whole_layers = model.layers - model.window_layers - model.linear_layers
    tokens = whole_layers * serving.context + model.window_layers * min(serving.context, model.window)
    state = model.linear_layers * math.ceil(model.state / serving.gpus)
    return (numbers * tokens + state) * CACHE_BYTES[serving.cache] * serving.batch


def activation_bytes(serving: ServedModel, tokens: int | None = None) -> int:
    """The most that one forward pass of so many tokens holds on each GPU; of None, of the largest chunk.

    Counted in `gputui.worker.models`, in the MLP of a layer, d numbers wide: the layer's input and the
    sum after attention (2 d), q, k and v, what attention gave, and 4 h: gate and up, the activated gate, and
    what goes into the last product. Each layer uses the same memory again. Attention is fused and keeps no
    matrix of tokens x tokens. Or, if that is more, the fp32 scores of each sequence's last token.
    """
    model, gpus = serving.model, serving.gpus
    if tokens is None:
        tokens = min(serving.batch * serving.context, max(PREFILL_TOKENS, serving.batch))
    heads = 2 * model.heads + 2 * math.ceil(model.kv_heads / gpus) * gpus
    split = math.ceil((heads * model.head_dim + 4 * model.active_hidden) / gpus)
    in_a_layer = tokens * (2 * model.width + split) * serving.weights.other_bytes
    return max(in_a_layer, serving.batch * model.vocabulary * 4)


def inference_parts(serving: ServedModel) -> Parts:
    activations = activation_bytes(serving)
    return Parts(weight_bytes(serving), activations=activations, cache=cache_bytes(serving))


def needed_for_inference(serving: ServedModel) -> tuple[int, int]:
    """Memory each GPU must have, from what is surely needed to what is surely enough.

    The same overhead as of a training; only activations fragment, as the rest is allocated once.
    """
    parts = inference_parts(serving)
    low, high = OVERHEAD_BYTES
    return parts.total + low, parts.total + math.ceil(parts.activations * FRAGMENTED) + high


def possible_gpus(model: Shape) -> tuple[int, ...]:
    """Numbers of GPUs over which the heads split evenly, as tensor parallelism needs."""
    return tuple(n for n in range(1, model.heads + 1) if model.heads % n == 0)


def fit_inference(serving: ServedModel, memory_bytes: int) -> Fit:
    """Try it on as many GPUs as stated, then on more."""

    def found(word: str, on: ServedModel) -> Fit:
        return Fit(
            word,
            on.gpus,
            NO_TRICK if on is serving else Tricks(gpus=on.gpus),
            needed_for_inference(on),
            _most(on, "batch", memory_bytes, MOST_BATCH),
            Missing("nothing is kept for a backward pass"),
            _most(on, "context", memory_bytes, MOST_CONTEXT),
        )

    low, high = needed_for_inference(serving)
    if high <= memory_bytes:
        return found("fits", serving)
    if low <= memory_bytes:
        return found("tight", serving)
    for gpus in possible_gpus(serving.model):
        on = replace(serving, gpus=gpus)
        if gpus > serving.gpus and needed_for_inference(on)[1] <= memory_bytes:
            return found("several GPUs", on)
    return found("does not fit", serving)


def _most(serving: ServedModel, what: str, memory_bytes: int, most: int) -> int:
    def fits(number: int) -> bool:
        changed = replace(serving, **{what: number})  # type: ignore[arg-type]
        return needed_for_inference(changed)[1] <= memory_bytes

    return greatest(fits, most)


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
    model = replace(model, tied=True)
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
