"""`gputui fit`: will training this model, or inference with it, fit on that GPU."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any  # Any: what click passes on

import click

from gputui.analysis.fit import MOST_BATCH, PART_TITLES, Fit
from gputui.analysis.inference_fit import INFERENCE_PART_TITLES, MOST_CONTEXT
from gputui.analysis.job import amount_of
from gputui.cli.options import json_option
from gputui.cli.output import print_json, printed, warn
from gputui.document.page import Page
from gputui.document.spans import Span
from gputui.document.table import Table, table_of
from gputui.errors import GputuiError
from gputui.model.absent import Missing, known
from gputui.model.units import format_bytes, format_percent
from gputui.services.advise.gpu_choice import (
    SHOWN_FIRST,
    GpuClass,
    Wish,
    shown_first,
    trick_words,
    whole_number,
)

if TYPE_CHECKING:
    from gputui.services.advise.memory_fit import FitReport, InferenceReport

_ONE_BOX = 8
"""GPUs; the table does not spell out what needs more, unless an instance has them."""
_LEAST_SHARE = 0.01
"""Of the peak: a smaller part is shown with --all only."""

_LEAST_PARAMS, _MOST_PARAMS = 1000, 10**14
"""A smaller number is one of billions without its letter."""
_ONLY_TRAINING = ("optimizer", "activations", "file", "trust")
_ONLY_INFERENCE = ("kv_heads", "head_dim", "kv_precision", "gpus")

COMMON = (
    "--infer", "--batch", "--context", "--precision", "--gpu", "--all", "--gpus", "--kv-precision",
    "--layers", "--width",
)  # fmt: skip


@click.command()
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--infer", is_flag=True, help="Inference (weights and KV cache) instead of training.")
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
@click.option("--layers", metavar="L", help="Number of layers.  [a published model's near --params]")
@click.option("--width", metavar="W", help="Hidden size.  [that model's]")
@click.option("--vocabulary", metavar="V", help="Vocabulary size.  [that model's]")
@click.option("--optimizer", metavar="NAME", help="sgd, momentum, rmsprop, adagrad, adam, adamw.  [adamw]")
@click.option("--activations", metavar="BYTES", help="Activations of the batch, instead of the formula.")
@click.option("--file", metavar="F[@RUN]", help="Use the activations measured there.")
@click.option("--trust", is_flag=True, help="Read a file with macros or triggers too.")
@click.option("--kv-heads", metavar="N", help="--infer: number of KV heads (GQA).")
@click.option("--head-dim", metavar="N", help="--infer: size of a head.  [128]")
@click.option("--kv-precision", metavar="NAME", help="--infer: fp32, fp16, bf16, fp8, int8.  [16-bit]")
@click.option("--gpus", metavar="N", help="--infer: split over N GPUs (tensor parallelism).  [1]")
@json_option
def command(
    model: str | None, infer: bool, params: str | None, every: bool, as_json: bool, **stated: Any
) -> None:
    """Will a model fit on a GPU, and what does the cheapest one cost?

    MODEL is a published model, such as gpt-oss-120b, a config.json, or --params, such as 7B. Or give --layers
    and --width.
    """
    if model is not None and params is not None:
        raise GputuiError(f"{model} and --params {params}: two sizes of the model", "give one of them")
    if model is not None and not math.isnan(amount_of(model.replace("_", ""))):
        whole_number("MODEL", model, _MOST_PARAMS)
        model, params = None, model
    if params is not None and params.isdigit() and int(params) < _LEAST_PARAMS:
        raise GputuiError(f"{params}: a model of {params} weights is too small", f"did you mean {params}B?")
    if infer:
        _refuse(stated, _ONLY_TRAINING, "only for training", "leave it out, or leave out --infer")
    else:
        _refuse(stated, _ONLY_INFERENCE, "only for inference", "add --infer, or leave it out")
    from gputui.services.advise.memory_fit import inference_report, report

    wish = Wish(params=params, model=model, cache_precision=stated.pop("kv_precision"), **stated)
    if infer:
        served = inference_report(wish)
        if as_json:
            print_json(_plain_inference(served))
        else:
            _print_inference(served, every)
        return
    found = report(wish)
    warn(found.warnings)
    if as_json:
        print_json(_plain(found))
    else:
        _print_training(found, every)


def _refuse(stated: Mapping[str, object], names: Iterable[str], why: str, hint: str) -> None:
    for name in names:
        if stated[name] not in (None, False):
            raise GputuiError(f"--{name.replace('_', '-')}: {why}", hint)


def _print_training(found: FitReport, every: bool) -> None:
    most = {one.names: (_batch(one.fit.largest_batch), _checkpointed(one.fit)) for one in found.classes}
    with printed() as page:
        page.line(found.headline.text, "title")
        _write_gpus(page, found.classes, found.headline.names, every, ("batch", "ckpt"), most)
        if every:
            page.table(_part_table(found))
        else:
            parts = {title: getattr(found.peak.parts, name) for name, title in PART_TITLES.items()}
            least = _LEAST_SHARE * found.peak.parts.total
            large = sorted((p for p in parts.items() if p[1] >= least), key=lambda part: -part[1])
            page.line(f"Peak ({found.peak.moment}): {_listed(large)}.")
        if found.notes:
            page.line(f"Assumed: {'; '.join(found.notes)}.", "dim")
        page.line(f"ckpt: batch with checkpointing. {_activations_from(found)}", "dim")
        _write_counted(page, found.classes, "1 GiB + 5 %", every)


def _print_inference(found: InferenceReport, every: bool) -> None:
    serving, model = found.serving, found.serving.model
    longest = max(model.context, serving.context) if model.name else MOST_CONTEXT
    most = {
        one.names: (
            ("none", "none")
            if _is_too_many(one.fit.gpus, bool(one.offers)) and one.fit.gpus > serving.gpus
            else (_batch(one.fit.largest_batch), _tokens(one.fit.longest_context, longest))
        )
        for one in found.classes
    }
    each = f"On each of {serving.gpus} GPUs" if serving.gpus > 1 else "On one GPU"
    listed = _listed((title, getattr(found.parts, name)) for name, title in INFERENCE_PART_TITLES.items())
    per_token = format_bytes(found.cache_bytes_per_token)
    kept = ""
    if model.window_layers:
        kept = f", in {model.window_layers} of {model.layers} layers of the last {model.window} only"
    elif model.linear_layers:
        kept = f"; {model.linear_layers} of {model.layers} layers keep a state instead"
    legend = (
        f"batch: the largest with {serving.context} tokens. context: the longest with batch {serving.batch}."
    )
    with printed() as page:
        page.line(found.headline.text, "title")
        _write_gpus(page, found.classes, found.headline.names, every, ("batch", "context"), most)
        page.line(f"{each}: {listed}.")
        page.line(f"{serving.weights.title}; KV cache in {serving.cache}, {per_token} per token{kept}.")
        if found.notes:
            page.line(f"Assumed: {'; '.join(found.notes)}.", "dim")
        page.line(legend, "dim")
        _write_counted(page, found.classes, "1 GiB", every)


def _listed(parts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{title} {format_bytes(size)}" for title, size in parts if size)


def _write_counted(page: Page, classes: Sequence[GpuClass], overhead: str, every: bool) -> None:
    known = len(_names(classes))
    page.line(f"Counted for the driver and libraries: {overhead}, an estimate.", "dim")
    if known > SHOWN_FIRST and not every:
        page.hint(f"shown: the GPUs most offered for rent; all {known}", "--all")


def _part_table(found: FitReport) -> Table:
    rows = []
    total = found.peak.parts.total
    for name, title in PART_TITLES.items():
        whole, at_peak = getattr(found.at_once, name), getattr(found.peak.parts, name)
        if whole or at_peak:
            sizes = (format_bytes(size) if size else "—" for size in (whole, at_peak))
            rows.append((title, *sizes, format_percent(at_peak / total)))
    styles = (*[""] * len(rows), "title")
    rows.append(("sum", format_bytes(found.at_once.total), format_bytes(total), "100 %"))
    headings = ("part", "all of it", "at the peak", "share")
    return table_of(headings, rows, right=(1, 2, 3), styles=styles)


def _activations_from(found: FitReport) -> str:
    """Where activations came from, and how far that can be off."""
    if found.activations_from == "stated":
        return "Activations as given, all of them at once."
    if found.measured is not None:
        return f"Activations: formula x {found.measured.ratio:.3f}, as measured ({found.measured.where})."
    return "Activations by formula: within 10 % on CPUs, not checked on GPUs."


def _write_gpus(
    page: Page,
    classes: Sequence[GpuClass],
    named: Collection[str],
    every: bool,
    most_titles: tuple[str, str],
    most: Mapping[tuple[str, ...], tuple[str, str]],
) -> None:
    """A line for each GPU: all, or those rented first and those that the headline names, which stand out."""
    first = {*shown_first(_names(classes)), *named}
    shown = [(one, name) for one in classes for name in one.names if every or name in first]
    rows = [
        (
            Span(name, "title" if name in named else ""),
            ("~" if one.is_estimated else "") + format_bytes(one.memory_bytes),
            Span(_verdict(one.fit, offer is not None), _STYLES.get(one.fit.word, "")),
            "—"
            if offer is None
            else f"{'' if offer.is_on_demand else '+'}{'*' if offer.age else ''}{offer.usd_per_hour:.2f}",
            *most[one.names],
        )
        for one, name in shown
        for offer in (one.offer(name),)
    ]
    headings = ("GPU", "memory", "will it fit", "$/h", *most_titles)
    page.table(table_of(headings, rows, right=(1, 3, 4, 5), breaks=(0, 2)))
    notes = ["$/h: whole box."]
    if any(one.is_estimated for one, _ in shown):
        notes.append("~: memory as sold, less 8 %.")
    offers = [offer for one, name in shown if (offer := one.offer(name)) is not None]
    if any(offer.age for offer in offers):
        notes.append("*: price over 90 days old.")
    if other := {offer.instance.price_kind for offer in offers if not offer.is_on_demand}:
        notes.append(f"+: not on demand: {', '.join(sorted(other))}.")
    page.line(" ".join(notes), "dim")


def _batch(batch: int) -> str:
    return "none" if batch == 0 else str(batch) if batch < MOST_BATCH else "any"


def _tokens(by_memory: int | Missing, most: int) -> str:
    count = most if isinstance(by_memory, Missing) else min(by_memory, most)
    if count in (0, MOST_CONTEXT):
        return "none" if count == 0 else "any"
    return str(count) if count < 10_000 else f"{count // 1000}k"


def _checkpointed(fit: Fit) -> str:
    checkpoint = fit.largest_batch_checkpoint
    return _batch(checkpoint) if isinstance(checkpoint, int) else "—"


def _is_too_many(gpus: int, is_offered: bool) -> bool:
    return gpus > _ONE_BOX and not is_offered


def _verdict(fit: Fit, is_offered: bool) -> str:
    if fit.word == "several GPUs" and _is_too_many(fit.gpus, is_offered):
        return f"over {_ONE_BOX} GPUs"
    if fit.word in ("with tricks", "several GPUs"):
        words = trick_words(fit.tricks, f"on {fit.tricks.gpus} GPUs", "ckpt", "offload")
        return ", ".join(words)  # as 2 GPUs, ckpt
    return _SHORT.get(fit.word, fit.word)


_SHORT = {"does not fit": "no"}
_STYLES = {"fits": "good", "tight": "warn", "with tricks": "warn", "does not fit": "dim"}


def _plain(found: FitReport) -> dict[str, object]:
    training = found.training
    blocks = training.blocks
    fits = [
        {
            "tricks": asdict(one.fit.tricks),
            "largest_batch": one.fit.largest_batch,
            "largest_batch_checkpoint": (
                checkpoint if isinstance(checkpoint, int) else {"missing": checkpoint.reason}
            ),
        }
        for one in found.classes
        for checkpoint in (one.fit.largest_batch_checkpoint,)
    ]
    return {
        "headline": found.headline.text,
        "params": training.params,
        "optimizer": training.optimizer,
        "precision": training.precision.name,
        "batch": training.batch,
        "context": training.context,
        "shape": {
            "name": blocks.name,
            "source": blocks.source,
            "layers": blocks.layers,
            "width": blocks.width,
            "hidden": blocks.hidden,
            "heads": blocks.heads,
            "vocabulary": blocks.vocabulary,
            "gated": blocks.is_gated,
        },
        "notes": list(found.notes),
        "activations_from": found.activations_from,
        "measured": None if found.measured is None else asdict(found.measured),
        "all_at_once": {**_bytes(found.at_once), "total_bytes": found.at_once.total},
        "peak": {
            "moment": found.peak.moment,
            **_bytes(found.peak.parts),
            "total_bytes": found.peak.parts.total,
        },
        **_plain_gpus(found.classes, fits),
    }


def _plain_inference(found: InferenceReport) -> dict[str, object]:
    serving = found.serving
    model = serving.model
    fits = [
        {
            "gpus": one.fit.gpus,
            "largest_batch": one.fit.largest_batch,
            "longest_context": known(one.fit.longest_context),
        }
        for one in found.classes
    ]
    return {
        "headline": found.headline.text,
        "params": serving.params,
        "active_params": serving.model.active_parameters if serving.model.experts else serving.params,
        "precision": serving.weights.name,
        "kv_precision": serving.cache,
        "batch": serving.batch,
        "context": serving.context,
        "gpus_stated": serving.gpus,
        "shape": {
            "name": model.name,
            "source": model.source,
            "layers": model.layers,
            "width": model.width,
            "hidden": model.hidden,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "vocabulary": model.vocabulary,
            "tied": model.is_tied,
            "context": model.context,
            "experts": model.experts,
            "active_experts": model.active_experts,
            "expert_hidden": model.expert_hidden,
            "shared_hidden": model.shared_hidden,
            "dense_layers": model.dense_layers,
            "latent": model.latent,
            "window": model.window,
            "window_layers": model.window_layers,
            "linear_layers": model.linear_layers,
        },
        "notes": list(found.notes),
        "parts": {
            "weights_bytes": found.parts.weights,
            "cache_bytes": found.parts.cache,
            "cache_bytes_per_token": found.cache_bytes_per_token,
            "activations_bytes": found.parts.activations,
            "total_bytes": found.parts.total,
        },
        **_plain_gpus(found.classes, fits),
    }


def _plain_gpus(classes: Sequence[GpuClass], fits: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The GPUs, each with how the work fits there, and the names of those that are shown first."""
    names = _names(classes)
    first = shown_first(names)
    return {
        "gpus": [{**_plain_gpu(one), **fit} for one, fit in zip(classes, fits, strict=True)],
        "shown_first": [name for name in names if name in first],
    }


def _plain_gpu(one: GpuClass) -> dict[str, object]:
    low, high = one.fit.needed_bytes
    return {
        "names": list(one.names),
        "memory_gib": one.memory_gib,
        "memory_bytes": one.memory_bytes,
        "memory_is_estimated": one.is_estimated,
        "word": one.fit.word,
        "needed_low_bytes": low,
        "needed_high_bytes": high,
        "offers": [
            {
                "name": offer.name,
                "usd_per_hour": offer.usd_per_hour,
                "gpu_count": offer.instance.gpu_count,
                "provider": offer.instance.provider,
                "instance_type": offer.instance.instance_type,
                "kind": offer.instance.price_kind,
                "region": offer.instance.region,
                "date": offer.instance.price_date,
                "is_recent": not offer.age,
            }
            for offer in one.offers
        ],
    }


def _names(classes: Sequence[GpuClass]) -> list[str]:
    return [name for one in classes for name in one.names]


def _bytes(parts: object) -> dict[str, int]:
    return {f"{name}_bytes": getattr(parts, name) for name in PART_TITLES}
