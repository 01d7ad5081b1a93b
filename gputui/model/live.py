"""How devices are numbered, their state at one instant as the live view shows it, and plausible values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputui.model.absent import Missing

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


HOST = -1

_FIRST_MIG = 1000
MIG_PER_GPU = 16
"""More than any GPU's instances; and no machine has so many GPUs that their numbers collide with
instances."""


def mig_device(gpu: int, index: int) -> int:
    """The number of a MIG instance, from its GPU and the driver's index on it."""
    return _FIRST_MIG + MIG_PER_GPU * gpu + index


def mig_place(device: int) -> tuple[int, int] | None:
    """GPU and index of a MIG instance; None for a whole GPU and the host."""
    return divmod(device - _FIRST_MIG, MIG_PER_GPU) if device >= _FIRST_MIG else None


def device_label(device: int) -> str:
    """`3` for a GPU; `0:1` for the MIG instance 1 of GPU 0, as `--gpus device=0:1` of Docker names it."""
    place = mig_place(device)
    return str(device) if place is None else f"{place[0]}:{place[1]}"


def device_order(device: int) -> tuple[int, int]:
    """Sort key that places each MIG instance after its GPU."""
    return mig_place(device) or (device, -1)


@dataclass(frozen=True, slots=True)
class _Range:
    """The plausible values of a metric."""

    least: float
    most: float
    unit: str


_PERCENT = _Range(0, 100, " %")
_WATTS = _Range(0, 10_000, " W")
_CELSIUS = _Range(-60, 200, " °C")
_MEGAHERTZ = _Range(0, 20_000, " MHz")
_LINK = _Range(1, 64, "")
_BYTES = _Range(1, 2**53, " bytes")

_RANGES: dict[str, _Range] = {
    "sm_busy_pct": _PERCENT,
    "memory_busy_pct": _PERCENT,
    "encoder_pct": _PERCENT,
    "decoder_pct": _PERCENT,
    "fan_pct": _Range(0, 200, " %"),  # relative to the intended maximum speed: nvml.h allows more
    "power_limit_w": _Range(1, 10_000, " W"),
    "power_limit_default_w": _Range(1, 10_000, " W"),
    "temperature_limit_c": _Range(1, 200, " °C"),
    "sm_clock_max_mhz": _Range(1, 20_000, " MHz"),
    "memory_clock_max_mhz": _Range(1, 20_000, " MHz"),
    "memory_total_bytes": _BYTES,
    "pstate": _Range(0, 15, ""),
    "pcie_generation": _LINK,
    "pcie_generation_max": _LINK,
    "pcie_width": _LINK,
    "pcie_width_max": _LINK,
}
"""Of the metrics that a driver answers."""
_OF_UNIT: dict[str, _Range] = {
    "pct": _Range(0, 10**6, " %"),  # the CPU's: 100 for each of its threads
    "w": _WATTS,
    "c": _CELSIUS,
    "mhz": _MEGAHERTZ,
    "bytes": _Range(0, 2**53, " bytes"),
    "s": _Range(0, 2**53, ""),  # seconds, and bytes per second
}
"""Of the others, by the last word of their key."""
_ANY = _Range(-(2.0**63), 2.0**63, "")


def sane(key: str, value: float | int | str, who: str) -> Value:
    """The value, or a Missing that says what `who` answered instead of a plausible one."""
    limits = _RANGES.get(key) or _OF_UNIT.get(key.rpartition("_")[2], _ANY)
    if isinstance(value, str) or limits.least <= value <= limits.most:
        return value
    return Missing(f"{who} answered {value:g}{limits.unit}")
