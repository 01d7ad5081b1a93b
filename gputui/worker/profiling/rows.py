"""The rows that say where the time of a window of steps went, as a worker sends them and a file stores them.

All times are integer nanoseconds of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


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
    """Time of an operator, or of idleness for one cause, while the program was at one of its own lines."""

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
