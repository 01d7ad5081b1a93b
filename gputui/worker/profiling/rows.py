"""The rows that say where the time of a window of steps went, as a worker sends them and a file stores them;
and which lines of the program it belongs to, part by part.

All times are integer nanoseconds of the window.
"""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

GC, OTHER_THREAD = "garbage collection", "another thread"
_MOST_PARTS, _MOST_LINES = 100, 5


@dataclass(frozen=True, slots=True)
class Operator:
    """The calls of one operator on inputs of one shape, in one phase of the steps."""

    phase: str
    category: str
    operator: str
    """The outermost operator, such as `aten::linear`; a cast inside another one is a separate row.
    `others` in a category stands for all that were too short for a row."""
    shapes: str
    """Of its inputs, `8x64,64x64`; empty if not recorded."""
    dtypes: str
    """Of the same inputs."""
    calls: int
    events: int
    """Trace events below it: the profiler's overhead on its time is proportional to these."""
    time_ns: int
    """Time of the window attributed to this row: exclusive time on a CPU, else its share of the device's
    time."""
    cpu_ns: int
    """Host time in it and in what it calls, except calls that are rows themselves."""
    kernels: int
    """Kernels and copies it launched."""
    kernel_ns: int = 0
    """Sum of their durations: those of concurrent ones count in full. 0 in files that did not hold it."""


def added_up(rows: Sequence[Operator]) -> Operator:
    """Rows as one, which is called as the first; without types where these differ."""
    return replace(
        rows[0],
        dtypes=rows[0].dtypes if len({row.dtypes for row in rows}) == 1 else "",
        calls=sum(row.calls for row in rows),
        events=sum(row.events for row in rows),
        time_ns=sum(row.time_ns for row in rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        kernels=sum(row.kernels for row in rows),
        kernel_ns=sum(row.kernel_ns for row in rows),
    )


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """A part of the window."""

    phase: str
    time_class: str
    cause: str
    """Of idle time, one of IDLE_CAUSES; empty otherwise."""
    time_ns: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """All runs of one kernel of the device, or of one kind of copy."""

    name: str
    time_class: str
    operator: str
    """The operator that launched most of them; empty if unknown."""
    calls: int
    time_ns: int
    """Sum of their durations; concurrent ones count in full."""
    longest_ns: int


@dataclass(frozen=True, slots=True)
class LineTime:
    """Time of an operator, or of idleness for one cause, while the program was at one of its lines."""

    phase: str
    operator: str
    """Empty if the time is idle."""
    cause: str
    """As that of a slice."""
    doing: str
    """What held the program up there: `garbage collection`, or `another thread`, whose line it then is. Empty
    if nothing is known to."""
    path: str
    """As the program's user would type it; empty for the rest, of which no line is known or has a row."""
    line: int
    """0 if only the function is known."""
    function: str
    is_definition: bool
    """Whether the line is where the function begins, instead of the one that was executed."""
    called: str
    """The function of a library that the line called; empty if it called none."""
    time_ns: int


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
                rows.append(LineTime(phase, operator, cause, **asdict(place), time_ns=time_ns))
                rest_ns -= time_ns
            if rest_ns:
                rows.append(LineTime(phase, operator, cause, **asdict(_NOWHERE), time_ns=rest_ns))
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
