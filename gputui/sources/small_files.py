"""Fast reading of files that the kernel generates."""

from __future__ import annotations

import os
import re

from gputui.model.absent import Missing

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


def meminfo(text: str) -> dict[str, int]:
    """The bytes that `/proc/meminfo` names."""
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def load_1min(text: str) -> float | Missing:
    """The first number of `/proc/loadavg`."""
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return Missing("/proc/loadavg cannot be read")
