"""Sums over the raw intervals of a trace, by another way than the product's."""

from __future__ import annotations

from gputui.model.journal import ProfiledPass
from gputui.services.traces.chrome_trace import KINDS, Trace


def busy_ns(trace: Trace, start_ns: int, end_ns: int, device: int | None = None) -> int:
    """Nanoseconds of the window in which any work of the device ran: the length of a union of intervals."""
    intervals = sorted(
        (max(trace.start_ns[i], start_ns), min(trace.end_ns[i], end_ns))
        for i in range(len(trace))
        if KINDS[trace.kind[i]] in ("kernel", "copy", "memset") and device in (None, trace.device[i])
    )
    total, reached = 0, start_ns
    for begin, end in intervals:
        if end > reached:
            total += end - max(begin, reached)
            reached = end
    return total


def window_sums(found: ProfiledPass) -> tuple[int, int]:
    """The sum of the slices, and of the operators."""
    return sum(s.time_ns for s in found.slices), sum(o.time_ns for o in found.operators)
