"""On which GPUs a training or an inference fits, how fast it should be there, and what the cheapest costs."""

from __future__ import annotations

import datetime
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from gputui.analysis.fit import (
    GIB,
    NO_TRICK,
    PRECISIONS,
    STATES_PER_WEIGHT,
    Fit,
    Shape,
    Training,
    Tricks,
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
    decode_speed,
    fit_inference,
    needed_for_inference,
    possible_gpus,
    prompt_speed,
    train_speed,
)
from gputui.analysis.job import amount_of
from gputui.analysis.statistics import Estimated
from gputui.errors import GputuiError
from gputui.facts.tables import (
    GpuFacts,
    GpuRow,
    closest_gpus,
    gpu_rows,
    memory_of,
    peak_bandwidth,
    peak_for,
    rows_named,
    with_article,
)
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.units import format_bytes, format_usd, listed, three_digits, with_prefix
from gputui.services.advise.published_models import model_named, typical_shape
from gputui.services.prices import age_words, best_offer, is_on_demand, list_price

SHOWN_FIRST = 7
"""GPUs that are shown without `--all`."""
DEFAULT_CONTEXT = 8192
_TRAINED_CONTEXT = 4096
"""Tokens per sequence in training where none are stated: many models can take far more than is usual."""
_HOLDS = ("fits", "with tricks", "several GPUs")
_OPTIMIZER_TITLES = {
    "sgd": "SGD",
    "momentum": "SGD and momentum",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamw": "AdamW",
}
W = TypeVar("W", Training, ServedModel)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user stated of a model to be trained or served; None for what was not."""

    params: str | None = None
    model: str | None = None
    """Its name, or its `config.json`, in place of `params` and a shape."""
    precision: str | None = None
    """Of a training, or of the weights that are served."""
    batch: str = "1"
    context: str | None = None
    gpu: str | None = None
    optimizer: str | None = None
    cache_precision: str | None = None
    gpus: str | None = None


@dataclass(frozen=True, slots=True)
class GpuPick:
    """One kind of GPU: whether and on how many it fits, what they cost, and how fast they should be."""

    row: GpuRow
    memory_bytes: int
    """As `facts.tables.memory_of` has it, of each of them."""
    fit: Fit
    price: Price | Missing
    """Of the cheapest instance with as many as the fit needs, as `best_offer` has it."""
    age: str
    """`125 days old`, `date unsure`; empty if the price is recent."""
    speed: Estimated | Missing
    """Tokens per second on all of them together."""

    @property
    def holds(self) -> bool:
        """Whether it surely fits: what is tight does only with tricks."""
        return self.fit.word in _HOLDS or (self.fit.word == "tight" and self.fit.tricks != NO_TRICK)

    @property
    def usd_per_million(self) -> Estimated | Missing:
        """USD for a million tokens, at the share of the instance's price that its GPUs in use have."""
        if isinstance(self.speed, Missing):
            return self.speed
        if isinstance(self.price, Missing):
            return self.price
        usd = self.fit.gpus / self.price.gpu_count * self.price.usd_per_hour * 1e6 / 3600
        return Estimated(usd / self.speed.value, usd / self.speed.high, usd / self.speed.low)

    @property
    def order(self) -> tuple[float, ...]:
        """Sorts what holds it first, then recent prices on demand, then by cost per token, and per hour."""
        unlike = 0 if self.holds else 1 if self.fit.word == "tight" else 2
        if isinstance(self.price, Missing):
            return unlike, True, True, math.inf, math.inf, self.fit.gpus, self.memory_bytes
        cost, is_other = self.usd_per_million, not is_on_demand(self.price.kind)
        usd = math.inf if isinstance(cost, Missing) else cost.value
        return unlike, is_other, bool(self.age), usd, self.price.usd_per_hour, self.fit.gpus


@dataclass(frozen=True, slots=True)
class FitReport(Generic[W]):
    headline: str
    work: W
    notes: tuple[str, ...]
    """What was assumed where nothing was stated, and what is doubtful."""
    picks: tuple[GpuPick, ...]
    """The GPUs asked for, the cheapest per token first."""
    measured_by: str
    """What to type on such a box."""


def report(wish: Wish) -> FitReport[Training]:
    """What a training takes. Raises GputuiError for each invalid value and an unknown GPU."""
    optimizer = _one_of("--optimizer", wish.optimizer or "adamw", STATES_PER_WEIGHT)
    more = "; with --infer also fp16, fp8, int8, int4"
    precision = PRECISIONS[_one_of("--precision", wish.precision or "amp", PRECISIONS, more)]
    batch = whole_number("--batch", wish.batch, 2**20)
    names = {row.name for row in rows_asked(wish.gpu)}
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
    asked = [pick for pick in everywhere if pick.row.name in names]
    subject = (
        f"training {_called(wish, blocks, params)} with {_OPTIMIZER_TITLES[optimizer]} in {precision.name}"
        f" (batch {batch} x {context} tokens)"
    )
    answer = headline(subject, asked, everywhere, needed_bytes(training))
    return FitReport(answer, training, tuple(notes), tuple(asked), "gputui run llm")


def inference_report(wish: Wish) -> FitReport[ServedModel]:
    """What an inference takes. Raises GputuiError for each invalid value and an unknown GPU."""
    model, params, notes = _wished_model(wish)
    published = model.weight_format if wish.model is not None else ""
    precision, more = wish.precision or published or "bf16", "; with --train also amp, tf32, mixed"
    weights = WEIGHT_FORMATS[_one_of("--precision", precision, WEIGHT_FORMATS, more)]
    cache = weights.name if weights.name in ("fp32", "fp16") else "bf16"
    if wish.cache_precision is not None:
        cache = _one_of("--kv-precision", wish.cache_precision, CACHE_BYTES)
    batch = whole_number("--batch", wish.batch, MOST_BATCH)
    gpus = whole_number("--gpus", wish.gpus or "1", 1024)
    names = {row.name for row in rows_asked(wish.gpu)}
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
    asked = [pick for pick in everywhere if pick.row.name in names]
    subject = f"{_called(wish, model, params)} in {weights.name} with {context} tokens x {batch}"
    return FitReport(
        headline(subject, asked, everywhere, needed_for_inference(serving)),
        serving,
        tuple(notes),
        tuple(asked),
        f"gputui serve-bench http://localhost:8000 --concurrency {batch}",
    )


def _wished_model(wish: Wish) -> tuple[Shape, int, list[str]]:
    """Shape and number of weights; the shape of a size is that of a published model, and noted."""
    if wish.model is not None:
        shape = model_named(wish.model)
        # with whose activations the formula was not compared: that was done with blocks of LLaMA
        kinds = (
            (shape.experts, "experts"),
            (shape.latent, "compressed keys and values"),
            (shape.linear_layers, "linear attention"),
        )
        unlike = [kind for has_it, kind in kinds if has_it]
        notes = [f"activations of {listed(unlike)}, unchecked"] if unlike else []
        return shape, shape.parameters, notes
    if wish.params is None:
        raise GputuiError(
            "the size of the model is missing", "give its name, its config.json, or --params 8e9"
        )
    params = whole_number("--params", wish.params, 10**14)
    near = typical_shape(params)
    notes = [f"{near.layers} layers x {near.kv_heads} KV heads x {near.head_dim} as in {near.name}"]
    if not 0.5 <= near.parameters / params <= 2:
        notes.append("no published shape is near, so it is a guess: give its config.json")
    return near, params, notes


def _called(wish: Wish, shape: Shape, params: int) -> str:
    """`7B`; of a model that was named, `gpt-oss-120b (117B, 5.13B active)`: those of each token."""
    if wish.model is None:
        return _short_number(params)
    active = f", {_short_number(shape.active_parameters)} active" if shape.experts else ""
    return f"{shape.name} ({_short_number(params)}{active})"


def _short_number(number: int) -> str:
    """`7B`, `124M`, `70.6B` of a number of weights."""
    digits, prefix = with_prefix(number)
    return f"{float(digits):g}{prefix.replace('G', 'B').replace('k', 'K')}"


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


def rows_asked(name: str | None) -> tuple[GpuRow, ...]:
    """The GPUs that are asked about: all, or those that a name means.

    Raises GputuiError for a name that means none, or one of unknown memory.
    """
    if name is None:
        return gpu_rows()
    meant = rows_named(name)
    sized = tuple(row for row in meant if not isinstance(memory_of(row), Missing))
    if sized:
        return sized
    if meant:
        raise GputuiError(
            f"--gpu: {meant[0].name} comes with different memory sizes",
            "name it with its size: gputui pick 7B --all lists every GPU",
        )
    close = ", ".join(closest_gpus(name))
    raise GputuiError(
        f"--gpu: unknown GPU {name!r}",
        f"did you mean {close}?" if close else "gputui pick 7B --all lists every GPU",
    )


def picks_of(
    fit_of: Callable[[int], Fit], speed_of: Callable[[Fit, GpuRow], Estimated | Missing]
) -> tuple[GpuPick, ...]:
    """Every GPU of known memory, the cheapest per token first; `fit_of` takes bytes of one GPU."""
    fit_on, today = functools.cache(fit_of), datetime.date.today()
    found = []
    for row in gpu_rows():
        size = memory_of(row)
        if isinstance(size, Missing):
            continue
        on = fit_on(size)
        price: Price | Missing = Missing("it does not fit")
        speed: Estimated | Missing = Missing("it does not fit")
        if on.word != "does not fit":
            offer = best_offer(row.name, today, on.gpus)
            price = list_price(offer) if offer else Missing(f"no price known of {on.gpus} x {row.name}")
            speed = speed_of(on, row)
        age = "" if isinstance(price, Missing) else age_words(price.date, today)
        found.append(GpuPick(row, size, on, price, age, speed))
    return tuple(sorted(found, key=lambda pick: pick.order))


def headline(
    subject: str, asked: Sequence[GpuPick], everywhere: Sequence[GpuPick], needs: tuple[int, int]
) -> str:
    """The answer in two or three sentences: on how many of which GPU it fits, its price and its speed.

    `asked` are the GPUs that were named, `everywhere` all of them, both in their order; `needs` is what one
    GPU, or each of as many as were stated, must have without a trick, least and most.
    """
    low, high = (format_bytes(size) for size in needs)
    best, cheapest = asked[0], everywhere[0]
    has = f"{with_article(best.row.name)} has {format_bytes(best.memory_bytes)}"
    if best.holds:
        verb = "Fits" if len(asked) < len(everywhere) else "Cheapest"
        return f"{verb}: {subject} on {_priced(best)}."
    text = f"Does not fit: {subject} needs {high}, {has}."
    if best.fit.word == "tight":
        text = f"Tight: {subject} needs {low} to {high}, {has}."
    if not cheapest.holds:
        return f"{text} Take a smaller model, batch or context, or fewer bits per weight."
    return f"{text} The cheapest that holds it: {_priced(cheapest)}."


def _priced(pick: GpuPick) -> str:
    """`2 x H200 SXM with FSDP, 70.1 of 140 GiB each, from $6.20/h (runpod)`."""
    spread = "FSDP" if isinstance(pick.fit.longest_context, Missing) else "tensor parallelism"
    how = " and ".join(trick_words(pick.fit.tricks, spread, "checkpointing", "offloaded activations"))
    each = " each" if pick.fit.gpus > 1 else ""
    used = f"{three_digits(pick.fit.needed_bytes[1] / GIB)} of {format_bytes(pick.memory_bytes)}{each}"
    one = with_article(pick.row.name) if pick.fit.gpus == 1 else counted(pick)
    text = f"{one}{f' with {how}' if how else ''}, {used}"
    speed = f". Expected: {expected(pick)}" if expected(pick) else ""
    if isinstance(price := pick.price, Missing):
        return f"{text}{speed}"
    of = f" for {price.gpu_count:g} of them" if price.gpu_count > pick.fit.gpus else ""
    kind = "" if is_on_demand(price.kind) else price.kind
    told = ", ".join(filter(None, (price.provider, kind, pick.age)))
    return f"{text}, from {format_usd(price.usd_per_hour)}/h{of} ({told}){speed}"


def expected(pick: GpuPick) -> str:
    """`27.1 tok/s (16.3 to 36.6), $35.37 per 1M tokens`; empty where no speed is known."""
    if isinstance(pick.speed, Missing):
        return ""
    cost = pick.usd_per_million
    usd = "" if isinstance(cost, Missing) else f", {format_usd(cost.value)} per 1M tokens"
    return f"{speed_range(pick.speed, ' tok/s', ' to ')}{usd}"


def speed_range(speed: Estimated, unit: str = "", until: str = "–") -> str:
    """`27.1 (16.3–36.6)`, `12.1k (7.02k–17.3k)`."""
    value, low, high = ("".join(with_prefix(one)) for one in (speed.value, speed.low, speed.high))
    return f"{value}{unit} ({low}{until}{high})"


def counted(pick: GpuPick) -> str:
    """`2 x H200 SXM`."""
    return pick.row.name if pick.fit.gpus == 1 else f"{pick.fit.gpus} x {pick.row.name}"


def trick_words(tricks: Tricks, gpus: str, checkpoint: str, offload: str) -> list[str]:
    """Those that are used, three of them in these words."""
    named = (
        (tricks.gpus > 1, gpus),
        (tricks.checkpoint, checkpoint),
        (tricks.offload, offload),
        (tricks.pieces > 1, f"{tricks.pieces} micro-batches"),
    )
    return [word for is_used, word in named if is_used]


def whole_number(option: str, text: str, most: int, least: int = 1) -> int:
    """`7e9`, `7B`, `124M`, `2048` as a number. Raises GputuiError with the option's name."""
    value = amount_of(text.strip().replace("_", ""))
    if not math.isfinite(value) or value != round(value):
        raise GputuiError(f"{option}: must be a whole number, got {text!r}", "such as 2048, 7e9, 124M or 7B")
    if not least <= value <= most:
        typed = f"{most}" if most < 10**9 else f"{most:.0e}".replace("+", "")  # 1e14 may be typed, too
        raise GputuiError(f"{option}: {text} is out of range", f"from {least} to {typed}")
    return round(value)


def _one_of(option: str, text: str, known: Iterable[str], more: str = "") -> str:
    """The name among those known. Raises GputuiError that lists them, and `more`."""
    names = list(known)
    if text.strip().lower() in names:
        return text.strip().lower()
    close = difflib.get_close_matches(text.lower(), names, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise GputuiError(
        f"{option}: unknown {option.lstrip('-')} {text!r}", f"{meant}one of {', '.join(names)}{more}"
    )
