"""The only sampling thread: reads the sources at absolute deadlines and writes telemetry rows."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType

from gputui.model.absent import Missing
from gputui.model.telemetry import CURRENT, HOST, row_device
from gputui.sources.base import Source
from gputui.sources.registry import SOURCES

FULL_PERIOD_S = 1.0
FAST_PERIOD_S = 0.1
"""Clocks, throttle reasons and power of the GPUs in use, while a case is timed."""
CAP_BYTES = 64 * 2**20
"""Telemetry of 8 GPUs at 10 Hz for 2.6 hours, or at 1 Hz for a day; beyond this it is thinned."""


class Sampler:
    """Telemetry of the host and of the GPUs into one file, from start to stop.

    Reads everything once per `period_s`. Between `focus(devices)` and `focus(())` it reads the quick values
    of these GPUs ten times a second. A source that blocks only delays its own rows. When the file reaches
    `cap_bytes`, every second reading of each device is dropped and the periods are doubled; `on_problem` gets
    a message.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[Source],
        on_problem: Callable[[str], None] = lambda _: None,
        *,
        cap_bytes: int = CAP_BYTES,
        period_s: float = FULL_PERIOD_S,
    ) -> None:
        self._path = path
        self._sources = sources
        self._on_problem = on_problem
        self._cap_bytes = cap_bytes
        self._full_period_s = period_s
        self._fast_period_s = FAST_PERIOD_S
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
        file = self._path.open("ab", buffering=0)
        try:
            file.write(CURRENT.header())
            next_full = next_fast = time.monotonic()
            while not self._stopping:
                now = time.monotonic()
                full = now >= next_full
                rows = self._read_all() if full else self._read_focus()
                try:
                    file.write(b"".join(rows))
                    if file.tell() > self._cap_bytes:
                        file.close()
                        file = self._thinned()
                except OSError as error:
                    self._tell(f"telemetry stops here: {error.strerror}")
                    return
                if full:
                    next_full = _next_deadline(next_full, self._full_period_s)
                next_fast = _next_deadline(next_fast, self._fast_period_s)
                deadline = min(next_full, next_fast) if self._focus else next_full
                self._wake.wait(max(deadline - time.monotonic(), 0.0))
                self._wake.clear()
        finally:
            file.close()
            for source in self._sources:
                source.close()

    def _thinned(self) -> FileIO:
        """Rewrite the file with every second reading of each device, open for appending; doubles the periods.

        The old file stays intact until the new one is complete.
        """
        draft = self._path.with_name(self._path.name + ".thinned")
        taken: Counter[int] = Counter()
        with self._path.open("rb") as old, draft.open("wb") as new:
            new.write(old.readline())
            while len(row := old.read(CURRENT.row_bytes)) == CURRENT.row_bytes:
                device = row_device(row)
                if taken[device] % 2 == 0:
                    new.write(row)
                taken[device] += 1
            new.flush()
            os.fsync(new.fileno())
        draft.replace(self._path)
        self._full_period_s *= 2
        self._fast_period_s *= 2
        self._tell(
            f"telemetry reached {self._cap_bytes >> 20} MiB: every second reading was dropped,"
            f" and it is read every {self._full_period_s:g} s from now on"
        )
        return self._path.open("ab", buffering=0)

    def _read_all(self) -> list[bytes]:
        rows = []
        for source in self._sources:
            rows += [CURRENT.encode(source.read(device, full=True)) for device in source.devices()]
            for device, missing in source.problems().items():
                self._tell(f"{source.NAME} device {device}: {missing.reason}")
        return rows

    def _read_focus(self) -> list[bytes]:
        focus = self._focus
        return [
            CURRENT.encode(source.read(device, full=False))
            for source in self._sources
            for device in source.devices()
            if device in focus
        ]

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._on_problem(problem)


def usable_sources() -> list[Source]:
    """One of each source that works on this machine."""
    sources: list[Source] = [make() for make in SOURCES]
    return [source for source in sources if not isinstance(source.probe(), Missing)]


def _next_deadline(previous: float, period_s: float) -> float:
    """The next multiple of the period in the future: missed readings are skipped."""
    now = time.monotonic()
    missed = max(int((now - previous) / period_s), 0)
    return previous + (missed + 1) * period_s
