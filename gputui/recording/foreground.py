"""Runs a program in our terminal, or waits; signals reach the program as if we were not there."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType

from gputui.worker.command import ProgramEnd, end_of

SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


class Foreground:
    """Handles the signals of this process from construction on. Used by the main thread.

    SIGTERM is forwarded to the program. SIGINT and SIGQUIT from a terminal reach it directly, since it is in
    our process group; if no terminal can have sent them they are forwarded. A hang-up reaches it from the
    shell, or from us if there is none, and is recorded. A signal that was ignored when we were started stays
    ignored, for the program too.
    """

    def __init__(self) -> None:
        self.stopped_by = 0
        """The signal that ended `wait`."""
        self.hung_up = False
        self._pid: int | None = None
        self._waits_for: list[int] = []
        """Signals that arrived before the program was started."""
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def run(
        self,
        argv: Sequence[str],
        on_start: Callable[[int, int], None],
        on_exit: Callable[[], None],
        environ: Mapping[str, str] | None = None,
    ) -> ProgramEnd:
        """Run a program to its end, in our environment or in `environ`.

        `on_start` gets when it started and its PID; `on_exit` is called while /proc still tells of it.
        Raises OSError if it cannot be executed; neither is called then.
        """
        begun_ns = time.monotonic_ns()
        program = subprocess.Popen(argv, env=environ)
        self._pid = program.pid
        for number in self._waits_for:
            self._pass_on(number)
        on_start(begun_ns, program.pid)
        if hasattr(os, "waitid"):  # not in every macOS
            os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        on_exit()
        end = end_of(program)
        self._pid = None
        return end

    def wait(self, seconds: float | None) -> None:
        """Wait for a signal, or until the time is up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self.stopped_by:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            select.select([self._woken], [], [], left_s)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopped_by = self.stopped_by or number
        if number == signal.SIGHUP:
            self.hung_up = True
            if (
                os.getsid(0) == os.getpid()
            ):  # a shell signals its jobs itself; a session leader is only signaled by the kernel
                self._pass_on(number)
        elif number == signal.SIGTERM or not _is_of_a_terminal():
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._pid is None:
            self._waits_for.append(number)
        else:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self._pid, number)


def _is_of_a_terminal() -> bool:
    """Whether keys of a terminal become signals to our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
