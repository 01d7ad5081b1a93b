"""Reads one NVIDIA GPU for the live view: changing values often, the others rarely."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse, Value, mig_device, sane
from gputui.sources import nvml_calls
from gputui.sources.nvml_live.counters import (
    GPM_SHARES,
    GPM_UNAVAILABLE,
    LINK_RATES,
    CounterRate,
    Fields,
    FieldValues,
    Gpm,
    PcieMeter,
    fields_of,
    first_sum,
    throttle_counters,
)
from gputui.sources.nvml_live.questions import (
    DRIVER,
    ENERGY,
    LESS_OFTEN,
    LOST,
    MEMORY,
    OF_INSTANCES,
    OFTEN,
    ONCE,
    POWER,
    SELDOM,
    UNREPORTED,
    Asker,
    GpuLost,
    Question,
    Values,
    check_alive,
    mig_handles,
    sane_memory,
)

NOT_OF_MIG = Missing("the driver does not tell it of a MIG instance")
_FIRST_LOOK_US = 10**6
"""How far back the first query for shares reaches."""


class Processes:
    """Who uses a GPU or MIG instance, and how much of its SMs."""

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        number: int,
        *,
        is_mig: bool,
        driver: tuple[int, ...],
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._number = number
        self._is_mig = is_mig
        self._seen_us = time.time_ns() // 1000 - _FIRST_LOOK_US
        """The driver's newest sample so far, by its clock."""
        self._listing: dict[str, list[Callable[[Any, Any], list[Any]]]] = {
            "C": nvml_calls.process_lists("Compute", driver),
            "G": nvml_calls.process_lists("Graphics", driver),
        }
        # The older call returns nothing on some Blackwell GPUs, so it comes second.
        self._sharing: list[Callable[[Any, Any], list[Any]]] = [
            lambda nvml, handle: list(nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, self._seen_us)),
            lambda nvml, handle: list(nvml.nvmlDeviceGetProcessUtilization(handle, self._seen_us)),
        ]

    def read(self) -> tuple[GpuUse, ...] | Missing:
        """By PID; raises DriverGone or GpuLost."""
        compute = self._list("C")
        if isinstance(compute, Missing):
            return compute
        graphics = self._list("G")
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

    def _list(self, kind: str) -> dict[int, int | None] | Missing:
        """Bytes by PID, None if the driver does not report them."""
        answer = nvml_calls.ask(self._nvml, self._handle, self._listing[kind])
        if isinstance(answer, int):
            check_alive(answer)
            return Missing(nvml_calls.nvml_reason(answer))
        return {process.pid: process.usedGpuMemory for process in answer}

    def _shares(self) -> dict[int, float | Missing] | Missing:
        """By PID; processes that used nothing recently are absent."""
        if self._is_mig:
            return NOT_OF_MIG
        answer = nvml_calls.ask(self._nvml, self._handle, self._sharing)
        if isinstance(answer, int):
            if answer in (nvml_calls.SUCCESS, nvml_calls.NOT_FOUND):
                return {}  # no one used it since the last query
            check_alive(answer)
            return Missing(nvml_calls.nvml_reason(answer))
        newest: dict[int, Any] = {}
        for sample in answer:
            # The driver returns old entries too, which are no longer valid.
            is_new = sample.timeStamp > self._seen_us
            if is_new and (sample.pid not in newest or sample.timeStamp > newest[sample.pid].timeStamp):
                newest[sample.pid] = sample
        self._seen_us = max((self._seen_us, *(sample.timeStamp for sample in newest.values())))
        return {
            pid: float(sample.smUtil)
            if sample.smUtil <= 100
            else Missing(f"the driver answered {sample.smUtil} %")
            for pid, sample in newest.items()
        }


def _more(one: int | None, other: int | None) -> int | Missing:
    """A process that computes and draws is in both lists with its total."""
    reported = [value for value in (one, other) if value is not None]
    return max(reported) if reported else Missing("the driver does not tell it here")


SELDOM_NS = 8 * 10**9
"""How long limits, links, error counts and the MIG layout are cached."""
_LESS_OFTEN_NS = 1900 * 10**6
"""How long values are cached that the default screen does not chart: every second reading asks for them."""
_ENERGY_NS = 900 * 10**6
"""The counter loses nothing while it is not read, and is the most expensive of the quick calls: up to 2.6
ms."""

_MOST_AT_ONCE = 64
"""Xids: a GPU may report thousands in a second."""
_NO_XID = Missing("there was none since the monitor was opened")
_NOT_WITH_MIG = Missing("the driver does not tell it while MIG is on")
_UNNAMED_PROFILE = Missing("the driver's name of the instance does not end in its profile")
_HOST_MEMORY = Missing("this GPU uses the host's memory")


class XidEvents:
    """Errors that the driver reports as events, the Xids of its log, since the monitor was opened.

    Of one GPU, in an event set not shared with others: waiting for them delays no other GPU.
    """

    def __init__(self) -> None:
        self.question = Question(("xid_count", "xid_last"), (self._taken,), _NO_XID)
        """Their number and the code of the last one."""
        self._set: Any = None
        self._found = {"xid_count": 0}

    def _taken(self, nvml: Any, handle: Any) -> dict[str, int]:
        if self._set is None:
            events = nvml.nvmlEventSetCreate()
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError:
                nvml.nvmlEventSetFree(events)
                raise
            self._set = events
        for _ in range(_MOST_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_TIMEOUT:
                    break  # there is none
                raise
            self._found = {"xid_count": self._found["xid_count"] + 1, "xid_last": int(event.eventData)}
        return self._found


class _Instance:
    """One MIG instance: its memory and the activity of its SMs; the rest is only reported for the GPU."""

    def __init__(
        self,
        nvml: Any,
        gpu_handle: Any,
        handle: Any,
        number: int,
        identity: Values,
        driver: tuple[int, ...],
    ) -> None:
        self.number = number
        self.identity = identity
        """What identifies it and does not change."""
        self.processes = Processes(nvml, handle, number, is_mig=True, driver=driver)
        self.asker = Asker(nvml, handle)
        self.gpm = Gpm(nvml, gpu_handle, identity["gpu_instance_id"])

    def read(self, clock: Callable[[], int]) -> Values:
        """Its values now."""
        values = {**self.identity, "sm_busy_pct": NOT_OF_MIG, **self.asker.values((MEMORY,))}
        sane_memory(values)
        return values | self.gpm.read(clock)


class NvmlGpu:
    """One GPU and its MIG instances. Used by one thread at a time."""

    NAME = "nvml"

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        number: int,
        *,
        clock: Callable[[], int],
        driver: tuple[int, ...],
        host_memory_bytes: int,
    ) -> None:
        self.number = number
        self.handle = handle
        self._nvml = nvml
        self._clock = clock
        self._driver = driver
        self._host_memory_bytes = host_memory_bytes
        self.asker = Asker(nvml, handle)
        self.counts = Question(("compute_process_count",), tuple(nvml_calls.process_counts(driver)))
        self._throttled = throttle_counters(driver)
        self._fields = Fields(nvml, handle, fields_of(driver))
        self._held: Values = {}
        """What is not read each time."""
        self._less_often_ns: int | None = None
        self._energy_ns: int | None = None
        self._gpm = Gpm(nvml, handle, None)
        self._xids = XidEvents()
        self._meter = PcieMeter(nvml, handle)
        self._processes = Processes(nvml, handle, number, is_mig=False, driver=driver)
        self._rates = {key: CounterRate() for key in LINK_RATES}
        self._once: Values = {}
        self._seldom: Values = {}
        self._seldom_ns: int | None = None
        self._instances: dict[int, _Instance] = {}
        self._lost_ns: int | None = None

    def samples(self) -> tuple[DeviceSample, ...]:
        """The GPU now, followed by its MIG instances; raises DriverGone or GpuLost."""
        t_ns = self._clock()
        if self._lost_ns is not None and t_ns - self._lost_ns < SELDOM_NS:
            return self.without_values(LOST)
        values = self.asker.values(OFTEN)
        sane_memory(values)
        fields = self._fields.read()
        fields_ns = self._clock()
        problem = _nothing_in((*values.values(), *fields.values()))
        if self._seldom_ns is None or t_ns - self._seldom_ns >= SELDOM_NS:
            self._read_seldom()
            self._seldom_ns = t_ns
        if self._energy_ns is None or t_ns - self._energy_ns >= _ENERGY_NS:
            self._held |= self.asker.values((ENERGY,))
            self._energy_ns = t_ns
        if self._less_often_ns is None or t_ns - self._less_often_ns >= _LESS_OFTEN_NS:
            self._held |= self.asker.values((*LESS_OFTEN, self._xids.question))
            self._less_often_ns = t_ns
        values |= self._held
        milliwatts = fields.get(nvml_calls.POWER_INSTANT)
        if milliwatts is None:
            values |= self.asker.values((POWER,))
        else:
            values["power_w"] = (
                milliwatts if isinstance(milliwatts, Missing) else sane("power_w", milliwatts / 1000, DRIVER)
            )
        totals = {key: first_sum(fields, counters) for key, counters in self._throttled.items()}
        values |= {key: UNREPORTED if total is None else total for key, total in totals.items()}
        gpm = self._gpm.read(self._clock)
        values |= {key: gpm[key] for key in GPM_SHARES}
        values |= {key: self._rate(key, fields, fields_ns, gpm) for key in LINK_RATES}
        self._own_memory(values)
        if self._seldom["mig_mode"] == 1:
            values = {key: _NOT_WITH_MIG if value == UNREPORTED else value for key, value in values.items()}
        values = {**self._once, **self._seldom, **values}
        of_instances = [(each, each.read(self._clock)) for each in self._instances.values()]
        self._lost_ns = None
        done_ns = self._clock()
        return (
            DeviceSample(self.number, self.NAME, done_ns, values, problem=problem),
            *(
                DeviceSample(each.number, self.NAME, done_ns, own, parent=self.number)
                for each, own in of_instances
            ),
        )

    def lost(self) -> tuple[DeviceSample, ...]:
        """Record that the GPU does not respond: it is not queried again for `SELDOM_NS`."""
        self._lost_ns = self._clock()
        self._gpm.restart()
        return self.without_values(LOST)

    def without_values(self, problem: Missing) -> tuple[DeviceSample, ...]:
        """The samples when nothing can be read: which GPU it is, and the reason."""
        t_ns = self._clock()
        return (
            DeviceSample(self.number, self.NAME, t_ns, self._once, problem=problem),
            *(
                DeviceSample(each.number, self.NAME, t_ns, each.identity, parent=self.number, problem=problem)
                for each in self._instances.values()
            ),
        )

    def processes(self) -> tuple[GpuUse, ...] | Missing:
        """Who uses the GPU or any of its instances; raises DriverGone."""
        if self._lost_ns is not None:
            return LOST
        try:
            if not self._instances:
                return self._processes.read()
            reasons: list[Missing] = []
            uses: list[GpuUse] = []
            for instance in self._instances.values():
                own = instance.processes.read()
                if isinstance(own, Missing):
                    reasons.append(own)
                else:
                    profile = instance.identity["mig_profile"]
                    uses += (
                        [replace(use, mig_profile=profile) for use in own]
                        if isinstance(profile, str)
                        else own
                    )
            return reasons[0] if len(reasons) == len(self._instances) else tuple(uses)
        except GpuLost:
            return LOST

    def _read_seldom(self) -> None:
        unknown = [question for question in ONCE if not isinstance(self._once.get(question.keys[0]), str)]
        self._once = {**self._once, **self.asker.values(unknown)}
        seldom = self.asker.values(SELDOM)
        before, self._seldom = self._seldom, seldom
        if isinstance(seldom["mig_mode"], Missing):
            return  # the instances are unknown now: keep the previous ones
        if seldom["mig_mode"] != before.get("mig_mode", seldom["mig_mode"]):
            self.asker.forget()
        self._instances = dict(self._found_instances()) if seldom["mig_mode"] == 1 else {}

    def _found_instances(self) -> Iterator[tuple[int, _Instance]]:
        for place, handle in mig_handles(self._nvml, self.handle):
            identity = Asker(self._nvml, handle).values((*ONCE[:2], *OF_INSTANCES))
            identity["mig_index"], identity["mig_profile"] = place, _profile(identity["name"])
            number = mig_device(self.number, place)
            known = self._instances.get(number)
            reported = {key: value for key, value in identity.items() if not isinstance(value, Missing)}
            if known is None or any(
                known.identity[key] != reported.get(key, known.identity[key])
                for key in ("uuid", "gpu_instance_id", "compute_instance_id")
            ):
                known = _Instance(self._nvml, self.handle, handle, number, identity, self._driver)
            known.identity = {**known.identity, **reported}
            yield number, known

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

    def _own_memory(self, values: Values) -> None:
        """A GPU without its own memory reports the host's, which must not be shown as the GPU's."""
        total = values["memory_total_bytes"]
        if isinstance(total, (Missing, str)):
            values["is_memory_shared"] = total
            return
        is_shared = abs(total - self._host_memory_bytes) < 2**20
        values["is_memory_shared"] = int(is_shared)
        if is_shared:
            values |= dict.fromkeys(MEMORY.keys, _HOST_MEMORY)


def _profile(name: Value) -> Value:
    """`1g.10gb` of `NVIDIA H100 80GB HBM3 MIG 1g.10gb`; `1c.2g.20gb` of a subdivided GPU instance."""
    if isinstance(name, Missing):
        return name
    return str(name).rpartition(" MIG ")[2].strip() if " MIG " in str(name) else _UNNAMED_PROFILE


def _nothing_in(values: Sequence[Value]) -> Missing | None:
    """Why there is no value among them; None if there is any."""
    reasons = [value.reason for value in values if isinstance(value, Missing)]
    return Missing(f"nothing can be read: {reasons[0]}") if reasons and len(reasons) == len(values) else None
