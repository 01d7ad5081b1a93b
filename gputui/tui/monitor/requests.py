"""What a key asks of those around the picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndProcess:
    """Send a signal to a process, if it is still the one that was shown."""

    pid: int
    start_ticks: int
    """The process now holding the PID must have started then."""
    signal: str
    """`SIGTERM`, `SIGINT`, `SIGHUP` or `SIGKILL`."""


@dataclass(frozen=True, slots=True)
class SetInterval:
    """Sample so often from now on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WantProcesses:
    """Ask for processes from now on, or no longer: they are the dearest to read."""

    wanted: bool


Request = EndProcess | SetInterval | WantProcesses
