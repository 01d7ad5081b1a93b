"""NVIDIA GPUs through the driver's library."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar  # Any: pynvml has no types

from gputui.model import nvml_codes
from gputui.model.absent import Missing
from gputui.model.telemetry import Reading
from gputui.sources import nvml_calls
from gputui.sources.nvml_calls import Numbers, Way


def _used_2(nvml: Any, handle: Any) -> Numbers:
    return {"memory_used_mib": nvml_calls.memory_2(nvml, handle)["memory_used_bytes"] / 2**20}


def _used_1(nvml: Any, handle: Any) -> Numbers:
    return {"memory_used_mib": nvml_calls.memory_1(nvml, handle)["memory_used_bytes"] / 2**20}


_QUICK: tuple[tuple[Way, ...], ...] = (
    (nvml_calls.sm_clock,),
    (nvml_calls.memory_clock,),
    (nvml_calls.event_reasons, nvml_calls.throttle_reasons),
    (nvml_calls.instant_power, nvml_calls.power),
)
"""Queries worth making ten times a second; for each, the alternatives in order of preference."""

_FULL: tuple[tuple[Way, ...], ...] = (
    *_QUICK,
    (nvml_calls.busy,),
    (_used_2, _used_1),
    (nvml_calls.temperature_v, nvml_calls.temperature),
    (nvml_calls.energy,),
)

_SELDOM_S = 5.0
"""Between two counts of processes, during which the driver holds its lock for milliseconds (MangoHud, PR
2104), which may delay launches."""


@dataclass(slots=True)
class _Device:
    """One GPU, and which alternatives of each query may still work."""

    handle: Any
    ways: list[list[Way]]
    """For each query of `_FULL`, and the count of processes, the alternatives not ruled out, the current one
    first."""
    seldom_from_s: float = -math.inf
    """When that count is due, by the monotonic clock."""


class NvmlSource:
    """Clocks, power, memory, utilization and temperature of every NVIDIA GPU the driver counts."""

    NAME: ClassVar[str] = "nvml"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nvml: Any = None
        self._driver: tuple[int, ...] = ()
        self._indices: tuple[int, ...] = ()
        self._devices: dict[int, _Device | None] = {}
        """Those that were asked for; None for one without a handle, or lost since."""
        self._problems: dict[int, Missing] = {}

    def probe(self) -> Missing | None:
        """Open the library and count the GPUs; with persistence mode off this takes seconds.

        The library stays open until the process ends, as `gputui.machine` leaves it too.
        """
        nvml = nvml_calls.opened()
        if isinstance(nvml, Missing):
            return nvml
        self._nvml = nvml
        self._driver = nvml_calls.driver_version(nvml)
        count = nvml_calls.gpu_count(nvml)
        if isinstance(count, Missing):
            return count
        self._indices = tuple(range(count))
        return None

    def devices(self) -> tuple[int, ...]:
        """Every GPU the driver counts, lost ones included."""
        return self._indices

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one GPU; none of a lost GPU, which is not queried again."""
        values: Numbers = {}
        if device not in self._devices:
            self._devices[device] = self._found(device)
        found = self._devices[device]
        if found is not None:
            failure = self._ask_all(found, self._due(found, full), values)
            if failure == nvml_codes.GPU_IS_LOST:
                self._devices[device] = None  # such a GPU comes back only with a restart
                values = {}
            if failure is not None and not values:
                self._problems[device] = Missing(nvml_codes.nvml_reason(failure))
            elif values:
                self._problems.pop(device, None)
        return Reading(device, time.monotonic_ns(), values)

    def problem(self, device: int) -> Missing | None:
        """Why a GPU gave nothing when last asked, if so."""
        return self._problems.get(device)

    def _found(self, index: int) -> _Device | None:
        """A GPU with its handle, asked for in the thread that reads it: this call may hang, too."""
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as error:
            self._problems[index] = Missing(nvml_codes.nvml_reason(error.value))
            return None
        return _Device(handle, [*map(list, _FULL), nvml_calls.process_counts(self._driver)])

    def _due(self, device: _Device, full: bool) -> int:
        """How many of its queries are due."""
        if not full:
            return len(_QUICK)
        now_s = self._clock()
        if now_s < device.seldom_from_s:
            return len(_FULL)
        device.seldom_from_s = now_s + _SELDOM_S
        return len(device.ways)

    def _ask_all(self, device: _Device, questions: int, values: Numbers) -> int | None:
        """Fill `values`; returns the error code of the last query that failed, if any."""
        failure: int | None = None
        for ways in device.ways[:questions]:
            if not ways:
                continue
            answer = nvml_calls.ask(self._nvml, device.handle, ways)
            if isinstance(answer, int):
                failure = answer
                if failure == nvml_codes.GPU_IS_LOST:
                    break
            else:
                values |= answer
        return failure
