"""NVIDIA GPUs through the driver's library."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, ClassVar  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import Reading
from gputui.sources import nvml_calls
from gputui.sources.base import stored_values
from gputui.sources.nvml_calls import nvml_reason
from gputui.sources.nvml_live.questions import (
    BUSY,
    ENERGY,
    LOST,
    MEMORY,
    MEMORY_CLOCK,
    POWER,
    REASONS,
    SM_CLOCK,
    TEMPERATURE,
    Asker,
    DriverGone,
    GpuLost,
    Question,
    Values,
)

_QUICK: tuple[Question, ...] = (
    SM_CLOCK,
    MEMORY_CLOCK,
    REASONS,
    Question(POWER.keys, (nvml_calls.instant_power, *POWER.ways)),
)
"""Queries worth making ten times a second."""

_FULL = (*_QUICK, BUSY, Question(("memory_used_bytes",), MEMORY.ways), TEMPERATURE, ENERGY)

_SELDOM_S = 5.0
"""Between two counts of processes, during which the driver holds its lock for milliseconds (MangoHud, PR
2104), which may delay launches."""


class NvmlSource:
    """Clocks, power, memory, utilization and temperature of every NVIDIA GPU the driver counts."""

    NAME: ClassVar[str] = "nvml"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nvml: Any = None
        self._counts = Question((), ())
        self._indices: tuple[int, ...] = ()
        self._askers: dict[int, Asker | None] = {}
        """Of those that were asked for; None for one without a handle, or lost since."""
        self._seldom_from_s: dict[int, float] = {}
        """When the next count of processes is due, by the monotonic clock."""
        self._problems: dict[int, Missing] = {}

    def probe(self) -> Missing | None:
        """Open the library and count the GPUs; with persistence mode off this takes seconds.

        The library stays open until the process ends, as `gputui.machine` leaves it too.
        """
        nvml = nvml_calls.opened()
        if isinstance(nvml, Missing):
            return nvml
        self._nvml = nvml
        counts = nvml_calls.process_counts(nvml_calls.driver_version(nvml))
        self._counts = Question(("compute_process_count",), tuple(counts))
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
        values: dict[str, float | int] = {}
        if device not in self._askers:
            self._askers[device] = self._found(device)
        asker = self._askers[device]
        if asker is not None:
            answers = self._answers(device, asker, full)
            values = stored_values(answers)
            if values:
                self._problems.pop(device, None)
            else:
                self._problems[device] = next(why for why in answers.values() if isinstance(why, Missing))
        return Reading(device, time.monotonic_ns(), values)

    def problem(self, device: int) -> Missing | None:
        """Why a GPU gave nothing when last asked, if so."""
        return self._problems.get(device)

    def _found(self, index: int) -> Asker | None:
        """A GPU with its handle, asked for in the thread that reads it: this call may hang, too."""
        try:
            return Asker(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index))
        except self._nvml.NVMLError as error:
            self._problems[index] = Missing(nvml_reason(error.value))
        return None

    def _answers(self, device: int, asker: Asker, full: bool) -> Values:
        """To the questions that are due; of a GPU that is lost, that it is."""
        try:
            return asker.values(self._due(device) if full else _QUICK)
        except DriverGone as gone:
            return {"driver": Missing(nvml_reason(gone.code))}
        except GpuLost:
            self._askers[device] = None  # such a GPU comes back only with a restart
        return {"driver": LOST}

    def _due(self, device: int) -> tuple[Question, ...]:
        now_s = self._clock()
        if now_s < self._seldom_from_s.get(device, -math.inf):
            return _FULL
        self._seldom_from_s[device] = now_s + _SELDOM_S
        return (*_FULL, self._counts)
