"""What published models take, against what their papers and cards state and engines log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from published_figures import CACHED, LOADED, STATED

from gputui.analysis.fit import GIB, PRECISIONS, layer_bytes_per_token
from gputui.analysis.inference_fit import WEIGHT_FORMATS, ServedModel, cache_bytes, weight_bytes
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.services.advise.gpu_choice import Wish, bytes_per_token, inference_report, report
from gputui.services.advise.published_models import model_named, published_shapes

SMALL = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


def served(name: str, precision: str = "bf16", context: int = 1, gpus: int = 1) -> ServedModel:
    model = model_named(name)
    return ServedModel(model.parameters, WEIGHT_FORMATS[precision], "bf16", model, 1, context, gpus)


@pytest.mark.parametrize(("name", "billions", "active", "source"), STATED)
def test_a_model_has_the_weights_that_are_stated_for_it(
    name: str, billions: float, active: float | None, source: str
) -> None:
    model = model_named(name)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.03), source
    if active is not None:
        assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.03), source


@pytest.mark.parametrize(("name", "precision", "gpus", "gib", "source"), LOADED)
def test_weights_are_as_large_as_an_engine_or_the_card_says(
    name: str, precision: str, gpus: int, gib: float, source: str
) -> None:
    assert weight_bytes(served(name, precision, gpus=gpus)) / GIB == pytest.approx(gib, rel=0.03), source


@pytest.mark.parametrize(("name", "tokens", "number_bytes", "mib", "source"), CACHED)
def test_the_kv_cache_is_as_large_as_an_engine_or_the_paper_says(
    name: str, tokens: int, number_bytes: float, mib: float, source: str
) -> None:
    in_bf16 = cache_bytes(served(name, context=tokens))
    assert in_bf16 * number_bytes / 2 / 2**20 == pytest.approx(mib, rel=0.03), source


def test_gpt_oss_120b_fits_one_gpu_of_80_gb_with_all_its_context() -> None:
    found = inference_report(Wish(model="gpt-oss-120b", context="131072", gpu="H100 SXM 80GB"))
    assert found.work.weights.name == "mxfp4"
    (one,) = found.picks
    assert (one.fit.word, one.fit.gpus) == ("fits", 1)


@pytest.mark.parametrize(("gpu", "word"), [("H200 SXM", "fits"), ("H100 SXM 80GB", "several GPUs")])
def test_deepseek_v3_fits_8_h200_and_not_8_h100(gpu: str, word: str) -> None:
    found = inference_report(Wish(model="deepseek-v3", gpu=gpu, gpus="8"))
    assert found.work.weights.name == "fp8"
    (one,) = found.picks
    assert one.fit.word == word
    assert one.fit.gpus == (8 if word == "fits" else 16)


def test_a_layer_with_a_window_caches_no_more_than_that_and_linear_attention_the_same_always() -> None:
    oss = served("gpt-oss-120b")
    per_layer = 2 * 8 * 64 * 2
    assert cache_bytes(replace(oss, context=128)) == 128 * 36 * per_layer
    assert cache_bytes(replace(oss, context=1000)) == (1000 * 18 + 128 * 18) * per_layer
    hybrid = served("Qwen3 Next 80B-A3B")
    state = 36 * 32 * 128 * 128 * 2
    assert cache_bytes(hybrid) == state + 12 * 2 * 2 * 256 * 2
    assert cache_bytes(replace(hybrid, context=1000)) == state + 1000 * 12 * 2 * 2 * 256 * 2

    assert bytes_per_token(served("qwen3-next")) == 12 * 2 * 2 * 256 * 2
    assert bytes_per_token(oss) == 72 * 1024


def test_compressed_keys_and_values_are_whole_on_each_gpu() -> None:
    assert cache_bytes(served("DeepSeek-V3", gpus=8)) == cache_bytes(served("DeepSeek-V3")) == 61 * 576 * 2


def test_mxfp4_quantizes_the_experts_and_nvfp4_all_products() -> None:
    model = model_named("gpt-oss-120b")
    others = 2 * (model.parameters - model.expert_weights)
    assert weight_bytes(served(model.name, "mxfp4")) == others + model.expert_weights * 4.25 // 8
    rest = 2 * (model.parameters - model.block_weights)
    assert weight_bytes(served(model.name, "nvfp4")) == rest + model.block_weights * 4.5 // 8
    dense = model_named("Qwen3 8B")
    assert weight_bytes(served(dense.name, "mxfp4")) < weight_bytes(served(dense.name, "nvfp4"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama-3-8b", "Llama 3 8B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama 3.1 8B"),
        ("Meta-Llama-3.1-405B", "Llama 3.1 405B"),
        ("llama3.1:8b", "Llama 3.1 8B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5 7B"),
        ("qwen3-30b", "Qwen3 30B-A3B"),
        ("google/gemma-3-27b-it", "Gemma 3 27B"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral 8x7B"),
        ("mistral-7b", "Mistral 7B v0.3"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"),
        ("kimi", "Kimi-K2"),
        ("gpt-oss-1", "gpt-oss-120b"),
    ],
)
def test_a_model_is_found_by_its_name_as_hubs_write_it_or_by_an_unambiguous_beginning(
    text: str, name: str
) -> None:
    assert model_named(text).name == name


def test_each_published_model_is_found_by_its_own_name_and_has_a_source() -> None:
    for shape in published_shapes():
        assert model_named(shape.name) is model_named(shape.name.replace(" ", "-").lower()) is shape
        assert shape.source


def test_a_name_that_means_none_or_several_lists_those_that_are_near() -> None:
    with pytest.raises(GputuiError) as several:
        model_named("gpt-oss")
    assert several.value.hint == "one of gpt-oss-20b, gpt-oss-120b"
    with pytest.raises(GputuiError) as mistyped:
        model_named("depseek-v3")
    assert mistyped.value.hint.startswith("did you mean DeepSeek-V3")
    with pytest.raises(GputuiError, match="unknown model"):
        model_named("zzz")


def test_a_config_json_has_the_shape_of_the_model_that_it_is_of(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    oss = {
        "architectures": ["GptOssForCausalLM"],
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "quantization_config": {"quant_method": "mxfp4"},
        "sliding_window": 128,
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    }
    (folder / "config.json").write_text(json.dumps(oss))
    known = model_named("gpt-oss-120b")
    for text in (str(folder), str(folder / "config.json")):
        found = model_named(text)
        assert found.name == "mine"
        assert replace(found, name=known.name, source=known.source) == known
    for quantized, format_name in (
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (None, "bf16"),
    ):
        (folder / "config.json").write_text(json.dumps({**oss, "quantization_config": quantized}))
        assert inference_report(Wish(model=str(folder))).work.weights.name == format_name
    strange = {**oss, "quantization_config": {"quant_method": "own"}}
    (folder / "config.json").write_text(json.dumps(strange))
    with pytest.raises(GputuiError, match="unknown precision 'own'"):
        inference_report(Wish(model=str(folder)))
    assert inference_report(Wish(model=str(folder), precision="int8")).work.weights.bits == 8
    with_images = {"model_type": "mllama", "text_config": oss, "vision_config": {"hidden_size": 1}}
    (folder / "config.json").write_text(json.dumps(with_images))
    assert model_named(str(folder)).parameters == known.parameters


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[]", "it is no object"),
        ("{", ""),
        ('{"model_type": "mamba2"}', "model_type 'mamba2' is not known"),
        ('{"model_type": "llama", "num_hidden_layers": 2}', "it has no hidden_size"),
        ('{"model_type": "llama", "num_hidden_layers": -2}', "num_hidden_layers: -2 is not"),
        ('{"model_type": "llama", "num_hidden_layers": "2"}', "num_hidden_layers: '2' is not"),
        (json.dumps({**SMALL, "intermediate_size": None}), "it has no intermediate_size"),
        (
            json.dumps({**SMALL, "num_experts": 4, "decoder_sparse_step": 2}),
            "with and without experts alternate",
        ),
        (json.dumps({**SMALL, "num_key_value_heads": 3}), "contradict each other"),
        (json.dumps({**SMALL, "num_experts": 4, "num_experts_per_tok": 5}), "contradict each other"),
    ],
)
def test_a_config_that_says_no_shape_is_an_error_that_names_it(
    tmp_path: Path, config: str, message: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(config)
    with pytest.raises(GputuiError) as caught:
        model_named(str(file))
    assert caught.value.exit_code == EXIT_USAGE
    assert message in caught.value.message
    assert str(file) in caught.value.message


def test_a_model_by_name_is_trained_with_its_own_weights() -> None:
    found = report(Wish(model="qwen3-30b"))
    assert found.work.params == model_named("qwen3-30b").parameters
    assert found.work.blocks.active_hidden == 8 * 768
    assert found.work.context == 4096
    per_token = layer_bytes_per_token(found.work.blocks, PRECISIONS["bf16"])
    assert per_token == 2 * (4 * 2048 + 6 * 32 * 128 + 4 * 8 * 768) + 16 + 4 * 32
    assert found.notes[0] == "activations of experts, unchecked"
