"""Where the program was while it was traced, from the samples of `why --`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any  # JSON

from gputui.worker.foreign_json import whole
from gputui.worker.profiling.line_times import GC, OTHER_THREAD, Place

MEMBER = "gputuiLines"
"""Of a trace's document: samples that `why --` adds to it."""
MARK = "gputui clock"
"""A range whose begin the samples know on their own clock."""
_LATEST_NS = 2**62
_LONGEST = 300
Stretch = tuple[int, int, Place]
"""Start and end in nanoseconds, and where the stepping thread was between them."""


def sampled(member: Any, mark_ns: int) -> list[Stretch]:
    """What the program's half noted; `mark_ns` is when the mark began on the trace's clock.

    Raises ValueError, TypeError or LookupError if it is malformed.
    """
    before_ns, after_ns = (whole(edge, 0, _LATEST_NS) for edge in member["mark_ns"])
    offset_ns = mark_ns - (before_ns + after_ns) // 2
    places = [_place(*described) for described in member["places"]]
    return [
        (
            whole(start_ns, 0, _LATEST_NS) + offset_ns,
            whole(end_ns, 0, _LATEST_NS) + offset_ns,
            places[whole(number, 0, len(places) - 1)],
        )
        for number, start_ns, end_ns in member["spans"]
    ]


def _place(doing: object, path: object, line: object, function: object, called: object) -> Place:
    if doing not in ("", GC, OTHER_THREAD):
        raise ValueError(f"{doing!r:.40} is not known")
    names = (str(name)[:_LONGEST].encode("utf-8", "replace").decode() for name in (path, function))
    path, function = names
    return Place(str(doing), path, whole(line, 0, 2**31), function, str(called)[:80])


def innermost(stretches: Sequence[Stretch], start_ns: int, end_ns: int) -> Iterator[Stretch]:
    """Within a window, ordered by time, without overlaps: a later one within another is deeper."""
    mine = [one for one in stretches if one[1] > start_ns and one[0] < end_ns]
    open_until: list[tuple[int, Place]] = []
    at_ns = start_ns
    for first_ns, last_ns, place in sorted(mine, key=lambda one: (one[0], -one[1])):
        begin_ns, until_ns = max(first_ns, start_ns), min(last_ns, end_ns)
        yield from _closed(open_until, at_ns, begin_ns)
        at_ns = begin_ns
        open_until.append((min(until_ns, open_until[-1][0]) if open_until else until_ns, place))
    yield from _closed(open_until, at_ns, end_ns)


def _closed(open_until: list[tuple[int, Place]], at_ns: int, until_ns: int) -> Iterator[Stretch]:
    """The stretches between two instants, and what ends there taken off."""
    while open_until and at_ns < until_ns:
        last_ns, place = open_until[-1]
        if last_ns > at_ns:
            yield at_ns, min(last_ns, until_ns), place
            at_ns = min(last_ns, until_ns)
        if last_ns <= until_ns:
            open_until.pop()
