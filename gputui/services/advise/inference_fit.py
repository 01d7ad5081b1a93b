"""Will a model fit for inference: from what a user states to memory by part and the GPUs that have it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gputui.analysis.fit import Shape, nearest_shape
from gputui.analysis.inference_fit import (
    CACHE_BYTES,
    DECODERS,
    MOST_BATCH,
    MOST_CONTEXT,
    WEIGHT_FORMATS,
    InferenceParts,
    ServedModel,
    cache_bytes,
    decoder,
    fit_inference,
    inference_parts,
    needed_for_inference,
    possible_gpus,
)
from gputui.errors import GputuiError
from gputui.services.advise.gpu_choice import (
    FitAnswer,
    GpuClass,
    Wish,
    classes_of,
    headline,
    one_of,
    only,
    rows_asked,
    short_number,
    whole_number,
)

DEFAULT_CONTEXT = 8192
DEFAULT_VOCABULARY = 128256
"""Llama 3's."""
_ONLY_TRAINING = "; without --infer also amp, tf32, mixed"


@dataclass(frozen=True, slots=True)
class InferenceReport:
    """The answer."""

    headline: FitAnswer
    serving: ServedModel
    notes: tuple[str, ...]
    """What was assumed where nothing was stated, and what is doubtful."""
    parts: InferenceParts
    """On each of the GPUs that were stated."""
    cache_bytes_per_token: int
    """On all of them together."""
    classes: tuple[GpuClass, ...]
    """Of the GPUs asked for, in the order of their memory."""


def inference_report(wish: Wish) -> InferenceReport:
    """Answer a question about memory. Raises GputuiError for each invalid value and an unknown GPU."""
    weights = WEIGHT_FORMATS[one_of("--precision", wish.precision or "bf16", WEIGHT_FORMATS, _ONLY_TRAINING)]
    cache = "fp32" if weights.name == "fp32" else "fp16" if weights.name == "fp16" else "bf16"
    if wish.cache_precision is not None:
        cache = one_of("--kv-precision", wish.cache_precision, CACHE_BYTES)
    batch = whole_number("--batch", wish.batch, MOST_BATCH)
    gpus = whole_number("--gpus", wish.gpus or "1", 1024)
    rows = rows_asked(wish.gpu)
    model, params, notes = _model(wish)
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
    everywhere = classes_of(rows_asked(None), lambda memory_bytes: fit_inference(serving, memory_bytes))
    classes = only(everywhere, rows)
    subject = f"{short_number(params)} in {weights.name} with {context} tokens x {batch}"
    needs = needed_for_inference(serving)
    return InferenceReport(
        headline(subject, classes, everywhere, needs, wish.gpu is not None, gpus),
        serving,
        tuple(notes),
        inference_parts(serving),
        cache_bytes(replace(serving, batch=1, context=1, gpus=1)),
        classes,
    )


def _model(wish: Wish) -> tuple[Shape, int, list[str]]:
    """Shape and number of weights; what was not stated is taken from a published model, and noted."""
    params = None if wish.params is None else whole_number("--params", wish.params, 10**14)
    if (wish.layers is None) != (wish.width is None):
        raise GputuiError("--layers and --width go together", "give both or neither")
    vocabulary = None if wish.vocabulary is None else whole_number("--vocabulary", wish.vocabulary, 10**7)
    head_dim = None if wish.head_dim is None else whole_number("--head-dim", wish.head_dim, 2**16)
    kv_heads = None if wish.kv_heads is None else whole_number("--kv-heads", wish.kv_heads, 2**16)
    if wish.layers is None or wish.width is None:
        if params is None:
            raise GputuiError(
                "the size of the model is missing", "give --params 8e9, or --layers and --width"
            )
        near = nearest_shape(params, DECODERS)
        model = replace(
            near,
            vocabulary=vocabulary or near.vocabulary,
            head_dim=head_dim or near.head_dim,
            kv_heads=kv_heads or near.kv_heads,
        )
        notes = [f"{_cached(model)} as in {near.name}"]
        if not 0.5 <= near.parameters / params <= 2:
            notes.append("no published shape is near, so the KV cache is a guess: give --layers and --width")
    else:
        width = whole_number("--width", wish.width, 10**6)
        layers = whole_number("--layers", wish.layers, 10**5)
        if head_dim is not None and (head_dim > width or width % head_dim):
            raise GputuiError(f"--head-dim {head_dim}: does not divide --width {width}", "such as 64 or 128")
        model = decoder(layers, width, vocabulary or DEFAULT_VOCABULARY, head_dim, kv_heads)
        notes = [f"blocks as in LLaMA with {_cached(model)}"]
        if vocabulary is None:
            notes.append(f"vocabulary {model.vocabulary}")
    if model.heads % model.kv_heads:
        raise GputuiError(
            f"--kv-heads {model.kv_heads}: does not divide the {model.heads} attention heads",
            f"one of {', '.join(map(str, possible_gpus(model)))}",
        )
    return model, model.parameters if params is None else params, notes


def _cached(model: Shape) -> str:
    return f"{model.layers} layers x {model.kv_heads} KV heads x {model.head_dim}"
