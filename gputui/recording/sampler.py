"""The one sampling thread: reads the sources at absolute deadlines and writes telemetry rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, encode_row, header
from gputui.sources import SOURCES
from gputui.sources.base import Source

FULL_PERIOD_S = 1.0
FAST_PERIOD_S = 0.1
"""Clocks, throttle reasons and power of the GPUs in use, while a case is timed."""


class Sampler:
    """Telemetry of the host and of the GPUs into one file, from start to stop.

    Everything is read once a second. Between `focus(devices)` and `focus(())` the named GPUs are read ten
    times a second, their quick values only. A source that blocks delays its own rows and nothing else.
    """

    def __init__(
        self, path: Path, sources: Sequence[Source], on_problem: Callable[[str], None] = lambda _: None
    ) -> None:
        self._path = path
        self._sources = sources
        self._on_problem = on_problem
        self._told: set[str] = set()
        self._focus: frozenset[int] = frozenset()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; waits at most 2 s for a call that hangs in a driver."""
        self._stopping = True
        self._wake.set()
        self._thread.join(2.0)

    def focus(self, devices: Sequence[int]) -> None:
        """Read these GPUs at 10 Hz from now on."""
        self._focus = frozenset(devices) - {HOST}
        self._wake.set()

    def _sample(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(header())
            next_full = next_fast = time.monotonic()
            while not self._stopping:
                now = time.monotonic()
                full = now >= next_full
                rows = self._read_all() if full else self._read_focus()
                try:
                    file.write(b"".join(rows))
                except OSError as error:
                    self._tell(f"telemetry stops here: {error.strerror}")
                    return
                if full:
                    next_full = _next_deadline(next_full, FULL_PERIOD_S)
                next_fast = _next_deadline(next_fast, FAST_PERIOD_S)
                deadline = min(next_full, next_fast) if self._focus else next_full
                self._wake.wait(max(deadline - time.monotonic(), 0.0))
                self._wake.clear()
        for source in self._sources:
            source.close()

    def _read_all(self) -> list[bytes]:
        rows = []
        for source in self._sources:
            rows += [encode_row(source.read(device, full=True)) for device in source.devices()]
            for device, missing in source.problems().items():
                self._tell(f"{source.NAME} device {device}: {missing.reason}")
        return rows

    def _read_focus(self) -> list[bytes]:
        focus = self._focus
        return [
            encode_row(source.read(device, full=False))
            for source in self._sources
            for device in source.devices()
            if device in focus
        ]

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._on_problem(problem)


def usable_sources() -> list[Source]:
    """One of each source that works on this box."""
    sources: list[Source] = [make() for make in SOURCES]
    return [source for source in sources if not isinstance(source.probe(), Missing)]


def _next_deadline(previous: float, period_s: float) -> float:
    """The next multiple of the period that lies ahead: a late reading is not made up for."""
    now = time.monotonic()
    missed = max(int((now - previous) / period_s), 0)
    return previous + (missed + 1) * period_s
