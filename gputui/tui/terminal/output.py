"""Output to a terminal whose reader may be slow, frozen or gone."""

from __future__ import annotations

import contextlib
import os
import select
import termios
from time import monotonic

_ABORT = b"\x18\x1b[?2026l\x1b[m"
"""Ends an escape sequence that was cut off, and a synchronized update that was begun."""


class TerminalOutput:
    """A file that a stalled reader never delays: it takes what it can at once, a thread writes the rest.

    It reopens the terminal, so that non-blocking mode does not affect the shell's file description.
    """

    def __init__(self, fd: int) -> None:
        self._own = _opened_again(fd)
        self._fd = fd if self._own is None else self._own
        self._wake_read, self._wake_write = os.pipe()
        self._give_up_s: float | None = None
        self._rest = b""
        """What `write_now` could not write, before the text of the next `write`."""
        self.written = 0
        """How many calls of `write` have ended."""
        self.is_gone = False
        """Whether the terminal was closed."""

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Does nothing: writes are unbuffered."""

    def write(self, text: str) -> int:
        """Write all of it, however slow the reader is, until `give_up_in` expires."""
        rest, self._rest = self._rest, b""
        try:
            self._write(rest + text.encode("utf-8", "replace"))
        finally:
            self.written += 1
        return len(text)

    def write_now(self, text: str) -> bool:
        """Write without waiting; False if the rest is left to the next `write`, in whichever thread.

        Only while no call of `write` is in progress or queued.
        """
        data = text.encode("utf-8", "replace")
        if self._own is None:
            self._rest = data  # writing might block
            return False
        try:
            done = os.write(self._own, data)
        except (BlockingIOError, InterruptedError):
            done = 0
        except OSError:
            self.is_gone = True
            return True
        self._rest = data[done:]
        return not self._rest

    def give_up_in(self, seconds: float) -> None:
        """After this time, discard what the reader does not accept at once, oldest first."""
        self._give_up_s = monotonic() + seconds
        os.write(self._wake_write, b"!")

    def close(self) -> None:
        """Close the files; the writer thread must have ended."""
        for fd in (self._wake_read, self._wake_write, self._own):
            if fd is not None:
                os.close(fd)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self.is_gone:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                if not self._waited():
                    self._discard()
                    return
            except InterruptedError:
                continue
            except OSError:
                self.is_gone = True

    def _waited(self) -> bool:
        """Wait until the reader accepts something; False after giving up."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        if self._give_up_s is None:
            poll.register(self._wake_read, select.POLLIN)
            return bool(poll.poll())
        left_s = self._give_up_s - monotonic()
        return left_s > 0 and bool(poll.poll(left_s * 1000))

    def _discard(self) -> None:
        """Make room for the few bytes that restore the terminal."""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._fd, termios.TCOFLUSH)
        with contextlib.suppress(OSError):
            os.write(self._fd, _ABORT)


def _opened_again(fd: int) -> int | None:
    """The same terminal with a new file description, or None where its name leads nowhere."""
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        name = os.ttyname(fd)
        own = os.open(name, flags)
        if os.fstat(own).st_rdev == os.fstat(fd).st_rdev:
            return own
        os.close(own)
    return None
