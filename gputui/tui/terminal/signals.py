"""Being told to end: the terminal is given back, and the exit status says by which signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio  # the first picture is drawn before there is a loop

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a screen."""


def exit_status(number: int) -> int:
    """As a shell tells it: 128 and the number."""
    return 128 + number


@contextmanager
def ending_as_exit() -> Iterator[None]:
    """Until a loop takes over: an ending signal is raised as SystemExit, so that `finally` runs."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(exit_status(number))

    before = {number: signal.signal(number, leave) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_by_signal(loop: asyncio.AbstractEventLoop, leave: Callable[[int], None]) -> None:
    """Have `leave` called in the loop, with the exit status, for each ending signal.

    Until the loop is closed. A hang-up is never ignored: a screen without a terminal has nothing to do.
    """
    for number in ENDING:
        loop.add_signal_handler(number, leave, exit_status(number))
