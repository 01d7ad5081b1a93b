"""Many sides: boxes by kind, how each kind spreads, and which boxes stand out.

In: sides, each with the newest run of each case. Out: a ranking with one line per side. Two boxes are
judged pair by pair elsewhere; here each is judged by its kind. A side is a box, a GPU, a runtime or a label.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gputui.analysis.cost import Cost
from gputui.analysis.fleet import (
    FALSE_ALARMS,
    FEWEST,
    FleetSpread,
    apart_from,
    spread_of,
    standing_out,
)
from gputui.analysis.quantiles import t_quantile
from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import NoResult
from gputui.model.absent import Missing, known
from gputui.model.case import Case
from gputui.model.units import counted, format_change, format_rate, format_size_of_change, listed
from gputui.services.compare.fleet_sides import NOUNS, gpu_of, kind_of
from gputui.services.compare.pairing import Side, SideCase
from gputui.services.prices.pricing import price_of_run
from gputui.services.results.headline import as_sentence, case_order, case_subject
from gputui.services.results.throughput import cost_of, rate_of, speed_of

FLEET_FROM = 9
"""Sides from which each is shown by its kind; fewer are shown side by side."""
GPUS_FROM = FEWEST
"""The same of GPUs, whose healthy ones are alike."""
_NAMED = 5
"""Boxes that a sentence names."""
_NAMED_WITH_REASON = 3
"""The same with a reason each, if their reasons differ."""


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
    """The geometric mean of that over all cases that its kind measured too."""
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


@dataclass(frozen=True, slots=True)
class Kind:
    """Boxes with the same devices."""

    name: str
    spread: FleetSpread
    """Of the main case."""
    low: float
    high: float
    """The 95 % interval of its median box: kinds whose intervals overlap tie."""
    usd_per_million: float | Missing
    """The median of its boxes'."""


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
    why: Mapping[str, str] = field(default_factory=dict)
    """By box that stands out, how it differs from the others of its kind."""

    @property
    def noun(self) -> str:
        """What a side is called."""
        return NOUNS[self.by]

    @property
    def headline(self) -> str:
        """Who stands out and why, and how the kinds rank."""
        return " ".join(self.sentences)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The headline, sentence by sentence."""
        ranking, outliers = self._ranking(), self._outliers()
        return (*outliers, ranking) if len(self.kinds) == 1 else (ranking, *outliers)

    def _ranking(self) -> str:
        first = self.kinds[0]
        unit = self.case.unit
        about = counted(sum(kind.spread.boxes for kind in self.kinds), self.noun)
        if len(self.kinds) == 1:
            return f"{as_sentence(self.subject)} on {about} of one kind: {_spread_words(first, unit)}."
        ranked = ", then ".join(
            f"{listed([kind.name for kind in tier])}{' (a tie)' if len(tier) > 1 else ''}"
            f" at {format_rate(tier[0].spread.median, unit)}"
            for tier in self.tiers
        )
        return f"{as_sentence(self.subject)} on {about}, fastest kind first: {ranked}."

    def _outliers(self) -> list[str]:
        sentences = []
        for word in ("slower", "faster"):
            found = [box for box in self.boxes if box.stands_out == word]
            found.sort(key=lambda box: -abs(math.log(box.overall)))
            if len(found) == 1:
                sentences.append(self._only_outlier(found[0]))
            elif found:
                sentences.append(self._several_outliers(word, found))
        uneven = [box for box in self.boxes if box.stands_out == "uneven"]
        if uneven:
            some = [
                f"{box.name} ({box.where[0][0]} {format_change(box.where[0][1])})" for box in uneven[:_NAMED]
            ]
            named = listed([*some, f"{len(uneven) - _NAMED} more"] if len(uneven) > _NAMED else some)
            sentences.append(f"Only some cases stand out on {named}.")
        if not any(box.stands_out for box in self.boxes):
            small = all(kind.spread.boxes < FEWEST for kind in self.kinds)
            sentences.append(
                f"Too few of a kind to say which stands out: {counted(FEWEST, self.noun)} are needed."
                if small
                else f"No {self.noun} stands out from its kind."
            )
        return sentences

    def _only_outlier(self, box: RankedBox) -> str:
        others = sum(other.kind == box.kind for other in self.boxes) - 1
        of_kind = "" if len(self.kinds) == 1 else f" {box.kind}"
        why = f": {self.why[box.name]}" if self.why.get(box.name) else ""
        return f"{box.name} is {_change_words(box)} the other {others}{of_kind}{_interval_words(box)}{why}."

    def _several_outliers(self, word: str, found: Sequence[RankedBox]) -> str:
        reasons = {self.why.get(box.name, "") for box in found}
        common = next(iter(reasons)) if len(reasons) == 1 else ""
        has_reasons = not common and len(found) <= _NAMED_WITH_REASON
        named = [
            f"{box.name} by {format_change(box.overall).lstrip('+-')}"
            + (self._likeliest_reason(box) if has_reasons else "")
            for box in found[:_NAMED]
        ]
        if len(found) > _NAMED:
            named.append(f"{len(found) - _NAMED} more")
        why = f"; of each, {common}" if common else ""
        total = counted(sum(kind.spread.boxes for kind in self.kinds), self.noun)
        return f"{len(found)} of {total} are {word} than their kind: {listed(named)}{why}."

    def _likeliest_reason(self, box: RankedBox) -> str:
        """The first of its reasons in brackets; empty if there is none."""
        reason = self.why.get(box.name, "").partition("; ")[0]
        return f" ({reason})" if reason else ""

    @property
    def tiers(self) -> tuple[tuple[Kind, ...], ...]:
        """Kinds that tie together, the fastest first."""
        found: list[list[Kind]] = []
        for kind in self.kinds:
            if found and kind.high >= found[-1][0].low:
                found[-1].append(kind)
            else:
                found.append([kind])
        return tuple(tuple(tier) for tier in found)


def _change_words(box: RankedBox) -> str:
    """`28 % slower than`, `1.60x as fast as`."""
    change = format_change(box.overall).lstrip("+-")
    return f"{change} as fast as" if change.endswith("x") else f"{change} {box.stands_out} than"


def _interval_words(box: RankedBox) -> str:
    """The ends of the change in brackets, the smaller one first; empty if they are unknown."""
    if isinstance(box.apart, Missing):
        return ""
    return f" ({format_size_of_change(box.overall, *box.apart)[1]})"


def _spread_words(kind: Kind, unit: str) -> str:
    spread = kind.spread
    which = "90 % of them" if spread.boxes >= 20 else "from"
    return (
        f"{format_rate(spread.median, unit)} is the median, {which} {format_rate(spread.low, unit)}"
        f" to {format_rate(spread.high, unit)}"
    )


def fleet_of(sides: Sequence[Side], by: str = "") -> Fleet:
    """Rank sides, without telling why one stands out. Raises NoResult if no two measured the same case."""
    names = [side.name for side in sides]
    measured: dict[Case, dict[int, tuple[SideCase, float]]] = {}
    for place, side in enumerate(sides):
        for case in side.cases:
            rate = rate_of(case.result)
            if not isinstance(rate, Missing):
                measured.setdefault(case.result.case, {})[place] = case, rate
    most = max(map(len, measured.values()), default=0)
    if most < 2:
        raise NoResult("no case was measured on two of the sides", "run the same profile on each")
    main = min((case for case in measured if len(measured[case]) == most), key=case_order)
    kinds = [kind_of(side, by) for side in sides]
    relative = {case: _relative(found, kinds) for case, found in measured.items()}
    cases_of = {kind: _shared_cases(kind, kinds, measured) for kind in dict.fromkeys(kinds)}
    overall = {
        place: statistics.fmean(
            relative[case][place] for case in cases_of[kinds[place]] if place in relative[case]
        )
        for place in measured[main]
    }
    words: dict[int, str] = {}
    where: dict[int, list[tuple[str, float]]] = {}
    apart: dict[int, tuple[float, float] | Missing] = {}
    for kind, cases in cases_of.items():
        places = [place for place in measured[main] if kinds[place] == kind]
        level = FALSE_ALARMS / 2
        logs = [overall[place] for place in places]
        outliers = standing_out(logs, level)
        for found in outliers:
            words[places[found]] = "slower" if logs[found] < 0 else "faster"
            ends = apart_from(logs[found], [log for at, log in enumerate(logs) if at not in outliers])
            apart[places[found]] = (
                ends if isinstance(ends, Missing) else (math.exp(ends[0]), math.exp(ends[1]))
            )
        for one in cases:
            of_case = [place for place in relative[one] if kinds[place] == kind]
            for found in standing_out([relative[one][place] for place in of_case], level / len(cases)):
                name = case_subject(one, list(measured))
                where.setdefault(of_case[found], []).append((name, math.exp(relative[one][of_case[found]])))
    boxes = []
    for place, (case, _) in measured[main].items():
        single = sorted(where.get(place, []), key=lambda one: -abs(math.log(one[1])))
        speed = speed_of(case.result)
        assert isinstance(speed, SpeedEstimate), "it has a rate"
        boxes.append(
            RankedBox(
                names[place],
                kinds[place],
                speed,
                math.exp(relative[main][place]),
                math.exp(overall[place]),
                sum(place in relative[one] for one in cases_of[kinds[place]]),
                words.get(place, "uneven" if single else ""),
                tuple(single),
                _usd(case),
                sides[place],
                apart.get(place, Missing("it does not stand out")),
            )
        )
    boxes.sort(key=lambda box: -box.speed.units_per_s)
    return Fleet(
        main,
        case_subject(main, list(measured)),
        tuple(sorted(map(_kind_of_boxes, _by_kind(boxes)), key=lambda kind: -kind.spread.median)),
        tuple(boxes),
        tuple(name for place, name in enumerate(names) if place not in measured[main]),
        by,
    )


def _relative(found: Mapping[int, tuple[SideCase, float]], kinds: Sequence[str]) -> dict[int, float]:
    """Logarithm of each side's rate times the median of its kind."""
    rates: dict[str, list[float]] = {}
    for place, (_, rate) in found.items():
        rates.setdefault(kinds[place], []).append(rate)
    medians = {kind: statistics.median(values) for kind, values in rates.items()}
    return {place: math.log(rate / medians[kinds[place]]) for place, (_, rate) in found.items()}


def _shared_cases(
    kind: str, kinds: Sequence[str], measured: Mapping[Case, Mapping[int, object]]
) -> list[Case]:
    """Those that at least half of the boxes of a kind measured: means over others are not comparable."""
    boxes = kinds.count(kind)
    return [
        case for case, found in measured.items() if 2 * sum(kinds[place] == kind for place in found) >= boxes
    ]


def _by_kind(boxes: Iterable[RankedBox]) -> list[list[RankedBox]]:
    found: dict[str, list[RankedBox]] = {}
    for box in boxes:
        found.setdefault(box.kind, []).append(box)
    return list(found.values())


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
    return Kind(boxes[0].kind, spread, low, high, usd)


def _usd(case: SideCase) -> float | Missing:
    price = price_of_run(case.run)
    if isinstance(price, Missing):
        return price
    cost = cost_of(case.result, price)
    return cost.usd_per_million if isinstance(cost, Cost) else cost


def fleet_as_json(fleet: Fleet) -> dict[str, object]:
    """The ranking, with rates in units per second and shares of the median of the kind."""
    return {
        "schema": 1,
        "by": fleet.by,
        "headline": fleet.headline,
        "case": fleet.subject,
        "unit": fleet.case.unit,
        "kinds": [
            {
                "name": kind.name,
                "boxes": kind.spread.boxes,
                "median_per_s": kind.spread.median,
                "median_low_per_s": kind.low,
                "median_high_per_s": kind.high,
                "low_per_s": kind.spread.low,
                "high_per_s": kind.spread.high,
                "usd_per_million": known(kind.usd_per_million),
                "tier": next(i for i, tier in enumerate(fleet.tiers, 1) if kind in tier),
            }
            for kind in fleet.kinds
        ],
        "boxes": [
            {
                "name": box.name,
                "kind": box.kind,
                "machine": box.side.run.machine.machine_id,
                "device_index": None if (gpu := gpu_of(box.side)) is None else gpu.index,
                "run": box.side.run.short_id,
                "per_s": box.speed.units_per_s,
                "low_per_s": box.speed.low,
                "high_per_s": box.speed.high,
                "of_kind": box.of_kind,
                "overall": box.overall,
                "cases": box.cases,
                "stands_out": box.stands_out,
                "overall_low": None if isinstance(box.apart, Missing) else box.apart[0],
                "overall_high": None if isinstance(box.apart, Missing) else box.apart[1],
                "why": fleet.why.get(box.name, ""),
                "where": [{"case": name, "of_kind": ratio} for name, ratio in box.where],
                "usd_per_million": known(box.usd_per_million),
            }
            for box in fleet.boxes
        ],
        "unmeasured": list(fleet.unmeasured),
    }
