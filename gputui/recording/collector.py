"""Reads each source of the live view in a thread; a call that hangs is left behind, blocking nothing.

The reader of a source reads its GPUs one after the other. When one keeps it waiting, another reader takes
over. It skips that GPU until the call returns, upon which the first reader ends.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gputui.machine.tree import Tree, confinement
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, GpuUse, LiveSample, ProcessSample
from gputui.sources.host import HostSource
from gputui.sources.processes import ProcessTable

if TYPE_CHECKING:
    from gputui.sources.base import LiveSource

_Answer = TypeVar("_Answer")
HANGS_AFTER_S = 3.0
"""A call that takes longer is reported as hanging."""
POLL_EVERY_S = 3.0
"""How often to check whether a driver has been loaded, and whether a call hangs."""
PROCESSES_EVERY_S = 2.0
"""Process lists are the driver's most expensive call: milliseconds each."""
_SLACK_S = 0.1
"""How early a round may come and still count as due."""
_RELIEVED_AFTER_S = 0.25
"""A reader that has waited for a GPU for this long is replaced."""
_CLOSES_WITHIN_S = 0.08

OPENING = Missing("being opened")
NOT_ASKED = Missing("not asked for")
NO_GPU = Missing("no GPU is read here")
NONE_LISTED = Missing("there is no GPU")
FIRST_READING = Missing("being read for the first time")


class _Rounds:
    """Tells all threads when to read: at absolute times, an interval apart."""

    def __init__(self, interval_s: float) -> None:
        self._condition = threading.Condition()
        self._interval_s = interval_s
        self._begin_s = time.monotonic()
        self._first = 0
        self._is_closed = False

    def each(self) -> Iterator[int]:
        """The number of each round when it begins, starting with the current one; missed rounds are
        skipped."""
        number = -1
        while True:
            with self._condition:
                while not self._is_closed and self._now() <= number:
                    begins_s = self._begin_s + (number + 1 - self._first) * self._interval_s
                    self._condition.wait(max(0.0, begins_s - time.monotonic()))
                if self._is_closed:
                    return
                number = self._now()
            yield number

    def restart(self, interval_s: float | None = None) -> None:
        """Begin a round now, optionally with another interval from here on."""
        with self._condition:
            self._first = self._now() + 1
            self._begin_s = time.monotonic()
            self._interval_s = self._interval_s if interval_s is None else interval_s
            self._condition.notify_all()

    def close(self) -> None:
        """Release all waiting threads."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _now(self) -> int:
        return self._first + math.floor((time.monotonic() - self._begin_s) / self._interval_s)


@dataclass(slots=True, eq=False)
class _Slot:
    """One device: its last reading, and whether a call for it is in progress. Guarded by the lock."""

    source: LiveSource | None
    """None for the host."""
    device: int
    samples: tuple[DeviceSample, ...]
    uses: tuple[GpuUse, ...] | Missing = NOT_ASKED
    uses_ns: int | None = None
    call_round: int = -1
    """The round of the current or last call."""
    call_since_ns: int | None = None
    """None between calls."""
    calls: int = 0
    """How many calls have begun."""
    is_left: bool = False
    """Whether another reader took over while the call hangs."""
    done_round: int = -1


class Collector:
    """Reads all devices repeatedly until it is closed.

    `sources` are opened in separate threads, since a driver may take seconds. `on_sample` is called in one of
    the threads when a round is complete, and for each device that comes late: it must be fast, and raise
    nothing. `clock` timestamps calls, to see how long they take; rounds follow the system's clock. Without a
    GPU, `look_up_all` returns the processes of the host.
    """

    def __init__(
        self,
        sources: Sequence[LiveSource],
        read_host: Callable[[], DeviceSample],
        interval_s: float,
        look_up_processes: Callable[[tuple[GpuUse, ...]], tuple[ProcessSample, ...]],
        *,
        look_up_all: Callable[[], tuple[ProcessSample, ...]] | None = None,
        on_sample: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = time.monotonic_ns,
        poll_every_s: float = POLL_EVERY_S,
    ) -> None:
        self._sources = tuple(sources)
        self._read_host_sample = read_host
        self._look_up_processes = look_up_processes
        self._look_up_all = look_up_all
        self.on_sample = on_sample
        self._clock = clock
        self._poll_every_s = poll_every_s
        self._rounds = _Rounds(interval_s)
        self._closed = threading.Event()
        self._wants_processes = False
        # Held for microseconds, never during a call, so that drawing may take it.
        self._lock = threading.Lock()
        self._published = threading.Condition(self._lock)
        self._slots: dict[tuple[int, int], _Slot] = {}
        """By index of the source and number of the device."""
        self._host_slot = _Slot(None, HOST, (self._unread("host", HOST),))
        self._closed_round = -1
        self._awaited_round = -1
        """The round that the host's thread waits for, or last waited for."""
        self._uses_round = -1
        """The last round that asked the GPUs for their processes."""
        self._uses_begun_ns: int | None = None
        self._processes: tuple[ProcessSample, ...] | Missing = NOT_ASKED
        self._absent: dict[str, Missing] = {source.NAME: OPENING for source in self._sources}
        self._opening_since_ns: dict[str, int] = {}
        self._cached: LiveSample | None = None
        self._cached_for: tuple[object, ...] = ()
        self._readers: dict[int, list[threading.Thread]] = {}
        """By index of the source; the last one reads, those before it are in a call that hangs."""

    def start(self) -> None:
        """Start to read; returns at once."""
        for place, source in enumerate(self._sources):
            name = f"keep {source.NAME}"
            threading.Thread(target=self._keep, args=(place, source), name=name, daemon=True).start()
        threading.Thread(target=self._read_host, name="read host", daemon=True).start()

    def latest(self) -> LiveSample:
        """The current sample; never waits for a device. The same object as before if nothing has changed."""
        with self._lock:
            now_ns = self._clock()
            absent = dict(self._absent)
            for name, since_ns in self._opening_since_ns.items():
                seconds = _hanging_s(since_ns, now_ns)
                if seconds:
                    absent[name] = Missing(f"{OPENING.reason}: no answer for {seconds} s")
            host = self._as_seen(self._host_slot, now_ns)[0]
            gpus = [one for key in sorted(self._slots) for one in self._as_seen(self._slots[key], now_ns)]
            seen = host, tuple(gpus), self._processes, absent
            if self._cached is None or seen != self._cached_for:
                number = self._cached.number + 1 if self._cached else 0
                self._cached, self._cached_for = LiveSample(number, now_ns, *seen), seen
            return self._cached

    def want_processes(self, wanted: bool) -> None:
        """Turn reading of process lists on or off; it is off at first. When turned on, reads them at once."""
        with self._lock:
            if self._wants_processes == wanted:
                return
            self._wants_processes = wanted
            self._processes = FIRST_READING if wanted else NOT_ASKED
            for slot in self._slots.values():
                slot.uses, slot.uses_ns = NOT_ASKED, None
        if wanted:
            self._rounds.restart()

    def set_interval(self, interval_s: float) -> None:
        """Read this often from now on, starting at once."""
        self._rounds.restart(interval_s)

    def close(self) -> None:
        """Stop reading, within a tenth of a second; a call that hangs is abandoned."""
        self._closed.set()
        self._rounds.close()
        deadline_s = time.monotonic() + _CLOSES_WITHIN_S
        with self._lock:
            readers = [thread for threads in self._readers.values() for thread in threads]
        for reader in readers:
            reader.join(max(0.0, deadline_s - time.monotonic()))

    # What is drawn

    def _as_seen(self, slot: _Slot, now_ns: int) -> tuple[DeviceSample, ...]:
        """The last samples; with the reason if a call does not return."""
        seconds = _hanging_s(slot.call_since_ns, now_ns)
        if not seconds:
            return slot.samples
        who = "the kernel" if slot.source is None else "the driver"
        hangs = Missing(f"{who} has not answered for {seconds} s")
        return tuple(replace(sample, problem=hangs) for sample in slot.samples)

    def _unread(self, source: str, device: int) -> DeviceSample:
        return DeviceSample(device, source, self._clock(), {}, problem=FIRST_READING)

    # Which devices there are

    def _keep(self, position: int, source: LiveSource) -> None:
        """Open a source, as often as it takes; then see that a call that hangs keeps no other GPU waiting."""
        while not self._closed.is_set() and not self._open(position, source):
            self._closed.wait(self._poll_every_s)
        begun: Mapping[tuple[int, int], int] = {}
        while not self._closed.wait(self._poll_every_s):
            with self._lock:  # the host's thread does it each round, unless it hangs too
                self._relieve_readers(begun)
                begun = {key: slot.calls for key, slot in self._slots.items()}

    def _open(self, position: int, source: LiveSource) -> bool:
        """Whether it has GPUs, which are read from now on."""
        with self._lock:
            self._opening_since_ns[source.NAME] = self._clock()
        found = _tried(partial(_devices_of, source))
        with self._lock:
            del self._opening_since_ns[source.NAME]
            if not isinstance(found, Missing):
                del self._absent[source.NAME]
                for device in found:
                    self._slots[position, device] = _Slot(
                        source, device, (self._unread(source.NAME, device),)
                    )
                self._rounds.restart()  # the round in progress has begun without these GPUs
                self._start_reader(position, source)
                return True
            is_news = found != self._absent[source.NAME]
            self._absent[source.NAME] = found
        if is_news and not self._closed.is_set():
            self.on_sample()
        return False

    # One reader per source

    def _start_reader(self, position: int, source: LiveSource) -> None:
        """Let a new thread read the GPUs of a source from now on; the lock is held."""
        if self._closed.is_set():
            return
        readers = self._readers.setdefault(position, [])
        readers[:] = [thread for thread in readers if thread.is_alive()]
        thread = threading.Thread(
            target=self._read_gpus, args=(position, source), name=f"read {source.NAME}", daemon=True
        )
        readers.append(thread)
        thread.start()

    def _read_gpus(self, position: int, source: LiveSource) -> None:
        me = threading.current_thread()
        for number in self._rounds.each():
            with self._lock:
                keys = [key for key in sorted(self._slots) if key[0] == position]
            for key in keys:
                slot = self._slots[key]
                with self._lock:
                    if self._readers[position][-1] is not me:
                        return  # another one took over while a call hung
                    # An earlier reader waits for the one in a call, and has read those before it.
                    if slot.call_since_ns is not None or slot.done_round >= number:
                        continue
                    self._begin_call(slot, number)
                    if self._wants_processes and self._is_due(self._uses_begun_ns):
                        self._uses_round, self._uses_begun_ns = number, self._clock()
                    # All in one round: one look at the processes serves them all.
                    is_round = self._uses_round == number or slot.uses_ns is None
                    wants_uses = self._wants_processes and is_round
                try:
                    samples = source.sample(slot.device)
                except Exception as error:
                    samples = tuple(replace(sample, problem=_bug(error)) for sample in slot.samples)
                uses = _tried(partial(source.processes, slot.device)) if wants_uses else None
                with self._published:
                    slot.call_since_ns, slot.done_round = None, number
                    slot.samples = samples
                    if uses is not None and self._wants_processes:
                        slot.uses, slot.uses_ns = uses, self._clock()
                    is_late = self._closed_round >= number or self._is_stuck(self._host_slot, number)
                    if self._is_complete(self._awaited_round):
                        self._published.notify_all()
                if is_late and not self._closed.is_set():
                    self.on_sample()

    def _relieve_readers(self, begun: Mapping[tuple[int, int], int]) -> bool:
        """Replace readers still in a call that had `begun`; whether there was one. The lock is held."""
        kept = [
            (position, slot)
            for (position, device), slot in self._slots.items()
            if slot.call_since_ns is not None
            and not slot.is_left
            and slot.calls == begun.get((position, device))
        ]
        for position, slot in kept:
            slot.is_left = True
            if slot.source is not None:
                self._start_reader(position, slot.source)
        return bool(kept)

    def _begin_call(self, slot: _Slot, number: int) -> None:
        slot.call_round, slot.call_since_ns, slot.is_left = number, self._clock(), False
        slot.calls += 1

    def _is_stuck(self, slot: _Slot, number: int) -> bool:
        """Whether its call of an earlier round is still in progress."""
        return slot.call_since_ns is not None and slot.call_round < number

    def _is_due(self, last_ns: int | None) -> bool:
        return last_ns is None or self._clock() - last_ns >= (PROCESSES_EVERY_S - _SLACK_S) * 1e9

    # The host, the processes, and the end of a round

    def _read_host(self) -> None:
        slot = self._host_slot
        looked_up_ns: int | None = None
        all_ns: int | None = None
        for number in self._rounds.each():
            # Not beside the GPUs: two threads that read at once wake each other for the interpreter's lock.
            uses, newest_ns = self._uses_of_round(number)
            with self._lock:
                self._begin_call(slot, number)
            try:
                sample = self._read_host_sample()
            except Exception as error:
                sample = replace(slot.samples[0], problem=_bug(error))
            found: tuple[ProcessSample, ...] | Missing | None = None
            if isinstance(uses, Missing):
                looked_up_ns = None
                if uses != NO_GPU or self._look_up_all is None:
                    found = uses
                elif self._is_due(all_ns):
                    found, all_ns = _tried(self._look_up_all), self._clock()
            elif looked_up_ns is None or looked_up_ns < newest_ns:
                found, looked_up_ns = _tried(partial(self._look_up_processes, uses)), newest_ns
            with self._published:
                slot.call_since_ns, slot.done_round = None, number
                slot.samples = (sample,)
                if found is not None:
                    self._processes = found if self._wants_processes else NOT_ASKED
                self._closed_round = number
            if not self._closed.is_set():
                self.on_sample()

    def _uses_of_round(self, number: int) -> tuple[tuple[GpuUse, ...] | Missing, int]:
        """Who uses the GPUs, once all are read in this round, and the time of the newest answer."""
        with self._published:
            self._awaited_round = number
            in_vain = 0
            while in_vain < 2:
                begun = {key: slot.calls for key, slot in self._slots.items()}
                if self._published.wait_for(lambda: self._is_complete(number), _RELIEVED_AFTER_S / 2):
                    break
                in_vain = 0 if self._relieve_readers(begun) else in_vain + 1
            return self._all_uses(), max((slot.uses_ns or 0 for slot in self._slots.values()), default=0)

    def _is_complete(self, number: int) -> bool:
        """Whether all GPUs are read in this round, except those that still hang in an earlier one."""
        return self._closed.is_set() or all(
            slot.done_round >= number or slot.is_left or self._is_stuck(slot, number)
            for slot in self._slots.values()
        )

    def _all_uses(self) -> tuple[GpuUse, ...] | Missing:
        """Of all GPUs that report them; the reason if none does."""
        if not self._wants_processes:
            return NOT_ASKED
        slots = [self._slots[key] for key in sorted(self._slots)]
        told = [slot.uses for slot in slots if not isinstance(slot.uses, Missing)]
        if told:
            return tuple(use for uses in told for use in uses)
        reasons = [uses for slot in slots if isinstance(uses := slot.uses, Missing) and uses != NOT_ASKED]
        if reasons:
            return reasons[0]
        return FIRST_READING if slots or OPENING in self._absent.values() else NO_GPU


def _devices_of(source: LiveSource) -> tuple[int, ...] | Missing:
    absent = source.open()
    return absent if absent is not None else source.devices() or NONE_LISTED


def live_collector(interval_s: float, on_sample: Callable[[], None] = lambda: None) -> Collector:
    """A collector of everything on this machine; not started yet."""
    tree = Tree(Path("/"), os.environ)
    host = HostSource(lambda: confinement(tree))
    table = ProcessTable()
    return Collector(
        live_sources(),
        host.sample,
        interval_s,
        table.look_up,
        look_up_all=table.look_up_all,
        on_sample=on_sample,
    )


def live_sources() -> tuple[LiveSource, ...]:
    """One for each kind of GPU; AMD's only if its driver is loaded, NVIDIA's always, to report what is
    wrong."""
    from gputui.sources.nvml import NvmlGpus

    found: list[LiveSource] = [NvmlGpus()]
    if Path("/sys/module/amdgpu").exists():
        from gputui.sources.amd import AmdGpus  # takes 2 ms, and few machines need it

        found.append(AmdGpus(has_units=True))
    return tuple(found)


def _hanging_s(since_ns: int | None, now_ns: int) -> int:
    """How long a call has been in progress, in whole seconds; 0 if that is not worth mentioning."""
    seconds = 0 if since_ns is None else (now_ns - since_ns) // 10**9
    return seconds if seconds >= HANGS_AFTER_S else 0


def _tried(ask: Callable[[], _Answer]) -> _Answer | Missing:
    """An answer, or what is shown in its place."""
    try:
        return ask()
    except Exception as error:
        return _bug(error)


def _bug(error: Exception) -> Missing:
    """What is shown in the place of a value, so that no exception of a source ends a thread."""
    return Missing(f"this is a bug in gputui: {type(error).__name__}: {error}")
