"""What a program got of the CPUs, how long it waited for one, and what other programs took meanwhile."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gputui.machine import tree as cgroup
from gputui.machine.tree import Tree
from gputui.sources.base import text_of
from gputui.sources.host import cpu_used_ns, ticks_of_cpus
from gputui.sources.processes import read_stat
from gputui.worker.timing import times_of_threads

_PERIOD_S = 0.2
_MOST_KEPT, _PAUSES = 20_000, 50
"""Readings, of which then every second one is dropped; how many times as long as one the next is away."""


@dataclass(frozen=True, slots=True)
class CpuUse:
    """A program on the CPUs: counters at one instant, or what they rose between two."""

    wall_ns: int
    cpu_ns: int
    waited_ns: int
    """Its threads were ready to run and waited for a CPU, whoever had it."""
    box_ns: int
    """CPU time of everything on the CPUs that it may use, or in the control group with its quota."""

    @property
    def others_ns(self) -> int:
        """CPU time of other programs; the counters are read one after the other, so never less than none."""
        return max(self.box_ns - self.cpu_ns, 0)

    @property
    def waited_for_others_ns(self) -> int:
        """No longer than other programs ran: its threads wait for each other too."""
        return min(self.waited_ns, self.others_ns)


class ProgramCpu:
    """Reads the threads of a program, and of all that it starts, from `begin` to `end`.

    A thread that lives only between two readings is not seen, so what was waited is at least this. Without
    /proc all is 0.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._confinement = cgroup.confinement(Tree(root, os.environ))
        self._is_ours: dict[int, bool] = {}
        """By process: whether it belongs to the program."""
        self._last: dict[str, tuple[int, int]] = {}
        """How long each thread had run and waited."""
        self._cpu_ns = self._waited_ns = 0
        self._readings: list[CpuUse] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, name="program cpu", daemon=True)

    def begin(self, pid: int) -> None:
        """Begin to read a program that was just started."""
        self._is_ours[pid] = True
        self.read()
        self._thread.start()

    def end(self) -> None:
        """Read for the last time; the program has ended, and tells this until its parent takes notice."""
        self._over.set()
        self._thread.join()
        self.read()

    def use(self, first_ns: int = 0, last_ns: int = 2**63) -> CpuUse | None:
        """Its use between these instants of CLOCK_MONOTONIC, by the readings around them; None if unknown."""
        first = next((one for one in self._readings[::-1] if one.wall_ns <= first_ns), self._readings[0])
        last = next((one for one in self._readings if one.wall_ns >= last_ns), self._readings[-1])
        if not last.cpu_ns or last.wall_ns <= first.wall_ns:
            return None
        return CpuUse(
            last.wall_ns - first.wall_ns,
            last.cpu_ns - first.cpu_ns,
            last.waited_ns - first.waited_ns,
            last.box_ns - first.box_ns,
        )

    def read(self) -> None:
        """Take one reading."""
        now: dict[str, tuple[int, int]] = {}
        for pid in self._processes():
            now |= times_of_threads(self._root / "proc" / str(pid) / "task")
        for thread, (ran_ns, waited_ns) in now.items():
            had_run_ns, had_waited_ns = self._last.get(thread, (0, 0))
            self._cpu_ns += max(ran_ns - had_run_ns, 0)
            self._waited_ns += max(waited_ns - had_waited_ns, 0)
        self._last = now
        self._readings.append(CpuUse(time.monotonic_ns(), self._cpu_ns, self._waited_ns, self._box_ns()))
        if len(self._readings) > _MOST_KEPT:
            del self._readings[1::2]

    def _processes(self) -> list[int]:
        """Those of the program; of each process that is new it is asked who started it."""
        there = sorted(int(entry.name) for entry in (self._root / "proc").glob("[0-9]*"))
        self._is_ours = {pid: self._is_ours[pid] for pid in there if pid in self._is_ours}
        for pid in there:
            if pid not in self._is_ours:
                with suppress(OSError, ValueError):  # it has just ended
                    parent = read_stat(pid, str(self._root / "proc")).parent_pid
                    self._is_ours[pid] = self._is_ours.get(parent, False)
        return [pid for pid, is_ours in self._is_ours.items() if is_ours]

    def _box_ns(self) -> int:
        used_ns = cpu_used_ns(self._confinement, lambda path: text_of(f"{self._root}{path}"))
        ticks = ticks_of_cpus(text_of(f"{self._root}/proc/stat"), self._confinement.cpus).values()
        by_ticks_ns = sum(one.busy for one in ticks) * 10**9 // os.sysconf("SC_CLK_TCK")
        return by_ticks_ns if used_ns is None else used_ns

    def _keep_reading(self) -> None:
        took_s = 0.0
        while not self._over.wait(max(_PERIOD_S, _PAUSES * took_s)):
            begun_s = time.thread_time()
            self.read()
            took_s = time.thread_time() - begun_s
