"""How devices are numbered, and what is read of them: live, with the values that are plausible, and as rows
that the sampler stores in a run directory.

File: one JSON header line (`{"telemetry": 1, "columns": [...]}`), then rows of fixed width, each `device:i16
t_ns:u64 values... crc32:u32`, little-endian. Device -1 is the host. A value that was not measured is NaN
(float) or all ones (u64). A torn tail is a row whose length or checksum is wrong.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple  # Any: JSON that is not yet checked

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

POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
"""Of `throttle_bits`: NVML's clocks-event reasons (nvml.h, nvmlClocksEventReasons), of GPUs of any vendor.
GpuIdle, 0x1, and application clocks, 0x2, slow down nothing that wants to run."""

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


_Range = tuple[float, float, str]
"""The plausible values of a metric, from the first to the second, and its unit."""
_PERCENT: _Range = (0, 100, " %")
_LINK: _Range = (1, 64, "")
_RANGES: dict[str, _Range] = {
    "sm_busy_pct": _PERCENT,
    "memory_busy_pct": _PERCENT,
    "encoder_pct": _PERCENT,
    "decoder_pct": _PERCENT,
    "fan_pct": (0, 200, " %"),  # relative to the intended maximum speed: nvml.h allows more
    "power_limit_w": (1, 10_000, " W"),
    "power_limit_default_w": (1, 10_000, " W"),
    "temperature_limit_c": (1, 200, " °C"),
    "sm_clock_max_mhz": (1, 20_000, " MHz"),
    "memory_clock_max_mhz": (1, 20_000, " MHz"),
    "memory_total_bytes": (1, 2**53, " bytes"),
    "pstate": (0, 15, ""),
    "pcie_generation": _LINK,
    "pcie_generation_max": _LINK,
    "pcie_width": _LINK,
    "pcie_width_max": _LINK,
}
"""Of the metrics that a driver answers."""
_OF_UNIT: dict[str, _Range] = {
    "pct": (0, 10**6, " %"),  # the CPU's: 100 for each of its threads
    "w": (0, 10_000, " W"),
    "c": (-60, 200, " °C"),
    "mhz": (0, 20_000, " MHz"),
    "bytes": (0, 2**53, " bytes"),
    "s": (0, 2**53, ""),  # seconds, and bytes per second
}
"""Of the others, by the last word of their key."""


def sane(key: str, value: float | int | str, who: str) -> Value:
    """The value, or a Missing that says what `who` answered instead of a plausible one."""
    any_number = (-(2.0**63), 2.0**63, "")
    least, most, unit = _RANGES.get(key) or _OF_UNIT.get(key.rpartition("_")[2], any_number)
    return (
        value
        if isinstance(value, str) or least <= value <= most
        else Missing(f"{who} answered {value:g}{unit}")
    )


FORMAT_VERSION = 1
_NO_COUNT = 2**64 - 1
_CRC = struct.Struct("<I")


class Column(NamedTuple):
    """One column of telemetry; two versions mean the same by it if all of this agrees."""

    key: str
    """Name with its unit; also the column's name in the result file."""
    code: str
    """`f` for a float, `Q` for a counter or bit set."""
    scope: str
    """`gpu` or `host`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that is stored of one device, or of the host, at one instant."""

    device: int
    """Index of the GPU among the machine's GPUs; HOST for the host."""
    t_ns: int
    """Monotonic, after the values were read."""
    values: Mapping[str, float | int]
    """By column; an absent one was not measured."""


class UnreadableHeader(ValueError):
    """The header of a telemetry file is malformed."""


class TelemetryFormat:
    """The layout of a telemetry file's rows: its columns, in order."""

    def __init__(self, columns: Sequence[Column], known: Collection[Column] | None = None) -> None:
        """`known`: the columns that this version has; without it, all."""
        self.columns = tuple(columns)
        self._known = set(self.columns if known is None else known)
        self._row = struct.Struct("<hQ" + "".join(column.code for column in self.columns))
        self.row_bytes = self._row.size + _CRC.size

    def described(self, plain: Any) -> TelemetryFormat:
        """The format that the JSON of a header line describes, whichever version wrote it; the columns of
        this one are known.

        Raises UnreadableHeader.
        """
        version = plain.get("telemetry") if isinstance(plain, dict) else None
        if type(version) is not int:
            raise UnreadableHeader("its first line is not a telemetry header")
        if version != FORMAT_VERSION:
            raise UnreadableHeader(f"it has format {version}, this gputui reads format {FORMAT_VERSION}")
        columns = plain.get("columns")
        if not isinstance(columns, list) or not all(map(_is_column, columns)):
            raise UnreadableHeader("its header describes columns that this gputui cannot read")
        if len({key for key, _, _ in columns}) != len(columns):
            raise UnreadableHeader("its header names a column twice")
        return TelemetryFormat([Column(*column) for column in columns], self.columns)

    def header(self) -> bytes:
        return json.dumps({"telemetry": FORMAT_VERSION, "columns": self.columns}).encode() + b"\n"

    def unknown_keys(self) -> tuple[str, ...]:
        """Columns that this version does not have."""
        return tuple(column.key for column in self.columns if column not in self._known)

    def encode(self, reading: Reading) -> bytes:
        """One row of `row_bytes` bytes."""
        absent = {"f": math.nan, "Q": _NO_COUNT}
        values = [reading.values.get(column.key, absent[column.code]) for column in self.columns]
        body = self._row.pack(reading.device, reading.t_ns, *values)
        return body + _CRC.pack(zlib.crc32(body))

    def decode(self, rows: bytes) -> Iterator[Reading | None]:
        """The known columns of each row; None for a damaged row. A torn tail is dropped."""
        keys = [column.key if column in self._known else "" for column in self.columns]
        for start in range(0, len(rows) - self.row_bytes + 1, self.row_bytes):
            body = rows[start : start + self._row.size]
            if _CRC.unpack_from(rows, start + self._row.size)[0] != zlib.crc32(body):
                yield None
                continue
            device, t_ns, *raw = self._row.unpack(body)
            values = {
                key: value
                for key, value in zip(keys, raw, strict=True)
                if key and value != _NO_COUNT and not math.isnan(value)
            }
            yield Reading(device, t_ns, values)


def row_device(row: bytes) -> int:
    """The device that a row is about, whatever its columns."""
    return int.from_bytes(row[:2], "little", signed=True)


def _is_column(column: object) -> bool:
    return (
        isinstance(column, list)
        and len(column) == 3
        and all(isinstance(part, str) for part in column)
        and column[1] in ("f", "Q")
    )


@dataclass(frozen=True, slots=True)
class LaunchPower:
    """GPU power during the blocks of a case in one launch."""

    case_id: int
    launch_id: int
    samples: int
    mean_w: float
