"""The way back to the supervisor: JSON lines on a path, so that wrappers and forks cannot lose it."""

from __future__ import annotations

import json
import os
from pathlib import Path


class Channel:
    """Write end of a FIFO. If its reader is gone, `send` raises BrokenPipeError and the worker ends."""

    def __init__(self, path: Path) -> None:
        """Open it at once: the supervisor reads before it starts a worker.

        Raises OSError if nobody reads, rather than waiting for a supervisor that was killed.
        """
        self._descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self._descriptor, True)

    def send(self, kind: str, **fields: object) -> None:
        """One line; blocks while the pipe is full."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
