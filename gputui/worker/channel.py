"""The channel to the supervisor: JSON lines written to a path, so that wrappers and forks cannot lose it."""

from __future__ import annotations

import json
import os
import time
from functools import partial
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


class CaseReport:
    """What a case says whose steps are not ours: of a program, or of a server under load."""

    def __init__(self, channel: Channel, case_id: int) -> None:
        self.send = partial(channel.send, case_id=case_id)
        self.blocks = 0
        """How many were reported."""

    def warm(self, *, build_ns: int, first_step_ns: int, warmup_ns: int, t_ns: int) -> None:
        """Say how long it took until the first block could begin."""
        self.send(
            "warm",
            precision_used="own",
            build_ns=build_ns,
            first_step_ns=first_step_ns,
            warmup_ns=warmup_ns,
            warmup_blocks=0,
            stable=None,
            steps_per_block=1,
            t_ns=t_ns,
        )

    def block(self, start_ns: int, wall_ns: int, steps: int, cpu_ns: int | None = None) -> None:
        """Say how long the next block took; at least 1 ns."""
        self.send(
            "block",
            index=self.blocks,
            steps=steps,
            start_ns=start_ns,
            wall_ns=max(wall_ns, 1),
            device_ns=None,
            cpu_ns=cpu_ns,
            waited_ns=None,
        )
        self.blocks += 1

    def end(self, outcome: str, reason: str) -> None:
        """Say what became of the case."""
        self.send("case_end", outcome=outcome, reason=reason, blocks=self.blocks, t_ns=time.monotonic_ns())
