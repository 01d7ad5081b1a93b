"""What boxes of one model reach: reference files, where they lie, and their typical box as a run.

A reference holds aggregates over boxes: no ids, labels, paths or prices. Its page is docs/references.md.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gputui.analysis.fleet import MOST_QUANTILES, BoxRates
from gputui.errors import GputuiError
from gputui.facts.tables import find_gpu, is_slice, memory_gib_of
from gputui.model.absent import Missing, to_plain
from gputui.model.machine import Machine
from gputui.model.plan import Case, Variant
from gputui.model.units import counted
from gputui.services.support.paths import references_directory
from gputui.store.strict import NotValid, strict
from gputui.worker.foreign_json import read_json_file

SCHEMA = 1
MOST_BYTES = 20_000
_VERSION = re.compile(r"\d+(\.\d+){0,2}")
_MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
_CPU_NOISE = re.compile(r"\(R\)|\(TM\)|\bProcessor\b|\bCPU\b|@.*$")


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """The kind of device that boxes have in common."""

    device_class: str
    """`gpu` or `cpu`."""
    name: str
    """Of a GPU as in `gpus.csv`, or as its driver has it; of a CPU as the system has it."""
    memory_gib: int = 0
    """Of a GPU that is not in that table, where the name alone may be several; else 0."""
    cores: int = 0
    """Usable cores of a CPU."""
    features: tuple[str, ...] = ()
    """Instruction sets of a CPU, sorted: hypervisors give several generations one name."""

    @property
    def words(self) -> str:
        """`H100 SXM`, `AMD EPYC, 2 cores`."""
        memory = f" {self.memory_gib} GiB" if self.memory_gib else ""
        cores = counted(self.cores, "core")
        return f"{self.name}, {cores}" if self.device_class == "cpu" else f"{self.name}{memory}"

    @property
    def slug(self) -> str:
        """The usual name of its reference: `h100-sxm`, `amd-epyc-2-cores`."""
        plain = _CPU_NOISE.sub(" ", self.words) if self.device_class == "cpu" else self.words
        cores = f" {counted(self.cores, 'core')}" if self.device_class == "cpu" and "@" in self.name else ""
        return re.sub(r"[^a-z0-9]+", "-", f"{plain}{cores}".lower()).strip("-")

    def counted(self, boxes: int) -> str:
        """`18 H100 SXM`, `1 box with AMD EPYC, 2 cores`."""
        if self.device_class == "gpu":
            return f"{boxes} {self.words}"
        return f"{counted(boxes, 'box')} with {self.words}"


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    """One case, by what identifies it on any machine."""

    workload: str
    version: int
    size: str
    work_key: str
    precision: str
    mode: str
    threads: str
    unit: str
    rates: BoxRates


@dataclass(frozen=True, slots=True)
class Reference:
    """What boxes of one model reach in the cases of one profile."""

    name: str
    """Of its file, without ending; empty before it has one."""
    model: DeviceModel
    profile: str
    profile_version: int
    first_month: str
    last_month: str
    """Of its runs, as `2026-11`."""
    note: str
    versions: Mapping[str, tuple[str, str]]
    """The lowest and the highest of `gputui`, `python`, `torch`, `cuda` and `driver`, where known."""
    launches: tuple[int, int]
    """The fewest and the most of a case on one box."""
    power_limit_w: tuple[float, float] | None
    """The lowest and the highest limit in force; None for a CPU, or where it is unknown."""
    power_default_limit_w: tuple[float, float] | None
    cases: tuple[ReferenceCase, ...]

    @property
    def boxes(self) -> int:
        """Of the case that most of them measured."""
        return max((one.rates.boxes for one in self.cases), default=0)

    @property
    def months(self) -> str:
        """`2026-11`, `2026-09 to 2026-11`."""
        is_one = self.first_month == self.last_month
        return self.last_month if is_one else f"{self.first_month} to {self.last_month}"

    def known_cases(self) -> dict[str, tuple[Case, BoxRates]]:
        """By key, the cases that this gputui would measure in the same way."""
        found = {}
        for one in self.cases:
            variant = Variant(self.model.device_class, one.precision, one.mode, one.threads)
            case = _declared(one.workload, one.size, variant)
            if case and case.work.key == one.work_key and case.unit == one.unit:
                found[key_of(case)] = case, one.rates
        return found

    def range_of(self, key: str) -> str:
        """The versions of one of `versions`: `2.13.0`, `2.8.0 to 2.13.0`; empty if they are not known."""
        low, high = self.versions.get(key, ("", ""))
        return low if low == high else f"{low} to {high}"

    def holds_torch(self, version: str | Missing) -> bool:
        """Whether its boxes had this minor version of torch, or older and newer ones.

        Another may be faster or slower by as much as boxes differ.
        """
        known = self.versions.get("torch")
        if known is None or isinstance(version, Missing):
            return False
        low, here, high = (version_order(text)[:2] for text in (known[0], version, known[1]))
        return low <= here <= high


def key_of(case: Case) -> str:
    """Equal for the same work in the same variant."""
    variant = case.variant
    return " ".join((case.work.key, variant.device_class, variant.precision, variant.mode, variant.threads))


def is_shipped(case: Case) -> bool:
    """Whether it is a case that gputui itself declares, in the version that it declares now."""
    declared = _declared(case.work.workload, case.work.size, case.variant)
    return declared is not None and declared.work.key == case.work.key


def _declared(name: str, size: str, variant: Variant) -> Case | None:
    from gputui.services.profiles.planner import case_of  # takes 0.1 s with all workloads
    from gputui.worker.workloads import WORKLOADS

    workload = next((one for one in WORKLOADS if one.name == name), None)
    return None if workload is None or size not in workload.sizes else case_of(workload, size, variant)


def version_of(text: str) -> str:
    """Its numbers: `2.13.0` of `2.13.0+cpu`; empty if it does not begin with one."""
    found = _VERSION.match(text)
    return found.group() if found else ""


def version_order(text: str) -> tuple[int, ...]:
    """Sorts versions."""
    return tuple(int(part) for part in version_of(text).split(".") if part)


def model_of(
    machine: Machine, device_class: str, device_index: int | None, device_name: str
) -> DeviceModel | None:
    """The model of a device; None for a slice of a GPU, and for a CPU without a name."""
    if device_class == "cpu":
        if isinstance(machine.cpu.model, Missing):
            return None
        cpu = machine.cpu
        return DeviceModel(
            "cpu", str(cpu.model), cores=cpu.usable_cores, features=tuple(sorted(cpu.features))
        )
    memory_gib = memory_gib_of(machine, device_index)
    found = find_gpu(device_name, memory_gib)
    if isinstance(found, Missing):
        is_whole = device_name and not is_slice(device_name)
        return DeviceModel("gpu", device_name, memory_gib=round(memory_gib or 0)) if is_whole else None
    return None if found.mig_profile else DeviceModel("gpu", found.name)


# Files


def shipped_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_REFERENCES, else `profiles/reference`: inside the package in a wheel, else beside it."""
    stated = environ.get("GPUTUI_REFERENCES")
    if stated:
        return Path(stated)
    package = Path(__file__).resolve().parents[2]
    inside = package / "profiles" / "reference"
    return inside if inside.is_dir() else package.parent / "profiles" / "reference"


def known_references() -> tuple[Reference, ...]:
    """All that can be read; where two have one name, the one of more boxes, else the user's."""
    by_name: dict[str, Reference] = {}
    for directory in (references_directory(os.environ), shipped_directory()):
        for path in sorted(directory.glob("*.json")):
            with suppress(GputuiError):  # it is said where it is named
                found = read_reference(path)
                known = by_name.get(found.name)
                if known is None or found.boxes > known.boxes:
                    by_name[found.name] = found
    return tuple(by_name.values())


def read_reference(path: Path) -> Reference:
    """Read and check a reference file. Raises GputuiError."""
    try:
        found = path.stat()
        if found.st_size > MOST_BYTES:
            raise GputuiError(f"{path}: {found.st_size} bytes are too large for a reference", "at most 20 kB")
        return _read(path, found.st_mtime_ns)
    except OSError as error:
        raise GputuiError(f"{path}: cannot be read ({error.strerror})") from error


@functools.lru_cache(maxsize=256)
def _read(path: Path, changed_ns: int) -> Reference:
    """The file as it was when it changed last; `changed_ns` tells one state of it from the next."""
    try:
        plain = read_json_file(path, MOST_BYTES)
        if not isinstance(plain, dict) or plain.pop("schema", None) != SCHEMA:
            raise NotValid(f"schema is not {SCHEMA}")
        read = strict({"name": path.stem, **plain}, Reference)
        _check(read)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise GputuiError(
            f"{path}: not a reference file ({reason})", "docs/references.md describes it"
        ) from error
    return read


def _check(read: Reference) -> None:
    """Raises NotValid for what no measurement gives."""
    if not _MONTH.fullmatch(read.first_month) or not _MONTH.fullmatch(read.last_month):
        raise NotValid("months are written 2026-11")
    if read.model.device_class not in ("gpu", "cpu"):
        raise NotValid("device_class is gpu or cpu")
    for one in read.cases:
        rates = one.rates
        figures = (rates.low_per_s, rates.typical_per_s, rates.high_per_s, *rates.quantiles_per_s)
        is_ordered = list(rates.quantiles_per_s) == sorted(rates.quantiles_per_s)
        if not all(0 < figure < math.inf for figure in figures) or not is_ordered:
            raise NotValid(f"{one.workload} {one.size} {one.precision}: rates out of order or not positive")
        if rates.boxes < 1 or len(rates.quantiles_per_s) != min(rates.boxes, MOST_QUANTILES):
            raise NotValid(f"{one.workload} {one.size} {one.precision}: {rates.boxes} boxes")
        if not 0 <= rates.log_sd < math.inf or not rates.low_per_s <= rates.typical_per_s <= rates.high_per_s:
            raise NotValid(f"{one.workload} {one.size} {one.precision}: impossible spread")


def reference_text(reference: Reference) -> str:
    """The content of its file: a case per line, so that a change of one is a line of a diff."""
    plain = to_plain(reference)
    del plain["name"]
    cases = ",\n".join(f"  {_json(one)}" for one in plain.pop("cases"))
    head = ",\n".join(f" {json.dumps(key)}: {_json(value)}" for key, value in plain.items())
    return f'{{\n "schema": {SCHEMA},\n{head},\n "cases": [\n{cases}\n ]\n}}\n'


def _json(value: object) -> str:
    """JSON whose floats have five digits, more than any measurement has."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {_json(one)}' for key, one in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_json, value))}]"
    return f"{value:.5g}" if isinstance(value, float) else json.dumps(value)
