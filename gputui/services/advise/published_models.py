"""Which language model is meant by a name, a `config.json`, or only a size, and its shape.

A `config.json` has the fields of Hugging Face transformers.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path

from gputui.analysis.fit import Shape
from gputui.errors import GputuiError
from gputui.facts.tables import model_configs, source_rows
from gputui.worker.foreign_json import read_json_file, whole

_LARGEST_CONFIG_BYTES = 2**22
_VARIANT = re.compile(r"-(instruct|chat|it|base|hf|thinking|text|v[0-9.]+|[0-9]{4})$")
"""What names of models with the same shape end in."""
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


@functools.cache
def published_shapes() -> tuple[Shape, ...]:
    """All models of `models.csv`."""
    return tuple(
        shape_of(
            config, name, "; ".join(source_rows()[key].title for key in str(config["source"]).split(";"))
        )
        for name, config in model_configs().items()
    )


def typical_shape(params: int) -> Shape:
    """The published model that stands for those of this size: the nearest by ratio."""
    typical = [shape for shape in published_shapes() if "by_size" in model_configs()[shape.name]]
    return min(typical, key=lambda shape: abs(math.log(shape.parameters / params)))


def model_named(text: str) -> Shape:
    """The model of a name, of an unambiguous beginning of one, or of a `config.json` or its folder.

    Raises GputuiError for a name that means none or several, and a file that says no shape.
    """
    if text.endswith(".json") or Path(text, "config.json").is_file():
        return _shape_in(Path(text))
    wanted = _plain(text)
    known = {_plain(shape.name): shape for shape in published_shapes()}
    shorter = _VARIANT.sub("", wanted)
    for name in (wanted, shorter, _VARIANT.sub("", shorter)):
        meant = [known[name]] if name in known else [s for k, s in known.items() if k.startswith(name)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise GputuiError(f"{text} may be several models", f"one of {_listed(meant)}")
    from difflib import get_close_matches  # only needed for a mistyped name

    close = [known[name] for name in get_close_matches(shorter, known, n=5, cutoff=0.4)]
    raise GputuiError(
        f"unknown model {text!r}",
        f"did you mean {_listed(close)}? " * bool(close)
        + "Else give its config.json, or its size, such as 7B; for result files --job TEXT",
    )


def _plain(name: str) -> str:
    """`llama-3.1-8b` of `meta-llama/Llama 3.1 8B`, `Meta-Llama-3.1-8B`, `llama3.1:8b`."""
    words = re.sub(r"[\s_:]+", "-", name.rpartition("/")[2].strip().lower())
    return re.sub(r"^(meta-)?(llama|qwen|gemma|phi)-?(?=[0-9])", r"\2", words)


def _listed(shapes: list[Shape]) -> str:
    return ", ".join(shape.name.replace(" ", "-") for shape in shapes[:8])


def _shape_in(path: Path) -> Shape:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = read_json_file(file, _LARGEST_CONFIG_BYTES)
        if not isinstance(config, dict):
            raise ValueError("it is no object")
        return shape_of(config, file.resolve().parent.name, str(file))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise GputuiError(f"{file}: {why}", "give the config.json that a model is published with") from None


def shape_of(config: Mapping[str, object], name: str, source: str) -> Shape:
    """The shape that a configuration describes; of a model of images and text, that for text.

    Raises ValueError for a model of another type, a field that lacks, and one that cannot be.
    """
    if isinstance(text := config.get("text_config"), Mapping):
        config = {**config, **text}
    kind = config.get("model_type")
    if kind not in KNOWN_TYPES:
        raise ValueError(f"model_type {kind!r:.40} is not known; known: {', '.join(KNOWN_TYPES)}")
    number = functools.partial(_number, config)
    layers, width, heads = map(number, ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    hidden = number("intermediate_size", default=0)
    experts = number("num_experts", "num_local_experts", "n_routed_experts", default=0)
    every = (config.get("decoder_sparse_step") or 1, config.get("moe_layer_freq") or 1)
    if config.get("mlp_only_layers") or every != (1, 1):
        raise ValueError("layers with and without experts alternate, which is not known")
    active_experts, expert_hidden, shared_hidden, dense_layers = _experts(config) if experts else (0, 0, 0, 0)
    rotary = number("qk_rope_head_dim") if config.get("kv_lora_rank") else 0
    latent = number("kv_lora_rank") + rotary if rotary else 0
    head_dim = number("qk_nope_head_dim") + rotary if rotary else number("head_dim", default=width // heads)
    partial_every = number("full_attention_interval", default=_FULL_EVERY.get(str(kind), 0))
    window_layers, linear_layers = _partial_layers(config, str(kind), layers, partial_every)
    linear_in, linear_out, state = _linear_attention(config) if linear_layers else (0, 0, 0)
    shape = Shape(
        name,
        layers,
        width,
        heads,
        number("num_key_value_heads", default=heads),
        head_dim,
        hidden,
        number("vocab_size"),
        number("max_position_embeddings"),
        tied=bool(config.get("tie_word_embeddings", str(kind).startswith("gemma"))),
        source=source,
        experts=experts,
        active_experts=active_experts,
        expert_hidden=expert_hidden,
        shared_hidden=shared_hidden,
        dense_layers=dense_layers,
        latent=latent,
        rotary=rotary,
        query_rank=number("q_lora_rank", default=0),
        value_dim=number("v_head_dim", default=0),
        window=number("sliding_window", default=0) if window_layers else 0,
        window_layers=window_layers,
        linear_layers=linear_layers,
        state=state,
        linear_in=linear_in,
        linear_out=linear_out,
        gated_queries=kind in _LINEAR,
        weight_format=_weight_format(config.get("quantization_config")),
    )
    if not (expert_hidden or hidden) or (dense_layers and not hidden):
        raise ValueError("it has no intermediate_size")
    partial = max(window_layers, linear_layers, dense_layers)
    if heads % shape.kv_heads or active_experts > experts or partial > layers:
        raise ValueError("its numbers of heads, experts or layers contradict each other")
    return shape


def _number(config: Mapping[str, object], *fields: str, default: int | None = None) -> int:
    """The first of these fields that is there."""
    field = next((field for field in fields if config.get(field)), fields[0])
    if default is not None and not config.get(field):
        return default
    if config.get(field) is None:
        raise ValueError(f"it has no {field}")
    try:
        return whole(config[field], 1, 10**7)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _experts(config: Mapping[str, object]) -> tuple[int, int, int, int]:
    """How many each token passes, their width, that of those which all pass, and layers without any."""
    number = functools.partial(_number, config)
    hidden = number("moe_intermediate_size", "intermediate_size", default=0)
    shared = number("n_shared_experts", default=0) * hidden
    return (
        number("num_experts_per_tok", "experts_per_token", default=0),
        hidden,
        number("shared_expert_intermediate_size", default=shared),
        number("first_k_dense_replace", default=0),
    )


def _linear_attention(config: Mapping[str, object]) -> tuple[int, int, int]:
    """Widths of what goes into a layer of it and comes out, and the numbers of its state."""
    number = functools.partial(_number, config)
    value_heads, key_dim = number("linear_num_value_heads"), number("linear_key_head_dim")
    out = value_heads * number("linear_value_head_dim")
    return 2 * (number("linear_num_key_heads") * key_dim + out + value_heads), out, out * key_dim


def _weight_format(quantization: object) -> str:
    """A name of `WEIGHT_FORMATS`, empty for 16 bits; of another method its own name."""
    if not isinstance(quantization, Mapping):
        return ""
    method = str(quantization.get("quant_algo") or quantization.get("quant_method") or "").lower()
    if method in ("awq", "gptq"):
        return f"int{quantization.get('bits')}"
    return "fp8" if method == "fbgemm_fp8" else method


def _partial_layers(config: Mapping[str, object], kind: str, layers: int, every: int) -> tuple[int, int]:
    """How many layers have a window, and how many linear attention, where the last of so many has neither."""
    stated = config.get("layer_types")
    partial = layers - layers // every if every else layers
    if isinstance(stated, list):
        partial = sum(one != "full_attention" for one in stated)
    if kind in _LINEAR:
        return 0, partial
    is_off = kind.startswith("qwen") and not config.get("use_sliding_window")
    return (0, 0) if is_off or not config.get("sliding_window") else (partial, 0)
