"""Sides of a comparison in order, with ties between those that cannot be told apart; and of boxes of the same
hardware those that are slower than the others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TypeVar

from gputui.analysis.judgement import Judgement
from gputui.model.absent import Missing
from gputui.model.units import counted, format_percent, listed
from gputui.services.compare.pairing import Cell, Pairing, Row, Side, compare_sides, pairing
from gputui.services.results.labels import cpu_words, gpu_words

T = TypeVar("T")
_Figure = tuple[float, float, float]
"""A figure between its ends."""


def by_speed(a: Cell, rows: Mapping[str, Row]) -> list[list[str]]:
    """The sides that were measured, the fastest first; `rows` compare the baseline with each other side."""

    def seconds_per_unit(cell: Cell) -> _Figure | None:
        speed = cell.speed
        if isinstance(speed, Missing):
            return None
        return 1 / speed.high, 1 / speed.units_per_s, 1 / speed.low

    return _ranked(a, rows, seconds_per_unit, lambda row: row.rate)


def by_cost(a: Cell, rows: Mapping[str, Row]) -> list[list[str]]:
    """The sides that have a price, the cheapest per unit of work first."""

    def usd(cell: Cell) -> _Figure | None:
        cost = cell.cost
        return None if isinstance(cost, Missing) else (cost.low, cost.usd_per_million, cost.high)

    return _ranked(a, rows, usd, lambda row: row.cost)


def fastest_text(a: Cell, rows: Mapping[str, Row]) -> str:
    """`c`, `b or c` where they tie, `same` or `can't tell` of all; a dash if only one was measured."""
    tiers = by_speed(a, rows)
    first = tiers[0] if sum(map(len, tiers)) > 1 else []
    if len(first) < 2:
        return first[0] if first else "—"
    if rows and all(row.rate.word == "same" for row in rows.values()):
        return "same"
    return "can't tell" if len(first) == 1 + len(rows) else " or ".join(sorted(first))


def _ranked(
    a: Cell,
    rows: Mapping[str, Row],
    figure: Callable[[Cell], _Figure | None],
    judged: Callable[[Row], Judgement],
) -> list[list[str]]:
    """The sides by what is ranked, the smallest first, each with its interval, which holds what runs differ
    by; it reaches A unless its row tells them apart."""
    baseline = figure(a)
    ends = {} if baseline is None else {"a": (baseline[0], baseline[2])}
    for name, row in rows.items():
        if (known := figure(row.b)) is not None:
            reaches = [baseline[1]] if baseline is not None and not judged(row).differs else []
            ends[name] = min([known[0], *reaches]), max([known[2], *reaches])
    return tied(sorted(ends, key=lambda name: sum(ends[name])), ends.__getitem__)


def tied(sides: Iterable[T], ends: Callable[[T], tuple[float, float]]) -> list[list[T]]:
    """Sides in order, the lowest first; whoever overlaps with the first of a tier is in it."""
    tiers: list[list[T]] = []
    for side in sides:
        if tiers and ends(side)[0] <= ends(tiers[-1][0])[1]:
            tiers[-1].append(side)
        else:
            tiers.append([side])
    return tiers


MOST_BOXES = 16
"""Of one kind: every pair of them is judged."""


def equal_boxes(sides: Sequence[Side], names: Sequence[str]) -> Iterator[str]:
    """A line for each kind of hardware that several sides have; `names` are those of the sides.

    `slow among 2 equal boxes (1x L4), of 12 rows: gpu-b in 3 rows by 12 %`: a box is named if, in some row,
    it is one of those that are each judged slower than all the rest; by the median of how much.
    """
    kinds: dict[str, list[int]] = {}
    for place, side in enumerate(sides):
        machine = side.run.machine
        cores = counted(machine.cpu.usable_cores, "core")
        hardware = ", ".join(filter(None, (gpu_words(machine), cpu_words(machine), cores)))
        kinds.setdefault(hardware, []).append(place)
    for hardware, places in kinds.items():
        if not 2 <= len(places) <= MOST_BOXES:
            continue
        rows: dict[Pairing, dict[tuple[int, int], float]] = {}
        """By row, how much slower one box is than another, where that is judged."""
        for place, other in permutations(places, 2):
            for row in compare_sides(sides[other], sides[place]).rows:
                if not isinstance(row.estimate, Missing):
                    slower = rows.setdefault(pairing(row.case), {})
                    if row.verdict.word == "slower":
                        slower[place, other] = 1 - row.estimate.ratio
        shares: dict[int, list[float]] = {}
        for slower in rows.values():
            for place, share in _slower_ones(slower, places).items():
                shares.setdefault(place, []).append(share)
        told = [
            f"{names[place]} in {counted(len(of), 'row')} by {format_percent(statistics.median(of))}"
            for place, of in sorted(shares.items())
        ]
        if told:
            among = f"{counted(len(places), 'equal box')} ({hardware}), of {counted(len(rows), 'row')}"
            yield f"slow among {among}: {'; '.join(told)}"
        else:
            which = listed([names[place] for place in places])
            yield f"{which} are equal boxes ({hardware}), and no row shows a slow one"


def _slower_ones(slower: Mapping[tuple[int, int], float], places: Sequence[int]) -> dict[int, float]:
    """The largest group of boxes that are all slower than each other box, and by how much at least."""
    wins = sorted(places, key=lambda place: sum(one == place for one, _ in slower), reverse=True)
    for count in range(len(places) - 1, 0, -1):
        group, rest = wins[:count], wins[count:]
        if all((place, other) in slower for place in group for other in rest):
            return {place: min(slower[place, other] for other in rest) for place in group}
    return {}
