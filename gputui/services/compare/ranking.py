"""Sides of a comparison in order, with ties where intervals overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputui.analysis.judgement import Judgement
from gputui.analysis.verdict import SpeedEstimate
from gputui.services.compare.pairing import Cell


@dataclass(frozen=True, slots=True)
class Ranked:
    """One side of a ranking."""

    name: str
    cell: Cell
    low: float
    high: float
    """Of what is ranked: the smallest comes first."""


def tied(sides: Iterable[Ranked]) -> list[list[Ranked]]:
    """In order; whoever overlaps with the first of a tier is in it."""
    tiers: list[list[Ranked]] = []
    for side in sorted(sides, key=lambda side: side.low + side.high):
        if tiers and side.low <= tiers[-1][0].high:
            tiers[-1].append(side)
        else:
            tiers.append([side])
    return tiers


def by_speed(sides: Iterable[tuple[str, Cell]]) -> list[list[Ranked]]:
    """The sides that were measured, the fastest first."""
    return tied(
        Ranked(name, cell, -cell.speed.high, -cell.speed.low)
        for name, cell in sides
        if isinstance(cell.speed, SpeedEstimate)
    )


def fastest_text(sides: Sequence[tuple[str, Cell]], rates: Sequence[Judgement]) -> str:
    """`c`, `b or c` where intervals overlap, `same` or `can't tell` of all; a dash if none was measured."""
    tiers = by_speed(sides)
    if not tiers:
        return "—"
    first = [side.name for side in tiers[0]]
    if len(first) == 1:
        return first[0]
    if rates and all(rate.word == "same" for rate in rates):
        return "same"
    return "can't tell" if len(first) == len(sides) else " or ".join(sorted(first))
