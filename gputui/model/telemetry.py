"""Telemetry rows: what the sampler reads, as stored in a run directory.

File: one JSON header line (`{"telemetry": 1, "columns": [...]}`), then rows of fixed width, each `device:i16
t_ns:u64 values... crc32:u32`, little-endian. Device -1 is the host. A value that was not measured is NaN
(float) or all ones (u64). A torn tail is a row whose length or checksum is wrong.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # Any: JSON that is not yet checked

from gputui.model.devices import HOST as HOST

FORMAT_VERSION = 1
_NO_COUNT = 2**64 - 1
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Metric:
    """One telemetry column."""

    key: str
    """Name with its unit; also the column's name in the result file."""
    code: str
    """`f` for a float, `Q` for a counter or bit set."""
    scope: str
    """`gpu` or `host`."""
    title: str


METRICS: tuple[Metric, ...] = (
    Metric("sm_busy_pct", "f", "gpu", "share of time with a kernel running"),
    Metric("memory_busy_pct", "f", "gpu", "share of time with memory traffic"),
    Metric("memory_used_mib", "f", "gpu", "device memory in use"),
    Metric("power_w", "f", "gpu", "power drawn now"),
    Metric("temperature_c", "f", "gpu", "core temperature"),
    Metric("sm_clock_mhz", "f", "gpu", "streaming multiprocessor clock"),
    Metric("memory_clock_mhz", "f", "gpu", "memory clock"),
    Metric("throttle_bits", "Q", "gpu", "clocks-event reasons, NVML bit set"),
    Metric("energy_mj", "Q", "gpu", "energy counter since the driver was loaded"),
    Metric("compute_process_count", "f", "gpu", "processes that compute on it"),
    Metric("cpu_busy_pct", "f", "host", "CPU time used by all processes, 100 per logical CPU"),
    Metric("cpu_steal_pct", "f", "host", "CPU time taken by the hypervisor, 100 per logical CPU"),
    Metric("memory_used_bytes", "Q", "host", "host memory in use, caches not counted"),
    Metric("load_1min", "f", "host", "load average over one minute"),
    Metric("cpu_clock_mhz", "f", "host", "mean clock of the logical CPUs"),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """All metrics of one device, or of the host, at one instant."""

    device: int
    """Index of the GPU among the machine's GPUs; HOST for the host."""
    t_ns: int
    """Monotonic, after the values were read."""
    values: Mapping[str, float | int]
    """By metric key; an absent key was not measured."""


class UnreadableHeader(ValueError):
    """The header of a telemetry file is malformed."""


class TelemetryFormat:
    """The layout of a telemetry file's rows: its columns, in order."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = tuple(metrics)
        self._row = struct.Struct("<hQ" + "".join(m.code for m in self.metrics))
        self.row_bytes = self._row.size + _CRC.size

    @classmethod
    def described(cls, plain: Any) -> TelemetryFormat:
        """The format that the JSON of a header line describes, whichever version wrote it.

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
        metrics = [Metric(key, code, scope, "") for key, code, scope in columns]
        if len({m.key for m in metrics}) != len(metrics):
            raise UnreadableHeader("its header names a column twice")
        return cls(metrics)

    def header(self) -> bytes:
        columns = [[m.key, m.code, m.scope] for m in self.metrics]
        return json.dumps({"telemetry": FORMAT_VERSION, "columns": columns}).encode() + b"\n"

    def unknown_keys(self) -> tuple[str, ...]:
        """Columns that are not metrics of this version."""
        return tuple(m.key for m in self.metrics if _kind(m) not in _KNOWN)

    def encode(self, reading: Reading) -> bytes:
        """One row of `row_bytes` bytes."""
        absent = {"f": math.nan, "Q": _NO_COUNT}
        values = [reading.values.get(m.key, absent[m.code]) for m in self.metrics]
        body = self._row.pack(reading.device, reading.t_ns, *values)
        return body + _CRC.pack(zlib.crc32(body))

    def decode(self, rows: bytes) -> Iterator[Reading | None]:
        """The known metrics of each row; None for a damaged row. A torn tail is dropped."""
        keys = [m.key if _kind(m) in _KNOWN else "" for m in self.metrics]
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


def _kind(metric: Metric) -> tuple[str, str, str]:
    """What two versions must agree on for a column to mean the same."""
    return metric.key, metric.code, metric.scope


_KNOWN = frozenset(map(_kind, METRICS))
CURRENT = TelemetryFormat(METRICS)
