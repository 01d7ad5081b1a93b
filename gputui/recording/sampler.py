"""Samples telemetry at absolute deadlines into one file, in a thread per source while no call hangs."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType

from gputui.machine.tree import Tree, confinement
from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, row_device
from gputui.sources.amd import AmdGpus
from gputui.sources.base import Source
from gputui.sources.host import HostSource
from gputui.sources.nvml import NvmlGpus

FULL_PERIOD_S = 1.0
FAST_PERIOD_S = 0.1
"""Clocks, throttle reasons and power of the GPUs in use, while a case is timed."""
CAP_BYTES = 64 * 2**20
"""Telemetry of 8 GPUs at 10 Hz for 2.6 hours, or at 1 Hz for a day; beyond this it is thinned."""
SILENCE_S = 5.0
"""A call that takes longer is a problem of its device; without persistence mode a first one takes seconds."""
_LOOKS = 4
"""How often the watch checks a call in that time."""
_STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class _Sampled:
    """One device and where it is read."""

    source: Source
    index: int

    @property
    def name(self) -> str:
        return "the host" if self.index == HOST else f"{self.source.NAME} device {self.index}"


@dataclass(slots=True, eq=False)
class _Reader:
    """The devices that one thread reads in turn, and its current call."""

    devices: tuple[_Sampled, ...] = ()
    call: _Sampled | Source | None = None
    """The device that is being read, or the source that is being opened."""
    looks: int = 0
    """How often the watch has seen the current call."""


class Sampler:
    """Telemetry of the host and of the GPUs into one file, from start to stop.

    Reads everything once per `period_s`. Between `focus(devices)` and `focus(())` it reads the quick values
    of these GPUs ten times a second. While a call hangs in a driver, only its device has no rows: other
    threads soon read the other devices. After `silence_s` it is a problem. `on_problem` gets
    each problem once. When the file reaches `cap_bytes`, every second reading of each device is dropped and
    the periods are doubled.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[Source],
        on_problem: Callable[[str], None] = lambda _: None,
        *,
        cap_bytes: int = CAP_BYTES,
        period_s: float = FULL_PERIOD_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._path = path
        self._sources = sources
        self._on_problem = on_problem
        self._cap_bytes = cap_bytes
        self._full_period_s = period_s
        self._fast_period_s = FAST_PERIOD_S
        self._silence_s = silence_s
        self._begun_s = 0.0
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

        self._news = threading.Condition()
        """Guards what follows; notified when the threads should check it again."""
        self._focus: frozenset[int] = frozenset()
        self._told: set[str] = set()
        self._readers: list[_Reader] = []
        self._awaited: set[_Sampled | Source] = set()
        """Those whose first call is neither over nor known to hang."""

        self._writing = threading.Lock()
        """Guards the file. Take `_news` while holding it, never the other way round."""
        self._file: FileIO | None = None

    def __enter__(self) -> Sampler:
        """Start; by then every device has been read once, except those whose first call hangs."""
        self._begun_s = time.monotonic()
        try:
            self._file = self._path.open("ab", buffering=0)
            self._file.write(CURRENT.header())
        except OSError as error:
            self._close()
            self._give_up(error)
            return self
        self._awaited.update(self._sources)
        for source in self._sources:
            self._start(partial(self._open, source), _Reader())
        threading.Thread(target=self._watch, name="sampler", daemon=True).start()
        with self._news:
            self._news.wait_for(lambda: not self._awaited)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; waits at most 2 s for calls that hang in a driver. Their threads no longer write anything."""
        deadline = time.monotonic() + _STOP_S
        self._end()
        for thread in tuple(self._threads):
            thread.join(max(deadline - time.monotonic(), 0.0))
        if self._writing.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            self._close()
            self._writing.release()

    def focus(self, devices: Sequence[int]) -> None:
        """Read these GPUs at 10 Hz from now on."""
        with self._news:
            self._focus = frozenset(devices) - {HOST}
            self._news.notify_all()

    def _end(self) -> None:
        with self._news:
            self._over.set()
            self._news.notify_all()

    # Threads: one for each source; when a call hangs, one for each of its devices

    def _start(self, target: Callable[[_Reader], None], reader: _Reader) -> None:
        self._readers.append(reader)
        self._threads.append(threading.Thread(target=target, args=(reader,), name="sampler", daemon=True))
        self._threads[-1].start()

    def _open(self, source: Source, reader: _Reader) -> None:
        with self._call(reader, source):
            indices = () if isinstance(source.open(), Missing) else source.devices()
            devices = tuple(_Sampled(source, index) for index in indices)
            with self._news:
                if source in self._awaited:  # else it hung, and they are not waited for
                    self._awaited.update(devices)
        reader.devices = devices
        self._sample(reader)

    def _sample(self, reader: _Reader) -> None:
        next_full = next_fast = self._begun_s
        try:
            while reader.devices and not self._over.is_set():
                is_full = time.monotonic() >= next_full
                for device in reader.devices:
                    # After a call that hung, other threads have the other devices.
                    if (is_full or device.index in self._focus) and device in reader.devices:
                        self._read(reader, device, is_full)
                if is_full:
                    next_full = _next_deadline(next_full, self._full_period_s)
                next_fast = _next_deadline(next_fast, self._fast_period_s)
                with self._news:
                    if not self._over.is_set():
                        is_fast = any(device.index in self._focus for device in reader.devices)
                        deadline = min(next_full, next_fast) if is_fast else next_full
                        self._news.wait(max(deadline - time.monotonic(), 0.0))
        finally:  # also if a source raised an unexpected error
            for device in reader.devices:
                self._wait_no_more(device)

    def _read(self, reader: _Reader, device: _Sampled, is_full: bool) -> None:
        with self._call(reader, device):
            reading = device.source.read(device.index, full=is_full)
        if reader.looks <= _LOOKS:  # otherwise its values are of different times
            self._write(CURRENT.encode(reading))
        problem = device.source.problem(device.index) if is_full else None
        if problem is not None:
            self._tell(f"{device.name}: {problem.reason}")

    @contextmanager
    def _call(self, reader: _Reader, asked: _Sampled | Source) -> Iterator[None]:
        with self._news:
            reader.call, reader.looks = asked, 0
        try:
            yield
        finally:
            with self._news:
                reader.call = None
            self._wait_no_more(asked)

    def _wait_no_more(self, asked: _Sampled | Source) -> None:
        with self._news:
            if asked in self._awaited:
                self._awaited.remove(asked)
                self._news.notify_all()

    def _watch(self) -> None:
        try:
            # Checks are counted, not seconds, which also pass while this process is stopped.
            while not self._over.wait(self._silence_s / _LOOKS):
                silent: list[_Sampled | Source] = []
                with self._news:
                    for reader in tuple(self._readers):
                        if reader.call is not None:
                            reader.looks += 1
                            if reader.looks > 1:
                                self._take_over(reader)
                            if reader.looks > _LOOKS:
                                silent.append(reader.call)
                for asked in silent:
                    name = asked.name if isinstance(asked, _Sampled) else asked.NAME
                    who = "the kernel" if name == "the host" else "the driver"
                    self._tell(f"{name}: {who} has not answered for {self._silence_s:g} s")
                    self._wait_no_more(asked)
        finally:
            with self._news:
                self._awaited.clear()
                self._news.notify_all()

    def _take_over(self, reader: _Reader) -> None:
        """Have every device but the hanging one read by its own thread."""
        others = [device for device in reader.devices if device != reader.call]
        reader.devices = tuple(device for device in reader.devices if device == reader.call)
        for device in others:
            self._start(self._sample, _Reader((device,)))

    # What becomes of it

    def _write(self, row: bytes) -> None:
        with self._writing:
            if self._file is None:
                return  # the call returned too late
            try:
                if self._file.write(row) < len(row):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self._file.tell() > self._cap_bytes:
                    self._thin()
            except OSError as error:
                self._close()
                self._give_up(error)

    def _thin(self) -> None:
        """Drop every second reading of each device from the file, and double the periods.

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
        self._close()
        draft.replace(self._path)
        self._file = self._path.open("ab", buffering=0)
        self._full_period_s *= 2
        self._fast_period_s *= 2
        self._tell(
            f"telemetry reached {self._cap_bytes >> 20} MiB: every second reading was dropped,"
            f" and it is read every {self._full_period_s:g} s from now on"
        )

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _give_up(self, error: OSError) -> None:
        self._end()
        self._tell(f"telemetry stops here: {error.strerror}")

    def _tell(self, problem: str) -> None:
        with self._news:
            if problem in self._told:
                return
            self._told.add(problem)
        self._on_problem(problem)


def sources_of_runs() -> list[Source]:
    """One for each kind of device that runs are sampled of."""
    limits = confinement(Tree(Path("/"), os.environ))
    return [HostSource(lambda: limits), NvmlGpus(), AmdGpus()]


def _next_deadline(previous: float, period_s: float) -> float:
    """The next multiple of the period in the future: missed readings are skipped."""
    now = time.monotonic()
    missed = max(int((now - previous) / period_s), 0)
    return previous + (missed + 1) * period_s
