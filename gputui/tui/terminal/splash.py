"""What happens before anything slow is imported: the splash screen, while the terminal is asked for its
background, and ways to import faster. Standard library only."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gputui.document.background import ask, quiet_typing
from gputui.tui.terminal.signals import ending_as_exit

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


def draw(fd: int, sequence: str) -> None:
    """Write a picture over the splash screen."""
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
