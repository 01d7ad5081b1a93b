"""Boxes of the same hardware that measured the same: which of them are slower than the others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from gputui.model.absent import Missing
from gputui.model.units import counted, listed
from gputui.services.compare.pairing import Pairing, Side, compare_sides, pairing
from gputui.services.results.labels import cpu_words, gpu_words

MOST_BOXES = 16
"""Of one kind: every pair of them is judged."""


@dataclass(frozen=True, slots=True)
class EqualBoxes:
    """Boxes of one kind of hardware, and those of them that are slower than all the rest."""

    hardware: str
    names: tuple[str, ...]
    slower: tuple[tuple[str, int, float], ...]
    """Name, rows in which it is slower than all the rest, and the median of how much, as a share."""
    rows: int
    """Rows that were compared."""

    @property
    def line(self) -> str:
        """`slow among 2 equal boxes (1x L4), of 12 rows: gpu-b in 3 rows by 12 %`."""
        count = counted(len(self.names), "equal box")
        if not self.slower:
            return f"{listed(self.names)} are equal boxes ({self.hardware}), and no row shows a slow one"
        told = [
            f"{name} in {counted(rows, 'row')} by {100 * share:.0f} %" for name, rows, share in self.slower
        ]
        return f"slow among {count} ({self.hardware}), of {counted(self.rows, 'row')}: {'; '.join(told)}"


def equal_boxes(sides: Sequence[Side], names: Sequence[str]) -> Iterator[EqualBoxes]:
    """Each kind of hardware that several sides have; `names` are those of the sides.

    A box is named if, in some row, it is one of those that are each judged slower than all the rest.
    """
    kinds: dict[str, list[int]] = {}
    for place, side in enumerate(sides):
        machine = side.run.machine
        cores = counted(machine.cpu.usable_cores, "core")
        hardware = ", ".join(filter(None, (gpu_words(machine), cpu_words(machine), cores)))
        kinds.setdefault(hardware, []).append(place)
    for hardware, places in kinds.items():
        if 2 <= len(places) <= MOST_BOXES:
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
            found = [(names[place], len(of), statistics.median(of)) for place, of in sorted(shares.items())]
            yield EqualBoxes(hardware, tuple(names[place] for place in places), tuple(found), len(rows))


def _slower_ones(slower: Mapping[tuple[int, int], float], places: Sequence[int]) -> dict[int, float]:
    """The largest group of boxes that are all slower than each other box, and by how much at least."""
    wins = sorted(places, key=lambda place: sum(one == place for one, _ in slower), reverse=True)
    for count in range(len(places) - 1, 0, -1):
        group, rest = wins[:count], wins[count:]
        if all((place, other) in slower for place in group for other in rest):
            return {place: min(slower[place, other] for other in rest) for place in group}
    return {}
