"""Work in a thread that nothing waits for: it reports how far it is, and can be given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

WRITES = "gputui-writes"
"""Name of the thread of a job that writes: who ends the process gives it time."""


class Cancelled(Exception):
    """Nobody wants the result any more."""


class Job(Generic[T]):
    """One piece of work.

    `arrived` and `told` are called in the job's own thread, `arrived` once with what came of it, unless the
    job was cancelled before. The thread ends with the process, wherever it is. Textual's workers do not:
    asyncio waits for their executor before the program may end, and cancelling them interrupts no query.
    """

    def __init__(
        self,
        work: Callable[[Job[T]], T],
        arrived: Callable[[Job[T], T | Exception], None],
        told: Callable[[Job[T], str], None] = lambda job, text: None,
        *,
        writes: bool = False,
    ) -> None:
        self._work = work
        self._arrived = arrived
        self._told = told
        self._name = WRITES if writes else "gputui-job"
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self.is_cancelled = False

    def start(self) -> None:
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def cancel(self) -> None:
        """Give up: a query that is under way is interrupted, and nothing arrives any more."""
        with self._lock:
            self.is_cancelled = True
            if self._interrupt is not None:
                self._interrupt()

    def say(self, text: str) -> None:
        """Tell what is done now. Raises Cancelled if nobody wants it any more."""
        if self.is_cancelled:
            raise Cancelled
        self._told(self, text)

    @contextmanager
    def interrupted_by(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While the block lasts, cancelling calls this too."""
        with self._lock:
            self._interrupt = interrupt
        try:
            if self.is_cancelled:
                raise Cancelled
            yield
        finally:
            with self._lock:
                self._interrupt = None

    def _run(self) -> None:
        outcome: T | Exception
        try:
            outcome = self._work(self)
        except Cancelled:
            return
        except Exception as error:  # told where the work was asked for, as any error is
            outcome = error
        if not self.is_cancelled:
            self._arrived(self, outcome)
