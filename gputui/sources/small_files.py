"""Fast reading of files that the kernel generates."""

from __future__ import annotations

import os

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
