"""Requests of the Monitor's model to its surroundings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndProcess:
    """Send a signal to a process, if it is still the one that was shown."""

    pid: int
    start_ticks: int
    """Start time, which must match that of the process with this PID."""
    signal: str
    """`SIGTERM`, `SIGINT`, `SIGHUP` or `SIGKILL`."""


@dataclass(frozen=True, slots=True)
class SetInterval:
    """Change the sampling interval."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WantProcesses:
    """Start or stop sampling processes, which are the most expensive to read."""

    wanted: bool


class ShowDemo:
    """Show made-up GPUs instead of this box, until the user leaves them."""


Asked = EndProcess | ShowDemo
"""What the Monitor's screen leaves to whoever opened it."""
Request = SetInterval | WantProcesses | Asked
