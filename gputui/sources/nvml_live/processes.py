"""The processes that use a GPU, as the driver reports them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any  # Any: pynvml has no types

from gputui.model import nvml_codes
from gputui.model.absent import Missing
from gputui.model.live import GpuUse
from gputui.sources import nvml_calls
from gputui.sources.nvml_live.questions import check_alive

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
            return Missing(nvml_codes.nvml_reason(answer))
        return {process.pid: process.usedGpuMemory for process in answer}

    def _shares(self) -> dict[int, float | Missing] | Missing:
        """By PID; processes that used nothing recently are absent."""
        if self._is_mig:
            return NOT_OF_MIG
        answer = nvml_calls.ask(self._nvml, self._handle, self._sharing)
        if isinstance(answer, int):
            if answer in (nvml_codes.SUCCESS, nvml_codes.NOT_FOUND):
                return {}  # no one used it since the last query
            check_alive(answer)
            return Missing(nvml_codes.nvml_reason(answer))
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
