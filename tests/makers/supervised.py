"""Real supervisors as child processes, with real or scripted workers, and their results."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil
from builders import make_spec

from gputui.model.journal import JOURNAL_NAME, LaunchStart, Line
from gputui.model.plan import Plan
from gputui.recording.worker_process import WORKER_NAME
from gputui.store.journal_reader import JournalTail, read_journal

PATIENCE_S = 300.0
"""Longer than anything here takes; whatever is not done by then has failed."""
L = TypeVar("L", bound=Line)

_SCRIPTED = """
import json, os, signal, sys, time
with open(sys.argv[3]) as file:
    ids = [case["case_id"] for case in json.load(file)["cases"]]
channel = os.open(sys.argv[4], os.O_WRONLY)

def raw(data):
    while data:
        data = data[os.write(channel, data):]

def say(kind, **fields):
    raw(json.dumps({"kind": kind, **fields}).encode() + b"\\n")

def warm(case_id):
    say("warm", case_id=case_id, precision_used="fp32", build_ns=1, first_step_ns=2, warmup_ns=3,
        warmup_blocks=3, stable=True, steps_per_block=10, t_ns=time.monotonic_ns())

def block(case_id, index=0):
    say("block", case_id=case_id, index=index, steps=10, start_ns=time.monotonic_ns(),
        wall_ns=200_000_000, device_ns=None, cpu_ns=200_000_000)

def end_case(case_id, outcome="ok", reason="", blocks=5):
    say("case_end", case_id=case_id, outcome=outcome, reason=reason, blocks=blocks,
        t_ns=time.monotonic_ns())

def measure(case_id):
    warm(case_id)
    for index in range(5):
        block(case_id, index)
    end_case(case_id)

def end():
    say("end", t_ns=time.monotonic_ns())

def die():
    os.kill(os.getpid(), signal.SIGKILL)

say("ready", threads_used=1, t_ns=time.monotonic_ns())
"""


def scripted_worker(path: Path, behaviour: str) -> tuple[str, ...]:
    """The command prefix of a worker that speaks the channel's language and follows a script.

    `behaviour` is Python over `ids`, `raw`, `say`, `warm`, `block`, `end_case`, `measure`, `end`, `die`.
    """
    path.write_text(_SCRIPTED + behaviour)
    return sys.executable, "-IS", str(path)


class Supervised:
    """One supervisor and its run directories."""

    def __init__(
        self, home: Path, *plans: Plan, on_end: Sequence[str] = (), is_impatient: bool = False
    ) -> None:
        self.run_dirs = [home / f"run-{index}" for index in range(len(plans))]
        for index, (run_dir, plan) in enumerate(zip(self.run_dirs, plans, strict=True)):
            run_dir.mkdir(parents=True)
            make_spec(plan, on_end, f"0194b5a0-0000-7000-8000-0000000000{index:02x}").write(run_dir)
        self.run_dir = self.run_dirs[0]
        self.process = start_supervisor(*self.run_dirs, is_impatient=is_impatient)
        self._tail = JournalTail(self.run_dir)
        self._heard: list[Line] = []

    def wait_for(self, kind: type[L], *, of_launch: int | None = None) -> L:
        """Wait for the first line of this kind in the first journal."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in self._heard:
                if isinstance(line, kind) and of_launch in (None, getattr(line, "launch_id", None)):
                    return line
            ended = self.process.poll() is not None
            came = self._tail.poll()
            self._heard += came
            if ended and not came:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
        raise AssertionError(f"no {kind.__name__} in {self._heard}")

    def worker_pid(self) -> int:
        """The process of the launch in progress, which leads its group."""
        self.wait_for(LaunchStart)
        return int(json.loads((self.run_dir / WORKER_NAME).read_text())[0])

    def end(self) -> int:
        """Wait until the supervisor has ended; returns its exit status."""
        return self.process.wait(PATIENCE_S)

    def output(self) -> str:
        return (self.run_dir / "supervisor.log").read_text()

    def lines(self, kind: type[L], run: int = 0) -> tuple[L, ...]:
        """All lines of this kind in one journal, which must be complete."""
        contents = read_journal(self.run_dirs[run])
        assert contents.damage == ()
        return contents.of(kind)

    def journal_bytes(self) -> bytes:
        """The first journal as it is on the disk."""
        return (self.run_dir / JOURNAL_NAME).read_bytes()


_IMPATIENT = """
import sys
from pathlib import Path
from gputui.recording.supervisor import Supervisor
sys.exit(Supervisor([Path(run_dir) for run_dir in sys.argv[1:]], 2, 1).run())
"""


def start_supervisor(*run_dirs: Path, is_impatient: bool = False) -> subprocess.Popen[bytes]:
    """A supervisor in its own session, as `gputui run` starts it; an impatient one waits 1 or 2 s."""
    begin = ("-c", _IMPATIENT) if is_impatient else ("-m", "gputui.recording")
    with (run_dirs[0] / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *begin, *map(str, run_dirs)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def living_members(group: int) -> list[int]:
    """Processes of a group that still run, zombies excluded."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
    return members


def ends_by_itself(pid: int, started: Callable[[], object]) -> bool:
    """Whether a process, not a child of ours, ends after `started` was called."""
    watched = os.pidfd_open(pid)
    try:
        started()
        return bool(select.select([watched], [], [], PATIENCE_S)[0])
    finally:
        os.close(watched)
