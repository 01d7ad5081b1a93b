"""Sides of a comparison in order, with ties between those that cannot be told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gputui.analysis.cost import Cost
from gputui.analysis.judgement import Judgement
from gputui.analysis.verdict import SpeedEstimate
from gputui.services.compare.pairing import Cell, Row


@dataclass(frozen=True, slots=True)
class Ranked:
    """One side of a ranking."""

    name: str
    cell: Cell
    low: float
    high: float
    """Of what is ranked: the smallest comes first."""


T = TypeVar("T")
_Figure = tuple[float, float, float]
"""A figure between its ends."""


def by_speed(a: Cell, rows: Mapping[str, Row]) -> list[list[Ranked]]:
    """The sides that were measured, the fastest first; `rows` compare the baseline with each other side."""
    return _ranked(a, rows, _seconds_per_unit, lambda row: row.rate)


def by_cost(a: Cell, rows: Mapping[str, Row]) -> list[list[Ranked]]:
    """The sides that have a price, the cheapest per unit of work first."""
    return _ranked(a, rows, _cost, lambda row: row.cost)


def fastest_text(a: Cell, rows: Mapping[str, Row]) -> str:
    """`c`, `b or c` where they tie, `same` or `can't tell` of all; a dash if none was measured."""
    tiers = by_speed(a, rows)
    if not tiers:
        return "—"
    first = [side.name for side in tiers[0]]
    if len(first) == 1:
        return first[0]
    if rows and all(row.rate.word == "same" for row in rows.values()):
        return "same"
    return "can't tell" if len(first) == 1 + len(rows) else " or ".join(sorted(first))


def _seconds_per_unit(cell: Cell) -> _Figure | None:
    speed = cell.speed
    return (
        (1 / speed.high, 1 / speed.units_per_s, 1 / speed.low) if isinstance(speed, SpeedEstimate) else None
    )


def _cost(cell: Cell) -> _Figure | None:
    cost = cell.cost
    return (cost.low, cost.usd_per_million, cost.high) if isinstance(cost, Cost) else None


def _ranked(
    a: Cell,
    rows: Mapping[str, Row],
    figure: Callable[[Cell], _Figure | None],
    judged: Callable[[Row], Judgement],
) -> list[list[Ranked]]:
    """The sides by what is ranked, each with its interval, which holds what runs differ by; it reaches A
    unless its row tells them apart."""
    baseline = figure(a)
    found = [] if baseline is None else [Ranked("a", a, baseline[0], baseline[2])]
    for name, row in rows.items():
        if (known := figure(row.b)) is not None:
            reaches = [baseline[1]] if baseline is not None and not judged(row).differs else []
            ends = (known[0], known[2], *reaches)
            found.append(Ranked(name, row.b, min(ends), max(ends)))
    found.sort(key=lambda side: side.low + side.high)
    return tied(found, lambda side: (side.low, side.high))


def tied(sides: Iterable[T], ends: Callable[[T], tuple[float, float]]) -> list[list[T]]:
    """Sides in order, the lowest first; whoever overlaps with the first of a tier is in it."""
    tiers: list[list[T]] = []
    for side in sides:
        if tiers and ends(side)[0] <= ends(tiers[-1][0])[1]:
            tiers[-1].append(side)
        else:
            tiers.append([side])
    return tiers
