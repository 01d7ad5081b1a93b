"""What every metric source can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from gputui.model.absent import Missing
from gputui.model.telemetry import Reading


class Source(Protocol):
    """One place that metrics come from. Used by one thread; a call may block in a driver."""

    NAME: ClassVar[str]

    def probe(self) -> Missing | None:
        """Open what is needed; why this source has nothing here, or None if it has. Call it first."""

    def devices(self) -> tuple[int, ...]:
        """Telemetry indices that can be read: GPUs by the driver's number, HOST for the host."""

    def read(self, device: int, *, full: bool) -> Reading:
        """The metrics of one device now; one that could not be read is absent.

        `full` False reads only what is worth reading ten times a second: clocks, throttle reasons, power.
        """

    def problems(self) -> Mapping[int, Missing]:
        """Devices whose last reading failed as a whole, and why."""

    def close(self) -> None:
        """Give back what `probe` opened; may be called twice."""
