"""Boxes of the same hardware that measured the same: which of them is slower than the others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.units import counted, listed
from gputui.services.compare.pairing import Pairing, Side, compare_sides, pairing
from gputui.services.results.labels import cpu_words, gpu_words

MOST_BOXES = 16
"""Of one kind: every pair of them is judged."""


@dataclass(frozen=True, slots=True)
class EqualBoxes:
    """Boxes of one kind of hardware, and those of them that are slower than every other."""

    hardware: str
    names: tuple[str, ...]
    slower: tuple[tuple[str, int, float], ...]
    """Name, rows in which it is slower than every other, and the median of how much, as a share."""
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

    A box is named if, in some row, it is judged slower than each other box of its kind.
    """
    kinds: dict[str, list[int]] = {}
    for place, side in enumerate(sides):
        machine = side.run.machine
        cores = counted(machine.cpu.usable_cores, "core")
        hardware = ", ".join(filter(None, (gpu_words(machine), cpu_words(machine), cores)))
        kinds.setdefault(hardware, []).append(place)
    for hardware, places in kinds.items():
        if 2 <= len(places) <= MOST_BOXES:
            found, rows = [], set[Pairing]()
            for place in places:
                shares: dict[Pairing, list[float]] = {}
                for other in (other for other in places if other != place):
                    for row in compare_sides(sides[other], sides[place]).rows:
                        if isinstance(row.estimate, Missing):
                            continue
                        key = pairing(row.case)
                        rows.add(key)
                        if row.verdict.word == "slower":
                            shares.setdefault(key, []).append(1 - row.estimate.ratio)
                than_all = [min(one) for one in shares.values() if len(one) == len(places) - 1]
                if than_all:
                    found.append((names[place], len(than_all), statistics.median(than_all)))
            yield EqualBoxes(hardware, tuple(names[place] for place in places), tuple(found), len(rows))
