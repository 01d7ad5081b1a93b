"""Text for the rows of a comparison, shared by all forms and the screen.

A pull request, a page and the screen must not name one row in three ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gputui.analysis.cost import Cost, Energy
from gputui.analysis.judgement import COST, ENERGY, FIGURE, RATE, TIME, Judgement
from gputui.analysis.verdict import GeometricMean, SpeedEstimate
from gputui.document.spans import Span, cut
from gputui.errors import clean_text
from gputui.model.absent import Missing
from gputui.model.units import (
    UNKNOWN,
    cost_unit,
    counted,
    format_change,
    format_change_interval,
    format_energy,
    format_percent,
    format_rate,
    format_seconds,
    format_size_of_change,
    format_spread,
    format_usd,
)
from gputui.services.compare.pairing import Cell, Comparison, FigureRow, GroupMean, Row, Side
from gputui.services.prices import age_at_run
from gputui.services.results.labels import cpu_words, day, device_words, format_ends, metric_text, torch_words
from gputui.services.results.metrics import AS_OFFERED
from gputui.services.results.throughput import speed_of

LABEL_CELLS = 24
"""Of a label in a heading or sentence."""


def side_parts(side: Side, ignore: str, label_cells: int = 1000) -> tuple[str, str, str, str, str, str]:
    """A side's name and label, box, price, torch, launches and day; empty where unknown."""
    run = side.run
    platforms = [layer.name for layer in run.machine.layers if layer.layer in ("platform", "scheduler", "vm")]
    where = f"{platforms[0]} " if platforms and platforms[0] != "virtual-machine" else ""
    price = ""
    if not isinstance(run.price, Missing):  # with the age of an old list price: the owner should know
        age = age_at_run(run)
        price = f"{format_usd(run.price.usd_per_hour)}/h{f' ({age})' if age else ''}"
    name = side.name if side.name.startswith(ignore) else f"{ignore} {side.name}"
    labels = {case.run.label for case in side.cases} or {run.label}
    label = "" if ignore or len(labels) > 1 else cut(clean_text(labels.pop()), label_cells)
    counts = {sum(m.outcome == "ok" for m in one.result.measurements) for one in side.cases} - {0} or {0}
    few, most = min(counts), max(counts)
    return (
        f"{name} ({label})" if label and label not in name else name,
        where + device_words(run),
        price,
        torch_words(run),
        counted(most, "launch") if few == most else f"{few} to {most} launches",
        day(run),
    )


def side_names(sides: Sequence[Side], device_class: str) -> list[str]:
    """What tells sides apart and people know: their GPUs, for cases of the CPU their CPUs; else how many of
    them; else labels or files."""
    ways: tuple[Callable[[Side], str], ...] = (
        lambda side: _processor(side, device_class),
        lambda side: device_words(side.run),
        called,
    )
    found = ([clean_text(way(side)) for side in sides] for way in ways)
    return next((names for names in found if len(set(names)) == len(sides)), [side.name for side in sides])


def _processor(side: Side, device_class: str) -> str:
    machine = side.run.machine
    gpus = dict.fromkeys(gpu.name.removeprefix("NVIDIA ") for gpu in machine.gpus)
    return ", ".join(gpus) if gpus and device_class == "gpu" else cpu_words(machine)


def short_name(name: str) -> str:
    """A selector for a heading: the file's name and, of a run's id, its last digits."""
    path, at, run = name.rpartition("@")
    if not at:
        return name.rpartition("/")[2]
    return f"{path.rpartition('/')[2]}@{run[-8:] if len(run) == 36 else run}"


def called(side: Side) -> str:
    """What a person calls a side: the label of a run that was chosen, else as it was asked for."""
    label = side.run.label if "@" in side.name else ""
    return cut(clean_text(label), LABEL_CELLS) or short_name(side.name)


def letter_of(place: int) -> str:
    """Of the side at a place among those against the baseline, which is `a`: `b` to `z`, then `B` to `Z`."""
    return chr(ord("b") + place) if place < 25 else chr(ord("B") + place % 25)


def part_words(place: int) -> str:
    """Which side a later comparison of several is about, by its letter in the headline; `place` from 0."""
    return f"in this part b is {letter_of(place)}"


def choice_words(comparison: Comparison, ignore: str) -> Iterable[str]:
    """Which runs were chosen where a side had several, and how to choose others; a line each."""
    told: dict[str, list[str]] = {}
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        if side.chosen_of < 2:
            continue
        runs = {case.run.short_id: case.run for case in side.cases if case.result.outcome == "ok"}
        taken = sorted(runs, key=lambda short_id: runs[short_id].started_utc_us, reverse=True)
        more = f" +{len(taken) - _NAMED}" if len(taken) > _NAMED else ""
        chosen = (
            f"run {taken[0]}, the newest of {side.chosen_of}"
            if len(taken) == 1
            else f"of each case the newest of {side.chosen_of} runs ({', '.join(taken[:_NAMED])}{more})"
        )
        selector = "F@RUN" if ignore else f"{side.name}@RUN"
        told.setdefault(f"{chosen}: {selector} takes another, --pool all", []).append(letter)
    for words, letters in told.items():
        yield f"{' and '.join(letters)}: {words}"


def difference_words(difference: tuple[str, str, str]) -> str:
    """What differs and its two values; of machines only that they do."""
    what, on_a, on_b = difference
    return what if what == "machine" else f"{what} {on_a} / {on_b}"


def no_difference_words(comparison: Comparison) -> str:
    """The text for sides without a recorded difference."""
    runs = {case.run.run_id for side in (comparison.a, comparison.b) for case in side.cases}
    if len(runs) == 1:
        return f"no differences: both are run {comparison.a.run.short_id}"
    return "no recorded differences"


def unmeasured_words(comparison: Comparison) -> Iterable[str]:
    """Why cases were measured on neither side; names one or two, and counts more."""
    for reason, names in comparison.unmeasured:
        which = f"{len(names)} cases" if len(names) > _NAMED else " and ".join(names)
        yield f"{which} ran on neither box: {reason}"


_NAMED = 2


def case_heading(common: Sequence[str]) -> str:
    """`case (mini cpu)`; without the threads of one side where the sides are a CPU and a GPU."""
    words = [word for word in common if word != "all" or "cpu" in common]
    return f"case ({' '.join(words)})" if words else "case"


def rate_text(cell: Cell) -> str:
    """The speed of one side, otherwise its outcome."""
    if isinstance(cell.speed, SpeedEstimate) and cell.result is not None:
        return format_rate(cell.speed.units_per_s, cell.result.case.unit)
    return "—" if cell.result is None else cell.outcome


def rate_cells(row: Row) -> tuple[str, str, Span]:
    """The speeds of both sides with one prefix, and their unit, which stands with that of the first where it
    is another."""
    speeds = {letter: speed_of(result) for letter, result in row.results}
    per_s = {letter: one.units_per_s for letter, one in speeds.items() if isinstance(one, SpeedEstimate)}
    shown, greatest = {"a": "—", "b": "—"}, max(per_s.values(), default=0.0)
    for letter, result in row.results:
        is_known, unit = letter in per_s, result.case.unit
        shown[letter] = format_rate(per_s[letter], unit, greatest) if is_known else result.outcome
    number, _, unit = shown["b"].partition(" ") if "b" in per_s else (shown["b"], "", "")
    return (shown["a"].removesuffix(f" {unit}") if unit else shown["a"]), number, Span(unit, "dim")


def time_text(cell: Cell) -> str:
    """The time of a step on one side, otherwise its outcome."""
    if isinstance(cell.speed, SpeedEstimate) and cell.result is not None:
        return format_seconds(cell.result.case.units_per_step / cell.speed.units_per_s)
    return rate_text(cell)


def point_text(judgement: Judgement) -> str:
    """A change without its interval: `-36 %`; empty where there is none, and of a mean that is undecided;
    UNKNOWN where its interval is."""
    is_decided = judgement.is_decided or not isinstance(judgement.estimate, GeometricMean)
    if judgement.ratio is None or not is_decided:
        return ""
    ratio, low, high = judgement.ratio
    return UNKNOWN if format_ends(low, high, ratio) == UNKNOWN else format_change(ratio)


def doubted_point_text(judgement: Judgement) -> str:
    """The same where no verdict stands beside it: `-36 % `, `-4 %?` where it is not decided, as wide."""
    text = point_text(judgement)
    return f"{text}{' ' if judgement.is_decided or text in ('', UNKNOWN) else '?'}"


def verdict_text(judgement: Judgement) -> str:
    """The word that people read; machines read `Judgement.word`."""
    if judgement.estimate == AS_OFFERED:
        return AS_OFFERED.reason
    return {"inconclusive": "can't tell"}.get(judgement.word, judgement.word)


_STYLES = {
    "faster": "good",
    "cheaper": "good",
    "less": "good",
    "slower": "warn",
    "dearer": "warn",
    "more": "warn",
    "inconclusive": "accent",
}


def style_of(judgement: Judgement) -> str:
    """The style of a verdict, wherever it is shown; nobody knows whether a higher figure is better."""
    return style_of_word(judgement.word)


def style_of_word(word: str) -> str:
    """The style of a judgement's word."""
    return _STYLES.get(word, "dim")


def mark_of(judgement: Judgement) -> str:
    """`●`, hollow where it is undecided; a diamond of a mean."""
    marks = "◆◇" if isinstance(judgement.estimate, GeometricMean) else "●○"
    return marks[not judgement.is_decided]


OF_RATES, OF_COSTS, OF_REQUESTS = (
    ("slower", "faster", "as fast"),
    ("less", "more", "as much"),
    ("fewer", "more", "as many"),
)
"""Below, above, and in times."""
_OF_JUDGEMENTS = {
    RATE: OF_RATES,
    TIME: ("less time", "more time", "the time"),
    COST: ("cheaper", "dearer", "the cost"),
    ENERGY: ("less", "more", "more"),
    FIGURE: ("lower", "higher", "higher"),
}


def change_words(ratio: tuple[float, float, float], words: tuple[str, str, str]) -> tuple[str, str]:
    """A ratio with its ends, which lie to one side of 1: `36 % slower`, `34 to 38`; `1.56x as fast`, `1.49 to
    1.64`."""
    size, ends = format_size_of_change(*ratio)
    below, above, times = words
    return f"{size} {times if size.endswith('x') else above if ratio[0] >= 1 else below}", ends


def than(words: str) -> str:
    """What stands between such words and what a side is compared with."""
    return "as" if " as " in words else "of" if words.endswith(("the cost", "the time")) else "than"


def verdict_parts(judgement: Judgement) -> tuple[str, str]:
    """Its verdict in words, and its interval: `36 % slower`, `34 to 38`; `can't tell`, `-3 to +9 %`; without
    one an empty text."""
    if judgement.ratio is None:
        return verdict_text(judgement), ""
    if judgement.differs:
        return change_words(judgement.ratio, _OF_JUDGEMENTS[judgement.respect])
    ratio, low, high = judgement.ratio
    return verdict_text(judgement), format_ends(low, high, ratio)


def judgement_text(judgement: Judgement, *, with_interval: bool = True) -> str:
    """Its verdict in words: `36 % slower (34 to 38)`, `41.2x as fast (39.8 to 42.1)`, `3.09x the cost (3.01
    to 3.17)`, `can't tell (-3 to +9 %)`."""
    words, ends = verdict_parts(judgement)
    return f"{words} ({ends})" if with_interval and ends not in ("", UNKNOWN) else words


def against_text(judgement: Judgement, other: str) -> str:
    """What is decided: `36 % slower than a.db (34 to 38)`, `1.56x as fast as H100 PCIe (1.49 to 1.64)`, `as
    fast as a.db (-0.5 to +0.4 %)`."""
    words, ends = verdict_parts(judgement)
    said = "as fast as" if words == "same" else f"{words} {than(words)}"
    return f"{said} {other} ({ends})"


def open_words(judgement: Judgement, words: tuple[str, str, str]) -> str:
    """The interval of what is not decided: `between 25 % slower and 6 % faster`, `1 to 6 % faster`; empty
    if it is unknown."""
    if judgement.ratio is None or point_text(judgement) == UNKNOWN:
        return ""
    (size, ends), (_, low, high) = format_size_of_change(*judgement.ratio), judgement.ratio
    if not low < 1 < high and not size.endswith("x"):
        return f"{ends} % {words[low >= 1]}"
    return "between " + " and ".join(change_words((end, end, end), words)[0] for end in (low, high))


def both_text(judgement: Judgement) -> str:
    """A change and its verdict in one cell: `-36 % slower`, `can't tell`."""
    return f"{point_text(judgement)} {judgement.word}" if judgement.is_decided else verdict_text(judgement)


def mean_name(group: GroupMean, device: str = "") -> str:
    """`average of 6 GPU peak tests`; of how many, where one side lacks some."""
    of = f"{group.common}" if group.common == group.rows else f"{group.common} of {group.rows}"
    kinds = {"training": "trainings", "inference": "inferences", "host": "host cases"}
    return " ".join(filter(None, ("average of", of, device, kinds.get(group.group, "peak tests"))))


def mean_devices(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """What means say of their device, by its class; nothing where all are of one."""
    classes = {group.device_class for one in comparisons for group in one.groups}
    return {one: one.upper() for one in classes} if len(classes) > 1 else dict.fromkeys(classes, "")


def change_text(judgement: Judgement) -> str:
    """B against A with its interval: `-36 % (-38 to -34)`; only the interval of an undecided mean; UNKNOWN
    where it says nothing."""
    if judgement.ratio is None:
        return "—"
    ratio, low, high = judgement.ratio
    point = point_text(judgement)
    if point in ("", UNKNOWN):
        return format_ends(low, high, ratio)
    return f"{point} ({format_change_interval(low, high, ratio)})"


def figure_values(figure: FigureRow) -> tuple[str, str]:
    """A figure of both sides with its unit, `—` where a side has none."""
    a, b = ("—" if isinstance(side, Missing) else metric_text(side) for side in (figure.a, figure.b))
    return a, b


def figure_verdict(figure: FigureRow) -> str:
    """`lower`, `same`, or why there is no verdict."""
    judged = figure.judgement
    return judged.reason if judged.word == "not comparable" else verdict_text(judged)


def boxes_text(band: float) -> str:
    """A note that a verdict holds for these two machines only (`Row.models_band`)."""
    how_far = format_percent(band)
    return f"true of these two boxes; boxes of one model may differ by {how_far}, so others may not"


def cost_text(cell: Cell, beside: Sequence[Cell] = (), *, with_interval: bool = True) -> str:
    """The cost of so much work that the cheapest side of the row pays cents to dollars (`cost_unit_of`)."""
    if not isinstance(cell.cost, Cost):
        return "—"
    cost, (millions, _) = cell.cost, cost_unit_of((cell, *beside))
    share = f" ({format_percent(cost.share)} share)" if cost.is_share else ""
    is_free = cost.usd_per_million <= 0
    spread = "" if is_free else f" {format_spread(cost.usd_per_million, cost.low, cost.high)}"
    return f"{format_usd(cost.usd_per_million * millions)}{spread if with_interval else ''}{share}"


def cost_unit_of(cells: Sequence[Cell]) -> tuple[float, str]:
    """How many million units of work the costs of sides of one case are of, and what people call that: of so
    much the cheapest is from cents to dollars. An empty name where none is known."""
    known = [cell.cost.usd_per_million for cell in cells if isinstance(cell.cost, Cost)]
    units = {cell.result.case.unit for cell in cells if cell.result is not None}
    return cost_unit(min(known), units.pop()) if known and len(units) == 1 else (1.0, "")


def energy_text(cell: Cell, *, with_interval: bool = True) -> str:
    """`1.37 J/img (1.36–1.38)`; without an interval where launches are too few for one.

    The ends of the interval share the unit of the value.
    """
    energy = cell.energy
    if not isinstance(energy, Energy) or cell.result is None:
        return "—"
    unit = cell.result.case.unit
    told = format_energy(energy.joules_per_unit, unit)
    if energy.low is None or energy.high is None or not with_interval:
        return told
    known = told.partition(" ")[2]
    ends = (format_energy(end, unit).removesuffix(f" {known}") for end in (energy.low, energy.high))
    return f"{told} ({'–'.join(ends)})"
