"""The CSV tables as rows, read once on first use, and what they say of a GPU."""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any, NamedTuple, TypeVar  # Any: of a field, its type as it is written, and its value

from gputui.model.absent import Missing
from gputui.model.machine import Machine

_Row = TypeVar("_Row", "GpuRow", "PlausibleRow", "InstanceRow", "SourceRow")


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

    @property
    def peaks_tflops(self) -> dict[str, float | None]:
        """By type, of tensor units where they have it, with accumulation in FP32."""
        return {
            "fp32": self.fp32_tflops,
            "tf32": self.tf32_tensor_tflops,
            "bf16": self.bf16_tensor_tflops,
            "fp16": self.fp16_vector_tflops if self.fp16_tensor_tflops is None else self.fp16_tensor_tflops,
            "fp8": self.fp8_tensor_tflops,
        }


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
    suspicious_above: float
    peak: float
    conditions: str
    source: tuple[str, ...]
    confidence: str
    notes: str


class DistributionRow(NamedTuple):
    """How fast several boxes or GPUs of one model were, as published: a row of `distributions.csv`.

    `rates` are units per second, of each box, or of each GPU of a single one; where there are none,
    `spread_pct` says how much slower the slowest was than the fastest. `same_work` is the share of them that
    such GPUs reach in gputui's own shape, in the report where it is lowest; None if the work is another, so
    that it judges nothing.
    """

    gpu: str
    measure: str
    dtype: str
    unit: str
    boxes: int | None
    rates: tuple[float, ...]
    spread_pct: float | None
    shape: str
    same_work: float | None
    source: tuple[str, ...]
    date: str
    notes: str


@dataclass(frozen=True, slots=True)
class InstanceRow:
    provider: str
    instance_type: str
    gpu: str
    """Name of a row of `gpus.csv`."""
    gpu_count: float
    """Below 1 for a shared or sliced GPU."""
    usd_per_hour: float | None
    """For the whole instance; no tax, disk or traffic. None if unknown, as the next."""
    price_kind: str
    region: str
    price_date: str
    spot_usd_per_hour: float | None
    """What the provider may take back at any time; it moves, some by the hour."""
    spot_date: str
    spot_source: tuple[str, ...]
    source: tuple[str, ...]
    confidence: str
    notes: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    key: str
    title: str
    link: str
    version_or_date: str
    read_for_this_table: str


@functools.cache
def gpu_rows() -> tuple[GpuRow, ...]:
    """All accelerators, in matching order: the first match wins."""
    return rows_of(GpuRow, ({**row, "pattern": row["match_regex"]} for row in _read("gpus.csv")))


UNITS = {"TFLOP/s": ("flop", 1e12), "GB/s": ("B", 1e9)}
"""Units of `plausible.csv`: the unit of work, and its factor."""


@functools.cache
def plausible_rows() -> tuple[PlausibleRow, ...]:
    return tuple(
        replace(
            row,
            unit=unit,
            measured_min=row.measured_min * scale,
            measured_max=None if row.measured_max is None else row.measured_max * scale,
            suspicious_above=row.suspicious_above * scale,
            peak=row.peak * scale,
        )
        for row in rows_of(PlausibleRow, _read("plausible.csv"))
        for unit, scale in (UNITS[row.unit],)
    )


@functools.cache
def distribution_rows() -> tuple[DistributionRow, ...]:
    return tuple(
        DistributionRow(
            row["gpu"],
            row["measure"],
            row["dtype"],
            unit,
            int(row["boxes"]) if row["boxes"] else None,
            tuple(float(rate) * scale for rate in row["rates"].split()),
            _number(row["spread_pct"]),
            row["shape"],
            _number(row["same_work"]),
            _keys(row["source"]),
            row["date"],
            row["notes"],
        )
        for row in _read("distributions.csv")
        for unit, scale in (UNITS.get(row["unit"], (row["unit"].removesuffix("/s"), 1.0)),)
    )


@functools.cache
def instance_rows() -> tuple[InstanceRow, ...]:
    return rows_of(InstanceRow, _read("instances.csv"))


@functools.cache
def model_configs() -> Mapping[str, Mapping[str, object]]:
    """Published models by name, each as its `config.json` has it, as far as the fields say its shape.

    Beside them `source` has keys of `sources.csv`, and `by_size` is there where a model stands for all of its
    size.
    """
    return {
        row["name"]: {
            **{field: int(cell) if cell.isdigit() else cell for field, cell in row.items() if cell},
            "quantization_config": {"quant_method": row["quant_method"]},
        }
        for row in _read("models.csv")
    }


@functools.cache
def source_rows() -> Mapping[str, SourceRow]:
    return {row.key: row for row in rows_of(SourceRow, _read("sources.csv"))}


def _read(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__ or "gputui.facts").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def rows_of(kind: type[_Row], table: Iterable[Mapping[str, str]]) -> tuple[_Row, ...]:
    """The rows of a table, or of a list with its columns: each field from the column of its name.

    Raises KeyError for a column that lacks, ValueError for what is no number.
    """
    readers = [(field.name, _READ_AS[field.type]) for field in fields(kind)]
    return tuple(kind(**{name: read(cells[name]) for name, read in readers}) for cells in table)


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _keys(cell: str) -> tuple[str, ...]:
    return tuple(key for key in cell.split(";") if key)


_READ_AS: Mapping[Any, Callable[[str], Any]] = {
    "str": str,
    "float": float,
    "float | None": _number,
    "tuple[str, ...]": _keys,
    "re.Pattern[str]": functools.partial(re.compile, flags=re.IGNORECASE),
}
"""By the type of a field, as it is written above."""


_WORD = re.compile(r"[a-z0-9]+")
_SLICE_SUFFIX = re.compile(r"\s+(?:MIG|partition)\s+(\S+)$", re.IGNORECASE)
"""Of a MIG instance, as NVIDIA's driver names it, and of a part of an AMD GPU, as the probe does."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The data sheet of one device."""

    row: GpuRow
    """Of the whole GPU, even if the device is a slice of it."""
    mig_profile: str
    """Such as `1g.10gb`, or `1/8` of an AMD GPU; empty for a whole one."""

    @property
    def name(self) -> str:
        """The key that other tables use, such as `H200 SXM`."""
        return self.row.name


KEPT_BY_THE_DRIVER = 0.08
"""Of the sales figure, at most, as seen in `gpus.csv` where both figures are known."""


def memory_of(row: GpuRow) -> int | Missing:
    """Bytes that a driver reports of a GPU; where that is not known, the sales figure less what one keeps.

    The only size of a GPU that anything calculates with.
    """
    if row.nvml_memory_mib is not None:
        return round(row.nvml_memory_mib * 2**20)
    if row.memory_gib is not None:
        return round(row.memory_gib * (1 - KEPT_BY_THE_DRIVER) * 2**30)
    return Missing(f"{row.name} is sold with different memory")


def rows_named(text: str) -> tuple[GpuRow, ...]:
    """The rows that a person means by a name, or that a driver does; empty if there is none.

    Tries the name itself, then its words in any order among names whose memory is known (`H200` is both
    of its kinds), then what the driver calls it, of which parts that only differ in memory are all meant.
    """
    wanted = text.strip().lower()
    exact = [row for row in gpu_rows() if row.name.lower() == wanted]
    words = set(_WORD.findall(wanted))
    sized = [row for row in gpu_rows() if not isinstance(memory_of(row), Missing)]
    worded = [row for row in sized if words <= _words_for(row.name.lower())]
    if exact or (words and worded):
        return tuple(exact or worded)
    driven = []
    for row in gpu_rows():
        if row.pattern.search(text):
            driven.append(row)
            if row.mem_min_gib is None and row.mem_max_gib is None:
                break
    return tuple(driven)


def _words_for(name: str) -> set[str]:
    """What people call the parts of a name: also `80` for `80gb`, `sxm` for `sxm4`, and `rtx4090`."""
    words = _WORD.findall(name)
    joined = {first + second for first, second in itertools.pairwise(words)}
    return {*words, *joined, *(re.sub(r"(?<=\d)gb$|(?<=sxm)\d$", "", word) for word in words)}


def closest_gpus(text: str, count: int = 5) -> tuple[str, ...]:
    """Names of known memory that may be meant, likeliest first, by the spelling of a word or of all."""
    from difflib import get_close_matches  # only needed for a mistyped name

    wanted = " ".join(_WORD.findall(text.lower()))
    spelt: dict[str, list[str]] = {}
    for row in gpu_rows():
        if not isinstance(memory_of(row), Missing):
            for words in (row.name.lower(), *_WORD.findall(row.name.lower())):
                spelt.setdefault(words, []).append(row.name)
    close = get_close_matches(wanted, spelt, n=count, cutoff=0.6)
    return tuple(dict.fromkeys(name for words in close for name in spelt[words]))[:count]


def with_article(name: str) -> str:
    """`an H200`, `a B200`, `a GeForce`: a name of capitals is spelled."""
    vowels = "AEFHILMNORSX8" if name[:2].upper() == name[:2] else "AEIO"
    return f"{'an' if name[:1].upper() in vowels else 'a'} {name}"


def memory_gib_of(machine: Machine, index: int | None) -> float | None:
    """The memory of a GPU, which tells it from others of its name; None where it is not known."""
    gpu = machine.gpu(index)
    return None if gpu is None or isinstance(gpu.memory_bytes, Missing) else gpu.memory_bytes / 2**30


def is_slice(device_name: str) -> bool:
    """Whether torch's device is a part of a GPU, whose power and clock are those of the whole."""
    return _SLICE_SUFFIX.search(device_name) is not None


def find_gpu(device_name: str, memory_gib: float | None) -> GpuFacts | Missing:
    """The data sheet of a device by the name that its driver or torch reports.

    The first matching row wins, ignoring case and what names a slice. Parts that share a name are
    distinguished by memory; without it they are Missing, because a wrong peak is worse than none.
    """
    mig = _SLICE_SUFFIX.search(device_name)
    bare_name = device_name[: mig.start()] if mig else device_name.strip()
    for row in gpu_rows():
        if not row.pattern.search(bare_name):
            continue
        if row.mem_min_gib is not None or row.mem_max_gib is not None:
            if mig or memory_gib is None:
                return Missing(f"{bare_name} is sold with different memory, and that is unknown here")
            if row.mem_min_gib is not None and memory_gib < row.mem_min_gib:
                continue
            if row.mem_max_gib is not None and memory_gib > row.mem_max_gib:
                continue
        return GpuFacts(row, mig.group(1) if mig else "")
    return Missing(f"{bare_name or 'a device without a name'} is not in the table of GPUs")


def peak_for(gpu: GpuFacts, precision_used: str) -> float | Missing:
    """The dense peak in FLOP/s for the precision actually used: `fp32`, `tf32`, `amp-bf16`, `amp-fp16`.

    Tensor units with FP32 accumulation; FP16 falls back to the vector rate of parts without tensor units.
    Missing for a slice of a GPU, whose share of the peak is not known here.
    """
    if gpu.mig_profile:
        return Missing(f"the slice {gpu.mig_profile} has only a part of the {gpu.name}'s peak")
    dtype, peaks = precision_used.removeprefix("amp-"), gpu.row.peaks_tflops
    if dtype not in peaks:
        return Missing(f"no peak is kept for {precision_used or 'an unknown precision'}")
    peak_tflops = peaks[dtype]
    if peak_tflops is None:
        return Missing(f"no {dtype} peak known for {gpu.name}")
    return peak_tflops * 1e12


def peak_bandwidth(gpu: GpuFacts) -> float | Missing:
    """The data sheet's memory bandwidth in B/s; Missing for a slice of a GPU."""
    if gpu.mig_profile:
        return Missing(f"the slice {gpu.mig_profile} has only a part of the {gpu.name}'s bandwidth")
    if gpu.row.memory_bandwidth_gbs is None:
        return Missing(f"no memory bandwidth known for {gpu.name}")
    return gpu.row.memory_bandwidth_gbs * 1e9


def expected(gpu: GpuFacts | str, measure: str, dtype: str) -> PlausibleRow | Missing:
    """The range measured elsewhere for one GPU, in FLOP/s or B/s.

    `gpu` is a result of `find_gpu` or its name; `measure` is `matmul`, `copy`, `h2d_pinned`, ...; `dtype` may
    be a precision as used (`amp-bf16`), and is ignored for bandwidths. A measured range takes precedence over
    a mere minimum. Where no copy was measured, a fluid simulation's traffic (`lbm`) serves as a minimum: a
    plain copy is at least as fast.
    """
    if isinstance(gpu, GpuFacts) and gpu.mig_profile:
        return Missing(f"no figures for the slice {gpu.mig_profile} of {gpu.name}")
    name = gpu.name if isinstance(gpu, GpuFacts) else gpu
    wanted_dtype = dtype.removeprefix("amp-") if measure == "matmul" else ""
    found = [r for r in plausible_rows() if (r.gpu, r.measure, r.dtype) == (name, measure, wanted_dtype)]
    found.sort(key=lambda row: row.measured_max is None)
    if found:
        return found[0]
    if measure == "copy":
        simulated = expected(name, "lbm", "")
        if isinstance(simulated, PlausibleRow):
            return replace(simulated, measured_max=None)
    return Missing(f"no {f'{wanted_dtype} ' if wanted_dtype else ''}{measure} figures known for {name}")
