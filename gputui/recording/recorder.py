"""Records a machine while any program runs in our terminal, or until it is stopped: a run without a worker of
ours. It also notes what the program got of the CPUs, and what other programs took meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gputui.machine import tree as cgroup
from gputui.machine.tree import Tree
from gputui.model.journal import (
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    Event,
    LaunchEnd,
    LaunchStart,
    RunEnd,
    Stored,
    end_of,
)
from gputui.model.machine import Machine
from gputui.recording.run_directory import JournalWriter, Spec
from gputui.recording.sampler import sampler_of_run
from gputui.sources.base import text_of
from gputui.sources.host import cpu_used_ns, ticks_of_cpus
from gputui.sources.processes import read_stat
from gputui.worker.command import ProgramEnd
from gputui.worker.command import end_of as end_of_program
from gputui.worker.timing import times_of_threads

SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


class Foreground:
    """Handles the signals of this process from construction on. Used by the main thread.

    SIGTERM is forwarded to the program. SIGINT and SIGQUIT from a terminal reach it directly, since it is in
    our process group; if no terminal can have sent them they are forwarded. A hang-up reaches it from the
    shell, or from us if there is none, and is recorded. A signal that was ignored when we were started stays
    ignored, for the program too.
    """

    def __init__(self) -> None:
        self.stopped_by = 0
        """The signal that ended `wait`."""
        self.hung_up = False
        self._pid: int | None = None
        self._waits_for: list[int] = []
        """Signals that arrived before the program was started."""
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def run(
        self,
        argv: Sequence[str],
        on_start: Callable[[int, int], None],
        on_exit: Callable[[], None],
        environ: Mapping[str, str] | None = None,
    ) -> ProgramEnd:
        """Run a program to its end, in our environment or in `environ`.

        `on_start` gets when it started and its PID; `on_exit` is called while /proc still tells of it.
        Raises OSError if it cannot be executed; neither is called then.
        """
        begun_ns = time.monotonic_ns()
        program = subprocess.Popen(argv, env=environ)
        self._pid = program.pid
        for number in self._waits_for:
            self._pass_on(number)
        on_start(begun_ns, program.pid)
        if hasattr(os, "waitid"):  # not in every macOS
            os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        on_exit()
        end = end_of_program(program)
        self._pid = None
        return end

    def wait(self, seconds: float | None) -> None:
        """Wait for a signal, or until the time is up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self.stopped_by:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            select.select([self._woken], [], [], left_s)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopped_by = self.stopped_by or number
        if number == signal.SIGHUP:
            self.hung_up = True
            # A shell signals its jobs itself; a session leader is only signaled by the kernel.
            if os.getsid(0) == os.getpid():
                self._pass_on(number)
        elif number == signal.SIGTERM or not _is_of_a_terminal():
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._pid is None:
            self._waits_for.append(number)
        else:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self._pid, number)


def _is_of_a_terminal() -> bool:
    """Whether keys of a terminal become signals to our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


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


_CASE_ID = _LAUNCH_ID = 0


class Recorder:
    """One recording in its run directory: journal, telemetry, and the lock, which is held until `close`.

    Used by one thread; `telemetry` is the context manager that samples meanwhile. A journal that can no
    longer be written does not stop anything, and earlier lines are kept.
    """

    def __init__(self, run_dir: Path, spec: Spec, machine: Machine, period_s: float) -> None:
        """Take the lock and begin the journal. Raises OSError, or GputuiError if the run was begun before."""
        self._journal = JournalWriter.begin(run_dir, spec, (run_dir,))
        self._plan = spec.plan
        self._begun_ns = 0
        self.short_id = spec.run_id[-8:]
        self.machine = machine
        planned = [CasePlanned(one, None, "") for one in spec.plan.cases]
        self._journal.write_heading(machine, spec.runtime, planned, is_cleared=False)
        path = run_dir / TELEMETRY_NAME
        self.telemetry = sampler_of_run(path, self.warn, period_s)
        self.cpu = ProgramCpu()

    @property
    def failure(self) -> str:
        """Why lines can no longer be written; empty while all is well."""
        return self._journal.failure

    def warn(self, message: str, level: str = "warning") -> None:
        """Record something the user should know."""
        self._say(Event(level, message, time.monotonic_ns()))

    def program_begun(self, begun_ns: int, pid: int) -> None:
        """Record when the program started; from now on it is read."""
        self._begun_ns = begun_ns
        self.cpu.begin(pid)
        for launch in self._plan.launches:
            self._say(LaunchStart(_LAUNCH_ID, 0, (_CASE_ID,), launch.threads, None, begun_ns), sync=True)

    def program_ended(self, outcome: str, reason: str, ended_ns: int, cpu_ns: int, exit_status: int) -> float:
        """Record how and when the program ended; returns its wall time in s, the one block of the run."""
        wall_ns = max(ended_ns - self._begun_ns, 1)
        use = self.cpu.use()
        cpu_ns = max(cpu_ns, use.cpu_ns if use else 0)
        waited_ns = use.waited_for_others_ns if use else None
        self._say(Block(_LAUNCH_ID, _CASE_ID, 0, 1, self._begun_ns, wall_ns, None, cpu_ns, waited_ns))
        self._say(CaseEnd(_LAUNCH_ID, _CASE_ID, outcome, reason, 1, ended_ns))
        self._say(LaunchEnd(_LAUNCH_ID, "ok", "", exit_status, "", ended_ns), sync=True)
        return wall_ns / 1e9

    def end(self, status: str, reason: str) -> None:
        """Record the end of the run; after this it can be stored."""
        self._say(end_of(self._journal.start, status, reason), sync=True)

    def close(self, exit_status: int, message: str) -> None:
        """Record whether the run was stored, and release it."""
        self._say(Stored(exit_status, message, time.monotonic_ns()))
        with suppress(OSError):
            self._journal.close()

    def _say(
        self, line: Block | CaseEnd | Event | LaunchEnd | LaunchStart | RunEnd | Stored, *, sync: bool = False
    ) -> None:
        with suppress(OSError):  # the journal keeps the reason
            self._journal.append(line)
            if sync:
                self._journal.sync()
