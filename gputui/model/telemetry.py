"""Telemetry rows: what the sampler reads, as it lies in a run directory.

File: one JSON header line (`{"telemetry": 1, "columns": [...]}`), then rows of fixed width, each
`device:i16 t_ns:u64 values... crc32:u32`, little-endian. Device -1 is the host. A value that was not
measured is NaN (float) or all ones (u64). A torn tail is a row whose length or checksum fails.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gputui.model.devices import HOST as HOST

_NO_COUNT = 2**64 - 1


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

_ROW = struct.Struct("<hQ" + "".join(m.code for m in METRICS))
_CRC = struct.Struct("<I")
ROW_BYTES = _ROW.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Reading:
    """All metrics of one device, or of the host, at one instant."""

    device: int
    """Index of the GPU among the machine's GPUs; HOST for the host."""
    t_ns: int
    """Monotonic, after the values were read."""
    values: Mapping[str, float | int]
    """By metric key; a key that is absent was not measured."""


def header() -> bytes:
    """The first line of a telemetry file."""
    columns = [[m.key, m.code, m.scope] for m in METRICS]
    return json.dumps({"telemetry": 1, "columns": columns}).encode() + b"\n"


def encode_row(reading: Reading) -> bytes:
    """One row of `ROW_BYTES` bytes."""
    values = [reading.values.get(m.key, math.nan if m.code == "f" else _NO_COUNT) for m in METRICS]
    body = _ROW.pack(reading.device, reading.t_ns, *values)
    return body + _CRC.pack(zlib.crc32(body))


def row_device(row: bytes) -> int:
    """The device that a row of `encode_row` is about."""
    return int(_ROW.unpack_from(row)[0])


def decode_rows(data: bytes) -> Iterator[Reading]:
    """Readings of a file's bytes, header included; damaged rows are left out, a torn tail is cut.

    A file without this version's header holds nothing that can be read.
    """
    head = header()
    if not data.startswith(head):
        return
    for start in range(len(head), len(data) - ROW_BYTES + 1, ROW_BYTES):
        body = data[start : start + _ROW.size]
        if _CRC.unpack_from(data, start + _ROW.size)[0] != zlib.crc32(body):
            continue
        device, t_ns, *raw = _ROW.unpack(body)
        values = {
            m.key: v
            for m, v in zip(METRICS, raw, strict=True)
            if v != _NO_COUNT and not (m.code == "f" and math.isnan(v))
        }
        yield Reading(device, t_ns, values)
