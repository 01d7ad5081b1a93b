"""Records a machine while any program runs, or until it is stopped: a run without a worker of ours."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from gputui.model.journal import (
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    Event,
    LaunchEnd,
    LaunchStart,
    MachineFound,
    RunEnd,
    RuntimeFound,
    Stored,
    end_of,
)
from gputui.model.machine import Machine
from gputui.recording.program_cpu import ProgramCpu
from gputui.recording.run_directory import JournalWriter, Spec
from gputui.recording.sampler import Sampler, sources_of_runs
from gputui.worker.variables import as_recorded, warnings_of

_CASE_ID = _LAUNCH_ID = 0


class Recorder:
    """One recording in its run directory: journal, telemetry, and the lock, which is held until `close`.

    Used by one thread; `telemetry` is the context manager that samples meanwhile. A journal that can no
    longer be written does not stop anything; `failure` says why, and earlier lines are kept.
    """

    def __init__(self, run_dir: Path, spec: Spec, machine: Machine, period_s: float) -> None:
        """Take the lock and begin the journal. Raises OSError, or GputuiError if the run was begun before."""
        self._journal, self._start, self._lock = JournalWriter.begin(run_dir, spec, (run_dir,))
        self._plan = spec.plan
        self._begun_ns = 0
        self.short_id = spec.run_id[-8:]
        self.machine = machine
        self.failure = ""
        self._journal.append(MachineFound(machine))
        variables = as_recorded(os.environ, is_cleared=False)
        self._journal.append(RuntimeFound(replace(spec.runtime, variables=variables)))
        for warning in warnings_of(os.environ, is_cleared=False):
            self.warn(warning)
        for planned in spec.plan.cases:
            self._journal.append(CasePlanned(planned, None, ""))
        self._journal.sync()
        path = run_dir / TELEMETRY_NAME
        self.telemetry = Sampler(path, sources_of_runs(), self.warn, period_s=period_s)
        self.cpu = ProgramCpu()

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
        self._say(end_of(self._start, status, reason), sync=True)

    def close(self, exit_status: int, message: str) -> None:
        """Record whether the run was stored, and release it."""
        self._say(Stored(exit_status, message, time.monotonic_ns()))
        try:
            self._journal.close()
        except OSError as error:
            self.failure = f"the journal's end may be lost: {error.strerror}"
        os.close(self._lock)

    def _say(
        self, line: Block | CaseEnd | Event | LaunchEnd | LaunchStart | RunEnd | Stored, *, sync: bool = False
    ) -> None:
        try:
            self._journal.append(line)
            if sync:
                self._journal.sync()
            self.failure = self.failure or self._journal.failure
        except OSError as error:
            self.failure = f"the journal cannot be written: {error.strerror}"
