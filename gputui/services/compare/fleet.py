"""Many sides: boxes by kind, how each kind spreads, and which boxes stand out.

In: sides, each with the newest run of each case. Out: a ranking with one line per side. Two boxes are
judged pair by pair elsewhere; here each is judged by its kind. A side is a box, a GPU, a runtime or a label.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # of a GPU, and how it is written

from gputui.analysis.cost import Cost
from gputui.analysis.fleet import (
    FALSE_ALARMS,
    FEWEST,
    apart_from,
    slower_group,
    slower_than_others,
    spread_of,
    standing_out,
)
from gputui.analysis.spread import ASSUMED_DF, instance_prior_sd
from gputui.analysis.statistics import t_quantile
from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import GputuiError, NoResult
from gputui.model.absent import Missing
from gputui.model.machine import Gpu
from gputui.model.plan import Case
from gputui.model.result import Run, RunSummary, Spread
from gputui.model.units import format_bytes, format_percent
from gputui.services.compare.pairing import Side, SideCase, check_one_box, joined, runs_by
from gputui.services.compare.ranking import tied
from gputui.services.prices import price_of_run
from gputui.services.results.conditions import Evidence
from gputui.services.results.headline import case_order, case_subject
from gputui.services.results.labels import device_words
from gputui.services.results.metrics import AS_OFFERED, is_as_offered
from gputui.services.results.selectors import Selection, select_all
from gputui.services.results.throughput import cost_of, is_host_bound, rate_of, speed_of
from gputui.store.locking import Locked
from gputui.store.reading import CaseConditions

RANKED_BY = ("machine", "runtime", "label", "gpu")
"""Dimensions with so many values that they are ranked."""
NOUNS = {"": "box", "machine": "box", "runtime": "runtime", "label": "label", "gpu": "GPU"}
FLEET_FROM = 9
"""Sides from which each is shown by its kind; fewer are shown side by side."""
GPUS_FROM = FEWEST
"""The same of GPUs, whose healthy ones are alike."""
_LEAST_SD = 0.03
"""Assumed between healthy GPUs of one box, of log rates: one node of 8 showed 1.8 %, rented GPUs show more.
At most 1 in 50 healthy ones is then called slow where they vary by 4 % (tests/benchmarks/check.py)."""


@dataclass(frozen=True, slots=True)
class RankedBox:
    """One side in the ranking."""

    name: str
    kind: str
    """Its devices: boxes of one kind should be equally fast."""
    speed: SpeedEstimate
    """In the main case, by its own launches."""
    of_kind: float
    """Its rate in the main case, times the median of its kind."""
    overall: float
    """The geometric mean of that over all cases on the device of the main case that its kind measured too."""
    cases: int
    """How many those are."""
    stands_out: str
    """`slower` or `faster` than its kind overall; `uneven` if in some cases only; else empty."""
    where: tuple[tuple[str, float], ...]
    """Cases in which it stands out by itself, with its rate times the median."""
    usd_per_million: float | Missing
    side: Side
    apart: tuple[float, float] | Missing
    """The 95 % interval of `overall` against the others of its kind that do not stand out."""
    why: str = ""
    """How it differs from the others of its kind, if it stands out and that is known."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Boxes with the same devices."""

    name: str
    boxes: int
    median_per_s: float
    """Of the main case, as the next."""
    median_low_per_s: float
    median_high_per_s: float
    """The 95 % interval of its median box: kinds whose intervals overlap tie."""
    low_per_s: float
    high_per_s: float
    """The middle 90 % of the boxes; all of them below 20."""
    usd_per_million: float | Missing
    """The median of its boxes'."""


@dataclass(frozen=True, slots=True)
class Split:
    """A kind that is two: in its main case, or in others."""

    kind: str
    subject: str
    """The case in which it falls into two; empty if it does over all."""
    slower: tuple[str, ...]
    """Names of its boxes, without those that stand out by themselves."""
    faster: tuple[str, ...]
    slower_per_s: float
    """The median of their rates in that case, over all in the main one."""
    faster_per_s: float
    unit: str
    ratio: float
    """Of these, or over all cases of the main case's device."""
    why: str = ""
    """In what the slower ones differ from the others; empty if that is not known."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All boxes, ranked by the main case."""

    case: Case
    subject: str
    kinds: tuple[Kind, ...]
    """The fastest first."""
    boxes: tuple[RankedBox, ...]
    """The fastest first."""
    unmeasured: tuple[str, ...]
    """Sides that did not measure the main case."""
    by: str = ""
    """The dimension that the sides differ in; empty for files."""
    splits: tuple[Split, ...] = ()
    """Kinds of which some boxes are as slow as each other."""

    @property
    def noun(self) -> str:
        """What a side is called."""
        return NOUNS[self.by]

    @property
    def tiers(self) -> list[list[Kind]]:
        """Kinds that tie together, the fastest first."""
        return tied(self.kinds, lambda kind: (-kind.median_high_per_s, -kind.median_low_per_s))


def kind_of(side: Side, by: str) -> str:
    """Its devices: sides of one kind should be equally fast."""
    if by == "gpu":
        return side.cases[0].result.device_name.removeprefix("NVIDIA ")
    return device_words(side.run)


def gpu_of(side: Side) -> Gpu | None:
    """The GPU, if all cases are of one."""
    indexes = {case.result.device_index for case in side.cases}
    return side.run.machine.gpu(*indexes) if len(indexes) == 1 else None


def fleet_sides(selections: Sequence[Selection], by: str = "", *, pool: bool = False) -> list[Side]:
    """One side for each selector, or for each value of a dimension of RANKED_BY.

    With `pool`, cases hold the launches of all runs. Raises GputuiError if a selector without a dimension
    names runs of several machines or runtimes.
    """
    if by:
        return _by(by, selections, pool)
    found = []
    names = _short_names([selection.text for selection in selections])
    for name, selection in zip(names, selections, strict=True):
        check_one_box(selection.text, [run.summary for run in selection.runs])
        found.append(joined(name, selection.runs, pool, {}))
    return found


def _by(dimension: str, selections: Sequence[Selection], pool: bool) -> list[Side]:
    held: dict[str, dict[str, _Held]] = {}
    for selection in selections:
        for value, found in runs_by(dimension, selection.runs).items():
            held.setdefault(value, {}).update((run.summary.run_id, (run, selection.path)) for run in found)
    names = _names(dimension, held)
    return [joined(names[value], [run for run, _ in runs.values()], pool, {}) for value, runs in held.items()]


_Held = tuple[Run, Path]
"""A run with the cases of one value, and its file."""


def _names(dimension: str, held: dict[str, dict[str, _Held]]) -> dict[str, str]:
    """What a person calls each value: a machine by its label or its file, if that is of no other."""
    if dimension not in ("machine", "gpu"):
        return {value: value for value in held}
    machines: dict[str, tuple[set[str], set[str]]] = {}
    machine_of = {}
    for value, runs in held.items():
        for run, path in runs.values():
            machine_of[value] = run.summary.machine.machine_id
            labels, files = machines.setdefault(machine_of[value], (set(), set()))
            labels.add(run.summary.label)
            files.add(path.stem)
    called = {}
    for machine, (labels, files) in machines.items():
        known = [
            next(iter(words))
            for which, words in enumerate((labels, files))
            if len(words) == 1
            and "" not in words
            and not any(words & both[which] for other, both in machines.items() if other != machine)
        ]
        called[machine] = known[0] if known else f"machine {machine}"
    if dimension == "machine":
        return {value: called[machine_of[value]] for value in held}
    if len(machines) == 1:
        return {value: value.partition(" of ")[0] for value in held}
    return {value: f"{value.partition(' of ')[0]} of {called[machine_of[value]]}" for value in held}


def _short_names(names: Sequence[str]) -> list[str]:
    """Names without directories, and without `.db` if all end in it; as typed if two would be equal."""
    short = [name.rpartition("/")[2] for name in names]
    if len(set(short)) < len(short):
        return list(names)
    ending = ".db" if all(name.endswith(".db") for name in short) else ""
    return [name.removesuffix(ending) for name in short]


def fleet_of(sides: Sequence[Side], by: str = "") -> Fleet:
    """Rank sides, without telling why one stands out. Raises NoResult if no two measured the same case."""
    measured: _Measured = {}
    of_kinds: dict[str, dict[int, Side]] = {}
    for place, side in enumerate(sides):
        of_kinds.setdefault(kind_of(side, by), {})[place] = side
        for case in side.cases:
            rate = AS_OFFERED if is_as_offered(case.result.case) else rate_of(case.result)
            if not isinstance(rate, Missing) and not is_host_bound(case.result):
                measured.setdefault(case.result.case, {})[place] = case, rate
    most = max(map(len, measured.values()), default=0)
    if most < 2:
        raise NoResult("no case was measured on two of the sides", "run the same profile on each")
    main = min((case for case in measured if len(measured[case]) == most), key=case_order)
    kinds = list[list[RankedBox]]()
    splits = list[Split]()
    for name, of_kind in of_kinds.items():
        logs = _beside_its_kind(of_kind, measured, main)
        is_one_box = by == "gpu" and len({side.run.machine.machine_id for side in of_kind.values()}) == 1
        kinds.append(list(_ranked(name, of_kind, measured, main, logs, is_one_box)))
        splits += _splits(name, of_kind, measured, logs, kinds[-1], main)
    return Fleet(
        main,
        case_subject(main, list(measured)),
        tuple(sorted(map(_kind_of_boxes, filter(None, kinds)), key=lambda kind: -kind.median_per_s)),
        tuple(sorted((box for kind in kinds for box in kind), key=lambda box: -box.speed.units_per_s)),
        tuple(side.name for place, side in enumerate(sides) if place not in measured[main]),
        by,
        splits=tuple(splits),
    )


_Measured = dict[Case, dict[int, tuple[SideCase, float]]]
"""By the place of a side the case and its rate."""


_OVERALL = ("slower", "faster")

_Logs = dict[Case, dict[int, float]]
"""By case and place of a side, the logarithm of its rate times the median of its kind."""


def _beside_its_kind(sides: Mapping[int, Side], measured: _Measured, main: Case) -> _Logs:
    """Of the cases that half of the kind measured, and the main one."""
    logs: _Logs = {}
    for case, found in measured.items():
        rates = {place: found[place][1] for place in sides if place in found}
        if rates and (case == main or 2 * len(rates) >= len(sides)):  # means over fewer are not comparable
            middle = statistics.median(rates.values())
            logs[case] = {place: math.log(rate / middle) for place, rate in rates.items()}
    return logs


def _overall(logs: _Logs, main: Case) -> dict[int, float]:
    """By place, the mean over all cases on the main case's device."""
    alike = [of for case, of in logs.items() if case.variant.device_class == main.variant.device_class]
    places = logs.get(main, ())
    return {place: statistics.fmean(of[place] for of in alike if place in of) for place in places}


def _splits(
    kind: str,
    sides: Mapping[int, Side],
    measured: _Measured,
    logs: _Logs,
    boxes: Sequence[RankedBox],
    main: Case,
) -> Iterator[Split]:
    """The kind over all, else each case in which it falls into two groups; without those that stand out."""
    of_cases = [(main, "", _overall(logs, main))]
    of_cases += [(case, case_subject(case, list(measured)), of) for case, of in logs.items()]
    for case, subject, of in of_cases:
        alone = {
            box.name
            for box in boxes
            if (any(name == subject for name, _ in box.where) if subject else box.stands_out in _OVERALL)
        }
        places = [place for place in of if sides[place].name not in alone]
        found = slower_group([of[place] for place in places], is_one_of_many=bool(subject))
        if not found:
            continue
        slower = [place for at, place in enumerate(places) if at in found]
        faster = [place for at, place in enumerate(places) if at not in found]
        mean = [statistics.fmean(of[place] for place in group) for group in (slower, faster)]
        slower_per_s, faster_per_s = (
            statistics.median(measured[case][place][1] for place in group) for group in (slower, faster)
        )
        yield Split(
            kind,
            subject,
            tuple(sides[place].name for place in slower),
            tuple(sides[place].name for place in faster),
            slower_per_s,
            faster_per_s,
            case.unit,
            math.exp(mean[0] - mean[1]),
        )
        if not subject:
            return


def _ranked(
    kind: str, sides: Mapping[int, Side], measured: _Measured, main: Case, logs: _Logs, is_one_box: bool
) -> Iterator[RankedBox]:
    """The boxes of a kind that measured the main case, each beside the others."""
    alike = [of for case, of in logs.items() if case.variant.device_class == main.variant.device_class]
    by_place = _overall(logs, main)
    places, overall = list(by_place), list(by_place.values())
    out = standing_out(overall, FALSE_ALARMS / 2)
    usual = [log for at, log in enumerate(overall) if at not in out]
    where: dict[int, list[tuple[str, float]]] = {}
    for case, of in logs.items():
        out_of_case = standing_out(list(of.values()), FALSE_ALARMS / 2 / len(logs))
        if is_one_box:  # where GPUs of one model vary less
            sd = max(instance_prior_sd(case.variant.device_class, case.workload_class), _LEAST_SD)
            out_of_case |= slower_than_others(list(of.values()), Spread(sd**2, ASSUMED_DF))
        for at in out_of_case:
            place, log = list(of.items())[at]
            where.setdefault(place, []).append((case_subject(case, list(measured)), math.exp(log)))
    for at, (place, log) in enumerate(zip(places, overall, strict=True)):
        single = sorted(where.get(place, []), key=lambda one: -abs(math.log(one[1])))
        of_main = measured[main][place][0]
        speed = speed_of(of_main.result)
        assert isinstance(speed, SpeedEstimate), "it has a rate"
        ends = apart_from(log, usual) if at in out else Missing("it does not stand out")
        yield RankedBox(
            name=sides[place].name,
            kind=kind,
            speed=speed,
            of_kind=math.exp(logs[main][place]),
            overall=math.exp(log),
            cases=sum(place in of for of in alike),
            stands_out=("slower" if log < 0 else "faster") if at in out else "uneven" if single else "",
            where=tuple(single),
            usd_per_million=_usd(of_main),
            side=sides[place],
            apart=ends if isinstance(ends, Missing) else (math.exp(ends[0]), math.exp(ends[1])),
        )


def _kind_of_boxes(boxes: Sequence[RankedBox]) -> Kind:
    spread = spread_of([box.speed.units_per_s for box in boxes])
    if len(boxes) == 1:
        low, high = boxes[0].speed.low, boxes[0].speed.high
    else:
        logs = [math.log(box.speed.units_per_s) for box in boxes]
        half = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        low, high = spread.median * math.exp(-half), spread.median * math.exp(half)
    prices = [box.usd_per_million for box in boxes if not isinstance(box.usd_per_million, Missing)]
    usd = statistics.median(prices) if prices else Missing("no price is known")
    return Kind(boxes[0].kind, spread.boxes, spread.median, low, high, spread.low, spread.high, usd)


def _usd(case: SideCase) -> float | Missing:
    price = price_of_run(case.run)
    if isinstance(price, Missing):
        return price
    cost = cost_of(case.result, price)
    return cost.usd_per_million if isinstance(cost, Cost) else cost


# Why a box or a GPU stands out: in what it differs from all others. First what is recorded of each box, such
# as a power limit; then what telemetry says of the time in which the main case was measured.

_ALIKE = 0.8
"""Share of the others that have one value, from which another value is a difference."""
_EXPLAINED = 8
"""Boxes whose telemetry is read because they stand out, and as many of the others."""
_MARKED_SHARE = 0.1
"""How much more of the time a GPU was slowed down than the others, from which the reason names it."""
_MARKED_CLOCK = math.log(1.02)


def _switch(is_on: bool) -> str:
    return "on" if is_on else "off"


_OF_GPUS: tuple[tuple[str, Callable[[Gpu], Any], Callable[[Any], str]], ...] = (
    ("power limit is", lambda gpu: gpu.power_limit_w, "{:.0f} W".format),
    ("link has", lambda gpu: gpu.pcie_width, "{} PCIe lanes".format),
    ("MIG is", lambda gpu: gpu.mig_enabled, _switch),
    ("ECC is", lambda gpu: gpu.ecc_enabled, _switch),
    ("memory is", lambda gpu: gpu.memory_bytes, format_bytes),
)
"""What of them differs, its value and that in words; the likeliest cause first, as in the next."""
_OF_RUN: tuple[tuple[str, Callable[[RunSummary], object]], ...] = (
    ("driver is", lambda run: run.machine.driver_version),
    ("usable cores are", lambda run: run.machine.cpu.usable_cores),
    ("torch is", lambda run: run.runtime.torch_version),
    ("kernel is", lambda run: run.machine.kernel),
)


def _recorded(box: RankedBox) -> dict[str, object]:
    """What is known of it, but for what its GPUs differ in."""
    gpu, run = gpu_of(box.side), box.side.run
    gpus = run.machine.gpus if gpu is None else [gpu]
    of_gpus = {what: ({value(one) for one in gpus}, words) for what, value, words in _OF_GPUS}
    found = {what: words(*values) for what, (values, words) in of_gpus.items() if _is_known(values)}
    return found | {what: value(run) for what, value in _OF_RUN if _is_known({value(run)})}


def _is_known(values: set[object]) -> bool:
    """Whether there is one value, and that is not missing."""
    return len(values) == 1 and not isinstance(next(iter(values)), Missing)


def ranking_of(
    files: Sequence[str], by: str, *, pool: bool = False, trust: bool = False
) -> tuple[Fleet, tuple[str, ...]] | None:
    """Many sides, each beside its kind and with reasons, and what to warn of; None of few.

    Raises GputuiError if a file cannot be read.
    """
    if by not in RANKED_BY and (by or len(files) < FLEET_FROM):
        return None
    selections = select_all(files, trust=trust, pool=pool, only_rates=True)
    sides = fleet_sides(selections, by, pool=pool)
    if len(sides) < (GPUS_FROM if by == "gpu" else FLEET_FROM):
        return None
    warnings = tuple(warning for selection in selections for warning in selection.warnings)
    if not by:  # copies of a file are one box
        warnings += tuple(
            f"{count} of these files hold the same run {run_id[-8:]}: they are one box, not {count}"
            for run_id, count in Counter(side.run.run_id for side in sides).items()
            if count > 1
        )
    return explained(fleet_of(sides, by), Evidence(selections, trust=trust)), warnings


def explained(fleet: Fleet, evidence: Evidence) -> Fleet:
    """The ranking with the reasons why boxes stand out, as far as they are known.

    Opens the files of a few boxes; what cannot be read any more explains nothing.
    """
    out = [box for box in fleet.boxes if box.stands_out]
    out.sort(key=lambda box: -abs(math.log(box.overall)))
    why: dict[str, list[str]] = {box.name: [] for box in fleet.boxes}
    for box in out:
        others = [other for other in fleet.boxes if other.kind == box.kind and not other.stands_out]
        why[box.name] = list(_differs(_recorded(box), [_recorded(other) for other in others]))
    for box, text in _of_telemetry(fleet, out[:_EXPLAINED], evidence):
        why[box.name].append(text)
    return replace(
        fleet,
        boxes=tuple(replace(box, why="; ".join(why[box.name][:2])) for box in fleet.boxes),
        splits=tuple(replace(split, why=_of_groups(fleet, split)) for split in fleet.splits),
    )


def _of_groups(fleet: Fleet, split: Split) -> str:
    """In what nearly all of the slower ones differ from nearly all others; empty if that is not known."""
    slower, faster = (
        [_recorded(box) for box in fleet.boxes if box.name in names] for names in (split.slower, split.faster)
    )
    for what in slower[0]:
        values = [Counter(one.get(what) for one in group).most_common(1)[0] for group in (slower, faster)]
        (mine, count), (theirs, others) = values
        is_clear = count >= _ALIKE * len(slower) and others >= _ALIKE * len(faster)
        if is_clear and mine != theirs and None not in (mine, theirs):
            noun = what.removesuffix(" is").removesuffix(" has")
            return f"{noun} {mine} in the slower ones, {theirs} in the others"
    return ""


def _differs(mine: Mapping[str, object], others: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """In what a box differs from nearly all others."""
    for what, value in mine.items():
        usual, count = Counter(other.get(what) for other in others).most_common(1)[0] if others else (None, 0)
        if usual not in (value, None) and count >= _ALIKE * len(others):
            yield f"its {what} {value}, theirs {usual}"


def _of_telemetry(
    fleet: Fleet, out: Sequence[RankedBox], evidence: Evidence
) -> Iterator[tuple[RankedBox, str]]:
    kinds = {box.kind for box in out}
    peers: dict[str, list[RankedBox]] = {kind: [] for kind in kinds}
    for box in sorted(fleet.boxes, key=lambda box: abs(math.log(box.overall))):
        if box.kind in kinds and not box.stands_out and len(peers[box.kind]) < _EXPLAINED:
            peers[box.kind].append(box)
    seen = _conditions(fleet, [*out, *(box for found in peers.values() for box in found)], evidence)
    for box in out:
        others = [seen[peer.name] for peer in peers[box.kind] if peer.name in seen]
        if box.name in seen and others:
            yield from ((box, text) for text in _differences(seen[box.name], others, box.overall < 1))


def _conditions(fleet: Fleet, boxes: Sequence[RankedBox], evidence: Evidence) -> dict[str, CaseConditions]:
    """By box, while its main case was timed; without those of which nothing is known any more."""
    cases = {
        box.name: next(case for case in box.side.cases if case.result.case == fleet.case) for box in boxes
    }
    evidence.read_conditions(case.run.run_id for case in cases.values())
    found = {}
    for name, case in cases.items():
        with suppress(GputuiError, Locked):
            seen = evidence.conditions(case.run.run_id, case.result.case_id)
            if not isinstance(seen, Missing):
                found[name] = seen
    return found


def _differences(mine: CaseConditions, others: Sequence[CaseConditions], is_slower: bool) -> Iterator[str]:
    """What slowed a box down more, or less if it is faster, than the middle of the others."""
    shares: tuple[tuple[str, Callable[[CaseConditions], float | Missing]], ...] = (
        ("slowed by heat or a power brake", lambda one: one.slowed_share),
        ("held at its power limit", lambda one: one.power_capped_share),
        ("shared with another process", lambda one: one.shared_share),
    )
    for words, value_of in shares:
        share, usual = value_of(mine), _middle(value_of(one) for one in others)
        if isinstance(share, Missing) or usual is None:
            continue
        if abs(share - usual) >= _MARKED_SHARE and (share > usual) == is_slower:
            yield f"it was {words} {format_percent(share)} of the time, the others {format_percent(usual)}"
    clock, usual = mine.clock_median_mhz, _middle(one.clock_median_mhz for one in others)
    if not isinstance(clock, Missing) and usual and clock > 0:
        change = math.log(clock / usual)
        if abs(change) >= _MARKED_CLOCK and (change < 0) == is_slower:
            yield f"its clock was {clock / 1000:.2f} GHz, theirs {usual / 1000:.2f} GHz"


def _middle(values: Iterable[float | Missing]) -> float | None:
    known = [value for value in values if not isinstance(value, Missing)]
    return statistics.median(known) if known else None
