"""How long this process was kept from a CPU it wanted."""

from __future__ import annotations

import contextlib
from pathlib import Path

_TASKS = Path("/proc/self/task")


def waited_ns() -> int | None:
    """Time all threads of this process were ready to run and did not, since their starts; None if unknown.

    The second number of a task's `schedstat`: time spent waiting on a run queue (Linux, Documentation/
    scheduler/sched-stats). Others on the same CPUs show in it, and nothing else does; about 50 µs a call.
    """
    total_ns, known = 0, False
    with contextlib.suppress(OSError, ValueError, IndexError):
        for task in _TASKS.iterdir():
            total_ns += int((task / "schedstat").read_text().split()[1])
            known = True
    return total_ns if known else None


def waited_between(before_ns: int | None, after_ns: int | None) -> int | None:
    """What was waited from one reading to a later one; a thread that ended takes its part along."""
    if before_ns is None or after_ns is None:
        return None
    return max(after_ns - before_ns, 0)
