"""NVIDIA GPUs for the live view: they may come, go, and come back; so may the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse
from gputui.sources import nvml_calls
from gputui.sources.base import meminfo, text_of
from gputui.sources.nvml_calls import driver_version, opened
from gputui.sources.nvml_live.gpu import NvmlGpu
from gputui.sources.nvml_live.questions import UUID, Asker, DriverGone, GpuLost, check_alive

_FIRST_WAIT_NS = 2 * 10**9
_LONGEST_WAIT_NS = 30 * 10**9
"""Between two attempts to open the library: each may start the driver's helper process."""
_RETRY_NS = 10 * 10**9
"""Between two attempts to reach a GPU that the driver counts, but returns no handle for."""

_SILENCE_S = 3.0
"""If no GPU answers for this long, the silent ones are left out: a call into the driver may hang."""

_UNLISTED = Missing("the GPU is lost: the driver lists it no more")
_NO_GPU = Missing(nvml_calls.nvml_reason(nvml_calls.NO_GPU))
_COUNTED_ANEW = Missing("GPUs came or went: the driver is being asked anew")
_CLOSED = Missing("it is not being read")
_OPENING = Missing("the NVIDIA driver is being opened")


@dataclass(slots=True, eq=False)
class _Lookup:
    """One GPU that the driver counts, and its answers so far."""

    index: int
    session: int
    since_ns: int
    is_over: bool = False
    handle: Any = None
    uuid: str = ""
    code: int = nvml_calls.SUCCESS
    """Why there is no handle, if there is none."""

    def problem(self, now_ns: int) -> Missing:
        """Why the GPU cannot be read."""
        if self.is_over:
            return _COUNTED_ANEW
        return Missing(f"the driver has not answered for {(now_ns - self.since_ns) // 10**9} s")


class NvmlLive:
    """All NVIDIA GPUs of this machine, by the driver's number of each when it was first seen.

    Any call may block in the driver. `open`, `devices` and `close` are called by one thread; `sample` and
    `processes` by one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str] = NvmlGpu.NAME

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        root: Path = Path("/"),
    ) -> None:
        self._clock = clock
        self._meminfo = root / "proc/meminfo"
        self._listing = root / "proc/driver/nvidia/gpus"
        self._nvml: Any = None
        """Of the last opening; None before the first, and after `close`."""
        self._gpus: dict[int, NvmlGpu | _Lookup | Missing] = {}
        """By number; the reason if there is no handle. Replaced, never changed."""
        self._lookups: tuple[_Lookup, ...] = ()
        """Of the last lookup of all GPUs."""
        self._answered = threading.Condition()
        """Notified when one of the lookups is over."""
        self._numbers: dict[str, int] = {}
        """By UUID: a GPU keeps its number while others come and go."""
        self._count = 0
        self._listed: frozenset[str] = frozenset()
        self._reached_ns = 0
        self._next_try_ns: int | None = None
        self._wait_ns = _FIRST_WAIT_NS
        self._absent: Missing = _OPENING

        self._lock = threading.Lock()
        """Guards what follows; never held during a call."""
        self._session: int | None = None
        """The current opening of the library; None if it is closed."""
        self._sessions = 0
        self._calls = 0
        """Number of calls in progress."""
        self._gone: Missing = _CLOSED
        """Why there is no session."""

    def open(self) -> Missing | None:
        """Open the library and get a handle of each GPU; takes seconds if persistence mode is off.

        Attempts that fail are repeated at growing intervals of up to 30 s; in between the last reason is
        returned.
        """
        if self._session is not None:
            return None
        now_ns = self._clock()
        if self._next_try_ns is not None and now_ns < self._next_try_ns:
            return self._absent
        reason = self._start()
        if reason is None:
            self._next_try_ns, self._wait_ns = None, _FIRST_WAIT_NS
        else:
            self._absent = reason
            self._next_try_ns = self._clock() + self._wait_ns
            self._wait_ns = min(2 * self._wait_ns, _LONGEST_WAIT_NS)
        return reason

    def devices(self) -> tuple[int, ...]:
        """GPUs that the driver counts now, lost ones included; the last known ones while there is no driver.

        Also detects a reloaded driver and added GPUs.
        """
        session = self._session
        if session is not None and self._names_in_proc() != self._listed:
            self._end_session(session, _COUNTED_ANEW)
        if self._session is not None:
            self._recount(self._session)
        if self._session is None and self._gpus:
            self._restart()
        return tuple(sorted(self._gpus))

    def sample(self, device: int) -> tuple[DeviceSample, ...]:
        """One GPU now, followed by its MIG instances; a failure is part of the sample."""
        gpu = self._gpus.get(device, _UNLISTED)
        if not isinstance(gpu, NvmlGpu):
            now_ns = self._clock()
            if isinstance(gpu, Missing):
                return (DeviceSample(device, self.NAME, now_ns, {}, problem=gpu),)
            return (DeviceSample(device, self.NAME, gpu.since_ns, {}, problem=gpu.problem(now_ns)),)
        with self._call(gpu.session) as may_call:
            if may_call:
                try:
                    return gpu.samples()
                except GpuLost:
                    return gpu.lost()
                except DriverGone as gone:
                    self._end_session(gpu.session, _waiting(gone.code))
        return gpu.without_values(self._gone)

    def processes(self, device: int) -> tuple[GpuUse, ...] | Missing:
        """Who uses this GPU and its MIG instances, or why that is unknown: the most expensive query."""
        gpu = self._gpus.get(device, _UNLISTED)
        if not isinstance(gpu, NvmlGpu):
            return gpu if isinstance(gpu, Missing) else gpu.problem(self._clock())
        with self._call(gpu.session) as may_call:
            if may_call:
                try:
                    return gpu.processes()
                except DriverGone as gone:
                    self._end_session(gpu.session, _waiting(gone.code))
        return self._gone

    def close(self) -> None:
        """Close the library, unless a call still hangs in it; may be called twice."""
        with self._lock:
            was_open, self._session = self._session is not None, None
            self._gone = _CLOSED
            is_idle = not self._calls
        nvml, self._nvml = self._nvml, None
        gpus, self._gpus = self._gpus, {}
        if nvml is None or not is_idle:
            return
        if was_open:
            for gpu in gpus.values():
                if isinstance(gpu, NvmlGpu):
                    gpu.close()
        self._shut_down(nvml)

    # Sessions

    @contextmanager
    def _call(self, session: int) -> Iterator[bool]:
        """Keeps the library open meanwhile; False if that session is over."""
        with self._lock:
            may_call = self._session == session
            self._calls += may_call
        try:
            yield may_call
        finally:
            with self._lock:
                self._calls -= may_call

    def _end_session(self, session: int, reason: Missing) -> None:
        with self._lock:
            if self._session == session:
                self._session, self._gone = None, reason

    def _restart(self) -> None:
        """Try to open the library again, once no call of the last session is in progress."""
        with self._lock:
            if self._calls:
                return
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            self._shut_down(nvml)  # otherwise the library would not check the driver again
        reason = self.open()
        if reason is not None:
            with self._lock:
                self._gone = reason

    def _start(self) -> Missing | None:
        pynvml = opened(_why_closed)
        if isinstance(pynvml, Missing):
            return pynvml
        try:
            count = pynvml.nvmlDeviceGetCount()
            if count:
                self._listed = self._names_in_proc()
                session = self._sessions + 1
                gpus = self._reached(pynvml, count, session)
        except (pynvml.NVMLError, DriverGone) as error:
            with self._lock:
                is_idle = not self._calls
            if is_idle:  # nothing is closed during a call
                self._shut_down(pynvml)
            return Missing(_why_closed(error.code if isinstance(error, DriverGone) else error.value))
        if not count:
            self._shut_down(pynvml)
            return _NO_GPU
        self._nvml, self._count, self._gpus = pynvml, count, gpus
        with self._lock:
            self._session = self._sessions = session
        return None

    @staticmethod
    def _shut_down(nvml: Any) -> None:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            return  # nothing is left to close

    # Which GPUs there are

    def _recount(self, session: int) -> None:
        with self._call(session) as may_call:
            if not may_call:
                return
            try:
                count = self._nvml.nvmlDeviceGetCount()
                unreached = [gpu for gpu in self._gpus.values() if not isinstance(gpu, NvmlGpu)]
                is_due = any(isinstance(gpu, _Lookup) and gpu.is_over for gpu in unreached)
                is_due |= bool(unreached) and self._clock() - self._reached_ns >= _RETRY_NS
                if count != self._count or is_due:
                    self._gpus = self._reached(self._nvml, count, session)
                    self._count = count
            except self._nvml.NVMLError as error:
                code = error.value
            except DriverGone as gone:
                code = gone.code
            else:
                return
            try:
                check_alive(code)
            except DriverGone:
                self._end_session(session, _waiting(code))
            except GpuLost:
                return  # this concerns no particular GPU

    def _reached(self, nvml: Any, count: int, session: int) -> dict[int, NvmlGpu | _Lookup | Missing]:
        """Each GPU that the driver counts, by its number."""
        self._reached_ns = self._clock()
        known = {gpu.number: gpu for gpu in self._gpus.values() if isinstance(gpu, NvmlGpu)}
        gpus: dict[int, NvmlGpu | _Lookup | Missing] = {}
        unreached: dict[int, _Lookup | Missing] = {}
        self._lookups = self._looked_up(nvml, count, session)
        for index, lookup in enumerate(self._lookups):
            if not lookup.is_over:
                unreached[index] = lookup
                continue
            if lookup.code != nvml_calls.SUCCESS:
                if lookup.code != nvml_calls.GPU_IS_LOST:
                    check_alive(lookup.code)
                unreached[index] = Missing(nvml_calls.nvml_reason(lookup.code))
                continue
            handle, uuid = lookup.handle, lookup.uuid
            number = self._number(uuid or f"unnamed {index}", index)
            if number in gpus:  # two with the same name
                number = self._number(f"{uuid} again at {index}", index)
            before = known.get(number)
            if before is None or before.session != session or _place(before.handle) != _place(handle):
                before = self._gpu(nvml, handle, number, session)
            gpus[number] = before
        for index, reason in unreached.items():
            free = (number for number in (index, *range(count + len(gpus))) if number not in gpus)
            number = next(free)
            before = known.get(number)
            # A GPU that was reached before reports itself that it is lost, and which one it is.
            gpus[number] = reason if before is None or before.session != session else before
        return gpus

    def _looked_up(self, nvml: Any, count: int, session: int) -> tuple[_Lookup, ...]:
        """Each GPU that the driver counts; one whose call hangs is waited for once, and delays no other."""
        hanging = {each.index: each for each in self._lookups if each.session == session and not each.is_over}
        begun: list[_Lookup] = []
        for index in range(count):
            if index not in hanging:
                begun.append(_Lookup(index, session, self._clock()))
                with self._lock:
                    self._calls += 1
                threading.Thread(
                    target=self._look_up, args=(nvml, begun[-1]), name=f"look up {index}", daemon=True
                ).start()
        with self._answered:
            while not all(each.is_over for each in begun) and self._answered.wait(_SILENCE_S):
                pass  # one has answered
        found = hanging | {each.index: each for each in begun}
        return tuple(found[index] for index in range(count))

    def _look_up(self, nvml: Any, lookup: _Lookup) -> None:
        try:
            lookup.handle = nvml.nvmlDeviceGetHandleByIndex(lookup.index)
            uuid = Asker(nvml, lookup.handle).values((UUID,))["uuid"]
            lookup.uuid = "" if isinstance(uuid, Missing) else str(uuid)
        except nvml.NVMLError as error:
            lookup.code = error.value
        except (DriverGone, GpuLost) as gone:
            lookup.code = gone.code
        finally:
            with self._lock:
                self._calls -= 1
            with self._answered:
                lookup.is_over = True
                self._answered.notify_all()

    def _number(self, uuid: str, index: int) -> int:
        if uuid not in self._numbers:
            taken = self._numbers.values()
            self._numbers[uuid] = index if index not in taken else max(taken) + 1
        return self._numbers[uuid]

    def _gpu(self, nvml: Any, handle: Any, number: int, session: int) -> NvmlGpu:
        return NvmlGpu(
            nvml,
            handle,
            number,
            session=session,
            enter=lambda: self._call(session),
            clock=self._clock,
            driver=driver_version(nvml),
            host_memory_bytes=meminfo(text_of(str(self._meminfo))).get("MemTotal", 0),
        )

    def _names_in_proc(self) -> frozenset[str]:
        """PCI addresses that the driver is bound to: unlike its library's count they follow every change."""
        try:
            return frozenset(place.name for place in self._listing.iterdir())
        except OSError:
            return frozenset()


def _place(handle: Any) -> int | None:
    """The address at which the library keeps the device; the same address is the same device."""
    import ctypes  # pynvml has loaded it already

    return ctypes.cast(handle, ctypes.c_void_p).value


def _waiting(code: int) -> Missing:
    return Missing(f"{nvml_calls.nvml_reason(code)}; trying again")


def _why_closed(code: int) -> str:
    if code == nvml_calls.NO_PERMISSION:
        return (
            "no permission to ask the NVIDIA driver: this user must be able to read and write /dev/nvidiactl"
        )
    return nvml_calls.nvml_reason(code)
