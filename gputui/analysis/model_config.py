"""The shape of a model from its published `config.json`, in the fields of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Mapping

from gputui.analysis.fit import Shape
from gputui.worker.foreign_json import whole

_LINEAR = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Whose other layers have linear attention, and whose queries have gates."""
_FULL_EVERY = {"gemma2": 2, "gpt_oss": 2, "olmo3": 4, "gemma3_text": 6, **dict.fromkeys(_LINEAR, 4)}
"""Of so many layers the last looks at all tokens, as transformers assumes without `layer_types`."""
KNOWN_TYPES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi3",
    "olmo3", "gpt_oss", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe", "glm4_moe_lite", "minimax_m2",
    "ministral3",
    *_LINEAR,
)  # fmt: skip
"""Values of `model_type` whose blocks are these: gated MLPs, norms, and attention of the kinds of `Shape`."""


def shape_of(config: Mapping[str, object], name: str, source: str) -> Shape:
    """The shape that a configuration describes; of a model of images and text, that for text.

    Raises ValueError for a model of another type, a field that lacks, and one that cannot be.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {**config, **text}
    kind = config.get("model_type")
    if kind not in KNOWN_TYPES:
        raise ValueError(f"model_type {kind!r:.40} is not known; known: {', '.join(KNOWN_TYPES)}")
    layers, width = _number(config, "num_hidden_layers"), _number(config, "hidden_size")
    heads = _number(config, "num_attention_heads")
    hidden = _optional(config, "intermediate_size", 0)
    experts = _first(config, "num_experts", "num_local_experts", "n_routed_experts")
    every = (config.get("decoder_sparse_step") or 1, config.get("moe_layer_freq") or 1)
    if config.get("mlp_only_layers") or every != (1, 1):
        raise ValueError("layers with and without experts alternate, which is not known")
    expert_hidden = _first(config, "moe_intermediate_size", "intermediate_size") if experts else 0
    shared = _optional(config, "n_shared_experts", 0) * expert_hidden
    latent, rotary, head_dim = 0, 0, _optional(config, "head_dim", width // heads)
    if config.get("kv_lora_rank"):
        rotary = _number(config, "qk_rope_head_dim")
        latent = _number(config, "kv_lora_rank") + rotary
        head_dim = _number(config, "qk_nope_head_dim") + rotary
    window_layers, linear_layers = _partial_layers(config, str(kind), layers)
    keys, state, linear_out, value_heads = 0, 0, 0, 0
    if linear_layers:
        value_heads = _number(config, "linear_num_value_heads")
        keys = _number(config, "linear_num_key_heads") * _number(config, "linear_key_head_dim")
        linear_out = value_heads * _number(config, "linear_value_head_dim")
        state = linear_out * _number(config, "linear_key_head_dim")
    shape = Shape(
        name,
        layers,
        width,
        heads,
        _optional(config, "num_key_value_heads", heads),
        head_dim,
        hidden,
        _number(config, "vocab_size"),
        _number(config, "max_position_embeddings"),
        is_tied=bool(config.get("tie_word_embeddings", str(kind).startswith("gemma"))),
        source=source,
        experts=experts,
        active_experts=_first(config, "num_experts_per_tok", "experts_per_token") if experts else 0,
        expert_hidden=expert_hidden,
        shared_hidden=_optional(config, "shared_expert_intermediate_size", shared) if experts else 0,
        dense_layers=_optional(config, "first_k_dense_replace", 0) if experts else 0,
        latent=latent,
        rotary=rotary,
        query_rank=_optional(config, "q_lora_rank", 0),
        value_dim=_optional(config, "v_head_dim", 0),
        window=_optional(config, "sliding_window", 0) if window_layers else 0,
        window_layers=window_layers,
        linear_layers=linear_layers,
        state=state,
        linear_in=2 * (keys + linear_out + value_heads),
        linear_out=linear_out,
        gated_queries=kind in _LINEAR,
        weight_format=_weight_format(config.get("quantization_config")),
    )
    if not (expert_hidden or hidden) or (shape.dense_layers and not hidden):
        raise ValueError("it has no intermediate_size")
    partial = max(window_layers, linear_layers, shape.dense_layers)
    if shape.heads % shape.kv_heads or shape.active_experts > experts or partial > layers:
        raise ValueError("its numbers of heads, experts or layers contradict each other")
    return shape


def _weight_format(quantization: object) -> str:
    """A name of `WEIGHT_FORMATS`, empty for 16 bits; of another method its own name."""
    if not isinstance(quantization, Mapping):
        return ""
    method = str(quantization.get("quant_algo") or quantization.get("quant_method") or "").lower()
    if method in ("awq", "gptq"):
        return f"int{quantization.get('bits')}"
    return "fp8" if method == "fbgemm_fp8" else method


def _partial_layers(config: Mapping[str, object], kind: str, layers: int) -> tuple[int, int]:
    """How many layers have a window, and how many linear attention."""
    stated = config.get("layer_types")
    every = _optional(config, "full_attention_interval", _FULL_EVERY.get(kind, 0))
    partial = layers - layers // every if every else layers
    if isinstance(stated, list):
        partial = sum(one != "full_attention" for one in stated)
    if kind in _LINEAR:
        return 0, partial
    is_off = kind.startswith("qwen") and not config.get("use_sliding_window")
    return (0, 0) if is_off or not config.get("sliding_window") else (partial, 0)


def _number(config: Mapping[str, object], field: str) -> int:
    if config.get(field) is None:
        raise ValueError(f"it has no {field}")
    try:
        return whole(config[field], 1, 10**7)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _optional(config: Mapping[str, object], field: str, default: int) -> int:
    return _number(config, field) if config.get(field) else default


def _first(config: Mapping[str, object], *fields: str) -> int:
    return next((_number(config, field) for field in fields if config.get(field)), 0)
