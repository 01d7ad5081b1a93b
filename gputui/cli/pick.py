"""`gputui pick`: which GPUs hold this model, how fast they should be, and which cost least per token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any  # Any: what click passes on

import click

from gputui.analysis.fit import (
    MOST_BATCH,
    PART_TITLES,
    Fit,
    Parts,
    Training,
    all_at_once,
    peak_of,
)
from gputui.analysis.inference_fit import (
    INFERENCE_PART_TITLES,
    MOST_CONTEXT,
    ServedModel,
    inference_parts,
)
from gputui.analysis.job import amount_of
from gputui.analysis.statistics import Estimated
from gputui.cli.options import json_option
from gputui.cli.output import print_json, printed
from gputui.document.spans import Span
from gputui.document.table import Cell, table_of
from gputui.errors import GputuiError
from gputui.model.absent import Missing, fields_of, to_plain
from gputui.model.journal import Price
from gputui.model.units import format_bytes, format_usd
from gputui.services.advise.gpu_choice import (
    SHOWN_FIRST,
    FitReport,
    GpuPick,
    Wish,
    bytes_per_token,
    counted,
    decode_speed_on,
    expected,
    inference_report,
    prompt_speed_on,
    report,
    speed_range,
    trick_words,
    whole_number,
)
from gputui.services.prices import is_on_demand

_LARGE_PARTS = 5
"""Of the peak; the smaller ones are shown with --all only."""
_MOST_AT_ONCE = 128
"""Sequences: the most in the public results with which predictions were compared."""

_LEAST_PARAMS, _MOST_PARAMS = 1000, 10**14
"""A smaller number is one of billions without its letter."""
_ONLY_TRAINING = ("optimizer",)
_ONLY_INFERENCE = ("kv_precision", "gpus")

COMMON = ("--infer", "--batch", "--context", "--precision", "--gpu", "--all", "--gpus", "--kv-precision")


@click.command()
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--infer/--train", default=True, help="Inference or training.  [--infer]")
@click.option("--params", metavar="N", help="Weights of the model: 7e9, 7B, 124M.")
@click.option(
    "--precision",
    metavar="NAME",
    help="fp32, tf32, amp, bf16, mixed [amp]; with --infer fp32, fp16, bf16, fp8, int8, int4, mxfp4,"
    " nvfp4 [as published].",
)
@click.option("--batch", default="1", metavar="B", help="Sequences at a time, per GPU in training.  [1]")
@click.option("--context", metavar="T", help="Tokens per sequence.  [the model's; with --infer 8192]")
@click.option("--gpu", metavar="NAME", help="Only GPUs with this name, such as H200.")
@click.option("--all", "every", is_flag=True, help="Show every GPU, and memory by part.")
@click.option("--optimizer", metavar="NAME", help="sgd, momentum, rmsprop, adagrad, adam, adamw.  [adamw]")
@click.option("--kv-precision", metavar="NAME", help="--infer: fp32, fp16, bf16, fp8, int8.  [16-bit]")
@click.option("--gpus", metavar="N", help="--infer: split over N GPUs (tensor parallelism).  [1]")
@json_option
def command(
    model: str | None,
    infer: bool,
    params: str | None,
    every: bool,
    as_json: bool,
    **stated: Any,
) -> None:
    """Which GPUs hold a model, how fast they should be, and which cost least?

    MODEL is a published model, such as gpt-oss-120b, a config.json, or --params, such as 7B. Speeds are
    calculated, not measured.
    """
    if model is not None and params is not None:
        raise GputuiError(f"{model} and --params {params}: two sizes of the model", "give one of them")
    if model is not None and not math.isnan(amount_of(model.replace("_", ""))):
        whole_number("MODEL", model, _MOST_PARAMS)
        model, params = None, model
    if params is not None and params.isdigit() and int(params) < _LEAST_PARAMS:
        raise GputuiError(f"{params}: a model of {params} weights is too small", f"did you mean {params}B?")
    mistaken, why = (_ONLY_TRAINING, "training") if infer else (_ONLY_INFERENCE, "inference")
    for name in mistaken:
        if stated[name] is not None:
            option, instead = f"--{name.replace('_', '-')}", "--train" if infer else "--infer"
            raise GputuiError(f"{option}: only for {why}", f"leave it out, or add {instead}")
    wish = Wish(params=params, model=model, cache_precision=stated.pop("kv_precision"), **stated)
    if infer:
        served = inference_report(wish)
        if as_json:
            prompts = partial(prompt_speed_on, served.work)
            print_json({**_plain_inference(served.work), **_plain_picks(served, prompts)})
        else:
            _print_inference(served, every)
        return
    found = report(wish)
    if as_json:
        print_json({**_plain_training(found.work), **_plain_picks(found)})
    else:
        _print_training(found, every)


def _print_training(found: FitReport[Training], every: bool) -> None:
    peak = peak_of(found.work)
    parts = [(title, getattr(peak.parts, name)) for name, title in PART_TITLES.items()]
    shown = sorted(parts, key=lambda part: -part[1])[: None if every else _LARGE_PARTS]
    _print(
        found,
        every,
        {
            "batch": lambda fit: _count(fit.largest_batch, MOST_BATCH),
            "ckpt": lambda fit: _count(fit.largest_batch_checkpoint, MOST_BATCH),
        },
        "batch: on one GPU. ckpt: with checkpointing.",
        f"Peak ({peak.moment}): {_listed(shown)}.",
        "Activations by formula: within 10 % on CPUs, not checked on GPUs.",
    )


def _print_inference(found: FitReport[ServedModel], every: bool) -> None:
    serving, model, best = found.work, found.work.model, found.picks[0]
    longest = max(model.context, serving.context) if model.name else MOST_CONTEXT
    each = f"On each of {serving.gpus} GPUs" if serving.gpus > 1 else "In all"
    parts = inference_parts(serving)
    listed = _listed((title, getattr(parts, name)) for name, title in INFERENCE_PART_TITLES.items())
    kept = ""
    if model.window_layers:
        kept = f", in {model.window_layers} of {model.layers} layers of the last {model.window} only"
    elif model.linear_layers:
        kept = f"; {model.linear_layers} of {model.layers} layers keep a state instead"
    per_token = format_bytes(bytes_per_token(serving))
    # how fast prompts are on the GPUs that the headline names, and what tokens cost where these are full
    batch, prompts = min(best.fit.largest_batch, _MOST_AT_ONCE), prompt_speed_on(serving, best)
    full = replace(best, speed=decode_speed_on(replace(serving, batch=batch), best.fit, best.row))
    limits = ""
    if best.holds and isinstance(full.speed, Estimated) and isinstance(prompts, Estimated):
        limits = f"With batch {batch}: {expected(full)}. Prompts: {speed_range(prompts, ' tok/s', ' to ')}."
    _print(
        found,
        every,
        {
            "batch": lambda fit: _count(fit.largest_batch, MOST_BATCH),
            "context": lambda fit: _count(fit.longest_context, MOST_CONTEXT, longest),
        },
        f"batch: the most with {serving.context} tokens. context: the longest, batch {serving.batch}.",
        f"{each}: {listed}.",
        limits,
        f"{serving.weights.title}; KV cache in {serving.cache}, {per_token} per token{kept}.",
    )


def _listed(parts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{title} {format_bytes(size)}" for title, size in parts if size)


def _print(
    found: FitReport[Any], every: bool, most: Mapping[str, Callable[[Fit], str]], legend: str, *about: str
) -> None:
    """The answer, a line for each GPU (all, or those that cost least per token), and what it is about."""
    shown = found.picks if every else found.picks[:SHOWN_FIRST]
    rows: list[tuple[Cell, ...]] = [
        (
            counted(one),
            Span(_verdict(one), _STYLES.get(one.fit.word, "")),
            _price(one),
            "—" if isinstance(one.speed, Missing) else speed_range(one.speed),
            "—" if isinstance(cost, Missing) else format_usd(cost.value).lstrip("$"),
            *(of(one.fit) for of in most.values()),
        )
        for one in shown
        for cost in (one.usd_per_million,)
    ]
    notes = ["$/h: whole box. $/1M: its GPUs in use. tok/s: calculated.", legend]
    if any(one.age for one in shown):
        notes.append("*: price over 90 days old.")
    prices = (one.price for one in shown if isinstance(one.price, Price))
    if other := {price.kind for price in prices if not is_on_demand(price.kind)}:
        notes.append(f"+: not on demand: {', '.join(sorted(other))}.")
    headings = ("GPU", "fit", "$/h", "tok/s (range)", "$/1M", *most)
    with printed() as page:
        page.line(found.headline, "title")
        page.table(table_of(headings, rows, right=(2, 3, 4, 5, 6), breaks=(0, 1)))
        page.line(" ".join(notes), "dim")
        for line in filter(None, about):
            page.line(line)
        if found.notes:
            page.line(f"Assumed: {'; '.join(found.notes)}.", "dim")
        page.hint("to measure it there", found.measured_by)
        if len(found.picks) > len(shown):
            page.hint(f"shown: the cheapest per token; all {len(found.picks)} GPUs", "--all")


def _price(pick: GpuPick) -> str:
    if isinstance(pick.price, Missing):
        return "—"
    kind = "" if is_on_demand(pick.price.kind) else "+"
    return f"{kind}{'*' if pick.age else ''}{pick.price.usd_per_hour:.2f}"


def _count(found: int | Missing, most: int, trained: int = MOST_CONTEXT) -> str:
    """`16`, `131k`; `any` of the most that is tried, and no more than a model was trained for."""
    if isinstance(found, Missing):
        return "—"
    count = min(found, trained)
    if count in (0, most):
        return "any" if count else "none"
    return str(count) if count < 10_000 else f"{count // 1000}k"


def _verdict(pick: GpuPick) -> str:
    tricks = trick_words(pick.fit.tricks, "", "ckpt", "offload")
    return ", ".join(filter(None, tricks)) or _SHORT.get(pick.fit.word, pick.fit.word)


_SHORT = {"does not fit": "no", "several GPUs": "fits"}
_STYLES = {
    "fits": "good",
    "several GPUs": "good",
    "tight": "warn",
    "with tricks": "warn",
    "does not fit": "dim",
}


_SHAPE = ("name", "source", "layers", "width", "hidden")
_SERVED_SHAPE = (
    *("heads", "kv_heads", "head_dim", "vocabulary", "tied", "context"),
    *("experts", "active_experts", "expert_hidden", "shared_hidden", "dense_layers"),
    *("latent", "window", "window_layers", "linear_layers"),
)
"""What is said of a model, and what only of one that is served; the rest of a shape is how it is counted."""


def _plain_training(training: Training) -> dict[str, object]:
    peak = peak_of(training)
    return {
        **fields_of(training, "params", "optimizer"),
        "precision": training.precision.name,
        **fields_of(training, "batch", "context"),
        "shape": fields_of(training.blocks, *_SHAPE, "heads", "vocabulary", "gated"),
        "all_at_once": _bytes(all_at_once(training)),
        "peak": {"moment": peak.moment, **_bytes(peak.parts)},
    }


def _plain_inference(serving: ServedModel) -> dict[str, object]:
    model, parts = serving.model, inference_parts(serving)
    return {
        "params": serving.params,
        "active_params": model.active_parameters if model.experts else serving.params,
        "precision": serving.weights.name,
        "kv_precision": serving.cache,
        **fields_of(serving, "batch", "context"),
        "gpus_stated": serving.gpus,
        "shape": fields_of(model, *_SHAPE, *_SERVED_SHAPE),
        "parts": {
            "weights_bytes": parts.weights,
            "cache_bytes": parts.cache,
            "cache_bytes_per_token": bytes_per_token(serving),
            "activations_bytes": parts.activations,
            "total_bytes": parts.total,
        },
    }


def _plain_picks(
    found: FitReport[Any],
    prompts: Callable[[GpuPick], Estimated | Missing] | None = None,
) -> dict[str, object]:
    """The answer, the GPUs by size, and their names in the order of their cost per token."""

    def size(pick: GpuPick) -> tuple[int, float]:
        return pick.memory_bytes, pick.row.memory_gib or 0.0

    return {
        **fields_of(found, "headline", "measured_by", "notes"),
        "gpus": [_plain_size([*some]) for _, some in groupby(sorted(found.picks, key=size), key=size)],
        "shown_first": [pick.row.name for pick in found.picks[:SHOWN_FIRST]],
        "ranking": [
            {
                "name": pick.row.name,
                "gpus": pick.fit.gpus,
                "tokens_per_s": to_plain(pick.speed),
                "usd_per_million_tokens": to_plain(pick.usd_per_million),
                **({"prompt_tokens_per_s": to_plain(prompts(pick))} if prompts else {}),
            }
            for pick in found.picks
            if pick.holds
        ],
    }


def _plain_size(picks: Sequence[GpuPick]) -> dict[str, object]:
    one = picks[0]
    low, high = one.fit.needed_bytes
    return {
        "names": [pick.row.name for pick in picks],
        "memory_gib": one.row.memory_gib,
        "memory_bytes": one.memory_bytes,
        "memory_is_estimated": one.row.nvml_memory_mib is None,
        "word": one.fit.word,
        "needed_low_bytes": low,
        "needed_high_bytes": high,
        "offers": [
            {"name": pick.row.name, **to_plain(pick.price), "is_recent": not pick.age}
            for pick in picks
            if not isinstance(pick.price, Missing)
        ],
        **fields_of(one.fit, "gpus", "tricks", "largest_batch"),
        **fields_of(one.fit, "largest_batch_checkpoint", "longest_context"),
    }


def _bytes(parts: Parts) -> dict[str, int]:
    return {f"{name}_bytes": size for name, size in fields_of(parts, *PART_TITLES, "total").items()}
