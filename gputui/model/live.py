"""The state of this machine at one instant, as the live view and `snapshot` show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.devices import device_label, mig_place

Value = float | int | str | Missing
"""One metric of one device; text for names and versions, `Missing` with the reason if there is no value."""

LOST = "the GPU is lost"
"""Begins the reason of a problem if the GPU is gone for good: off the bus, or no longer listed."""
ENDED = Missing("it has ended")
"""Replaces what could be read of a process while it ran."""
FOREIGN = Missing("it belongs to another user, and may not be looked at")
"""Replaces what the system reports only to a process's owner."""
HIDDEN = Missing("it belongs to another user, or has ended: /proc is mounted with hidepid")
"""The same where the system does not even reveal that the process exists."""
NO_JOB = Missing("it runs in no batch job, pod or container that its control group names")
AT_SECOND_READING = Missing("known after the second reading")
"""Replaces a rate that has no earlier reading to compare with."""


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One GPU, one MIG instance, or the host, as last read."""

    device: int
    """Telemetry index, constant until reboot; HOST for the host; for MIG instances that of `mig_device`."""
    source: str
    t_ns: int
    """Monotonic, when the reading was complete; its age is how stale it is."""
    values: Mapping[str, Value]
    """By metric key. A missing key does not apply to this kind of device."""
    parent: int | None = None
    """Of a MIG instance: its GPU."""
    problem: Missing | None = None
    """Why nothing could be read last time: GPU lost, driver gone, call hangs."""

    @property
    def label(self) -> str:
        """`3`; of a MIG instance `0:1`."""
        return device_label(self.device)

    @property
    def mig_index(self) -> int | None:
        """Of a MIG instance: the driver's index on its GPU."""
        place = mig_place(self.device)
        return None if place is None else place[1]

    @property
    def mig_profile(self) -> str:
        """Of a MIG instance, `1g.10gb`; empty for a GPU, or if the driver does not report it."""
        profile = self.values.get("mig_profile")
        return profile if isinstance(profile, str) else ""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What one process does on one GPU, from the driver."""

    device: int
    pid: int
    """As the driver counts: inside a container it may be a PID of the host."""
    kind: str
    """`C` compute, `G` graphics, `CG` both."""
    memory_bytes: int | Missing
    sm_pct: float | Missing
    mig_profile: str = ""
    """Of the MIG instance that it runs on, `1g.10gb`; empty on a whole GPU, or if unknown."""

    @property
    def label(self) -> str:
        """Of the device: `3`, or `0:1` on a MIG instance."""
        return device_label(self.device)

    @property
    def is_on_mig(self) -> bool:
        return mig_place(self.device) is not None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process, with what the host reports about it."""

    pid: int
    uses: tuple[GpuUse, ...]
    """One for each GPU it uses, in order of the GPUs; without GPUs none."""
    parent_pid: int | Missing
    user: str | Missing
    command: str | Missing
    """The whole command line, unchanged; clean it before display."""
    cpu_pct: float | Missing
    """100 for one logical CPU."""
    memory_bytes: int | Missing
    """Resident on the host."""
    elapsed_s: float | Missing
    start_ticks: int | Missing
    """Kernel's start time: with the PID it identifies a process. Missing if the PID is not one of this
    system."""
    job: str | Missing = NO_JOB
    """The batch job, pod or container it runs in: `slurm 4711`, `pod train-0`, `docker 3f9c2a17b0de`."""


@dataclass(frozen=True, slots=True)
class LiveSample:
    """Everything at one instant; made by the sampling thread and never changed."""

    number: int
    """Increases by one with each sample."""
    t_ns: int
    """Monotonic."""
    host: DeviceSample
    gpus: tuple[DeviceSample, ...]
    """By index, each MIG instance after its GPU; lost GPUs included."""
    processes: tuple[ProcessSample, ...] | Missing
    """Missing if they were not read, or could not be."""
    absent: Mapping[str, Missing]
    """Sources without devices here, by name, and why: `nvml`: libnvidia-ml.so.1 was not found."""
