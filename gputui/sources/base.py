"""What a source of telemetry is, and the small files that several of them read."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, ClassVar, Protocol

from gputui.model.absent import Missing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gputui.model.telemetry import DeviceSample, GpuUse, Reading, Value


class Source(Protocol):
    """One source of metrics.

    Any call may block in a driver. `open` and `devices` are called by one thread; `read` and `problem` by
    one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str]

    def open(self) -> Missing | None:
        """Open what is needed; the reason if this source has nothing here, else None. Call it first."""

    def devices(self) -> tuple[int, ...]:
        """Telemetry indices that can be read: GPUs by the driver's number, HOST for the host."""

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one device now; those that could not be read are absent.

        With `full` False it reads only what changes within a tenth of a second: clocks, throttle reasons,
        power.
        """

    def problem(self, device: int) -> Missing | None:
        """Why the last reading of a device failed completely, if it did."""


class LiveSource(Protocol):
    """GPUs of one kind, for the live view.

    Any call may block in a driver. `open` and `devices` are called by one thread; `sample` and `processes` by
    one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str]

    def open(self) -> Missing | None:
        """Open what is needed; the reason if there is nothing here, else None. May be called again after a
        Missing."""

    def devices(self) -> tuple[int, ...]:
        """The GPUs that there are, lost ones included; asked for once."""

    def sample(self, device: int) -> tuple[DeviceSample, ...]:
        """One GPU now, followed by its MIG instances. Never empty: a failure is part of the sample."""

    def processes(self, device: int) -> tuple[GpuUse, ...] | Missing:
        """Who uses this GPU, including its MIG instances, or why that is unknown."""


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


def meminfo(text: str) -> dict[str, int]:
    """The bytes that `/proc/meminfo` names."""
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def load_1min(text: str) -> float | Missing:
    """The first number of `/proc/loadavg`."""
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return Missing("/proc/loadavg cannot be read")
