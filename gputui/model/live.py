"""What this box is doing at one instant, as the live view and `snapshot` show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.devices import device_label, mig_place

Value = float | int | str | Missing
"""One metric of one device; text is for names and versions, `Missing` says why there is none."""

LOST = "the GPU is lost"
"""How the reason of a problem begins if the GPU is gone for good: off the bus, or listed no more."""
ENDED = Missing("it has ended")
"""Stands for what could be told of a process while it ran."""
FOREIGN = Missing("it belongs to another user, and may not be looked at")
"""Stands for what the system tells only to a process's owner."""
HIDDEN = Missing("it belongs to another user, or has ended: /proc is mounted with hidepid")
"""The same where the system does not even tell that there is such a process."""
AT_SECOND_READING = Missing("known after the second reading")
"""Stands for a rate when there is nothing to compare with yet."""


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One GPU, one MIG instance, or the host, as it was last read."""

    device: int
    """Telemetry index, kept while the box is up; HOST for the host; of MIG instances that of `mig_device`."""
    source: str
    """Name of the source that read it."""
    t_ns: int
    """Monotonic, when the reading was complete: its age is how stale it is."""
    values: Mapping[str, Value]
    """By metric key. A key that is not there is not asked of this kind of device."""
    parent: int | None = None
    """Of a MIG instance: the GPU it is a part of."""
    problem: Missing | None = None
    """Why nothing could be read of it when last asked: lost, driver gone, call hangs."""

    @property
    def label(self) -> str:
        """`3`; of a MIG instance `0:1`."""
        return device_label(self.device)

    @property
    def mig_index(self) -> int | None:
        """Of a MIG instance, as the driver counts them on its GPU."""
        place = mig_place(self.device)
        return None if place is None else place[1]

    @property
    def mig_profile(self) -> str:
        """Of a MIG instance, `1g.10gb`; empty for a GPU, or where the driver does not tell it."""
        profile = self.values.get("mig_profile")
        return profile if isinstance(profile, str) else ""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What one process does on one GPU, as the driver tells it."""

    device: int
    pid: int
    """As the driver counts: inside a container it may be a number of the host."""
    kind: str
    """`C` compute, `G` graphics, `CG` both."""
    memory_bytes: int | Missing
    sm_pct: float | Missing
    mig_profile: str = ""
    """Of the MIG instance that it runs on, `1g.10gb`; empty on a whole GPU, or where it is not told."""

    @property
    def label(self) -> str:
        """Of the device: `3`, or `0:1` on a MIG instance."""
        return device_label(self.device)

    @property
    def is_on_mig(self) -> bool:
        """Whether the device is a MIG instance."""
        return mig_place(self.device) is not None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process that uses GPUs, joined with what the host tells of it."""

    pid: int
    uses: tuple[GpuUse, ...]
    """One for each GPU it is on, in their order."""
    parent_pid: int | Missing
    user: str | Missing
    command: str | Missing
    """The whole command line, as it was given: display must clean it."""
    cpu_pct: float | Missing
    """100 for one logical CPU."""
    memory_bytes: int | Missing
    """Resident on the host."""
    elapsed_s: float | Missing
    start_ticks: int | Missing
    """Kernel's start time: it and the PID name one process. Missing where the PID is none of here."""


@dataclass(frozen=True, slots=True)
class LiveSample:
    """Everything, at one instant; made by the sampling thread and never changed."""

    number: int
    """Counts up by one each."""
    t_ns: int
    """Monotonic."""
    host: DeviceSample
    gpus: tuple[DeviceSample, ...]
    """By index, each MIG instance behind its GPU; those that are lost included."""
    processes: tuple[ProcessSample, ...] | Missing
    """Missing where they were not asked for, or could not be had."""
    absent: Mapping[str, Missing]
    """Sources that have nothing here, by name, and why: `nvml`: libnvidia-ml.so.1 was not found."""
