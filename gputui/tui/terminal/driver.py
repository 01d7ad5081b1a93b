"""A terminal driver that sleeps while idle and exits without delay.

Textual's polls for input; a live view that is left open for days should cost a box nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Callable
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from gputui.document.background import ANSWERS, put_aside
from gputui.tui.terminal.splash import Taken

if TYPE_CHECKING:
    from textual.app import App

CURSOR_QUERY = "\x1b[6n"
"""Cursor position query. Every terminal since the VT100 answers it once it has parsed what came before."""
_ANSWER = re.compile(rb"\x1b\[\d+;\d+R")
_ALTERNATE_SCREEN = "\x1b[?1049h"
_PLAIN = "\x1b[m"
_CLICKS = "\x1b[?1000h\x1b[?1006h"
_ABORT = b"\x18\x1b[?2026l\x1b[m"
"""Ends an escape sequence that was cut off, and a synchronized update that was begun."""
_LEAVING_S = 0.15
"""Longest wait at exit for a reader that does not read."""
LONGEST_PATIENCE_S = 0.15
"""Longest wait at exit for answers in transit."""


class TerminalClosed(Message, bubble=False):
    """The other end of the terminal is gone."""


class PasteFilter:
    """Removes control characters from pasted text, which Textual's parser would treat as keys.

    Pasted text is delimited by two marks (bracketed paste); newlines and tabs in it are kept.
    """

    _BEGINS, _ENDS = "\x1b[200~", "\x1b[201~"

    def __init__(self) -> None:
        self._is_inside = False
        self._held = ""
        """Outside a paste: the last characters, which may begin a mark and were already passed on. Inside:
        not yet passed on."""

    def feed(self, text: str) -> str:
        """The part of the input that may be parsed now."""
        out: list[str] = []
        while text:
            joined = self._held + text
            mark = self._ENDS if self._is_inside else self._BEGINS
            at = joined.find(mark)
            behind = at + len(mark) if at >= 0 else len(joined)
            beginnings = (mark[:n] for n in range(len(mark) - 1, 0, -1) if joined.endswith(mark[:n]))
            kept = "" if at >= 0 else next(beginnings, "")
            if self._is_inside:
                pasted = joined[: at if at >= 0 else len(joined) - len(kept)]
                out += [c for c in pasted if c.isprintable() or c in "\t\n\r"]
                out.append(mark if at >= 0 else "")
            else:
                out.append(joined[len(self._held) : behind])
            self._held, text = kept, joined[behind:]
            self._is_inside ^= at >= 0
        return "".join(out)


class QuietDriver(LinuxDriver):
    """Textual's driver without its 10 polls a second; counts cursor queries and answers.

    The input thread blocks until there is input or a wake-up through a pipe.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stdout__ is not None  # this process has a terminal
        self._terminal_fd = sys.__stdout__.fileno() if sys.__stdout__.isatty() else 2
        self._output: TerminalOutput | None = None
        self._queued_writes = 0
        self._wake_read, self._wake_write = os.pipe()
        self._answers = Condition()
        self._queried = 0
        self._answered = 0
        self._is_closed = False
        self.on_answer: Callable[[], None] | None = None
        """Called in the app's loop instead of a CursorPosition message, which costs three times as much."""
        self.patience_s = LONGEST_PATIENCE_S
        """How long to wait for answers at exit, which would otherwise be typed into the user's shell."""

    @property
    def is_backlogged(self) -> bool:
        """Whether the pty has not yet accepted everything that was written."""
        output = self._output
        return self._writer_thread is not None and output is not None and output.written < self._queued_writes

    def query(self) -> str:
        """The cursor position query, which the terminal answers with a CursorPosition; counted."""
        with self._answers:
            self._queried += 1
        return CURSOR_QUERY

    def write(self, data: str) -> None:
        """Write what the terminal takes at once, and queue the rest for the writer thread."""
        if data == _ALTERNATE_SCREEN and Taken.is_taken:
            return  # a second time would save the cursor of the wrong screen
        if self._writer_thread is None or self._output is None:
            return
        if not self.is_backlogged:
            if self._output.write_now(data):
                return
            data = ""
        self._queued_writes += 1
        super().write(data)

    def start_application_mode(self) -> None:
        """Take the terminal; the first query goes before the first picture, so its answer is quick."""
        self._output, self._queued_writes = TerminalOutput(self._terminal_fd), 0
        self._file = cast(Any, self._output)  # implements what the writer thread uses of a file
        with self._answers:
            self._queried = self._answered = 0
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = Taken.attributes or self.attrs_before
        self.write(self.query())

    def disable_input(self) -> None:
        """Stop reading once the answers in transit have arrived."""
        if self._key_thread is not None and self._key_thread.is_alive():
            with self._answers:
                self._answers.wait_for(
                    lambda: self._is_closed or self._answered >= self._queried,
                    min(self.patience_s, LONGEST_PATIENCE_S),
                )
        os.write(self._wake_write, b"!")
        super().disable_input()

    def stop_application_mode(self) -> None:
        if self._output is not None:
            self._output.give_up_in(_LEAVING_S)
        self.write(_PLAIN)  # frames leave a colour active, and the Linux console has no other screen
        super().stop_application_mode()
        Taken.is_taken = False

    def close(self) -> None:
        if self._writer_thread is not None and self._output is not None:
            self._output.give_up_in(_LEAVING_S)
            super().close()
            self._writer_thread = None
            self._output.close()

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.CursorPosition):
            with self._answers:
                self._answered += 1
                self._answers.notify_all()
        super().process_message(message)

    def run_input_thread(self) -> None:
        """Pass on input until asked to stop or until the terminal is closed."""
        while select.select([self._wake_read], [], [], 0)[0]:
            os.read(self._wake_read, 64)
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        pastes = PasteFilter()
        typed = ANSWERS.feed(b"")  # before, while answers were waited for
        try:
            while not self.exit_event.is_set():
                for event in parser.feed(text) if (text := pastes.feed(decode(typed))) else ():
                    self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
                typed = b""
                # a lone escape counts as the escape key after a while
                pending_s = parser._timeout_time
                wait_ms = None if pending_s is None else max(0.0, (pending_s - monotonic()) * 1000) + 1
                ready = dict(poll.poll(wait_ms))
                if self.fileno in ready:
                    typed = _read(self.fileno)
                    if not typed:
                        with self._answers:
                            self._is_closed = True
                            self._answers.notify_all()
                        self.send_message(TerminalClosed())
                        break
                    is_answer = parser._timeout_time is None and self._is_answer(typed)
                    typed = b"" if is_answer else ANSWERS.feed(typed)
        finally:
            with contextlib.suppress(EOFError, ParseError):
                for _ in parser.feed(""):
                    pass

    def _is_answer(self, typed: bytes) -> bool:
        """Whether this is exactly the answer to a query, which is then passed on."""
        if self.on_answer is None or not _ANSWER.fullmatch(typed):
            return False
        with self._answers:
            if self._answered >= self._queried:
                return False
            self._answered += 1
            self._answers.notify_all()
        self._loop.call_soon_threadsafe(self.on_answer)
        return True

    def _enable_mouse_support(self) -> None:
        """Clicks and the wheel only: reporting every movement would flood a slow link."""
        if self._mouse:
            self.write(_CLICKS)

    def _sigtstp_application(self, *_: object) -> None:
        """Give the terminal back until the shell continues this process.

        Textual's stops it also where no shell could continue it, as after `ssh -t HOST gputui`.
        """
        self.suspend_application_mode()
        self._must_signal_resume = True
        put_aside()
        if self._must_signal_resume:  # it was not stopped
            self.resume_application_mode()

    def _sigcont_application(self, *_: object) -> None:
        """Take the terminal, also after a stop without warning: two readers would share the keys."""
        if not self._must_signal_resume and self._writer_thread is not None:
            self.suspend_application_mode()
            self._must_signal_resume = True
        if self._must_signal_resume:
            self.resume_application_mode()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Size of the terminal itself: COLUMNS and LINES do not follow a resize."""
        try:
            columns, lines = os.get_terminal_size(self._terminal_fd)
        except OSError:
            return super()._get_terminal_size()
        return columns or 80, lines or 24


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENXIO, errno.EBADF):
            return b""
        raise


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
