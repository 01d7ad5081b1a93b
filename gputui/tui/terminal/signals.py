"""Ending by a signal: the terminal is restored, and the exit status names the signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio  # the splash screen is drawn before there is a loop

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a screen."""


def exit_status(number: int) -> int:
    """As a shell reports it: 128 plus the signal number."""
    return 128 + number


@contextmanager
def ending_as_exit() -> Iterator[None]:
    """Raise ending signals as SystemExit until an event loop handles them, so that `finally` runs."""
    ended_by = 0

    def leave(number: int, _: FrameType | None) -> None:
        nonlocal ended_by
        ended_by = number
        raise SystemExit(exit_status(number))

    before = {number: signal.signal(number, leave) for number in ENDING}
    try:
        yield
    except Exception:
        if ended_by:  # Python 3.11 makes a RuntimeError of what `__set_name__` raises, as in an import
            raise SystemExit(exit_status(ended_by)) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_by_signal(loop: asyncio.AbstractEventLoop, leave: Callable[[int], None]) -> None:
    """Call `leave` in the loop, with the exit status, for each ending signal until the loop is closed.

    A hang-up is never ignored: a screen without a terminal has nothing to do.
    """
    for number in ENDING:
        loop.add_signal_handler(number, leave, exit_status(number))
