"""The limits of a process group, and the files that count its use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Confinement:
    """Limits of this process's control groups. Paths are below the root they were read from."""

    cpu_limit_cores: float | None = None
    """CPUs' worth of time per second; None without a quota."""
    cpu_usage_file: str = ""
    """Of the group with that quota: `cpu.stat` (version 2) or `cpuacct.usage` (1); empty if missing."""
    cpus: frozenset[int] = frozenset()
    """Logical CPUs of the cpuset; empty if none is set."""
    memory_limit_bytes: int | None = None
    memory_directory: str = ""
    """Of the group with that limit."""
    version: int = 2
    """Of the hierarchy of that directory."""


FREE = Confinement()
"""No limit but the host's."""
