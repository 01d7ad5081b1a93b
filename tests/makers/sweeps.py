"""Sums over the raw intervals of a trace, by another way than the product's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from gputui.model.journal import ProfiledPass
from gputui.services.traces.chrome_trace import KINDS, Trace

_WORK = ("kernel", "copy", "memset")


def busy_ns(trace: Trace, start_ns: int, end_ns: int, device: int | None = None) -> int:
    """Nanoseconds of the window in which any work of the device ran: the length of a union of intervals."""
    intervals = sorted(
        (max(trace.start_ns[i], start_ns), min(trace.end_ns[i], end_ns))
        for i in range(len(trace))
        if KINDS[trace.kind[i]] in _WORK and device in (None, trace.device[i])
    )
    total, reached = 0, start_ns
    for begin, end in intervals:
        if end > reached:
            total += end - max(begin, reached)
            reached = end
    return total


def communication_ns(events: Iterable[tuple[int, int, bool]], start_ns: int, end_ns: int) -> tuple[int, int]:
    """How long the device communicates, and how long it does only that, stretch by stretch between edges.

    `events`: begin, end, and whether it communicates, of its kernels.
    """
    inside = [
        (max(b, start_ns), min(e, end_ns), is_c) for b, e, is_c in events if e > start_ns and b < end_ns
    ]
    changes: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for begin, end, communicates in inside:
        changes[begin][communicates] += 1
        changes[end][communicates] -= 1
    total = exposed = computing = communicating = 0
    for at, until in pairwise(sorted(changes)):
        computing += changes[at][0]
        communicating += changes[at][1]
        total += (until - at) * (communicating > 0)
        exposed += (until - at) * (communicating > 0 and not computing)
    return total, exposed


def launched_ends_ns(trace: Trace, steps: Sequence[tuple[int, int]], device: int | None) -> list[int]:
    """When the last work ends that the host launched in each of its steps; 0 if it launched none."""
    calls = {
        trace.correlation[i]: trace.start_ns[i]
        for i in range(len(trace))
        if KINDS[trace.kind[i]] == "runtime"
    }
    ends = [0] * len(steps)
    for i in range(len(trace)):
        called_ns = calls.get(trace.correlation[i])
        if called_ns is None or trace.device[i] != device or KINDS[trace.kind[i]] not in _WORK:
            continue
        for place, (start, _) in enumerate(steps):
            until = steps[place + 1][0] if place + 1 < len(steps) else steps[place][1]
            if start <= called_ns < until:
                ends[place] = max(ends[place], trace.end_ns[i])
    return ends


def window_sums(found: ProfiledPass) -> tuple[int, int]:
    """The sum of the slices, and of the operators."""
    return sum(s.time_ns for s in found.slices), sum(o.time_ns for o in found.operators)
