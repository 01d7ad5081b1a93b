"""The interfaces of sources of metrics: `Source` for measured runs, `LiveSource` for the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from gputui.model.absent import Missing
    from gputui.model.live import DeviceSample, GpuUse
    from gputui.model.telemetry import Reading


class Source(Protocol):
    """One source of metrics.

    Any call may block in a driver. `probe` and `devices` are called by one thread; `read` and `problem` by
    one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str]

    def probe(self) -> Missing | None:
        """Open what is needed; the reason if this source has nothing here, else None. Call it first."""

    def devices(self) -> tuple[int, ...]:
        """Telemetry indices that can be read: GPUs by the driver's number, HOST for the host."""

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one device now; those that could not be read are absent.

        With `full` False it reads only what changes within a tenth of a second: clocks, throttle reasons,
        power.
        """

    def problem(self, device: int) -> Missing | None:
        """Why the last reading of a device failed completely, if it did."""


class LiveSource(Protocol):
    """GPUs of one kind, for the live view.

    Any call may block in a driver. `open`, `devices` and `close` are called by one thread; `sample` and
    `processes` by one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str]

    def open(self) -> Missing | None:
        """Open what is needed; the reason if there is nothing here, else None. May be called again after a
        Missing."""

    def devices(self) -> tuple[int, ...]:
        """GPUs that exist now; a GPU keeps its number while others come and go."""

    def sample(self, device: int) -> tuple[DeviceSample, ...]:
        """One GPU now, followed by its MIG instances. Never empty: a failure is part of the sample."""

    def processes(self, device: int) -> tuple[GpuUse, ...] | Missing:
        """Who uses this GPU, including its MIG instances, or why that is unknown."""

    def close(self) -> None:
        """Free what `open` allocated; may be called twice."""
