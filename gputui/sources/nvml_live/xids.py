"""Errors that the driver reports as events, the Xids of its log, since the monitor was opened."""

from __future__ import annotations

from typing import Any  # Any: pynvml has no types

from gputui.model import nvml_codes
from gputui.model.absent import Missing
from gputui.model.live import Value
from gputui.sources import nvml_calls
from gputui.sources.nvml_live.answers import UNREPORTED, Values, check_alive

_MOST_AT_ONCE = 64
"""A GPU may report thousands in a second."""


class XidEvents:
    """The events of one GPU, in an event set not shared with others: waiting for them delays no other GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._set: Any = None
        self._off: Missing | None = None
        self._count = 0
        self._last: Value = Missing("there was none since the monitor was opened")

    def read(self) -> Values:
        """Their number and the code of the last one; raises DriverGone or GpuLost."""
        if self._off is None:
            try:
                self._take()
            except self._nvml.NVMLError as error:
                check_alive(error.value)
                if error.value in nvml_calls.NEVER_AGAIN or self._set is None:
                    self._off = Missing(nvml_codes.nvml_reason(error.value))
            except (AttributeError, TypeError):  # an older pynvml lacks it
                self._off = UNREPORTED
        if self._off is not None:
            return {"xid_count": self._off, "xid_last": self._off}
        return {"xid_count": self._count, "xid_last": self._last}

    def close(self) -> None:
        """Free the set; only while the driver is loaded."""
        events, self._set = self._set, None
        if events is not None:
            try:
                self._nvml.nvmlEventSetFree(events)
            except self._nvml.NVMLError:
                return

    def _take(self) -> None:
        if self._set is None:
            events = self._nvml.nvmlEventSetCreate()
            try:
                self._nvml.nvmlDeviceRegisterEvents(
                    self._handle, self._nvml.nvmlEventTypeXidCriticalError, events
                )
            except self._nvml.NVMLError:
                self._nvml.nvmlEventSetFree(events)
                raise
            self._set = events
        for _ in range(_MOST_AT_ONCE):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                    return  # there is none
                raise
            self._count += 1
            self._last = int(event.eventData)
