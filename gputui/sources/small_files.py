"""Reading of files that the kernel makes up, cheaply."""

from __future__ import annotations

import os

_MOST_BYTES = 4 * 2**20
_AT_ONCE = 2**16


def read_file(path: str) -> bytes:
    """The whole of a small file: three system calls, a third of what `open` costs. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(handle, _AT_ONCE)
        if not content:
            return content
        # /proc gives a page or less at a time, whatever is asked for.
        while more := os.read(handle, _AT_ONCE):
            content += more
            if len(content) > _MOST_BYTES:
                break
        return content
    finally:
        os.close(handle)
