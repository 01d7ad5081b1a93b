"""NVIDIA GPUs through the driver's library, for the live view and for runs.

One reader for both: with two, a run could store another power than the screen showed beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse, Value, mig_device, sane
from gputui.sources import nvml_calls
from gputui.sources.base import meminfo, stored_values, text_of
from gputui.sources.nvml_calls import (
    DRIVER,
    ENERGY,
    LESS_OFTEN,
    LOST,
    MEMORY,
    OF_INSTANCES,
    OF_RUNS,
    OFTEN,
    ONCE,
    POWER,
    QUICK_OF_RUNS,
    SELDOM,
    UNREPORTED,
    Asker,
    DriverGone,
    GpuLost,
    Question,
    Values,
    check_alive,
    mig_handles,
    nvml_reason,
    sane_memory,
)
from gputui.sources.nvml_rates import (
    GPM_SHARES,
    GPM_UNAVAILABLE,
    LINK_RATES,
    CounterRate,
    Fields,
    FieldValues,
    Gpm,
    PcieMeter,
)

_RETRY_NS = 10 * 10**9
"""Between two attempts to open the library, which may each start the driver's helper process, or to reach a
GPU."""
_LEFT_ALONE_NS = 8 * 10**9
"""How long a lost GPU is not asked."""
_SELDOM_NS = 8 * 10**9
"""How long limits, links, error counts and the MIG layout are cached."""
_LESS_OFTEN_NS = 1900 * 10**6
"""How long values are cached that the default screen does not chart: every second reading asks for them."""
_ENERGY_NS = 900 * 10**6
"""The counter loses nothing while it is not read, and is the most expensive of the quick calls: up to 2.6
ms."""
_COUNT_NS = 5 * 10**9
"""Between two counts of processes, during which the driver holds its lock for milliseconds (MangoHud, PR
2104), which may delay launches."""
_FIRST_LOOK_US = 10**6
"""How far back the first question for the shares of processes reaches."""
_MOST_AT_ONCE = 64
"""Xids: a GPU may report thousands in a second."""

NOT_OF_MIG = Missing("the driver does not tell it of a MIG instance")
_NOT_WITH_MIG = Missing("the driver does not tell it while MIG is on")
_NO_XID = Missing("there was none since the monitor was opened")
_UNNAMED_PROFILE = Missing("the driver's name of the instance does not end in its profile")
_HOST_MEMORY = Missing("this GPU uses the host's memory")
_NOT_REACHED = Missing("it was not reached yet")


class NvmlGpus:
    """All NVIDIA GPUs of this machine. The library stays open until the process ends: without persistence
    mode each opening takes seconds."""

    NAME: ClassVar[str] = "nvml"

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, root: Path = Path("/")) -> None:
        self.clock = clock
        self._root = root
        self._tried_ns: int | None = None
        self._absent = UNREPORTED
        self.nvml: Any = None
        """pynvml; None while the library is not open."""
        self.driver: tuple[int, ...] = ()
        self.host_memory_bytes = 0
        self.gone: Missing | None = None
        """Set once the driver was unloaded or replaced."""

    def open(self) -> tuple[NvmlGpu, ...] | Missing:
        """By the driver's number, lost ones included. What failed is tried again after some seconds; in
        between the last reason is returned."""
        now_ns = self.clock()
        if self._tried_ns is not None and now_ns - self._tried_ns < _RETRY_NS:
            return self._absent
        self._tried_ns = now_ns
        found = nvml_calls.opened()
        if isinstance(found, Missing):
            self._absent = found
            return found
        self.nvml, count = found
        self.driver = nvml_calls.driver_version(self.nvml)
        self.host_memory_bytes = meminfo(text_of(str(self._root / "proc/meminfo"))).get("MemTotal", 0)
        return tuple(NvmlGpu(self, number) for number in range(count))


class NvmlGpu:
    """One GPU and its MIG instances. Used by one thread at a time."""

    def __init__(self, library: NvmlGpus, number: int) -> None:
        self.number = number
        self._library = library
        self._clock = library.clock
        self._asker = asker = Asker(library.nvml)
        self._unreached: Missing | None = _NOT_REACHED
        """Why there is no handle."""
        self._lost_ns: int | None = None
        self._read_ns: dict[str, int] = {}
        """When what is not read each time was last asked for."""
        self._once: Values = {}
        self._seldom: Values = {}
        self._held: Values = {}
        self._fields = Fields(asker, library.driver)
        self._gpm = Gpm(asker)
        self._meter = PcieMeter(asker)
        self._rates = {key: CounterRate() for key in LINK_RATES}
        self._xids = _xids()
        self._count = nvml_calls.process_count(library.driver)
        self._processes = _Processes(asker, number, library.driver, is_mig=False)
        self._instances: dict[int, _Instance] = {}

    def sample(self) -> tuple[DeviceSample, ...]:
        """The GPU now, followed by its MIG instances; a failure is part of the sample."""
        problem = self._out_of_reach()
        if problem is not None:
            return self._without_values(problem)
        try:
            values = self._asker.values(OFTEN)
            sane_memory(values)
            fields = self._fields.read()
            fields_ns = self._clock()
            problem = _nothing_in((*values.values(), *fields.values()))
            self._read_what_is_due()
            values |= self._held
            milliwatts = fields.get(nvml_calls.POWER_INSTANT)
            if milliwatts is None:
                values |= self._asker.values((POWER,))
            elif isinstance(milliwatts, Missing):
                values["power_w"] = milliwatts
            else:
                values["power_w"] = sane("power_w", milliwatts / 1000, DRIVER)
            values |= self._fields.throttled(fields)
            gpm = self._gpm.read(self._clock)
            values |= {key: gpm[key] for key in GPM_SHARES}
            values |= {key: self._rate(key, fields, fields_ns, gpm) for key in LINK_RATES}
            self._check_whose_memory(values)
            if self._seldom["mig_mode"] == 1:
                values = {key: _NOT_WITH_MIG if one == UNREPORTED else one for key, one in values.items()}
            of_instances = [(each, each.read(self._clock)) for each in self._instances.values()]
        except (DriverGone, GpuLost) as gone:
            return self._without_values(self._went(gone))
        done_ns = self._clock()
        values = {**self._once, **self._seldom, **values}
        return (
            DeviceSample(self.number, NvmlGpus.NAME, done_ns, values, problem=problem),
            *(
                DeviceSample(each.number, NvmlGpus.NAME, done_ns, own, parent=self.number)
                for each, own in of_instances
            ),
        )

    def processes(self) -> tuple[GpuUse, ...] | Missing:
        """Who uses the GPU or any of its instances: the most expensive question."""
        problem = self._out_of_reach()
        if problem is not None:
            return problem
        try:
            if not self._instances:
                return self._processes.read()
            told = [instance.uses() for instance in self._instances.values()]
        except (DriverGone, GpuLost) as gone:
            return self._went(gone)
        uses = [one for one in told if not isinstance(one, Missing)]
        return tuple(use for one in uses for use in one) if uses else told[0]

    def read(self, *, full: bool) -> dict[str, float | int] | Missing:
        """What runs store of it, or why nothing can be read."""
        problem = self._out_of_reach()
        if problem is not None:
            return problem
        counts = (self._count,) if full and self._is_due("count", _COUNT_NS) else ()
        try:
            values = self._asker.values((*OF_RUNS, *counts) if full else QUICK_OF_RUNS)
        except (DriverGone, GpuLost) as gone:
            return self._went(gone)
        return stored_values(values) or next(why for why in values.values() if isinstance(why, Missing))

    # Whether it can be asked

    def _out_of_reach(self) -> Missing | None:
        """Why it is not asked now. Its handle is asked for here, in the thread that reads it: this call may
        hang, too."""
        if self._library.gone is not None:
            return self._library.gone
        if self._lost_ns is not None and self._clock() - self._lost_ns < _LEFT_ALONE_NS:
            return LOST
        self._lost_ns = None
        if self._unreached is not None and self._is_due("handle", _RETRY_NS):
            nvml = self._library.nvml
            try:
                self._asker.handle = nvml.nvmlDeviceGetHandleByIndex(self.number)
                self._unreached = None
            except nvml.NVMLError as error:
                self._unreached = Missing(nvml_reason(error.value))
        return self._unreached

    def _is_due(self, what: str, every_ns: int) -> bool:
        """Whether so long has passed since this was last asked for; then it is asked for now."""
        now_ns = self._clock()
        if what in self._read_ns and now_ns - self._read_ns[what] < every_ns:
            return False
        self._read_ns[what] = now_ns
        return True

    def _went(self, gone: DriverGone | GpuLost) -> Missing:
        """The reason, once it stopped to answer."""
        if isinstance(gone, DriverGone):
            self._library.gone = Missing(f"{nvml_reason(gone.code)}; then start gputui again")
            return self._library.gone
        self._lost_ns = self._clock()
        self._gpm.restart()
        return LOST

    def _without_values(self, problem: Missing) -> tuple[DeviceSample, ...]:
        """The samples when nothing can be read: which GPU it is, and the reason."""
        t_ns, name = self._clock(), NvmlGpus.NAME
        return (
            DeviceSample(self.number, name, t_ns, self._once, problem=problem),
            *(
                DeviceSample(each.number, name, t_ns, each.identity, parent=self.number, problem=problem)
                for each in self._instances.values()
            ),
        )

    # What is not read each time

    def _read_what_is_due(self) -> None:
        if self._is_due("seldom", _SELDOM_NS):
            self._read_seldom()
        if self._is_due("energy", _ENERGY_NS):
            self._held |= self._asker.values((ENERGY,))
        if self._is_due("less often", _LESS_OFTEN_NS):
            self._held |= self._asker.values((*LESS_OFTEN, self._xids))

    def _read_seldom(self) -> None:
        unknown = [question for question in ONCE if not isinstance(self._once.get(question.keys[0]), str)]
        self._once = {**self._once, **self._asker.values(unknown)}
        before, self._seldom = self._seldom, self._asker.values(SELDOM)
        mode = self._seldom["mig_mode"]
        if isinstance(mode, Missing):
            return  # the instances are unknown now: keep the previous ones
        if mode != before.get("mig_mode", mode):
            self._asker.forget()
        self._instances = dict(self._found_instances()) if mode == 1 else {}

    def _found_instances(self) -> Iterator[tuple[int, _Instance]]:
        for place, handle in mig_handles(self._library.nvml, self._asker.handle):
            identity = Asker(self._library.nvml, handle).values(OF_INSTANCES)
            identity["mig_index"], identity["mig_profile"] = place, _profile(identity["name"])
            number = mig_device(self.number, place)
            known = self._instances.get(number)
            reported = {key: value for key, value in identity.items() if not isinstance(value, Missing)}
            if known is None or any(
                known.identity[key] != reported.get(key, known.identity[key])
                for key in ("uuid", "gpu_instance_id", "compute_instance_id")
            ):
                known = _Instance(self._asker, handle, number, identity, self._library.driver)
            known.identity = {**known.identity, **reported}
            yield number, known

    # What follows from several answers

    def _rate(self, key: str, fields: FieldValues, t_ns: int, gpm: Values) -> Value:
        """From a counter, else from GPM, else from the slow call."""
        number, unit = LINK_RATES[key]
        count = fields.get(number)
        if isinstance(count, Missing):
            return count
        if count is not None:
            return self._rates[key].of(count * unit, t_ns)
        by_gpm = gpm[key]
        if by_gpm not in GPM_UNAVAILABLE:
            return by_gpm
        return self._meter.read(t_ns)[key] if key.startswith("pcie") else UNREPORTED

    def _check_whose_memory(self, values: Values) -> None:
        """A GPU without its own memory reports the host's, which must not be shown as the GPU's."""
        total = values["memory_total_bytes"]
        if isinstance(total, (Missing, str)):
            values["is_memory_shared"] = total
            return
        is_shared = abs(total - self._library.host_memory_bytes) < 2**20
        values["is_memory_shared"] = int(is_shared)
        if is_shared:
            values |= dict.fromkeys(MEMORY.keys, _HOST_MEMORY)


class _Instance:
    """One MIG instance: its memory and the activity of its SMs; the rest is only reported for the GPU."""

    def __init__(
        self, of_gpu: Asker, handle: Any, number: int, identity: Values, driver: tuple[int, ...]
    ) -> None:
        self.number = number
        self.identity = identity
        """What identifies it and does not change."""
        self._asker = Asker(of_gpu.nvml, handle)
        self._processes = _Processes(self._asker, number, driver, is_mig=True)
        self._gpm = Gpm(of_gpu, identity["gpu_instance_id"])

    def read(self, clock: Callable[[], int]) -> Values:
        """Its values now."""
        values = {**self.identity, "sm_busy_pct": NOT_OF_MIG, **self._asker.values((MEMORY,))}
        sane_memory(values)
        return values | self._gpm.read(clock)

    def uses(self) -> tuple[GpuUse, ...] | Missing:
        """Who uses it."""
        profile, uses = self.identity["mig_profile"], self._processes.read()
        if isinstance(uses, Missing) or not isinstance(profile, str):
            return uses
        return tuple(replace(use, mig_profile=profile) for use in uses)


class _Processes:
    """Who uses a GPU or MIG instance, and how much of its SMs."""

    def __init__(self, asker: Asker, number: int, driver: tuple[int, ...], *, is_mig: bool) -> None:
        self._asker = asker
        self._number = number
        self._is_mig = is_mig
        self._seen_us = time.time_ns() // 1000 - _FIRST_LOOK_US
        """The driver's newest sample so far, by its clock."""
        self._compute = nvml_calls.process_lists("Compute", driver)
        self._graphics = nvml_calls.process_lists("Graphics", driver)
        # The older call returns nothing on some Blackwell GPUs, so it comes second.
        self._sharing: list[Callable[[Any, Any], list[Any]]] = [
            lambda nvml, handle: list(nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, self._seen_us)),
            lambda nvml, handle: list(nvml.nvmlDeviceGetProcessUtilization(handle, self._seen_us)),
        ]

    def read(self) -> tuple[GpuUse, ...] | Missing:
        """By PID; raises DriverGone or GpuLost."""
        compute = self._list(self._compute)
        if isinstance(compute, Missing):
            return compute
        graphics = self._list(self._graphics)
        if isinstance(graphics, Missing):
            graphics = {}  # of a GPU without graphics
        shares = self._shares() if compute or graphics else {}
        return tuple(
            GpuUse(
                self._number,
                pid,
                "C" * (pid in compute) + "G" * (pid in graphics),
                _more(compute.get(pid), graphics.get(pid)),
                shares if isinstance(shares, Missing) else shares.get(pid, 0.0),
            )
            for pid in sorted(compute.keys() | graphics.keys())
        )

    def _list(self, ways: list[Callable[[Any, Any], list[Any]]]) -> dict[int, int | None] | Missing:
        """Bytes by PID, None if the driver does not report them."""
        answer = nvml_calls.ask(self._asker.nvml, self._asker.handle, ways)
        if isinstance(answer, int):
            check_alive(answer)
            return Missing(nvml_reason(answer))
        return {process.pid: process.usedGpuMemory for process in answer}

    def _shares(self) -> dict[int, float | Missing] | Missing:
        """By PID; processes that used nothing recently are absent."""
        if self._is_mig:
            return NOT_OF_MIG
        answer = nvml_calls.ask(self._asker.nvml, self._asker.handle, self._sharing)
        if isinstance(answer, int):
            if answer in (nvml_calls.SUCCESS, nvml_calls.NOT_FOUND):
                return {}  # no one used it since the last time
            check_alive(answer)
            return Missing(nvml_reason(answer))
        # The driver returns old entries too, which are no longer valid.
        new = sorted((one for one in answer if one.timeStamp > self._seen_us), key=lambda one: one.timeStamp)
        self._seen_us = new[-1].timeStamp if new else self._seen_us
        return {
            one.pid: float(one.smUtil) if one.smUtil <= 100 else Missing(f"{DRIVER} answered {one.smUtil} %")
            for one in new
        }


def _more(one: int | None, other: int | None) -> int | Missing:
    """A process that computes and draws is in both lists with its total."""
    reported = [value for value in (one, other) if value is not None]
    return max(reported) if reported else Missing("the driver does not tell it here")


def _xids() -> Question:
    """Errors that the driver reports as events, the Xids of its log: their number since the monitor was
    opened, and the code of the last one.

    Of one GPU, in an event set not shared with others: waiting for them delays no other GPU.
    """
    sets: list[Any] = []
    found = {"xid_count": 0}

    def take(nvml: Any, handle: Any) -> dict[str, int]:
        if not sets:
            events = nvml.nvmlEventSetCreate()
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError:
                nvml.nvmlEventSetFree(events)
                raise
            sets.append(events)
        for _ in range(_MOST_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(sets[0], 0)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_TIMEOUT:
                    break  # there is none
                raise
            found["xid_count"] += 1
            found["xid_last"] = int(event.eventData)
        return found

    return Question(("xid_count", "xid_last"), (take,), _NO_XID)


def _profile(name: Value) -> Value:
    """`1g.10gb` of `NVIDIA H100 80GB HBM3 MIG 1g.10gb`; `1c.2g.20gb` of a subdivided GPU instance."""
    if isinstance(name, Missing):
        return name
    return str(name).rpartition(" MIG ")[2].strip() if " MIG " in str(name) else _UNNAMED_PROFILE


def _nothing_in(values: Sequence[Value]) -> Missing | None:
    """Why there is no value among them; None if there is any."""
    reasons = [value.reason for value in values if isinstance(value, Missing)]
    return Missing(f"nothing can be read: {reasons[0]}") if reasons and len(reasons) == len(values) else None
