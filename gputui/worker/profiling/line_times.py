"""Which lines of the program the time of a window belongs to, part by part."""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .rows import LineTime

GC, OTHER_THREAD = "garbage collection", "another thread"
_MOST_PARTS, _MOST_LINES = 100, 5


@dataclass(frozen=True)
class Place:
    """A line of the program, and what went on there; fields as in a `LineTime`."""

    doing: str
    path: str
    line: int
    function: str
    is_definition: bool
    called: str


_NOWHERE = Place("", "", 0, "", False, "")


class LineTimes:
    """Sums up where the program was while its window went to operators and to causes of idleness."""

    def __init__(self, pieces: Iterable[tuple[int, int, Place]]) -> None:
        """`pieces`: start, end and place, ordered by time, without overlaps."""
        self._start_ns, self._end_ns = array("q"), array("q")
        self._places: list[Place] = []
        for start_ns, end_ns, place in pieces:
            self._start_ns.append(start_ns)
            self._end_ns.append(end_ns)
            self._places.append(place)
        self._found: dict[tuple[str, str, str], tuple[Counter[Place], Counter[Place]]] = {}
        """How long pieces are within a part, and those whose samples, which end them, were taken in it."""

    def add(self, phase: str, operator: str, cause: str, start_ns: int, end_ns: int) -> None:
        """A stretch of the window that belongs to an operator, or is idle for a cause."""
        if not self._places:
            return
        times, sampled = self._found.setdefault((phase, operator, cause), (Counter(), Counter()))
        index = bisect.bisect_right(self._end_ns, start_ns)
        unknown_ns = end_ns - start_ns
        while index < len(self._places) and self._start_ns[index] < end_ns:
            there_ns = min(self._end_ns[index], end_ns) - max(self._start_ns[index], start_ns)
            place = self._places[index]
            times[place] += there_ns
            unknown_ns -= there_ns
            if self._end_ns[index] <= end_ns and not (place.is_definition or place.doing):
                sampled[place] += self._end_ns[index] - self._start_ns[index]
            index += 1
        times[_NOWHERE] += unknown_ns

    def add_launched(self, phase: str, operator: str, launched_ns: int, time_ns: int) -> None:
        """Time of the device in work that the program launched at that instant."""
        if not self._places:
            return
        index = bisect.bisect_right(self._end_ns, launched_ns)
        is_known = index < len(self._places) and self._start_ns[index] <= launched_ns
        place = self._places[index] if is_known else _NOWHERE
        self._found.setdefault((phase, operator, ""), (Counter(), Counter()))[0][place] += time_ns

    def rows(self) -> tuple[LineTime, ...]:
        """The largest parts, the lines with the most of each first; what is left of a part has no path."""
        largest = sorted(self._found.items(), key=lambda item: -item[1][0].total())[:_MOST_PARTS]
        rows: list[LineTime] = []
        for (phase, operator, cause), (times, sampled) in largest:
            rest_ns = times.total()
            known = _known(times, sampled)
            for place, time_ns in known.most_common(_MOST_LINES):
                rows.append(LineTime(phase, operator, cause, *_cells(place), time_ns))
                rest_ns -= time_ns
            if rest_ns:
                rows.append(LineTime(phase, operator, cause, *_cells(_NOWHERE), rest_ns))
        return tuple(rows)


def _known(times: Counter[Place], sampled: Counter[Place]) -> Counter[Place]:
    """How long the thread was at each place. What is not noted from begin to end is divided as its samples
    are: where one was taken is sure, and not where the thread was since the one before."""
    known = Counter({place: ns for place, ns in times.items() if place != _NOWHERE})
    if not sampled:
        return known
    exact = Counter({place: ns for place, ns in known.items() if place.is_definition or place.doing})
    factor = (times.total() - exact.total()) / sampled.total()
    return exact + Counter({place: int(factor * ns) for place, ns in sampled.items()})


def _cells(place: Place) -> tuple[str, str, int, str, bool, str]:
    return place.doing, place.path, place.line, place.function, place.is_definition, place.called
