"""Whether a training or an inference fits: from what users state to its memory and the GPUs that have it."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    activation_parts,
    fit,
    gpt_shape,
    needed_bytes,
    peak_of,
)
from gputui.analysis.inference_fit import (
    CACHE_BYTES,
    MOST_BATCH,
    MOST_CONTEXT,
    WEIGHT_FORMATS,
    ServedModel,
    cache_bytes,
    decoder,
    fit_inference,
    needed_for_inference,
    possible_gpus,
)
from gputui.analysis.llm_speed import decode_speed, prompt_speed, train_speed
from gputui.errors import GputuiError
from gputui.facts.tables import GpuFacts, GpuRow, peak_bandwidth, peak_for
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run
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
from gputui.services.results.metrics import metrics_of
from gputui.services.results.selectors import split_selector
from gputui.store.reading import open_result
from gputui.store.selecting import find_run
from gputui.worker import declared_as

_LLAMA3_VOCABULARY = 128256
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
class Measured:
    """Activations in a result file relative to the formula at the same shape."""

    ratio: float
    where: str
    """The case, its device and its run."""


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
    measured: Measured | None = None
    """Whence activations are, if not from the formula alone."""
    warnings: tuple[str, ...] = ()


def report(wish: Wish) -> FitReport[Training]:
    """Answer a question about memory.

    Raises GputuiError for each invalid value, an unknown GPU, and a file that cannot be read or has no
    activations at that precision.
    """
    optimizer = one_of("--optimizer", wish.optimizer or "adamw", STATES_PER_WEIGHT)
    precision = PRECISIONS[one_of("--precision", wish.precision or "amp", PRECISIONS, _ONLY_INFER)]
    batch = whole_number("--batch", wish.batch, 2**20)
    context = None if wish.context is None else whole_number("--context", wish.context, 2**24)
    rows = rows_asked(wish.gpu)
    blocks, params, notes = _wished_model(wish)
    if context is None:
        context = min(blocks.context, _TRAINED_CONTEXT)
        notes.append(f"{context} tokens")
    stated = None if wish.activations is None else whole_number("--activations", wish.activations, 10**18, 0)
    if stated is not None and wish.file is not None:
        raise GputuiError("--activations and --file both set the activations", "give one of them")
    training = Training(params, optimizer, precision, blocks, batch, context, stated_activations_bytes=stated)
    measured: Measured | None = None
    warnings: tuple[str, ...] = ()
    if wish.file is not None:
        measured, warnings = _measured(wish.file, precision.name, wish.trust)
        training = replace(training, measured_ratio=measured.ratio)
    everywhere = picks_of(
        partial(fit, training),
        lambda on, row: train_speed(training, on.tricks, row.vendor, peak_for(GpuFacts(row, ""), "fp16")),
    )
    asked = [pick for pick in everywhere if pick.row in rows]
    subject = (
        f"training {_called(wish, blocks, params)} with {OPTIMIZER_TITLES[optimizer]} in {precision.name}"
        f" (batch {batch} x {context} tokens)"
    )
    return FitReport(
        headline(subject, asked, everywhere, needed_bytes(training)),
        training,
        tuple(notes),
        tuple(asked),
        "gputui run llm",
        measured,
        warnings,
    )


_SHAPE_OPTIONS = ("params", "layers", "width", "vocabulary", "kv_heads", "head_dim")


def _wished_model(wish: Wish) -> tuple[Shape, int, list[str]]:
    """Shape and number of weights; what was not stated is taken from a published model, and noted."""
    if wish.model is not None:
        stated = next((name for name in _SHAPE_OPTIONS if getattr(wish, name) is not None), None)
        if stated is not None:
            option = f"--{stated.replace('_', '-')}"
            raise GputuiError(f"{option}: {wish.model} has its own shape", f"leave {option} out")
        shape = model_named(wish.model)
        return shape, shape.parameters, _unlike_ours(shape)
    params = None if wish.params is None else whole_number("--params", wish.params, 10**14)
    if (wish.layers is None) != (wish.width is None):
        raise GputuiError("--layers and --width go together", "give both or neither")
    vocabulary = None if wish.vocabulary is None else whole_number("--vocabulary", wish.vocabulary, 10**7)
    head_dim = None if wish.head_dim is None else whole_number("--head-dim", wish.head_dim, 2**16)
    kv_heads = None if wish.kv_heads is None else whole_number("--kv-heads", wish.kv_heads, 2**16)
    if wish.layers is None or wish.width is None:
        if params is None:
            raise GputuiError(
                "the size of the model is missing",
                "give its name, its config.json, --params 8e9, or --layers and --width",
            )
        near = typical_shape(params)
        shape = replace(
            near,
            vocabulary=vocabulary or near.vocabulary,
            head_dim=head_dim or near.head_dim,
            kv_heads=kv_heads or near.kv_heads,
        )
        notes = [f"{_cached(shape)} as in {near.name}"]
        if not 0.5 <= near.parameters / params <= 2:
            notes.append("no published shape is near, so it is a guess: give --layers and --width")
    else:
        width = whole_number("--width", wish.width, 10**6)
        layers = whole_number("--layers", wish.layers, 10**5)
        if head_dim is not None and (head_dim > width or width % head_dim):
            raise GputuiError(f"--head-dim {head_dim}: does not divide --width {width}", "such as 64 or 128")
        shape = decoder(layers, width, vocabulary or _LLAMA3_VOCABULARY, head_dim, kv_heads)
        size = short_number(shape.parameters)
        notes = [f"blocks as in LLaMA with {_cached(shape)}, which have {size} weights"]
        if params is not None and not 0.8 <= shape.parameters / params <= 1.25:
            notes.append(f"weights by --params {wish.params}, which is another size; the rest by the shape")
    if vocabulary is None and not shape.name:
        notes.append(f"vocabulary {shape.vocabulary}")
    if shape.heads % shape.kv_heads:
        raise GputuiError(
            f"--kv-heads {shape.kv_heads}: does not divide the {shape.heads} attention heads",
            f"one of {', '.join(map(str, possible_gpus(shape)))}",
        )
    return shape, shape.parameters if params is None else params, notes


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


def _measured(text: str, precision: str, trust: bool) -> tuple[Measured, tuple[str, ...]]:
    """The ratio of measured to computed activations in a file; of the newest run that has one."""
    path, selector = split_selector(text)
    with open_result(path, trust) as opened:
        summaries = opened.summaries()
        newest_first = sorted(summaries, key=lambda s: s.started_utc_us, reverse=True)
        for summary in [find_run(summaries, selector)] if selector else newest_first:
            found = list(_ratios(opened.run(summary.run_id), opened.profiled(summary.run_id), precision))
            if found:
                _, best = max(found, key=lambda pair: pair[0])
                return best, opened.warnings
    raise GputuiError(
        f"{text}: holds no activations measured with {precision}",
        f"measure them: gputui run memory --db {path}; or leave --file out to use the formula",
    )


def _ratios(
    run: Run, passes: dict[int, ProfiledPass], precision: str
) -> Iterator[tuple[tuple[bool, int], Measured]]:
    """Each case with known activations, with its preference: GPUs, then larger shapes."""
    for result in run.cases:
        training = training_of(result.case)
        if training is None or result.case.variant.precision != precision:
            continue
        ratio = _ratio_of(result, passes.get(result.case_id), training)
        if ratio is not None and math.isfinite(ratio) and ratio > 0:
            work = result.case.work
            where = (
                f"{work.workload} {work.size} {precision} on {result.device_name}, run {run.summary.short_id}"
            )
            size = training.batch * training.context * training.blocks.width
            yield (result.case.variant.device_class == "gpu", size), Measured(ratio, where)


def training_of(case: Case) -> Training | None:
    """What a case of `gpt_train`, or of `memory_tricks` without a technique, trains; None for any other."""
    stated = dict(case.work.parameters)
    if case.work.workload not in ("gpt_train", "memory_tricks") or stated.get("trick", "none") != "none":
        return None
    try:
        layers, heads, width, context, vocabulary, batch = (
            int(stated[name]) for name in ("layers", "heads", "width", "context", "vocabulary", "batch")
        )
    except (KeyError, ValueError):
        return None
    precision = PRECISIONS.get(declared_as(case.variant.precision))
    if precision is None or min(layers, heads, width, context, vocabulary, batch) < 1 or width % heads:
        return None
    blocks = gpt_shape(layers, width, vocabulary, context)
    blocks = replace(blocks, heads=heads, kv_heads=heads, head_dim=width // heads)
    return Training(blocks.parameters, "adamw", precision, blocks, batch, context)


def _ratio_of(result: CaseResult, profiled: ProfiledPass | None, training: Training) -> float | None:
    """Measured activations relative to the formula: after the forward pass, else at the peak."""
    whole = activation_parts(training)
    after = (
        None if profiled is None else next((p for p in profiled.memory if p.point == "after_forward"), None)
    )
    if after is not None:
        return (after.activations_bytes - whole.copies - whole.loss) / whole.activations
    figures = {f.key: f.value for f in metrics_of(result)}
    activations = figures.get("activations_at_peak_bytes")
    gradients = figures.get("gradients_at_peak_bytes")
    if not isinstance(activations, (int, float)) or not isinstance(gradients, (int, float)):
        return None
    peak = peak_of(training).parts
    if gradients > 0.5 * training.params * training.precision.gradient:
        return None  # the peak came late, when most activations were gone
    return (activations - peak.copies - min(peak.loss, whole.loss)) / peak.activations


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


def _cached(model: Shape) -> str:
    return f"{model.layers} layers x {model.kv_heads} KV heads x {model.head_dim}"
