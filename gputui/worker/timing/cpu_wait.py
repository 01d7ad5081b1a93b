"""How long threads waited for a CPU."""

from __future__ import annotations

import contextlib
from pathlib import Path

_TASKS = Path("/proc/self/task")


def waited_ns() -> int | None:
    """Time that all threads of this process were runnable but not running, since they started; None if
    unknown.

    It only rises when others use the same CPUs. Takes about 50 µs.
    """
    threads = times_of_threads(_TASKS).values()
    return sum(waited for _, waited in threads) if threads else None


def times_of_threads(tasks: Path) -> dict[str, tuple[int, int]]:
    """How long each thread of a process ran, and waited on a run queue, in ns; empty if unknown.

    `tasks` is its directory in /proc. The first two numbers of `schedstat` (Linux, Documentation/
    scheduler/sched-stats).
    """
    found = {}
    with contextlib.suppress(OSError):  # the process has ended
        for task in tasks.iterdir():
            with contextlib.suppress(OSError, ValueError):
                ran, waited = (task / "schedstat").read_text().split()[:2]
                found[task.name] = int(ran), int(waited)
    return found
