"""How a program ended that somebody else wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramEnd:
    exit_status: int
    """As Python gives it: negative for a signal."""
    ended_ns: int
    cpu_ns: int
    """Of the program and the children it waited for."""


def end_of(program: subprocess.Popen[bytes]) -> ProgramEnd:
    """Wait until a program has exited."""
    _, status, usage = os.wait4(program.pid, 0)
    ended_ns = time.monotonic_ns()
    program.returncode = os.waitstatus_to_exitcode(status)
    return ProgramEnd(program.returncode, ended_ns, round((usage.ru_utime + usage.ru_stime) * 1e9))


def signal_name(number: int) -> str:
    """`SIGKILL`; for a real-time signal only its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
