"""`gputui fit`: will training this model fit on that GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gputui.errors import EXIT_DONE

if TYPE_CHECKING:
    from rich.console import Console

    from gputui.analysis.fit import Fit, Tricks
    from gputui.services.advise.memory_fit import GpuClass, Report

_NAMES = 3
"""GPUs of one size that are named in the table."""


@click.command()
@click.option("--params", metavar="N", help="Weights of the model: 7e9, 7B, 124M.")
@click.option(
    "--optimizer",
    default="adamw",
    metavar="NAME",
    help="sgd, momentum, rmsprop, adagrad, adam, adamw.  [adamw]",
)
@click.option("--precision", default="amp", metavar="NAME", help="fp32, tf32, amp, bf16, mixed.  [amp]")
@click.option("--batch", default="1", metavar="B", help="Sequences per GPU and step.  [1]")
@click.option("--context", metavar="T", help="Tokens of a sequence.  [the shape's]")
@click.option("--layers", metavar="L", help="Blocks, of GPT-2's kind.")
@click.option("--width", metavar="W", help="Their width.")
@click.option("--vocabulary", metavar="V", help="Words the model knows.  [the shape's]")
@click.option("--activations", metavar="BYTES", help="Activations of the batch, instead of a formula.")
@click.option("--gpu", metavar="NAME", help="Only GPUs of this name, such as H200.")
@click.option("--file", metavar="F[@RUN]", help="Take activations as measured there.")
@click.option("--trust", is_flag=True, help="Also read a file that holds views or macros.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    params: str | None,
    optimizer: str,
    precision: str,
    batch: str,
    context: str | None,
    layers: str | None,
    width: str | None,
    vocabulary: str | None,
    activations: str | None,
    gpu: str | None,
    file: str | None,
    trust: bool,
    as_json: bool,
) -> int:
    """Will training a model fit: memory by part, GPUs that have it, and the tricks that help.

    Give --params, or --layers and --width, or all three.
    """
    from gputui.services.advise.memory_fit import Wish, report

    found = report(
        Wish(
            params=params,
            optimizer=optimizer,
            precision=precision,
            batch=batch,
            context=context,
            layers=layers,
            width=width,
            vocabulary=vocabulary,
            activations=activations,
            gpu=gpu,
            file=file,
            trust=trust,
        )
    )
    for warning in found.warnings:
        click.echo(warning, err=True)
    if as_json:
        click.echo(json.dumps({"schema": 1, **_plain(found)}, indent=1))
        return EXIT_DONE
    from gputui.cli.output import console

    out = console()
    _print_answer(out, found)
    _print_parts(out, found)
    _print_gpus(out, found, is_named=gpu is not None)
    return EXIT_DONE


def _print_answer(out: Console, found: Report) -> None:
    """What was understood, the answer, and what it rests on."""
    from gputui.model.units import with_prefix

    training = found.training
    digits, prefix = with_prefix(training.params)
    prefix = prefix.replace("G", "B").replace("k", "K")
    out.print(
        f"{digits}{prefix} weights, {training.optimizer}, {training.precision.name}"
        f" ({training.precision.title}), batch {training.batch} x {training.context} tokens",
        markup=False,
    )
    out.print(_advice(found), style="bold", markup=False)
    for note in found.notes:
        out.print(f"  {note}", markup=False)
    out.print()


def _print_parts(out: Console, found: Report) -> None:
    from gputui.analysis.fit import PART_TITLES
    from gputui.model.units import format_bytes, format_percent
    from gputui.services.support.text_tables import add_row, table

    rows = table(("part", "all of it", "at the peak", "share"), right=(1, 2, 3))
    total = found.peak.parts.total
    for name, title in PART_TITLES.items():
        whole, at_peak = getattr(found.at_once, name), getattr(found.peak.parts, name)
        if whole or at_peak:
            add_row(
                rows,
                title,
                format_bytes(whole) if whole else "—",
                format_bytes(at_peak) if at_peak else "—",
                format_percent(at_peak / total),
            )
    add_row(rows, "sum", format_bytes(found.at_once.total), format_bytes(total), "100 %", style="bold")
    out.print(rows)
    out.print(f"the peak is at: {found.peak.moment}", markup=False)
    out.print(_honestly(found), markup=False)
    out.print()


def _honestly(found: Report) -> str:
    """Where activations came from, and how far that can be off."""
    if found.activations_from == "stated":
        return "activations: as stated, with the loss; how they rise and fall in a step is not known"
    if found.measured is not None:
        return (
            f"activations: formula x {found.measured.ratio:.3f}, as measured ({found.measured.where});"
            " autocast copies and loss by formula"
        )
    return (
        "activations: by formula, nothing was measured here; within 10 % of steps measured on a CPU,"
        " on GPUs not checked"
    )


def _print_gpus(out: Console, found: Report, is_named: bool) -> None:
    """A line for each size of memory; where no GPU `is_named`, for those that tell most."""
    from gputui.model.absent import Missing
    from gputui.model.units import format_bytes
    from gputui.services.advise.memory_fit import notable_classes
    from gputui.services.support.text_tables import add_row, table

    classes = found.classes if is_named else notable_classes(found.classes)
    rows = table(("memory", "GPUs", "will it fit", "batch", "ckpt"), right=(0, 3, 4), breaks=(1, 2))
    for one in classes:
        names = one.names if is_named else one.names[:_NAMES]
        more = len(one.names) - len(names)
        checkpoint = one.fit.largest_batch_checkpoint
        add_row(
            rows,
            ("~" if one.is_estimated else "") + format_bytes(one.memory_bytes),
            ", ".join(names) + (f" +{more}" if more else ""),
            _verdict(one.fit),
            _batch(one.fit.largest_batch),
            "—" if isinstance(checkpoint, Missing) else _batch(checkpoint),
        )
    out.print(rows)
    if left_out := len(found.classes) - len(classes):
        out.print(
            f"{left_out} sizes between these are left out: --gpu NAME asks for one, --json has all",
            markup=False,
        )
    out.print(
        "batch, ckpt: the largest batch without a trick and with checkpointing. Each GPU's own overhead,"
        " 0.3 GiB to 1 GiB + 5 %, is an estimate and counted; ~ is the sales figure less 8 %.",
        markup=False,
    )


def _batch(batch: int) -> str:
    from gputui.analysis.fit import MOST_BATCH

    return "none" if batch == 0 else str(batch) if batch < MOST_BATCH else "any"


def _verdict(fit: Fit) -> str:
    words = tricks_in_words(fit.tricks)
    if fit.word in ("with tricks", "several GPUs"):
        return f"with {words}"
    if fit.word == "tight":
        return f"tight; surely with {words}" if words else "tight"
    return fit.word


def tricks_in_words(tricks: Tricks) -> str:
    """`checkpointing, 4 pieces`; empty without a trick."""
    words = []
    if tricks.gpus > 1:
        words.append(f"FSDP on {tricks.gpus} GPUs")
    if tricks.checkpoint:
        words.append("checkpointing")
    if tricks.offload:
        words.append("offloaded activations")
    if tricks.pieces > 1:
        words.append(f"the batch in {tricks.pieces} pieces")
    return ", ".join(words)


def _advice(found: Report) -> str:
    """One sentence: the smallest that will do."""
    from gputui.model.units import format_bytes
    from gputui.services.advise.memory_fit import fewest_gpus

    def first(*words: str) -> GpuClass | None:
        return next((c for c in found.classes if c.fit.word in words), None)

    def named(one: GpuClass) -> str:
        return f"{one.names[0]} ({format_bytes(one.memory_bytes)})"

    as_it_is, tricked, several = first("fits"), first("tight", "with tricks"), fewest_gpus(found.classes)
    sentence = ""
    if as_it_is is not None:
        larger = any(one.memory_bytes > as_it_is.memory_bytes for one in found.classes)
        where = f"from the {named(as_it_is)} on" if larger else f"on the {named(as_it_is)}"
        sentence = f"it fits as it is {where}"
    if tricked is not None and (as_it_is is None or tricked.memory_bytes < as_it_is.memory_bytes):
        how = tricks_in_words(tricked.fit.tricks) or "some luck: it is tight"
        sentence += ("; " if sentence else "it fits ") + f"on the {named(tricked)} with {how}"
    if not sentence and several is not None:
        how = tricks_in_words(several.fit.tricks)
        sentence = f"no single one of these is enough: take {named(several)} with {how}"
    if not sentence:
        sentence = "it does not fit on any of these: a smaller model, batch or context, or bf16 weights"
    return f"{sentence[0].upper()}{sentence[1:]}."


def _plain(found: Report) -> dict[str, object]:
    from dataclasses import asdict

    from gputui.model.absent import Missing

    training = found.training
    blocks = training.blocks

    def gpu(one: GpuClass) -> dict[str, object]:
        checkpoint = one.fit.largest_batch_checkpoint
        low, high = one.fit.needed_bytes
        return {
            "names": list(one.names),
            "memory_gib": one.memory_gib,
            "memory_bytes": one.memory_bytes,
            "memory_is_estimated": one.is_estimated,
            "word": one.fit.word,
            "tricks": asdict(one.fit.tricks),
            "needed_low_bytes": low,
            "needed_high_bytes": high,
            "largest_batch": one.fit.largest_batch,
            "largest_batch_checkpoint": (
                {"missing": checkpoint.reason} if isinstance(checkpoint, Missing) else checkpoint
            ),
        }

    return {
        "params": training.params,
        "optimizer": training.optimizer,
        "precision": training.precision.name,
        "batch": training.batch,
        "context": training.context,
        "shape": {
            "name": blocks.name,
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
        "gpus": [gpu(one) for one in found.classes],
    }


def _bytes(parts: object) -> dict[str, int]:
    from gputui.analysis.fit import PART_TITLES

    return {f"{name}_bytes": getattr(parts, name) for name in PART_TITLES}
