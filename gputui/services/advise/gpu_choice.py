"""On which GPUs something fits, which of them people rent, and what the cheapest costs."""

from __future__ import annotations

import datetime
import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.fit import GIB, Fit, Tricks
from gputui.analysis.job import amount_of
from gputui.errors import GputuiError
from gputui.facts.tables import (
    GpuRow,
    InstanceRow,
    closest_gpus,
    gpu_rows,
    memory_of,
    rows_named,
    with_article,
)
from gputui.model.absent import Missing
from gputui.model.units import format_bytes, format_usd, listed, three_digits
from gputui.services.prices import age_words, best_offer, is_on_demand, most_rented

SHOWN_FIRST = 10
"""GPUs that are shown without `--all`."""
_HOLDS = ("fits", "tight", "with tricks", "several GPUs")


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
    layers: str | None = None
    width: str | None = None
    vocabulary: str | None = None
    gpu: str | None = None
    optimizer: str | None = None
    activations: str | None = None
    """Bytes for the whole batch."""
    file: str | None = None
    """A result file, or `F@RUN`."""
    trust: bool = False
    cache_precision: str | None = None
    kv_heads: str | None = None
    head_dim: str | None = None
    gpus: str | None = None


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """The cheapest instance with as many GPUs of one kind as are needed, as `best_offer` has it."""

    name: str
    """Of the GPU."""
    instance: InstanceRow
    usd_per_hour: float
    """For the whole instance."""
    age: str
    """`125 days old`, `date unsure`; empty if its price is recent."""

    @property
    def order(self) -> tuple[bool, bool, float]:
        """Sorts the cheapest recent price on demand first."""
        return not self.is_on_demand, bool(self.age), self.usd_per_hour

    @property
    def is_on_demand(self) -> bool:
        """As `prices.is_on_demand`."""
        return is_on_demand(self.instance.price_kind)


@dataclass(frozen=True, slots=True)
class GpuClass:
    """GPUs of one size of memory, and what fits there."""

    memory_gib: float
    """As sold."""
    memory_bytes: int
    """As `facts.gpus.memory_of` has it, of each of them."""
    is_estimated: bool
    """True where the driver's figure is not known."""
    names: tuple[str, ...]
    fit: Fit
    offers: tuple[GpuOffer, ...]
    """For each name that can be rented in the number that the fit needs; none where it does not fit."""

    def offer(self, name: str) -> GpuOffer | None:
        """The cheapest instance with GPUs of one name."""
        return next((offer for offer in self.offers if offer.name == name), None)


def shown_first(names: Iterable[str]) -> frozenset[str]:
    """Of these GPUs the ten to show first: those that people rent first (`prices.most_rented`)."""
    return frozenset(_by_rent(names)[:SHOWN_FIRST])


def _by_rent(names: Iterable[str]) -> list[str]:
    rank = {name: place for place, name in enumerate(most_rented())}
    return sorted(names, key=lambda name: rank.get(name, len(rank)))


def rows_asked(name: str | None) -> tuple[GpuRow, ...]:
    """The GPUs that are asked about: all whose memory is known, or those that a name means.

    Raises GputuiError for a name that means none, or one of unknown memory.
    """
    known = tuple(row for row in gpu_rows() if not isinstance(memory_of(row), Missing))
    if name is None:
        return known
    meant = rows_named(name)
    if meant:
        sized = tuple(row for row in meant if not isinstance(memory_of(row), Missing))
        if not sized:
            raise GputuiError(
                f"--gpu: {meant[0].name} comes with different memory sizes",
                "name it with its size: gputui fit 7B --all lists every GPU",
            )
        return sized
    close = ", ".join(closest_gpus(name))
    raise GputuiError(
        f"--gpu: unknown GPU {name!r}",
        f"did you mean {close}?" if close else "gputui fit 7B --all lists every GPU",
    )


def classes_of(rows: Iterable[GpuRow], fit_of: Callable[[int], Fit]) -> tuple[GpuClass, ...]:
    """GPUs of the same memory together, the smallest first; `fit_of` takes bytes of one GPU."""
    by_size: dict[tuple[int, float, bool], list[str]] = {}
    for row in rows:
        size = memory_of(row)
        if not isinstance(size, Missing) and row.memory_gib is not None:
            key = (size, row.memory_gib, row.nvml_memory_mib is None)
            by_size.setdefault(key, []).append(row.name)
    classes = []
    for (size, memory_gib, is_estimated), names in sorted(by_size.items()):
        found = fit_of(size)
        offers = [_offer(name, found.gpus) for name in names] if found.word in _HOLDS else []
        told = tuple(offer for offer in offers if offer is not None)
        classes.append(GpuClass(memory_gib, size, is_estimated, tuple(names), found, told))
    return tuple(classes)


def _offer(name: str, gpus: int) -> GpuOffer | None:
    today = datetime.date.today()
    found = best_offer(name, today, gpus)
    if found is None or isinstance(found.usd_per_hour, Missing):
        return None
    return GpuOffer(name, found, found.usd_per_hour, age_words(found.price_date, today))


def only(classes: Iterable[GpuClass], rows: Iterable[GpuRow]) -> tuple[GpuClass, ...]:
    """Those GPUs of the classes that `rows` has, without classes that are then empty."""
    kept = {row.name for row in rows}
    few = (
        GpuClass(
            one.memory_gib,
            one.memory_bytes,
            one.is_estimated,
            tuple(name for name in one.names if name in kept),
            one.fit,
            tuple(offer for offer in one.offers if offer.name in kept),
        )
        for one in classes
    )
    return tuple(one for one in few if one.names)


def cheapest(classes: Iterable[GpuClass], *words: str) -> tuple[GpuClass, GpuOffer] | None:
    """The lowest recent price, else the lowest, at which something with one of these words can be rented.

    `tight` only with tricks.
    """
    sure = (one for one in classes if one.fit.word != "tight" or in_words(one.fit))
    offers = ((one, offer) for one in sure if one.fit.word in words for offer in one.offers)
    return min(offers, key=lambda pair: pair[1].order, default=None)


def fewest_gpus(classes: Iterable[GpuClass]) -> GpuClass | None:
    """Of the sizes of which several are enough the one that needs the fewest, and the smallest of these."""
    several = [one for one in classes if one.fit.word == "several GPUs"]
    return min(several, key=lambda one: (one.fit.gpus, one.memory_bytes), default=None)


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """What is said before anything else."""

    text: str
    names: frozenset[str]
    """Of the GPUs it names."""


def headline(
    subject: str,
    asked: Sequence[GpuClass],
    everywhere: Sequence[GpuClass],
    needs_bytes: tuple[int, int],
    is_named: bool,
    stated_gpus: int = 1,
) -> FitAnswer:
    """The answer in a sentence or two: whether it fits, how much of which GPU, at what price.

    `asked` are the GPUs that were named, `everywhere` all of them; `needs_bytes` is for one GPU, or each of
    as many as were stated, without a trick, least and most.
    """
    low, high = (format_bytes(size) for size in needs_bytes)
    if stated_gpus > 1:
        high += " on each" if not is_named else f" on each of {stated_gpus}"
    if is_named:
        return _on_these(subject, asked, everywhere, low, high)
    whole, tricked = cheapest(everywhere, "fits"), cheapest(everywhere, "with tricks", "tight")
    if whole is None:
        holds = _cheapest_that_holds(everywhere)
        verb = "Does not fit on one GPU" if tricked is None else "Does not fit as it is"
        if stated_gpus > 1:
            verb = f"Does not fit on {stated_gpus} GPUs"
        return FitAnswer(f"{verb}: {subject} needs {high}. {holds.text}", holds.names)
    text, names = f"Fits: {subject}. The cheapest that holds it: {_priced(*whole)}.", {whole[1].name}
    if tricked is not None and tricked[1].usd_per_hour < whole[1].usd_per_hour:
        text += f" With {in_words(tricked[0].fit)}: {_priced(*tricked)}."
        names.add(tricked[1].name)
    return FitAnswer(text, frozenset(names))


def _on_these(
    subject: str,
    asked: Sequence[GpuClass],
    everywhere: Sequence[GpuClass],
    low: str,
    high: str,
) -> FitAnswer:
    """Of the GPUs that were named, about the cheapest of those that hold it best."""
    word = min((one.fit.word for one in asked), key=(*_HOLDS, "does not fit").index)
    alike = [one for one in asked if one.fit.word == word]
    offered = min(
        ((one, offer) for one in alike for offer in one.offers),
        key=lambda pair: pair[1].order,
        default=None,
    )
    best = offered[0] if offered else fewest_gpus(alike) or alike[0]
    name = offered[1].name if offered else _by_rent(best.names)[0]
    price = f", from {_price(*offered)}" if offered else ""
    fit, how, memory = best.fit, in_words(best.fit), format_bytes(best.memory_bytes)
    if word in ("fits", "with tricks"):
        verb = f"Fits with {how}" if how else "Fits"
        text = f"{verb}: {subject} on {_counted(fit.gpus, name)}, {_used(best)}{price}."
        return FitAnswer(text, frozenset([name]))
    if word == "tight":
        surely = f" With {how} it fits for sure{price}." if how else ""
        text = f"Tight: {subject} needs {low} to {high}, {with_article(name)} has {memory}.{surely}"
        return FitAnswer(text, frozenset([name]))
    text = f"Does not fit: {subject} needs {high}, {with_article(name)} has {memory}."
    if word == "several GPUs":
        text += f" It fits on {fit.gpus} with {how}{price}."
    holds = _cheapest_that_holds(everywhere)
    if offered and holds.names == {name}:
        return FitAnswer(text, holds.names)
    return FitAnswer(f"{text} {holds.text}", holds.names | {name})


def _cheapest_that_holds(everywhere: Sequence[GpuClass]) -> FitAnswer:
    found = cheapest(everywhere, "fits") or cheapest(everywhere, "tight", "with tricks", "several GPUs")
    if found is not None:
        how = in_words(found[0].fit)
        text = f"The cheapest that holds it: {_priced(*found)}{f', with {how}' if how else ''}."
        return FitAnswer(text, frozenset([found[1].name]))
    several = fewest_gpus(everywhere)
    if several is not None:
        name = _by_rent(several.names)[0]
        text = f"It takes {_counted(several.fit.gpus, name)}, with {in_words(several.fit)}."
        return FitAnswer(text, frozenset([name]))
    return FitAnswer("Take a smaller model, batch or context, or fewer bits per weight.", frozenset())


def _priced(one: GpuClass, offer: GpuOffer) -> str:
    return f"{_counted(one.fit.gpus, offer.name)} at {_price(one, offer)}, {_used(one)}"


def _price(one: GpuClass, offer: GpuOffer) -> str:
    instance = offer.instance
    of = f" for {instance.gpu_count:g} of them" if instance.gpu_count > one.fit.gpus else ""
    kind = "" if offer.is_on_demand else instance.price_kind
    told = ", ".join(filter(None, (instance.provider, kind, offer.age)))
    return f"{format_usd(offer.usd_per_hour)}/h{of} ({told})"


def _used(one: GpuClass) -> str:
    each = " each" if one.fit.gpus > 1 else ""
    return f"{three_digits(one.fit.needed_bytes[1] / GIB)} of {format_bytes(one.memory_bytes)}{each}"


def _counted(gpus: int, name: str) -> str:
    return with_article(name) if gpus == 1 else f"{gpus} x {name}"


def in_words(fit: Fit) -> str:
    """`checkpointing and 4 micro-batches`; empty where nothing is needed."""
    words = trick_words(fit.tricks, fit.split_by, "checkpointing", "offloaded activations")
    return listed(words) if words else ""


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


def one_of(option: str, text: str, known: Iterable[str], more: str = "") -> str:
    """The name among those known. Raises GputuiError that lists them, and `more`."""
    names = list(known)
    if text.strip().lower() in names:
        return text.strip().lower()
    close = difflib.get_close_matches(text.lower(), names, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise GputuiError(
        f"{option}: unknown {option.lstrip('-')} {text!r}", f"{meant}one of {', '.join(names)}{more}"
    )


def short_number(number: int) -> str:
    """`7B`, `124M`, `70.6B` of a number of weights."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= scale * 0.9995:
            return f"{number / scale:.3g}{unit}"
    return f"{number}"
