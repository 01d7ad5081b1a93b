"""A terminal driver that sleeps while nothing happens and leaves at once when told."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from codecs import getincrementaldecoder
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from gputui.tui.terminal import splash as skeleton
from gputui.tui.terminal.output import TerminalOutput

if TYPE_CHECKING:
    from textual.app import App

ASK = "\x1b[6n"
"""Where is the cursor? Every terminal since the VT100 answers it, once it has parsed what came before."""
_ALTERNATE_SCREEN = "\x1b[?1049h"
_CLICKS = "\x1b[?1000h\x1b[?1006h"
_LEAVING_S = 0.15
"""Longest wait at the end for a reader that takes nothing."""
LONGEST_PATIENCE_S = 0.15
"""Longest wait at the end for answers on their way."""


class TerminalClosed(Message, bubble=False):
    """Nobody is at the other end any more."""


class PasteFilter:
    """Takes control characters out of what is pasted, which Textual's parser would obey as keys.

    A paste stands between two marks (bracketed paste); lines and tabs in it stay.
    """

    _BEGINS, _ENDS = "\x1b[200~", "\x1b[201~"

    def __init__(self) -> None:
        self._is_inside = False
        self._held = ""
        """Outside: the last characters, which may begin a mark, already passed on. Inside: not yet."""

    def feed(self, text: str) -> str:
        """What of the text may be parsed now."""
        out: list[str] = []
        while text:
            joined = self._held + text
            mark = self._ENDS if self._is_inside else self._BEGINS
            at = joined.find(mark)
            behind = at + len(mark) if at >= 0 else len(joined)
            kept = "" if at >= 0 else _beginning_of(mark, joined)
            if self._is_inside:
                out.append(_without_controls(joined[: at if at >= 0 else len(joined) - len(kept)]))
                out.append(mark if at >= 0 else "")
            else:
                out.append(joined[len(self._held) : behind])
            self._held, text = kept, joined[behind:]
            self._is_inside ^= at >= 0
        return "".join(out)


def _beginning_of(mark: str, text: str) -> str:
    """The longest end of a text that may go on to be the mark."""
    return next((mark[:n] for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), "")


def _without_controls(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c in "\t\n\r")


class QuietDriver(LinuxDriver):
    """Textual's driver without its 10 polls a second; counts questions and answers.

    The thread that reads blocks until there is input, or a wake-up through a pipe.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stdout__ is not None  # of a process with a terminal
        self._terminal_fd = sys.__stdout__.fileno() if sys.__stdout__.isatty() else 2
        self._output: TerminalOutput | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._answers = Condition()
        self._asked = 0
        self._answered = 0
        self._is_closed = False
        self.patience_s = LONGEST_PATIENCE_S
        """How long at the end to wait for answers: they would be typed into the user's shell."""

    @property
    def is_backlogged(self) -> bool:
        """Whether the pty has not yet taken all that was written."""
        writer, output = self._writer_thread, self._output
        return writer is not None and output is not None and (writer._queue.qsize() > 0 or output.is_busy)

    def ask(self) -> str:
        """What to write so that the terminal answers with a CursorPosition; counted."""
        with self._answers:
            self._asked += 1
        return ASK

    def write(self, data: str) -> None:
        """Queue for the thread that writes."""
        if data == _ALTERNATE_SCREEN and skeleton.is_drawn():
            return  # a second time would save the cursor of the wrong screen
        if self._writer_thread is not None:
            super().write(data)

    def start_application_mode(self) -> None:
        """Take the terminal; the first question goes before the first picture, so its answer is quick."""
        self._output = TerminalOutput(self._terminal_fd)
        self._file = cast(Any, self._output)  # all that the writing thread uses of a file
        with self._answers:
            self._asked = self._answered = 0
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.attrs_before = skeleton.attributes_before() or self.attrs_before
        self.write(self.ask())

    def disable_input(self) -> None:
        """Stop reading, once the answers on their way have come."""
        if self._key_thread is not None and self._key_thread.is_alive():
            with self._answers:
                self._answers.wait_for(
                    lambda: self._is_closed or self._answered >= self._asked,
                    min(self.patience_s, LONGEST_PATIENCE_S),
                )
        os.write(self._wake_write, b"!")
        super().disable_input()

    def stop_application_mode(self) -> None:
        """Give the terminal back."""
        if self._output is not None:
            self._output.give_up_in(_LEAVING_S)
        super().stop_application_mode()
        skeleton.given_back()

    def close(self) -> None:
        """End the thread that writes."""
        if self._writer_thread is not None and self._output is not None:
            self._output.give_up_in(_LEAVING_S)
            super().close()
            self._writer_thread = None
            self._output.close()

    def process_message(self, message: Message) -> None:
        """Count answers before they are passed on."""
        if isinstance(message, events.CursorPosition):
            with self._answers:
                self._answered += 1
                self._answers.notify_all()
        super().process_message(message)

    def run_input_thread(self) -> None:
        """Pass on what is typed and answered until told to end, or until the terminal is closed."""
        _drain(self._wake_read)
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        pastes = PasteFilter()
        try:
            while not self.exit_event.is_set():
                ready = dict(poll.poll(_until_timeout_ms(parser)))
                if self.fileno in ready:
                    typed = _read(self.fileno)
                    if not typed:
                        with self._answers:
                            self._is_closed = True
                            self._answers.notify_all()
                        self.send_message(TerminalClosed())
                        break
                    for event in parser.feed(pastes.feed(decode(typed))) if typed else ():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        finally:
            with contextlib.suppress(EOFError, ParseError):
                for _ in parser.feed(""):
                    pass

    def _enable_mouse_support(self) -> None:
        """Clicks and the wheel; not every movement, of which a slow link would be full."""
        if self._mouse:
            self.write(_CLICKS)

    def _get_terminal_size(self) -> tuple[int, int]:
        """Of the terminal itself: COLUMNS and LINES do not follow when it is resized."""
        try:
            columns, lines = os.get_terminal_size(self._terminal_fd)
        except OSError:
            return super()._get_terminal_size()
        return columns or 80, lines or 24


def _until_timeout_ms(parser: XTermParser) -> float | None:
    """Until an escape that is followed by nothing is the escape key; None when there is none."""
    if parser._timeout_time is None:
        return None
    return max(0.0, (parser._timeout_time - monotonic()) * 1000) + 1


def _read(fd: int) -> bytes:
    """What is there; empty once the terminal is closed."""
    try:
        return os.read(fd, 4096)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENXIO, errno.EBADF):
            return b""
        raise


def _drain(fd: int) -> None:
    while select.select([fd], [], [], 0)[0]:
        os.read(fd, 64)
