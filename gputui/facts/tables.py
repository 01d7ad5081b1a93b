"""The CSV tables as rows: read once, on first use."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from gputui.model.absent import Missing


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One accelerator of `gpus.csv`. Peaks are dense; None means unknown or unsupported, never zero."""

    name: str
    """The key other tables use, such as `H200 SXM`."""
    pattern: re.Pattern[str]
    """Searched in the name that the driver reports, ignoring case."""
    vendor: str
    arch: str
    compute_capability: str
    sm_count: float | None
    memory_gib: float | None
    """As sold; `nvml_memory_mib` is what the driver reports."""
    nvml_memory_mib: float | None
    memory_bandwidth_gbs: float | None
    fp32_tflops: float | None
    """Without tensor units."""
    tf32_tensor_tflops: float | None
    fp16_tensor_tflops: float | None
    """With accumulation in FP32."""
    bf16_tensor_tflops: float | None
    fp8_tensor_tflops: float | None
    fp16_vector_tflops: float | None
    """The rate without tensor units, for parts that have none."""
    tdp_w: float | None
    pcie_gen: float | None
    nvlink_gbs: float | None
    slowdown_temp_c: float | None
    mem_min_gib: float | None
    """The row only applies to devices with at least this much memory."""
    mem_max_gib: float | None
    """The row only applies to devices with at most this much memory."""
    source: tuple[str, ...]
    """Keys of `sources.csv`."""
    confidence: str
    notes: str


@dataclass(frozen=True, slots=True)
class PlausibleRow:
    """One measured range of `plausible.csv`, in FLOP/s or B/s."""

    gpu: str
    """Name of a row of `gpus.csv`, or `any: ` and a link such as `any: PCIe 4.0 x16`."""
    measure: str
    """`matmul`, `copy`, `lbm`, `h2d_pinned`, ..."""
    dtype: str
    """`bf16`, `fp16`, `tf32`, `fp32`, `fp8`; empty for bandwidths."""
    unit: str
    """`flop` or `B`, as in `units.RATES`."""
    measured_min: float
    measured_max: float | None
    """None if the source only gives a minimum."""
    warn_below: float
    suspicious_above: float
    peak: float
    conditions: str
    source: tuple[str, ...]
    confidence: str
    notes: str


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One cloud size with its list price."""

    provider: str
    instance_type: str
    gpu: str
    """Name of a row of `gpus.csv`."""
    gpu_count: float
    """Below 1 for a shared or sliced GPU."""
    usd_per_hour: float | Missing
    """For the whole instance; no tax, disk or traffic."""
    price_kind: str
    region: str
    price_date: str
    spot_usd_per_hour: float | Missing
    """What the provider may take back at any time; it moves, some by the hour."""
    spot_date: str
    spot_source: tuple[str, ...]
    source: tuple[str, ...]
    confidence: str
    notes: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Where numbers of the other tables come from."""

    key: str
    title: str
    link: str
    version_or_date: str
    read_for_this_table: str


@functools.cache
def gpu_rows() -> tuple[GpuRow, ...]:
    """All accelerators, in matching order: the first match wins."""
    return tuple(
        GpuRow(
            name=row["name"],
            pattern=re.compile(row["match_regex"], re.IGNORECASE),
            vendor=row["vendor"],
            arch=row["arch"],
            compute_capability=row["compute_capability"],
            sm_count=_number(row["sm_count"]),
            memory_gib=_number(row["memory_gib"]),
            nvml_memory_mib=_number(row["nvml_memory_mib"]),
            memory_bandwidth_gbs=_number(row["memory_bandwidth_gbs"]),
            fp32_tflops=_number(row["fp32_tflops"]),
            tf32_tensor_tflops=_number(row["tf32_tensor_tflops"]),
            fp16_tensor_tflops=_number(row["fp16_tensor_tflops"]),
            bf16_tensor_tflops=_number(row["bf16_tensor_tflops"]),
            fp8_tensor_tflops=_number(row["fp8_tensor_tflops"]),
            fp16_vector_tflops=_number(row["fp16_vector_tflops"]),
            tdp_w=_number(row["tdp_w"]),
            pcie_gen=_number(row["pcie_gen"]),
            nvlink_gbs=_number(row["nvlink_gbs"]),
            slowdown_temp_c=_number(row["slowdown_temp_c"]),
            mem_min_gib=_number(row["mem_min_gib"]),
            mem_max_gib=_number(row["mem_max_gib"]),
            source=_keys(row["source"]),
            confidence=row["confidence"],
            notes=row["notes"],
        )
        for row in _read("gpus.csv")
    )


UNITS = {"TFLOP/s": ("flop", 1e12), "GB/s": ("B", 1e9)}
"""Units of `plausible.csv`: the unit of work, and its factor."""


@functools.cache
def plausible_rows() -> tuple[PlausibleRow, ...]:
    """All measured ranges, in the order of the file."""
    rows = []
    for row in _read("plausible.csv"):
        unit, scale = UNITS[row["unit"]]
        measured_max = _number(row["measured_max"])
        rows.append(
            PlausibleRow(
                gpu=row["gpu"],
                measure=row["measure"],
                dtype=row["dtype"],
                unit=unit,
                measured_min=float(row["measured_min"]) * scale,
                measured_max=None if measured_max is None else measured_max * scale,
                warn_below=float(row["warn_below"]) * scale,
                suspicious_above=float(row["suspicious_above"]) * scale,
                peak=float(row["peak"]) * scale,
                conditions=row["conditions"],
                source=_keys(row["source"]),
                confidence=row["confidence"],
                notes=row["notes"],
            )
        )
    return tuple(rows)


@functools.cache
def instance_rows() -> tuple[InstanceRow, ...]:
    """All instance types, in the order of the file."""
    return tuple(map(instance_row, _read("instances.csv")))


def instance_row(row: Mapping[str, str]) -> InstanceRow:
    """A row of `instances.csv`, or of a list with its columns.

    Raises KeyError for a column that lacks, ValueError for what is no number.
    """
    usd_per_hour, spot_usd_per_hour = _number(row["usd_per_hour"]), _number(row["spot_usd_per_hour"])
    return InstanceRow(
        provider=row["provider"],
        instance_type=row["instance_type"],
        gpu=row["gpu"],
        gpu_count=float(row["gpu_count"]),
        usd_per_hour=Missing("no list price known") if usd_per_hour is None else usd_per_hour,
        price_kind=row["price_kind"],
        region=row["region"],
        price_date=row["price_date"],
        spot_usd_per_hour=Missing("no spot price known") if spot_usd_per_hour is None else spot_usd_per_hour,
        spot_date=row["spot_date"],
        spot_source=_keys(row["spot_source"]),
        source=_keys(row["source"]),
        confidence=row["confidence"],
        notes=row["notes"],
    )


@functools.cache
def source_rows() -> Mapping[str, SourceRow]:
    """All sources by key."""
    return {row["key"]: SourceRow(**row) for row in _read("sources.csv")}


def _read(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__ or "gputui.facts").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _keys(cell: str) -> tuple[str, ...]:
    return tuple(key for key in cell.split(";") if key)
