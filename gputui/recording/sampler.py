"""Reads all devices of this machine in rounds: for the live view, and as telemetry of a run into a file.

Each kind of GPU has a thread, which reads its GPUs one after the other. When one keeps it waiting, another
thread takes over, and skips that GPU until the call returns, upon which the first thread ends.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from gputui.machine.tree import Tree, confinement
from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, Reading, row_device
from gputui.sources.host import HostSource

if TYPE_CHECKING:
    from gputui.sources.base import Gpu, Source

_Answer = TypeVar("_Answer")
_RELIEVED_AFTER_S = 0.25
"""A thread that has waited for a GPU for this long is replaced."""


class Rounds:
    """Tells all threads when to read: at absolute times, an interval apart. Every so many rounds are whole;
    those in between take place only while they are wanted."""

    def __init__(self, interval_s: float, whole_every: int = 1) -> None:
        self._condition = threading.Condition()
        self._interval_s = interval_s
        self._whole_every = whole_every
        self._wants_all = False
        self._begin_s = time.monotonic()
        self._first = 0
        self._is_closed = False

    def each(self, *, only_whole: bool = False) -> Iterator[tuple[int, bool]]:
        """The number of each round when it begins, starting with the current one, and whether it is whole.

        Missed rounds are skipped; in place of a whole one that was missed the next is, with its number.
        """
        number = -1
        while True:
            with self._condition:
                while not self._is_closed:
                    step = self._whole_every if only_whole or not self._wants_all else 1
                    due = (number // step + 1) * step
                    if self._now() >= due:
                        break
                    begins_s = self._begin_s + (due - self._first) * self._interval_s
                    self._condition.wait(max(0.0, begins_s - time.monotonic()))
                if self._is_closed:
                    return
                before, number = number, self._now()
            whole = number // self._whole_every * self._whole_every
            yield (whole, True) if whole > before else (number, False)

    def restart(self, interval_s: float | None = None) -> None:
        """Begin a whole round now, optionally with another interval from here on."""
        with self._condition:
            self._first = (self._now() // self._whole_every + 1) * self._whole_every
            self._begin_s = time.monotonic()
            self._interval_s = self._interval_s if interval_s is None else interval_s
            self._condition.notify_all()

    def want_all(self, wanted: bool) -> None:
        """Whether to have the rounds between the whole ones, too."""
        with self._condition:
            self._wants_all = wanted
            self._condition.notify_all()

    def close(self) -> None:
        """Release all waiting threads."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _now(self) -> int:
        return self._first + math.floor((time.monotonic() - self._begin_s) / self._interval_s)


@dataclass(slots=True, eq=False)
class Slot:
    """A device, or a source that is opened, and the call for it, if one is in progress. Guarded by the
    lock."""

    source: str
    """Its name."""
    gpu: Gpu | None = None
    """None for the host, and for a source."""
    call_round: int = -1
    """The round of the current or last call."""
    call_since_ns: int | None = None
    """None between calls."""
    calls: int = 0
    """How many calls have begun."""
    looks: int = 0
    """How often the watch has seen the current call."""
    is_left: bool = False
    """Whether another thread took over while the call hangs."""
    done_round: int = -1
    samples: tuple[DeviceSample, ...] = ()
    """The last reading, for the live view."""

    def begin(self, number: int, now_ns: int) -> None:
        """A call begins in this round."""
        self.call_round, self.call_since_ns, self.is_left, self.looks = number, now_ns, False, 0
        self.calls += 1

    def end(self, number: int) -> None:
        """It has returned."""
        self.call_since_ns, self.done_round = None, number

    def is_stuck(self, number: int) -> bool:
        """Whether its call of an earlier round is still in progress."""
        return self.call_since_ns is not None and self.call_round < number


class Readers:
    """The threads that read. What a reading is, and what becomes of it, is up to the heirs.

    The host is read once the GPUs of a round are, not beside them: two threads that read at once wake each
    other for the interpreter's lock.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        rounds: Rounds,
        *,
        watch_every_s: float,
        reopens: bool,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`reopens`: whether a source without GPUs is asked again and again."""
        self._sources = {source.NAME: source for source in sources}
        self._rounds = rounds
        self._watch_every_s = watch_every_s
        self._reopens = reopens
        self._clock = clock
        self._closed = threading.Event()
        # Held for microseconds, never during a call, so that drawing may take it.
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._gpus: dict[str, tuple[Slot, ...]] = dict.fromkeys(self._sources, ())
        """By source."""
        self._openings = {name: Slot(name) for name in self._sources}
        self._host = Slot("host")
        self._awaited_round = -1
        """The round that the host's thread waits for, or last waited for."""
        self._readers: dict[str, list[threading.Thread]] = {}
        """By source; the last one reads, those before it are in a call that hangs."""

    # For heirs

    def _found(self, source: str, gpus: Sequence[Gpu] | Missing) -> None:
        """A source was opened; the lock is held."""

    def _read_gpu(self, slot: Slot, gpu: Gpu, number: int, is_whole: bool) -> None:
        """Read a GPU, whose call in this round has begun, and end the call."""
        raise NotImplementedError

    def _read_host(self, slot: Slot, number: int) -> None:
        """Read the host, whose call in this round has begun, and end the call."""
        raise NotImplementedError

    def _is_between(self, slot: Slot) -> bool:
        """Whether a GPU is read between whole rounds, too."""
        return True

    def _watched(self) -> None:
        """Calls in progress were looked at."""

    # Threads

    def start(self) -> None:
        """Start to read; returns at once."""
        for name in self._sources:
            threading.Thread(target=self._find, args=(name,), name=f"find {name}", daemon=True).start()
        threading.Thread(target=self._keep_host, name="read host", daemon=True).start()
        threading.Thread(target=self._watch, name="watch readers", daemon=True).start()

    def _stop(self) -> None:
        """Have all threads end."""
        self._closed.set()
        self._rounds.close()
        with self._news:
            self._news.notify_all()

    def _close(self, within_s: float) -> None:
        """Stop reading; a call that hangs is abandoned."""
        deadline_s = time.monotonic() + within_s
        self._stop()
        with self._lock:
            readers = [thread for threads in self._readers.values() for thread in threads]
        for reader in readers:
            reader.join(max(0.0, deadline_s - time.monotonic()))

    def _find(self, name: str) -> None:
        """Open a source, as often as it takes."""
        while not self._closed.is_set() and isinstance(self._open(name), Missing) and self._reopens:
            self._closed.wait(self._watch_every_s)

    def _open(self, name: str) -> Sequence[Gpu] | Missing:
        """Its GPUs, which are read from now on."""
        with self._lock:
            self._openings[name].begin(0, self._clock())
        gpus = tried(self._sources[name].open)
        with self._news:
            self._openings[name].end(0)
            if not isinstance(gpus, Missing):
                self._gpus[name] = tuple(Slot(name, gpu) for gpu in gpus)
                self._rounds.restart()  # the round in progress has begun without these GPUs
                self._start_reader(name)
            self._found(name, gpus)
            self._news.notify_all()
        return gpus

    def _all_gpus(self) -> list[Slot]:
        return [slot for slots in self._gpus.values() for slot in slots]

    def _start_reader(self, name: str) -> None:
        """Let a new thread read the GPUs of a source from now on; the lock is held."""
        if self._closed.is_set():
            return
        readers = self._readers.setdefault(name, [])
        readers[:] = [thread for thread in readers if thread.is_alive()]
        readers.append(
            threading.Thread(target=self._read_gpus, args=(name,), name=f"read {name}", daemon=True)
        )
        readers[-1].start()

    def _read_gpus(self, name: str) -> None:
        me = threading.current_thread()
        for number, is_whole in self._rounds.each():
            for slot in self._gpus[name]:
                with self._lock:
                    if self._readers[name][-1] is not me:
                        return  # another one took over while a call hung
                    # An earlier reader waits for the one in a call, and has read those before it.
                    if slot.call_since_ns is not None or slot.done_round >= number:
                        continue
                    if not is_whole and not self._is_between(slot):
                        continue
                    slot.begin(number, self._clock())
                assert slot.gpu is not None
                self._read_gpu(slot, slot.gpu, number, is_whole)

    def _keep_host(self) -> None:
        for number, _ in self._rounds.each(only_whole=True):
            self._wait_for_gpus(number)
            with self._lock:
                self._host.begin(number, self._clock())
            self._read_host(self._host, number)

    def _wait_for_gpus(self, number: int) -> None:
        """Wait until all GPUs are read in this round, except those that hang."""
        with self._news:
            self._awaited_round = number
            in_vain = 0
            while in_vain < 2:
                begun = {slot: slot.calls for slot in self._all_gpus()}
                if self._news.wait_for(lambda: self._is_complete(number), _RELIEVED_AFTER_S / 2):
                    return
                slow = [slot for slot, calls in begun.items() if slot.calls == calls]
                in_vain = 0 if self._relieve_readers_of(slow) else in_vain + 1

    def _is_complete(self, number: int) -> bool:
        """Whether all GPUs are read in this round, except those that still hang in an earlier one."""
        return self._closed.is_set() or all(
            slot.done_round >= number or slot.is_left or slot.is_stuck(number) for slot in self._all_gpus()
        )

    def _relieve_readers_of(self, slots: Sequence[Slot]) -> bool:
        """Replace readers that are in a call for one of these; whether there was one. The lock is held."""
        waiting = [slot for slot in slots if slot.call_since_ns is not None and not slot.is_left]
        for slot in waiting:
            slot.is_left = True
            self._start_reader(slot.source)
        return bool(waiting)

    def _watch(self) -> None:
        # Looks are counted, not seconds, which also pass while this process is stopped.
        while not self._closed.wait(self._watch_every_s):
            with self._lock:
                for slot in (*self._openings.values(), *self._all_gpus(), self._host):
                    slot.looks += slot.call_since_ns is not None
                # The host's thread does it each round, unless it hangs too.
                self._relieve_readers_of([slot for slot in self._all_gpus() if slot.looks > 1])
            self._watched()


_BUG = "this is a bug in gputui: "


def as_bug(error: Exception) -> Missing:
    """What stands in the place of a value, so that no exception of a source ends a thread."""
    return Missing(f"{_BUG}{type(error).__name__}: {error}")


def tried(ask: Callable[[], _Answer]) -> _Answer | Missing:
    """An answer, or what stands in its place."""
    try:
        return ask()
    except Exception as error:
        return as_bug(error)


FULL_PERIOD_S = 1.0
_FAST_PER_FULL = 10
"""Readings of clocks, throttle reasons and power of the GPUs in use, while a case is timed."""
CAP_BYTES = 64 * 2**20
"""Telemetry of 8 GPUs at 10 Hz for 2.6 hours, or at 1 Hz for a day; beyond this it is thinned."""
SILENCE_S = 5.0
"""A call that takes longer is a problem of its device; without persistence mode a first one takes seconds."""
_LOOKS = 4
"""How often the watch looks at a call in that time."""
_STOP_S = 2.0


class Sampler(Readers):
    """Telemetry of the host and of the GPUs into one file, from start to stop.

    Reads everything once per `period_s`. Between `focus(devices)` and `focus(())` it reads the quick values
    of these GPUs ten times as often. While a call hangs in a driver, only its device has no rows. After
    `silence_s` it is a problem. `on_problem` gets each problem once. When the file reaches `cap_bytes`, every
    second reading of each device is dropped and the periods are doubled.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[Source],
        read_host: Callable[[], Mapping[str, float | int] | Missing],
        on_problem: Callable[[str], None] = lambda _: None,
        *,
        cap_bytes: int = CAP_BYTES,
        period_s: float = FULL_PERIOD_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        rounds = Rounds(period_s / _FAST_PER_FULL, _FAST_PER_FULL)
        super().__init__(sources, rounds, watch_every_s=silence_s / _LOOKS, reopens=False)
        self._path = path
        self._ask_host = read_host
        self._on_problem = on_problem
        self._cap_bytes = cap_bytes
        self._period_s = period_s
        self._silence_s = silence_s
        self._focus: frozenset[int] = frozenset()
        self._told: set[str] = set()
        self._writing = threading.Lock()
        """Guards the file. Take the lock while holding it, never the other way round."""
        self._file: FileIO | None = None

    def __enter__(self) -> Sampler:
        """Start; by then every device has been read once, except those whose first call hangs."""
        try:
            self._file = self._path.open("ab", buffering=0)
            self._file.write(CURRENT.header())
        except OSError as error:
            self._give_up(error)
            return self
        self.start()
        with self._news:
            self._news.wait_for(lambda: self._closed.is_set() or all(map(_is_known, self._all_slots())))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; waits at most 2 s for calls that hang in a driver. Their threads no longer write anything."""
        self._close(_STOP_S)
        if self._writing.acquire(timeout=_STOP_S):
            self._close_file()
            self._writing.release()

    def focus(self, devices: Sequence[int]) -> None:
        """Read these GPUs ten times as often from now on."""
        self._focus = frozenset(devices)
        self._rounds.want_all(bool(devices))

    # Readings

    def _open(self, name: str) -> Sequence[Gpu] | Missing:
        gpus = super()._open(name)
        if isinstance(gpus, Missing) and gpus.reason.startswith(
            _BUG
        ):  # else there is none, which is no fault
            self._tell(f"{name}: {gpus.reason}")
        return gpus

    def _is_between(self, slot: Slot) -> bool:
        return slot.gpu is not None and slot.gpu.number in self._focus

    def _read_gpu(self, slot: Slot, gpu: Gpu, number: int, is_whole: bool) -> None:
        self._keep(slot, gpu.number, tried(partial(gpu.read, full=is_whole)), number, is_whole)

    def _read_host(self, slot: Slot, number: int) -> None:
        self._keep(slot, HOST, tried(self._ask_host), number, True)

    def _keep(
        self,
        slot: Slot,
        device: int,
        values: Mapping[str, float | int] | Missing,
        number: int,
        is_whole: bool,
    ) -> None:
        known = {} if isinstance(values, Missing) else values
        if not _is_silent(slot):  # else its values are of different times
            self._write(CURRENT.encode(Reading(device, time.monotonic_ns(), known)))
        if isinstance(values, Missing) and is_whole:
            self._tell(f"{_named(slot)}: {values.reason}")
        with self._news:
            is_first = slot.done_round < 0
            slot.end(number)
            if is_first or (is_whole and self._is_complete(number)):
                self._news.notify_all()

    def _watched(self) -> None:
        with self._lock:
            silent = [slot for slot in self._all_slots() if _is_silent(slot)]
        for slot in silent:
            who = "the kernel" if slot is self._host else "the driver"
            self._tell(f"{_named(slot)}: {who} has not answered for {self._silence_s:g} s")
        if silent:
            with self._news:
                self._news.notify_all()

    def _all_slots(self) -> tuple[Slot, ...]:
        return (*self._openings.values(), *self._all_gpus(), self._host)

    # What becomes of them

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
        self._close_file()
        draft.replace(self._path)
        self._file = self._path.open("ab", buffering=0)
        self._period_s *= 2
        self._rounds.restart(self._period_s / _FAST_PER_FULL)
        self._tell(
            f"telemetry reached {self._cap_bytes >> 20} MiB: every second reading was dropped,"
            f" and it is read every {self._period_s:g} s from now on"
        )

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _give_up(self, error: OSError) -> None:
        self._close_file()
        self._stop()
        self._tell(f"telemetry stops here: {error.strerror}")

    def _tell(self, problem: str) -> None:
        with self._lock:
            if problem in self._told:
                return
            self._told.add(problem)
        self._on_problem(problem)


def _is_silent(slot: Slot) -> bool:
    return slot.call_since_ns is not None and slot.looks > _LOOKS


def _is_known(slot: Slot) -> bool:
    """Whether it has answered once, or is known to hang."""
    return slot.done_round >= 0 or _is_silent(slot)


def _named(slot: Slot) -> str:
    if slot.gpu is not None:
        return f"{slot.source} device {slot.gpu.number}"
    return "the host" if slot.source == "host" else slot.source


def sampler_of_run(path: Path, on_problem: Callable[[str], None], period_s: float = FULL_PERIOD_S) -> Sampler:
    """Of everything on this machine."""
    limits = confinement(Tree(Path("/"), os.environ))
    return Sampler(path, gpu_sources(), HostSource(lambda: limits).read, on_problem, period_s=period_s)


def gpu_sources(*, has_units: bool = False) -> tuple[Source, ...]:
    """One for each kind of GPU; AMD's only if its driver is loaded, NVIDIA's always, to report what is
    wrong. `has_units`: with the graphics units of processors."""
    from gputui.sources.nvml import NvmlGpus

    found: list[Source] = [NvmlGpus()]
    if Path("/sys/module/amdgpu").exists():
        from gputui.sources.amd import AmdGpus  # takes 2 ms, and few machines need it

        found.append(AmdGpus(has_units=has_units))
    return tuple(found)
