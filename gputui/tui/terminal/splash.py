"""The terminal before Textual has it: the splash screen, shown while the terminal reports its background;
faster imports; and the end by a signal, which restores the terminal and names it in the exit status.

Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from gputui.document.background import ask, quiet_typing

if TYPE_CHECKING:
    import asyncio  # the splash screen is drawn before there is a loop

SIGNALLED = 128
"""A shell reports the signal that ended a program added to this."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def ending_as_exit() -> Iterator[None]:
    """Raise ending signals as SystemExit until an event loop handles them, so that `finally` runs."""
    ended_by = 0

    def leave(number: int, _: FrameType | None) -> None:
        nonlocal ended_by
        ended_by = number
        raise SystemExit(SIGNALLED + number)

    before = {number: signal.signal(number, leave) for number in ENDING}
    try:
        yield
    except Exception:
        if ended_by:  # Python 3.11 makes a RuntimeError of what `__set_name__` raises, as in an import
            raise SystemExit(SIGNALLED + ended_by) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_by_signal(loop: asyncio.AbstractEventLoop, leave: Callable[[int], None]) -> None:
    """Call `leave` in the loop, with the exit status, for each ending signal until the loop is closed.

    A hang-up is never ignored: a screen without a terminal has nothing to do.
    """
    for number in ENDING:
        loop.add_signal_handler(number, leave, SIGNALLED + number)


_ENTER = "\x1b[?1049h\x1b[?25l\x1b[m\x1b[2J"
_LEAVE = "\x1b[m\x1b[?25h\x1b[?1049l"


class Taken:
    """What the splash screen did to the terminal, which the driver takes over from it."""

    is_taken = False
    """Whether the alternate screen is on and the cursor hidden."""
    attributes: list[Any] | None = None
    """Attributes to restore; None while nothing is drawn."""


@contextmanager
def first_picture(fd: int, heading: str) -> Iterator[None]:
    """Show a heading on the alternate screen while the block lasts; then restore the terminal.

    The heading must be safe to show. Keys typed meanwhile are kept for the next reader and not
    echoed. An ending signal leaves the block as SystemExit. `fd` is a terminal.
    """
    Taken.attributes = quiet_typing()
    # until there is a driver, which gives the terminal back
    stops = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    with ending_as_exit():
        try:
            width = os.get_terminal_size(fd).columns or 80
            picture = f"{_ENTER}\x1b[1;1H\x1b[1m{heading[:width]}\x1b[m\x1b[2;1Hstarting"
            Taken.is_taken = True
            os.write(fd, picture.encode("utf-8", "replace"))
            ask()
            yield
        finally:
            if Taken.is_taken:
                with contextlib.suppress(OSError):
                    os.write(fd, _LEAVE.encode())
            if Taken.attributes is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(fd, termios.TCSANOW, Taken.attributes)
            Taken.is_taken, Taken.attributes = False, None
            signal.signal(signal.SIGTSTP, stops)


def draw(fd: int, sequence: str) -> None:
    data = sequence.encode("utf-8", "replace")
    while data:
        data = data[os.write(fd, data) :]


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disable garbage collection in the block, then freeze all live objects until `thaw`.

    Imports create hardly any garbage and what they create lives until exit: collecting would cost 5 % of the
    import time, and scanning it all again while the screen is live would be wasted.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def load_asyncio() -> None:
    """Import asyncio as on a Python without TLS, which no screen needs: saves 5 MiB and 8 ms.

    Must be called while there is one thread. `ssl` can be imported afterwards as usual.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment] # documented: makes importing it fail
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]


def thaw() -> None:
    """Let Python collect everything again at exit, which takes 15 ms.

    DuckDB's types form reference cycles, and its bindings report on stderr as leaked what Python does not
    free.
    """
    if "duckdb" in sys.modules:
        gc.unfreeze()
