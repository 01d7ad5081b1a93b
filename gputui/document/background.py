"""Asks the terminal once for its background colour: OSC 11, and DA1 behind it.

A terminal that does not know the first question answers the second one alone, so nobody waits for long.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from gputui.document.theme import SOME_DARK, SOME_LIGHT, Depth, Palette, depth_of

QUERY = "\x1b]11;?\x1b\\\x1b[c"
WAIT_S, LATE_S = 0.3, 1.0
"""After the question: an unanswered one means dark, and answers are no longer expected at the end. An answer
that nobody takes would be typed into the user's shell."""
_ANSWER = re.compile(
    rb"\x1b\]11;(?:rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+))?[^\x07\x1b]*(?:\x07|\x1b\\)"
)
_LAST_ANSWER = re.compile(rb"\x1b\[\?[0-9;]*c")
_ROW = re.compile(rb"\x1b\[(\d+);\d+R")
_BEGUN = re.compile(rb"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?|\[(?:\?[0-9;]*)?)?$")


class Answers:
    """Takes the terminal's answers out of what is typed."""

    def __init__(self) -> None:
        self.background = ""
        self.asked_s: float | None = None
        """When; 0 if it was decided not to, None before."""
        self.are_all = False
        self._held = self._typed = b""

    def feed(self, data: bytes) -> bytes:
        """What was typed. What may begin an answer is held back while one may come."""
        data = self._held + data
        for red, green, blue in filter(all, _ANSWER.findall(data)):
            parts = (round(255 * int(part, 16) / (16 ** len(part) - 1)) for part in (red, green, blue))
            self.background = "#" + "".join(f"{part:02x}" for part in parts)
        rest = _ANSWER.sub(b"", data)
        rest, count = _LAST_ANSWER.subn(b"", rest)
        self.are_all |= count > 0
        may_come = not self.are_all and monotonic() < (self.asked_s or 0.0) + 5 * LATE_S
        begun = _BEGUN.search(rest) if may_come else None
        end = begun.start() if begun else len(rest)
        typed, self._typed, self._held = self._typed + rest[:end], b"", rest[end:]
        return typed

    def wait(self, seconds: float) -> None:
        """Until all are there or this time has passed since the question; what is typed comes with `feed`."""
        until_s = (self.asked_s or 0.0) + seconds
        while self.asked_s and not self.are_all and (left_s := until_s - monotonic()) > 0:
            if select.select([0], [], [], left_s)[0]:
                self._typed = self.feed(os.read(0, 4096) or b"\x1b[?c")


ANSWERS = Answers()  # of the terminal of this process


def ask() -> list[Any] | None:
    """Ask, if this process has the terminal for itself; its attributes before, if it did.

    They are left without echo. Nothing is asked where something was typed, or GPUTUI_LIGHT is set.
    """
    is_first, ANSWERS.asked_s = ANSWERS.asked_s is None, ANSWERS.asked_s or 0.0
    has_answer = depth_of(os.environ) > Depth.NONE and os.environ.get("TERM", "") not in ("", "linux")
    with suppress(OSError):
        if (
            is_first
            and has_answer
            and not os.environ.get("GPUTUI_LIGHT")
            and os.name == "posix"
            and os.isatty(1)
        ):
            before = quiet_typing()
            if before is not None and not select.select([0], [], [], 0)[0]:
                ANSWERS.asked_s = monotonic()
                os.write(1, QUERY.encode())
            return before
    return None


def quiet_typing() -> list[Any] | None:
    """Keep what is typed from being shown; the terminal's attributes before, if this process has it."""
    with suppress(OSError, ImportError):
        import termios  # not available on Windows

        with suppress(termios.error):
            if not os.isatty(0) or is_in_background(0):  # one in the background would be stopped
                return None
            before, quiet = termios.tcgetattr(0), termios.tcgetattr(0)
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(0, termios.TCSANOW, quiet)
            return _UNANSWERED[-1] if _UNANSWERED else before
    return None


def is_in_background(fd: int) -> bool:
    """Whether a shell has given this terminal to another job; False if it is no terminal of this process."""
    with suppress(OSError):
        return os.tcgetpgrp(fd) != os.getpgrp()
    return False


def put_aside() -> None:
    """Stop this process until its shell continues it; where no shell could, the kernel ignores this."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


def hide_typing() -> Callable[[], None] | None:
    """Keep what is typed from being shown until what this returns is called, which forgets what was typed.

    A process that waits for the end of this one does the same if it is killed. None without a terminal.
    """
    before = quiet_typing()
    if before is None:
        return None
    import termios

    quiet = termios.tcgetattr(0)
    reader, writer = os.pipe()
    guard = os.fork()
    if not guard:
        try:
            os.setsid()  # it gets no signals from the terminal's keys
            os.close(writer)
            # A shell may have set other attributes by now.
            if not os.read(reader, 1) and termios.tcgetattr(0) == quiet:
                termios.tcsetattr(0, termios.TCSANOW, before)
        finally:
            os._exit(0)
    os.close(reader)

    def show() -> None:
        with suppress(OSError, termios.error):
            if not is_in_background(0):  # else a shell has set its own by now
                termios.tcsetattr(0, termios.TCSAFLUSH, before)
            os.write(writer, b".")
            os.close(writer)
            os.waitpid(guard, 0)

    return show


def cursor_row() -> int | None:
    """The row of the cursor from 1, which the terminal is asked for; what was typed until then is forgotten.

    None if it does not say. Ask only after `hide_typing`.
    """
    with suppress(OSError):
        os.write(2, b"\x1b[6n")
        heard, until_s = b"", monotonic() + WAIT_S
        while select.select([0], [], [], max(until_s - monotonic(), 0))[0] and (read := os.read(0, 4096)):
            heard += ANSWERS.feed(read)
            if found := _ROW.search(heard):
                return int(found[1])
    return None


def palette_here(theme: str = "", *, asks: bool = True) -> Palette:
    """The colours for this terminal, which is asked the first time, if it may be."""
    before = ask() if asks else None
    ANSWERS.wait(WAIT_S)
    if before is not None and (ANSWERS.are_all or not ANSWERS.asked_s):
        _give_back(before)
    elif before is not None:
        _UNANSWERED.append(before)
        atexit.register(settle)
    known = {"": ANSWERS.background or SOME_DARK, "0": SOME_DARK}
    background = known.get(os.environ.get("GPUTUI_LIGHT", ""), SOME_LIGHT)
    return Palette(depth_of(os.environ), background, theme)


_UNANSWERED: list[list[Any]] = []
"""The terminal's attributes before a question that has no answer yet."""


def settle() -> None:
    """Wait for a late answer and give the terminal back, before something else reads from it."""
    while _UNANSWERED:
        _give_back(_UNANSWERED.pop())


def _give_back(before: list[Any]) -> None:
    import termios

    with suppress(OSError, termios.error):
        ANSWERS.wait(LATE_S)
        termios.tcsetattr(0, termios.TCSANOW, before)
