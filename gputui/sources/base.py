"""What a source of telemetry is, and the small files that several of them read."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, ClassVar, Protocol

from gputui.model.absent import Missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gputui.model.telemetry import DeviceSample, GpuUse, Value


class Gpu(Protocol):
    """One GPU. Any call may block in a driver; one thread at a time calls."""

    @property
    def number(self) -> int:
        """The driver's: its index in telemetry."""

    def sample(self) -> tuple[DeviceSample, ...]:
        """It now, followed by its MIG instances. Never empty: a failure is part of the sample."""

    def processes(self) -> tuple[GpuUse, ...] | Missing:
        """Who uses this GPU, including its MIG instances, or why that is unknown."""

    def read(self, *, full: bool) -> Mapping[str, float | int] | Missing:
        """What runs store of it, by column, or why nothing can be read.

        With `full` False only what changes within a tenth of a second: clocks, throttle reasons, power.
        """


class Source(Protocol):
    """GPUs of one kind."""

    NAME: ClassVar[str]

    def open(self) -> Sequence[Gpu] | Missing:
        """The GPUs that there are, lost ones included, or why there is none. May block in a driver; may be
        called again after a Missing."""


def stored_values(answers: Mapping[str, Value]) -> dict[str, float | int]:
    """Those of a GPU that are numbers, under the keys of a telemetry file and in its units."""
    values = {key: value for key, value in answers.items() if isinstance(value, int | float)}
    if "memory_used_bytes" in values:
        values["memory_used_mib"] = values.pop("memory_used_bytes") / 2**20
    return values


_MOST_BYTES = 4 * 2**20
_AT_ONCE = 2**16


def read_file(path: str) -> bytes:
    """Read a small file with three system calls, a third of the cost of `open`. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(handle, _AT_ONCE)
        if not content:
            return content
        # /proc returns at most a page at a time, whatever size is requested.
        while more := os.read(handle, _AT_ONCE):
            content += more
            if len(content) > _MOST_BYTES:
                break
        return content
    finally:
        os.close(handle)


def text_of(path: str) -> str:
    """The content of such a file; empty if it cannot be read."""
    try:
        return read_file(path).decode(errors="replace")
    except OSError:
        return ""


def target_of(link: Path) -> str:
    """Where a symbolic link leads; empty if it cannot be read."""
    try:
        return str(link.readlink())
    except OSError:
        return ""


def integer(text: str) -> int | None:
    """The content of a file that holds one number."""
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() else None


def meminfo(text: str) -> dict[str, int]:
    """The bytes that `/proc/meminfo` names."""
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def load_1min(text: str) -> float | Missing:
    """The first number of `/proc/loadavg`."""
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return Missing("/proc/loadavg cannot be read")
