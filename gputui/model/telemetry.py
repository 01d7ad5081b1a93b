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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple  # Any: JSON that is not yet checked

from gputui.model.live import HOST as HOST

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
