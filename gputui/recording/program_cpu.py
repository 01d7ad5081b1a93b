"""What a program got of the CPUs, how long it waited for one, and what other programs took meanwhile."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from gputui.machine import cgroup
from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.sources.host import cpu_used_ns, ticks_of_cpus
from gputui.sources.processes import read_stat
from gputui.sources.small_files import text_of

_MOST_KEPT = 20_000
"""Readings; of more, every second one is dropped."""
_PAUSES = 50
"""As long as a reading took: reading takes at most 2 % of a CPU."""
_UNKNOWN = Missing("this system does not report how long threads wait for a CPU")


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Counters at one instant; those of the program count from its start."""

    t_ns: int
    """CLOCK_MONOTONIC."""
    ran_ns: int
    """CPU time of the program's threads."""
    waited_ns: int
    """They were ready to run and waited for a CPU, whoever had it."""
    box_ns: int
    """CPU time of everything on the CPUs that the program may use, or in the control group with its quota."""


@dataclass(frozen=True, slots=True)
class CpuUse:
    """A program on the CPUs from one instant to another."""

    wall_ns: int
    cpu_ns: int
    others_ns: int
    """CPU time of other programs."""
    waited_ns: int
    """Its threads waited because of them: no longer than they ran, since its threads also wait for each
    other."""


class ProgramCpu:
    """Reads the threads of a program, and of all that it starts, from `begin` to `end`.

    A thread that lives only between two readings is not seen, so what was waited is at least this. Without
    /proc nothing is known. For one thread.
    """

    def __init__(self, period_s: float, root: Path = Path("/")) -> None:
        self._period_s = period_s
        self._root = str(root)
        self._confinement = cgroup.confinement(Tree(root, os.environ))
        self._members: set[int] = set()
        self._others: set[int] = set()
        """Processes that are known not to belong to the program."""
        self._last: dict[str, tuple[int, int]] = {}
        """How long each thread had run and waited."""
        self._ran_ns = self._waited_ns = 0
        self._readings: list[CpuReading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, name="program cpu", daemon=True)

    def begin(self, pid: int) -> None:
        """Begin to read a program that was just started."""
        self._members.add(pid)
        self.read()
        self._thread.start()

    def end(self) -> None:
        """Read for the last time; the program has ended, and tells this until its parent takes notice."""
        self._over.set()
        self._thread.join()
        self.read()

    def use(self, first_ns: int = 0, last_ns: int = 2**63, cpu_ns: int = 0) -> CpuUse | Missing:
        """Its use between these instants, by the readings around them.

        `cpu_ns`: what it is known to have used, if more than was seen.
        """
        before = [one for one in self._readings if one.t_ns <= first_ns] or self._readings[:1]
        after = [one for one in self._readings if one.t_ns >= last_ns] or self._readings[-1:]
        if not before or not after[0].ran_ns:
            return _UNKNOWN
        first, last = before[-1], after[0]
        used_ns = max(last.ran_ns - first.ran_ns, cpu_ns)
        others_ns = max(last.box_ns - first.box_ns - used_ns, 0)
        waited_ns = min(last.waited_ns - first.waited_ns, others_ns)
        return CpuUse(last.t_ns - first.t_ns, used_ns, others_ns, waited_ns)

    def read(self) -> None:
        """Take one reading."""
        now: dict[str, tuple[int, int]] = {}
        for pid in self._processes():
            tasks = f"{self._root}/proc/{pid}/task"
            for thread in _entries(tasks):
                # CPU time and time on a run queue, in ns: Linux, Documentation/scheduler/sched-stats.
                fields = text_of(f"{tasks}/{thread}/schedstat").split()
                if len(fields) > 1:
                    now[thread] = int(fields[0]), int(fields[1])
        for thread, (ran_ns, waited_ns) in now.items():
            had_run_ns, had_waited_ns = self._last.get(thread, (0, 0))
            self._ran_ns += max(ran_ns - had_run_ns, 0)
            self._waited_ns += max(waited_ns - had_waited_ns, 0)
        self._last = now
        self._readings.append(
            CpuReading(time.monotonic_ns(), self._ran_ns, self._waited_ns, self._box_ns())
        )
        if len(self._readings) > _MOST_KEPT:
            del self._readings[1::2]

    def _processes(self) -> set[int]:
        """Those of the program; of each process that is new it is asked who started it."""
        there = {int(name) for name in _entries(f"{self._root}/proc") if name.isdigit()}
        self._members &= there
        self._others &= there
        for pid in sorted(there - self._members - self._others):  # parents come first
            try:
                is_member = read_stat(pid, f"{self._root}/proc").parent_pid in self._members
            except (OSError, ValueError):
                continue  # it has just ended
            (self._members if is_member else self._others).add(pid)
        return self._members

    def _box_ns(self) -> int:
        used_ns = cpu_used_ns(self._confinement, lambda path: text_of(self._root + path))
        if used_ns is not None:
            return used_ns
        stat = text_of(f"{self._root}/proc/stat")
        ticks = sum(one.busy for one in ticks_of_cpus(stat, self._confinement.cpus).values())
        return ticks * (10**9 // os.sysconf("SC_CLK_TCK"))

    def _keep_reading(self) -> None:
        took_s = 0.0
        while not self._over.wait(max(self._period_s, _PAUSES * took_s)):
            begun_s = time.monotonic()
            self.read()
            took_s = time.monotonic() - begun_s


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
