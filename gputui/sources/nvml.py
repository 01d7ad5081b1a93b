"""NVIDIA GPUs through the driver's library: for the live view, for runs, and for what describes a machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, GpuUse, Reading
from gputui.sources import nvml_calls
from gputui.sources.base import meminfo, stored_values, text_of
from gputui.sources.nvml_calls import NO_PERMISSION, driver_version, gpu_count, nvml_reason, opened
from gputui.sources.nvml_live.gpu import NvmlGpu
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

_COUNT_NS = 5 * 10**9
"""Between two counts of processes, during which the driver holds its lock for milliseconds (MangoHud, PR
2104), which may delay launches."""
_RETRY_NS = 10 * 10**9
"""Between two attempts to open the library, which may each start the driver's helper process, or to reach a
GPU."""


class NvmlGpus:
    """All NVIDIA GPUs of this machine, by the driver's number of each, for the live view and for runs.

    Any call may block in the driver. `open` and `devices` are called by one thread, the others by one thread
    per device, for several devices at the same time. The library stays open until the process ends: without
    persistence mode each opening takes seconds.
    """

    NAME: ClassVar[str] = NvmlGpu.NAME

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, root: Path = Path("/")) -> None:
        self._clock = clock
        self._meminfo = root / "proc/meminfo"
        self.nvml: Any = None
        """pynvml; None while the library is not open."""
        self._count = 0
        self._tried_ns: int | None = None
        self._absent: Missing | None = None
        self._gone: Missing | None = None
        """Set once the driver was unloaded or replaced: what the library has is of no use then."""
        self._gpus: dict[int, NvmlGpu | Missing] = {}
        """Those that were asked for; the reason of one without a handle."""
        self._asked_ns: dict[int, int] = {}
        """When the handle of each was asked for."""
        self._counted_ns: dict[int, int] = {}
        """When the processes of each were counted."""
        self._problems: dict[int, Missing] = {}

    def open(self) -> Missing | None:
        """Open the library and count the GPUs.

        What failed is tried again after some seconds; in between the last reason is returned.
        """
        now_ns = self._clock()
        is_due = self._tried_ns is None or now_ns - self._tried_ns >= _RETRY_NS
        if self.nvml is None and is_due:
            self._tried_ns = now_ns
            self._absent = self._opened()
        return self._absent

    def _opened(self) -> Missing | None:
        nvml = opened(_why_closed)
        if isinstance(nvml, Missing):
            return nvml
        count = gpu_count(nvml)
        if isinstance(count, Missing):
            nvml.nvmlShutdown()  # otherwise the library would not look for the driver again
            return count
        self.nvml, self._count = nvml, count
        return None

    def devices(self) -> tuple[int, ...]:
        """GPUs that the driver counted, lost ones included."""
        return tuple(range(self._count))

    def sample(self, device: int) -> tuple[DeviceSample, ...]:
        """One GPU now, followed by its MIG instances; a failure is part of the sample."""
        gpu = self._gpu(device)
        if isinstance(gpu, Missing):
            return (DeviceSample(device, self.NAME, self._clock(), {}, problem=gpu),)
        if self._gone is None:
            try:
                return gpu.samples()
            except GpuLost:
                return gpu.lost()
            except DriverGone as gone:
                self._gone = _unloaded(gone)
        return gpu.without_values(self._gone)

    def processes(self, device: int) -> tuple[GpuUse, ...] | Missing:
        """Who uses this GPU and its MIG instances, or why that is unknown: the most expensive query."""
        gpu = self._gpu(device)
        if isinstance(gpu, Missing):
            return gpu
        if self._gone is None:
            try:
                return gpu.processes()
            except DriverGone as gone:
                self._gone = _unloaded(gone)
        return self._gone

    def read(self, device: int, *, full: bool) -> Reading:
        """What runs store of one GPU; nothing of a lost GPU, which is left alone for a while."""
        answers = self._stored(device, full=full)
        values = stored_values(answers)
        if values:
            self._problems.pop(device, None)
        else:
            self._problems[device] = next(why for why in answers.values() if isinstance(why, Missing))
        return Reading(device, time.monotonic_ns(), values)

    def problem(self, device: int) -> Missing | None:
        """Why a GPU gave nothing when last read, if so."""
        return self._problems.get(device)

    def ask(self, device: int | None, questions: Sequence[Question]) -> Values:
        """The answers of a GPU, or of the library; of a GPU that is lost, why in each."""
        try:
            handle = None if device is None else self.nvml.nvmlDeviceGetHandleByIndex(device)
            return Asker(self.nvml, handle).values(questions)
        except self.nvml.NVMLError as error:
            code = error.value
        except (DriverGone, GpuLost) as gone:
            code = gone.code
        why = Missing(nvml_reason(code))
        return {key: why for asked in questions for key in asked.keys}

    def _stored(self, device: int, *, full: bool) -> Values:
        gpu = self._gpu(device)
        if isinstance(gpu, Missing):
            return {"driver": gpu}
        questions = self._due(device, gpu) if full else _QUICK
        try:
            return gpu.asker.values(questions)
        except DriverGone as gone:
            return {"driver": Missing(nvml_reason(gone.code))}
        except GpuLost:
            self._gpus[device] = LOST
        return {"driver": LOST}

    def _due(self, device: int, gpu: NvmlGpu) -> tuple[Question, ...]:
        now_ns = self._clock()
        counted_ns = self._counted_ns.get(device)
        if counted_ns is not None and now_ns - counted_ns < _COUNT_NS:
            return _FULL
        self._counted_ns[device] = now_ns
        return (*_FULL, gpu.counts)

    def _gpu(self, device: int) -> NvmlGpu | Missing:
        """A GPU with its handle, asked for in the thread that reads it: this call may hang, too."""
        known, now_ns = self._gpus.get(device), self._clock()
        if self._gone is not None:
            return known or self._gone
        if isinstance(known, Missing) and now_ns - self._asked_ns[device] >= _RETRY_NS:
            known = None
        if known is None:
            self._asked_ns[device] = now_ns
            known = self._gpus[device] = self._found(device)
        return known

    def _found(self, device: int) -> NvmlGpu | Missing:
        try:
            handle = self.nvml.nvmlDeviceGetHandleByIndex(device)
        except self.nvml.NVMLError as error:
            return Missing(nvml_reason(error.value))
        return NvmlGpu(
            self.nvml,
            handle,
            device,
            clock=self._clock,
            driver=driver_version(self.nvml),
            host_memory_bytes=meminfo(text_of(str(self._meminfo))).get("MemTotal", 0),
        )


def _unloaded(gone: DriverGone) -> Missing:
    return Missing(f"{nvml_reason(gone.code)}; then start gputui again")


def _why_closed(code: int) -> str:
    if code == NO_PERMISSION:
        return (
            "no permission to ask the NVIDIA driver: this user must be able to read and write /dev/nvidiactl"
        )
    return nvml_reason(code)
