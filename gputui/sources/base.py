"""What every source of metrics can do: `Source` for measured runs, `LiveSource` for the live view."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from gputui.model.absent import Missing
    from gputui.model.live import DeviceSample, GpuUse
    from gputui.model.telemetry import Reading


class Source(Protocol):
    """One place that metrics come from.

    Any call may block in a driver. `probe` and `devices` are called by one thread; `read` and `problem` by
    one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str]

    def probe(self) -> Missing | None:
        """Open what is needed; why this source has nothing here, or None if it has. Call it first."""

    def devices(self) -> tuple[int, ...]:
        """Telemetry indices that can be read: GPUs by the driver's number, HOST for the host."""

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one device now; one that could not be read is absent.

        `full` False reads only what is worth reading ten times a second: clocks, throttle reasons, power.
        """

    def problem(self, device: int) -> Missing | None:
        """Why the last reading of a device failed as a whole, if it did."""


class LiveSource(Protocol):
    """GPUs of one kind, for the live view.

    Any call may block in a driver. `open`, `devices` and `close` are called by one thread; `sample` and
    `processes` by one thread per device, for several devices at the same time.
    """

    NAME: ClassVar[str]

    def open(self) -> Missing | None:
        """Open what is needed; why there is nothing here, or None. After a Missing it is asked again."""

    def devices(self) -> tuple[int, ...]:
        """GPUs that are there now; a GPU keeps its number while others come and go."""

    def sample(self, device: int) -> tuple[DeviceSample, ...]:
        """One GPU now, and its MIG instances behind it. Never empty: a failure stands in the sample."""

    def processes(self, device: int) -> tuple[GpuUse, ...] | Missing:
        """Who uses this GPU, those in its MIG instances included, or why nobody can tell."""

    def close(self) -> None:
        """Give back what `open` took; may be called twice."""
