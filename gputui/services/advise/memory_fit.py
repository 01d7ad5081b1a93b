"""Whether a training fits: from what a user states to the memory of its step and the GPUs that have it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from gputui.analysis.fit import (
    PRECISIONS,
    STATES_PER_WEIGHT,
    Blocks,
    Fit,
    Parts,
    Peak,
    Training,
    activation_parts,
    all_at_once,
    fit,
    gpt_blocks,
    nearest_shape,
    peak_of,
)
from gputui.errors import GputuiError
from gputui.facts.gpus import find_gpu
from gputui.facts.tables import GpuRow, gpu_rows
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Run
from gputui.services.results.metrics import metrics_of
from gputui.services.results.selectors import split_selector
from gputui.store.reading import open_result
from gputui.store.selecting import find_run

KEPT_BY_THE_DRIVER = 0.08
"""Share of the memory as sold, at most, as seen in `gpus.csv` where both values are known."""
DEFAULT_VOCABULARY = 50257
"""GPT-2's."""
_MULTIPLIERS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_AMOUNT = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)([kmbgt]?)", re.IGNORECASE)
_NEAR = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user stated; None for what was not."""

    params: str | None
    optimizer: str
    precision: str
    batch: str
    context: str | None
    layers: str | None
    width: str | None
    vocabulary: str | None
    activations: str | None
    """Bytes for the whole batch."""
    gpu: str | None
    file: str | None
    """A result file, or `F@RUN`."""
    trust: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """Activations in a result file relative to the formula at the same shape."""

    ratio: float
    where: str
    """The case, its device and its run."""


@dataclass(frozen=True, slots=True)
class GpuClass:
    """GPUs with one size of memory, and what fits there."""

    memory_gib: float
    """As sold."""
    memory_bytes: int
    """The least that a driver reports for it."""
    is_estimated: bool
    """True if no driver's value is known for any of them."""
    names: tuple[str, ...]
    fit: Fit


@dataclass(frozen=True, slots=True)
class Report:
    training: Training
    notes: tuple[str, ...]
    """Where assumed values come from, and what is doubtful."""
    activations_from: str
    """`formula`, `measured` or `stated`."""
    measured: Measured | None
    at_once: Parts
    peak: Peak
    classes: tuple[GpuClass, ...]
    """In order of memory."""
    warnings: tuple[str, ...] = ()


def report(wish: Wish) -> Report:
    """Answer a question about memory.

    Raises GputuiError for each invalid value, an unknown GPU, and a file that cannot be read or has no
    activations at that precision.
    """
    optimizer = _one_of("--optimizer", wish.optimizer, STATES_PER_WEIGHT)
    precision = PRECISIONS[_one_of("--precision", wish.precision, PRECISIONS)]
    batch = whole_number("--batch", wish.batch, 2**20)
    context = None if wish.context is None else whole_number("--context", wish.context, 2**24)
    rows = _rows(wish.gpu)
    blocks, params, notes = _model(wish, context)
    if context is None:
        context = blocks.context
        notes.append(f"--context was not given: {context} tokens")
    stated = None if wish.activations is None else whole_number("--activations", wish.activations, 10**18, 0)
    if stated is not None and wish.file is not None:
        raise GputuiError("--activations and --file: both say what activations take", "give one of them")
    training = Training(params, optimizer, precision, blocks, batch, context)
    source = "formula"
    measured: Measured | None = None
    warnings: tuple[str, ...] = ()
    if stated is not None:
        source = "stated"
        training = Training(params, optimizer, precision, blocks, batch, context, 1.0, stated)
    elif wish.file is not None:
        source = "measured"
        measured, warnings = _measured(wish.file, precision.name, wish.trust)
        training = Training(params, optimizer, precision, blocks, batch, context, measured.ratio)
    return Report(
        training=training,
        notes=tuple(notes),
        activations_from=source,
        measured=measured,
        at_once=all_at_once(training),
        peak=peak_of(training),
        classes=_classes(rows, training),
        warnings=warnings,
    )


def telling_classes(classes: Sequence[GpuClass]) -> tuple[GpuClass, ...]:
    """The smallest and the largest, two on either side of where the answer changes, and `fewest_gpus`."""
    words = [one.fit.word for one in classes]
    fewest = fewest_gpus(classes)
    return tuple(
        one
        for place, one in enumerate(classes)
        if place in (0, len(classes) - 1)
        or len(set(words[max(0, place - 2) : place + 3])) > 1
        or one is fewest
    )


def fewest_gpus(classes: Sequence[GpuClass]) -> GpuClass | None:
    """Among the sizes of which several suffice, the one that needs the fewest, and the smallest of these."""
    several = [one for one in classes if one.fit.word == "several GPUs"]
    return min(several, key=lambda one: (one.fit.tricks.gpus, one.memory_bytes), default=None)


def whole_number(option: str, text: str, most: int, least: int = 1) -> int:
    """`7e9`, `7B`, `124M`, `2048` as a number. Raises GputuiError with the option's name."""
    found = _AMOUNT.fullmatch(text.strip().replace("_", ""))
    try:
        value = float(found[1]) * _MULTIPLIERS[found[2].lower()] if found else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != round(value):
        raise GputuiError(f"{option} {text}: is not a whole number", "such as 2048, 7e9, 124M or 7B")
    if not least <= value <= most:
        raise GputuiError(f"{option} {text}: is out of range", f"from {least} to {_as_typed(most)}")
    return round(value)


def _as_typed(number: int) -> str:
    """Every digit of a limit; a power of ten too long to count as `1e14`, which can be typed too."""
    return f"{number}" if number < 10**9 else f"{number:.0e}".replace("+", "")


def memory_of(row: GpuRow) -> int | Missing:
    """Memory that a driver reports for a GPU; if unknown, the memory as sold less the most a driver keeps."""
    if row.nvml_memory_mib is not None:
        return round(row.nvml_memory_mib * 2**20)
    if row.memory_gib is not None:
        return round(row.memory_gib * (1 - KEPT_BY_THE_DRIVER) * 2**30)
    return Missing(f"{row.name} is sold with different memory")


def _one_of(option: str, text: str, known: Iterable[str]) -> str:
    names = list(known)
    if text.lower() in names:
        return text.lower()
    raise GputuiError(f"{option} {text}: is not known", f"one of {', '.join(names)}")


def _model(wish: Wish, context: int | None) -> tuple[Blocks, int, list[str]]:
    """Shape and number of weights; what was not stated comes from a usual shape, with a note."""
    params = None if wish.params is None else whole_number("--params", wish.params, 10**14)
    if (wish.layers is None) != (wish.width is None):
        raise GputuiError("--layers and --width: one was given without the other", "give both or neither")
    vocabulary = None
    if wish.vocabulary is not None:
        vocabulary = whole_number("--vocabulary", wish.vocabulary, 10**7)
    if wish.layers is None or wish.width is None:
        if params is None:
            raise GputuiError("how large is the model?", "give --params 7e9, or --layers and --width")
        blocks = nearest_shape(params)
        if vocabulary is not None:
            blocks = replace(blocks, vocabulary=vocabulary)
        size = f"{blocks.layers} x {blocks.width} ({blocks.parameters / 1e9:.3g}e9 weights; {blocks.source})"
        notes = [f"layers and width as of {blocks.name}: {size}"]
        if not 0.5 <= blocks.parameters / params <= 2:
            notes.append("no usual shape is near: state --layers and --width, or activations mean little")
    else:
        blocks = gpt_blocks(
            whole_number("--layers", wish.layers, 10**5),
            whole_number("--width", wish.width, 10**6),
            vocabulary or DEFAULT_VOCABULARY,
            context or 1024,
        )
        notes = [f"GPT-2's block, {blocks.layers} x {blocks.width}: {blocks.parameters / 1e9:.3g}e9 weights"]
        if params is not None and not 0.8 <= blocks.parameters / params <= 1.25:
            notes.append(f"that is not --params {wish.params}: weights by --params, activations by the shape")
    if vocabulary is None:
        notes.append(f"--vocabulary was not given: {blocks.vocabulary}")
    return blocks, blocks.parameters if params is None else params, notes


def _rows(name: str | None) -> tuple[GpuRow, ...]:
    """The GPUs in question: all whose memory is known, or those that match a name."""
    known = tuple(row for row in gpu_rows() if not isinstance(memory_of(row), Missing))
    if name is None:
        return known
    exact = [row for row in gpu_rows() if row.name.lower() == name.strip().lower()]
    words = re.findall(r"[a-z0-9]+", name.lower())
    meant = exact or [
        row for row in known if words and set(words) <= set(re.findall(r"[a-z0-9]+", row.name.lower()))
    ]
    if not meant:
        facts = find_gpu(name, None)
        meant = [] if isinstance(facts, Missing) else [facts.row]
    if not meant:
        _unknown(name, known)
    absent = memory_of(meant[0])
    if isinstance(absent, Missing):
        raise GputuiError(f"--gpu {name}: {absent.reason}", "name one of the table: gputui fit without --gpu")
    return tuple(meant)


def _unknown(name: str, known: Iterable[GpuRow]) -> NoReturn:
    names = {row.name.lower(): row.name for row in known}
    close = difflib.get_close_matches(name.lower(), names, n=_NEAR, cutoff=0.4)
    close += [n for n in names if n not in close and name.strip() and name.strip().lower() in n]
    listed = ", ".join(names[n] for n in close[:_NEAR])
    raise GputuiError(
        f"--gpu {name}: is not in the table of GPUs",
        f"did you mean {listed}?" if listed else "gputui fit without --gpu lists them",
    )


def _classes(rows: Iterable[GpuRow], training: Training) -> tuple[GpuClass, ...]:
    by_size: dict[float, list[GpuRow]] = {}
    for row in rows:
        if row.memory_gib is not None:
            by_size.setdefault(row.memory_gib, []).append(row)
    classes = []
    for memory_gib, members in by_size.items():
        told = [row for row in members if row.nvml_memory_mib is not None]
        sizes = [size for size in map(memory_of, told or members) if not isinstance(size, Missing)]
        least = min(sizes)
        names = tuple(row.name for row in members)
        classes.append(GpuClass(memory_gib, least, not told, names, fit(training, least)))
    return tuple(sorted(classes, key=lambda one: one.memory_bytes))


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
        f"{text}: holds no activations that were measured with {precision}",
        f"measure them: gputui run memory --db {path}; or leave --file out and take the formula",
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
    if min(layers, heads, width, context, vocabulary, batch) < 1:
        return None
    blocks = Blocks(case.work.size, layers, width, heads, 4 * width, vocabulary, context, False)
    precision = PRECISIONS.get(case.variant.precision)
    if precision is None:
        return None
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
