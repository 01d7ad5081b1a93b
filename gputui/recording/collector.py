"""Everything on this machine as it is now: for the live view, snapshots, and who watches from afar."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: JSON

from gputui.machine.tree import Tree, confinement
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, GpuUse, LiveSample, ProcessSample
from gputui.recording.sampler import Readers, Rounds, Slot, as_bug, gpu_sources, tried
from gputui.sources.host import HostSource
from gputui.sources.processes import ProcessTable

if TYPE_CHECKING:
    from gputui.sources.base import Gpu, Source

HANGS_AFTER_S = 3.0
"""A call that takes longer is reported as hanging."""
POLL_EVERY_S = 3.0
"""How often to check whether a driver has been loaded, and whether a call hangs."""
PROCESSES_EVERY_S = 2.0
"""Process lists are the driver's most expensive call: milliseconds each."""
_SLACK_S = 0.1
"""How early a round may come and still count as due."""
_CLOSES_WITHIN_S = 0.08

OPENING = Missing("being opened")
NOT_ASKED = Missing("not asked for")
NO_GPU = Missing("no GPU is read here")
FIRST_READING = Missing("being read for the first time")


class Collector(Readers):
    """Reads all devices repeatedly until it is closed.

    `on_sample` is called in one of the threads when a round is complete, and for each device that comes late:
    it must be fast, and raise nothing. `clock` timestamps calls, to see how long they take; rounds follow the
    system's clock. Without a GPU, `look_up_all` returns the processes of the host.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        read_host: Callable[[], DeviceSample],
        interval_s: float,
        look_up_processes: Callable[[tuple[GpuUse, ...]], tuple[ProcessSample, ...]],
        *,
        look_up_all: Callable[[], tuple[ProcessSample, ...]] | None = None,
        on_sample: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = time.monotonic_ns,
        poll_every_s: float = POLL_EVERY_S,
    ) -> None:
        super().__init__(sources, Rounds(interval_s), watch_every_s=poll_every_s, reopens=True, clock=clock)
        self._ask_host = read_host
        self._look_up_processes = look_up_processes
        self._look_up_all = look_up_all
        self.on_sample = on_sample
        # All that follows is guarded by the lock.
        self._host.samples = (self._unread("host", HOST),)
        self._uses: dict[Slot, tuple[int, tuple[GpuUse, ...] | Missing]] = {}
        """When who uses a GPU was told, and the answer; for those that were asked."""
        self._wants_processes = False
        self._processes: tuple[ProcessSample, ...] | Missing = NOT_ASKED
        self._uses_round = -1
        """The last round that asked the GPUs for their processes."""
        self._uses_begun_ns: int | None = None
        self._looked_up_ns: int | None = None
        """The newest answer, or instant, for which processes were looked up."""
        self._closed_round = -1
        self._absent = dict.fromkeys(self._sources, OPENING)
        self._cached: LiveSample | None = None
        self._cached_for: tuple[object, ...] = ()

    def latest(self) -> LiveSample:
        """The current sample; never waits for a device. The same object as before if nothing has changed."""
        with self._lock:
            now_ns = self._clock()
            absent = dict(self._absent)
            for name, slot in self._openings.items():
                if seconds := _hanging_s(slot, now_ns):
                    absent[name] = Missing(f"{OPENING.reason}: no answer for {seconds} s")
            host = self._as_seen(self._host, now_ns)[0]
            gpus = [
                one for slots in self._gpus.values() for slot in slots for one in self._as_seen(slot, now_ns)
            ]
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
            self._uses.clear()
        if wanted:
            self._rounds.restart()

    def set_interval(self, interval_s: float) -> None:
        """Read this often from now on, starting at once."""
        self._rounds.restart(interval_s)

    def close(self) -> None:
        """Stop reading, within a tenth of a second; a call that hangs is abandoned."""
        self._close(_CLOSES_WITHIN_S)

    def _as_seen(self, slot: Slot, now_ns: int) -> tuple[DeviceSample, ...]:
        """The last samples; with the reason if a call does not return."""
        seconds = _hanging_s(slot, now_ns)
        if not seconds:
            return slot.samples
        who = "the kernel" if slot is self._host else "the driver"
        hangs = Missing(f"{who} has not answered for {seconds} s")
        return tuple(replace(sample, problem=hangs) for sample in slot.samples)

    def _unread(self, source: str, device: int) -> DeviceSample:
        return DeviceSample(device, source, self._clock(), {}, problem=FIRST_READING)

    # Readings

    def _open(self, name: str) -> Sequence[Gpu] | Missing:
        before = self._absent[name]
        gpus = super()._open(name)
        self._say(isinstance(gpus, Missing) and gpus != before)
        return gpus

    def _found(self, source: str, gpus: Sequence[Gpu] | Missing) -> None:
        if isinstance(gpus, Missing):
            self._absent[source] = gpus
            return
        del self._absent[source]
        for slot, gpu in zip(self._gpus[source], gpus, strict=True):
            slot.samples = (self._unread(source, gpu.number),)

    def _read_gpu(self, slot: Slot, gpu: Gpu, number: int, is_whole: bool) -> None:
        with self._lock:
            if self._wants_processes and self._is_due(self._uses_begun_ns):
                self._uses_round, self._uses_begun_ns = number, self._clock()
            # All in one round: one look at the processes serves them all.
            is_round = self._uses_round == number or slot not in self._uses
            wants_uses = self._wants_processes and is_round
        try:
            samples = gpu.sample()
        except Exception as error:
            samples = tuple(replace(sample, problem=as_bug(error)) for sample in slot.samples)
        uses = tried(gpu.processes) if wants_uses else None
        with self._news:
            slot.end(number)
            slot.samples = samples
            if uses is not None and self._wants_processes:
                self._uses[slot] = self._clock(), uses
            is_late = self._closed_round >= number or self._host.is_stuck(number)
            if self._is_complete(self._awaited_round):
                self._news.notify_all()
        self._say(is_late)

    def _read_host(self, slot: Slot, number: int) -> None:
        with self._lock:
            uses, newest_ns = self._all_uses()
        sample = tried(self._ask_host)
        if isinstance(sample, Missing):
            sample = replace(slot.samples[0], problem=sample)
        found: tuple[ProcessSample, ...] | Missing | None = None
        if not isinstance(uses, Missing):
            if self._looked_up_ns is None or self._looked_up_ns < newest_ns:
                found, self._looked_up_ns = tried(partial(self._look_up_processes, uses)), newest_ns
        elif uses != NO_GPU or self._look_up_all is None:
            found, self._looked_up_ns = uses, None
        elif self._is_due(self._looked_up_ns):
            found, self._looked_up_ns = tried(self._look_up_all), self._clock()
        with self._news:
            slot.end(number)
            slot.samples = (sample,)
            if found is not None:
                self._processes = found if self._wants_processes else NOT_ASKED
            self._closed_round = number
        self._say(True)

    def _say(self, is_news: bool) -> None:
        if is_news and not self._closed.is_set():
            self.on_sample()

    def _is_due(self, last_ns: int | None) -> bool:
        return last_ns is None or self._clock() - last_ns >= (PROCESSES_EVERY_S - _SLACK_S) * 1e9

    def _all_uses(self) -> tuple[tuple[GpuUse, ...] | Missing, int]:
        """Of all GPUs that report them, or the reason if none does; and the time of the newest answer."""
        if not self._wants_processes:
            return NOT_ASKED, 0
        answers = [self._uses[slot] for slot in self._all_gpus() if slot in self._uses]
        told = [uses for _, uses in answers if not isinstance(uses, Missing)]
        if told:
            return tuple(use for uses in told for use in uses), max(t_ns for t_ns, _ in answers)
        for _, why in answers:
            return why, 0
        return FIRST_READING if any(self._gpus.values()) or OPENING in self._absent.values() else NO_GPU, 0


def live_collector(interval_s: float, on_sample: Callable[[], None] = lambda: None) -> Collector:
    """A collector of everything on this machine; not started yet."""
    tree = Tree(Path("/"), os.environ)
    host = HostSource(lambda: confinement(tree))
    table = ProcessTable()
    return Collector(
        gpu_sources(has_units=True),
        host.sample,
        interval_s,
        table.look_up,
        look_up_all=table.look_up_all,
        on_sample=on_sample,
    )


def _hanging_s(slot: Slot, now_ns: int) -> int:
    """How long a call has been in progress, in whole seconds; 0 if that is not worth mentioning."""
    seconds = 0 if slot.call_since_ns is None else (now_ns - slot.call_since_ns) // 10**9
    return seconds if seconds >= HANGS_AFTER_S else 0


# A sample as another machine gets it, in one compressed stream: what stays takes few bytes

OLD_S = 3.0
"""From this age on it is sent how old a reading is."""
MOST_PROCESSES = 500


def plain_sample(sample: LiveSample, case: str) -> dict[str, Any]:
    """A sample as JSON, with the case that is measured meanwhile; empty if none is."""
    return {
        "host": _device(sample.host, sample.t_ns),
        "gpus": [_device(gpu, sample.t_ns) for gpu in sample.gpus],
        "absent": {name: why.reason for name, why in sample.absent.items()},
        "processes": sample.processes.reason
        if isinstance(sample.processes, Missing)
        else [
            {**_flat(one), "uses": list(map(_flat, one.uses))} for one in sample.processes[:MOST_PROCESSES]
        ],
        "case": case,
    }


def _device(device: DeviceSample, now_ns: int) -> dict[str, Any]:
    age_s = (now_ns - device.t_ns) / 1e9
    return {
        "device": device.device,
        "source": device.source,
        "parent": device.parent,
        "age_s": round(age_s) if age_s > OLD_S else 0,
        "problem": None if device.problem is None else device.problem.reason,
        "values": {key: _plain(value) for key, value in device.values.items()},
    }


def _flat(one: ProcessSample | GpuUse) -> dict[str, Any]:
    return {field.name: _plain(getattr(one, field.name)) for field in fields(one)}


def _plain(value: Any) -> Any:
    """A share or a rate in as many digits as are shown; counters are whole."""
    if isinstance(value, Missing):
        return {"missing": value.reason}
    return float(f"{value:.3g}") if isinstance(value, float) else value
