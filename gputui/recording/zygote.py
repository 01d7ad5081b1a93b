"""A process that has imported torch, and forks the workers of this supervisor one after the other."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any  # Any: JSON

from gputui.model.plan import Plan, PlannedLaunch
from gputui.worker.procs.ranks import Lines, RankLost

_FORK_S = 10.0
"""From a request to the fork's first word."""


class Zygote:
    """Its latest worker answers as a `subprocess.Popen` does. Used by one thread.

    Its environment is that of its workers. Forks of one process share the layout of its memory, so they agree
    more than separate processes do.
    """

    pid: int
    """Of the latest worker."""

    def __init__(
        self, interpreter: Sequence[str], start_file: Path, environment: dict[str, str], log: Path
    ) -> None:
        """Start it. Raises OSError if the interpreter cannot be started."""
        ours, theirs = socket.socketpair()
        self._lines = Lines(ours)
        self._is_ready = False
        self._status: int | None = None
        log.parent.mkdir(exist_ok=True)
        with theirs, log.open("ab") as file:
            self._process = subprocess.Popen(
                [*interpreter, str(start_file), "zygote"],
                stdin=theirs.fileno(),
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def is_ready(self, timeout_s: float) -> bool:
        """Whether it can fork a worker within this time. Raises EOFError once it has ended."""
        with contextlib.suppress(RankLost):
            self._is_ready = self._is_ready or "ready" in self._take(timeout_s)
        return self._is_ready

    def is_alive(self) -> bool:
        """Whether it can fork another worker."""
        return self._process.poll() is None

    def fork(self, words: Sequence[str], log: Path) -> None:
        """Make a worker with these words on its command line. Raises OSError if none came."""
        self._is_ready = False
        try:
            self._lines.send({"words": words, "log": str(log)})
            self.pid, self._status = int(self._take(_FORK_S)["pid"]), None
        except (EOFError, RankLost, LookupError) as error:
            raise OSError(f"no fork came: {error}") from error

    def poll(self) -> int | None:
        """Exit status of the latest worker, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._status

    def wait(self, timeout: float) -> None:
        """Wait until the latest worker has ended. Raises subprocess.TimeoutExpired."""
        if self._status is None:
            try:
                self._status = int(self._take(timeout)["status"])
            except RankLost as error:
                raise subprocess.TimeoutExpired("a forked worker", timeout) from error
            except EOFError:  # the kernel kills a worker together with its zygote
                self.close()
                self._status = -signal.SIGKILL

    def _take(self, timeout_s: float) -> dict[str, Any]:
        return self._lines.take(time.monotonic() + timeout_s)

    def close(self) -> int:
        """End it, and with it a worker that it still has; returns its exit status, which it may have had."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._lines.socket.close()  # afterwards: it ends by itself where this closes
        return self._process.wait()


def may_fork(plan: Plan, launch: PlannedLaunch) -> bool:
    """Whether the worker of a launch may be a fork: torch in one process, on the CPU, without a compiler.

    A compiler starts processes and keeps files open; a GPU's driver does not survive a fork.
    """
    return (
        sys.platform == "linux"
        and launch.needs_torch
        and launch.device.torch_device == "cpu"
        and all(plan.cases[case_id].case.variant.mode == "eager" for case_id in launch.case_ids)
    )
