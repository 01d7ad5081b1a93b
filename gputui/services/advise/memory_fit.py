"""Whether a training or an inference fits: from what users state to its memory and the GPUs that have it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from gputui.analysis.cost import Estimated
from gputui.analysis.fit import (
    PRECISIONS,
    STATES_PER_WEIGHT,
    Fit,
    Shape,
    Training,
    fit,
    needed_bytes,
)
from gputui.analysis.inference_fit import (
    CACHE_BYTES,
    MOST_BATCH,
    MOST_CONTEXT,
    WEIGHT_FORMATS,
    ServedModel,
    cache_bytes,
    fit_inference,
    needed_for_inference,
    possible_gpus,
)
from gputui.analysis.llm_speed import decode_speed, prompt_speed, train_speed
from gputui.errors import GputuiError
from gputui.facts.tables import GpuFacts, GpuRow, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.units import listed
from gputui.services.advise.gpu_choice import (
    GpuPick,
    Wish,
    headline,
    one_of,
    picks_of,
    rows_asked,
    short_number,
    whole_number,
)
from gputui.services.advise.published_models import model_named, typical_shape

_TRAINED_CONTEXT = 4096
"""Tokens per sequence in training where none are stated: many models can take far more than is usual."""
OPTIMIZER_TITLES = {
    "sgd": "SGD",
    "momentum": "SGD and momentum",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamw": "AdamW",
}
W = TypeVar("W", Training, ServedModel)
_ONLY_INFER = "; with --infer also fp16, fp8, int8, int4"


@dataclass(frozen=True, slots=True)
class FitReport(Generic[W]):
    """The answer."""

    headline: str
    work: W
    notes: tuple[str, ...]
    """What was assumed where nothing was stated, and what is doubtful."""
    picks: tuple[GpuPick, ...]
    """The GPUs asked for, the cheapest per token first."""
    measured_by: str
    """What to type on such a box."""


def report(wish: Wish) -> FitReport[Training]:
    """Answer a question about memory. Raises GputuiError for each invalid value and an unknown GPU."""
    optimizer = one_of("--optimizer", wish.optimizer or "adamw", STATES_PER_WEIGHT)
    precision = PRECISIONS[one_of("--precision", wish.precision or "amp", PRECISIONS, _ONLY_INFER)]
    batch = whole_number("--batch", wish.batch, 2**20)
    rows = rows_asked(wish.gpu)
    blocks, params, notes = _wished_model(wish)
    context = min(blocks.context, _TRAINED_CONTEXT)
    if wish.context is None:
        notes.append(f"{context} tokens")
    else:
        context = whole_number("--context", wish.context, 2**24)
    training = Training(params, optimizer, precision, blocks, batch, context)
    everywhere = picks_of(
        partial(fit, training),
        lambda on, row: train_speed(training, on.tricks, row.vendor, peak_for(GpuFacts(row, ""), "fp16")),
    )
    asked = [pick for pick in everywhere if pick.row in rows]
    subject = (
        f"training {_called(wish, blocks, params)} with {OPTIMIZER_TITLES[optimizer]} in {precision.name}"
        f" (batch {batch} x {context} tokens)"
    )
    answer = headline(subject, asked, everywhere, needed_bytes(training))
    return FitReport(answer, training, tuple(notes), tuple(asked), "gputui run llm")


def _wished_model(wish: Wish) -> tuple[Shape, int, list[str]]:
    """Shape and number of weights; the shape of a size is that of a published model, and noted."""
    if wish.model is not None:
        shape = model_named(wish.model)
        return shape, shape.parameters, _unlike_ours(shape)
    if wish.params is None:
        raise GputuiError(
            "the size of the model is missing", "give its name, its config.json, or --params 8e9"
        )
    params = whole_number("--params", wish.params, 10**14)
    near = typical_shape(params)
    cached = f"{near.layers} layers x {near.kv_heads} KV heads x {near.head_dim}"
    notes = [f"{cached} as in {near.name}"]
    if not 0.5 <= near.parameters / params <= 2:
        notes.append("no published shape is near, so it is a guess: give its config.json")
    return near, params, notes


def _unlike_ours(shape: Shape) -> list[str]:
    """What of a published model is no block of LLaMA, with whose activations the formula was compared."""
    kinds = (
        (shape.experts, "experts"),
        (shape.latent, "compressed keys and values"),
        (shape.linear_layers, "linear attention"),
    )
    named = [kind for has_it, kind in kinds if has_it]
    return [f"activations of {listed(named)}, unchecked"] if named else []


def _called(wish: Wish, shape: Shape, params: int) -> str:
    """`7B`; of a model that was named, `gpt-oss-120b (117B, 5.13B active)`: those of each token."""
    if wish.model is None:
        return short_number(params)
    active = f", {short_number(shape.active_parameters)} active" if shape.experts else ""
    return f"{shape.name} ({short_number(params)}{active})"


DEFAULT_CONTEXT = 8192
_ONLY_TRAINING = "; with --train also amp, tf32, mixed"


def inference_report(wish: Wish) -> FitReport[ServedModel]:
    """Answer a question about memory. Raises GputuiError for each invalid value and an unknown GPU."""
    model, params, notes = _wished_model(wish)
    published = model.weight_format if wish.model is not None else ""
    precision = wish.precision or published or "bf16"
    weights = WEIGHT_FORMATS[one_of("--precision", precision, WEIGHT_FORMATS, _ONLY_TRAINING)]
    cache = "fp32" if weights.name == "fp32" else "fp16" if weights.name == "fp16" else "bf16"
    if wish.cache_precision is not None:
        cache = one_of("--kv-precision", wish.cache_precision, CACHE_BYTES)
    batch = whole_number("--batch", wish.batch, MOST_BATCH)
    gpus = whole_number("--gpus", wish.gpus or "1", 1024)
    rows = rows_asked(wish.gpu)
    if gpus not in (possible := possible_gpus(model)):
        raise GputuiError(
            f"--gpus {gpus}: {model.heads} attention heads do not split evenly over {gpus} GPUs",
            f"one of {', '.join(map(str, possible))}",
        )
    if wish.context is None:
        context = min(DEFAULT_CONTEXT, model.context)
        notes.append(f"{context} tokens")
    else:
        context = whole_number("--context", wish.context, MOST_CONTEXT)
        if model.name and context > model.context:
            notes.append(f"{model.name} was trained for {model.context} tokens")
    serving = ServedModel(params, weights, cache, model, batch, context, gpus)
    everywhere = picks_of(partial(fit_inference, serving), partial(decode_speed_on, serving))
    asked = [pick for pick in everywhere if pick.row in rows]
    subject = f"{_called(wish, model, params)} in {weights.name} with {context} tokens x {batch}"
    return FitReport(
        headline(subject, asked, everywhere, needed_for_inference(serving)),
        serving,
        tuple(notes),
        tuple(asked),
        f"gputui serve-bench http://localhost:8000 --concurrency {batch}",
    )


def decode_speed_on(serving: ServedModel, on: Fit, row: GpuRow) -> Estimated | Missing:
    """Generated tokens per second on as many of these GPUs as are needed."""
    gpu, served = GpuFacts(row, ""), replace(serving, gpus=on.gpus)
    return decode_speed(served, row.vendor, peak_bandwidth(gpu), _peak(serving, gpu))


def prompt_speed_on(serving: ServedModel, pick: GpuPick) -> Estimated | Missing:
    """Tokens per second of prompts on as many of these GPUs as are needed."""
    return prompt_speed(replace(serving, gpus=pick.fit.gpus), _peak(serving, GpuFacts(pick.row, "")))


def _peak(serving: ServedModel, gpu: GpuFacts) -> float | Missing:
    """Of 16-bit products, also where weights have fewer bits: an engine may widen them."""
    return peak_for(gpu, "fp32" if serving.weights.name == "fp32" else "fp16")


def bytes_per_token(serving: ServedModel) -> int:
    """Of the KV cache, on all GPUs together, while no window is full."""
    one = replace(serving, batch=1, gpus=1)
    return cache_bytes(replace(one, context=2)) - cache_bytes(replace(one, context=1))
