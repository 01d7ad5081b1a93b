"""The channel to the supervisor: JSON lines written to a path, so that wrappers and forks cannot lose it."""

from __future__ import annotations

import json
import os
from pathlib import Path


class Channel:
    """Write end of a FIFO. `send` raises BrokenPipeError if the reader is gone, which ends the worker."""

    def __init__(self, path: Path) -> None:
        """Open the FIFO. The supervisor opens its end before it starts a worker.

        Raises OSError if there is no reader, rather than waiting for a supervisor that was killed.
        """
        self._descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self._descriptor, True)

    def send(self, kind: str, **fields: object) -> None:
        """Write one line; blocks while the pipe is full."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
