"""What is measured: work, variant, case. The unit that rows of a comparison pair on."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gputui.model.units import TIME_UNIT

Parameter = int | float | str | bool

DEVICE_CLASSES = ("cpu", "gpu")
PRECISIONS = ("fp32", "tf32", "amp")
MODES = ("eager", "compile")
THREAD_REQUESTS = ("1", "all")
WORKLOAD_CLASSES = ("ceiling", "training", "inference", "host")

OWN = "own"
"""Precision and mode of a program that is timed from outside, which we do not know."""
WHOLE_BOX = "host"
"""Device class of a recording: which devices its program used is not known."""
WHOLE = "whole"
"""Size of a program that is timed from start to end: one block per launch."""
STEPS = "steps"
"""Size of a program that is timed from one match of its pattern to the next."""

OUTCOMES = ("ok", "oom", "unsupported", "skipped", "failed", "interrupted")
"""How one case of one run ended. `oom` and `unsupported` are data, not errors."""
FOUND_BY_TRYING = ("ok", "oom", "unsupported")
"""Outcomes of a launch that say what its device can do; a run without any has measured nothing."""

LOAD_PREFIX = "serve:"
"""Of the workload of a load on an LLM server; the profile of its requests follows."""

LEAST_UNITS, MOST_UNITS = 1e-60, 1e60
"""Units of work per step; beyond these, speeds and ratios of them leave the range of a float."""


@dataclass(frozen=True, slots=True)
class Work:
    """A fixed amount of work, the same number on every machine."""

    workload: str
    version: int
    size: str
    form: str
    """`same`: the batch is part of the size. `best`: the batch is searched, and only rates are comparable."""
    parameters: tuple[tuple[str, Parameter], ...]
    """Name and value of each fixed parameter, sorted by name."""

    @property
    def key(self) -> str:
        """16 hex digits that are equal if and only if the work is; independent of the machine."""
        text = json.dumps(
            [self.workload, self.version, self.size, self.form, [list(p) for p in self.parameters]],
            separators=(",", ":"),
        )
        import hashlib  # OpenSSL takes 4 MiB, and code that only reads names does not need it

        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of doing the work."""

    device_class: str
    """`cpu` or `gpu`; the vendor of the GPU is a property of the runtime. `host` for a recording."""
    precision: str
    """As requested: `fp32` (IEEE), `tf32` or `amp`; `own` for a program."""
    mode: str
    """`eager` or `compile`; `own` for a program."""
    threads: str
    """CPU threads as requested: `1`, `all` (the cores this process may use), or `host` for a GPU."""


@dataclass(frozen=True, slots=True)
class Case:
    """Work and variant, with what one step of it amounts to."""

    work: Work
    variant: Variant
    workload_class: str
    """`ceiling`, `training`, `inference` or `host`: the group of its geometric mean and its launch prior."""
    unit: str
    """What is counted per step: a name of `units.RATES`, or one of a newer gputui."""
    units_per_step: float
    flops_per_step: int | None
    """None if the work is not counted in floating-point operations."""
    bytes_per_step: int | None

    @property
    def is_program(self) -> bool:
        """Whether it is a program timed from outside, not a workload."""
        return self.variant.precision == OWN

    @property
    def is_whole(self) -> bool:
        """Whether a launch of it is one block, from the start of a program to its end."""
        return self.is_program and self.work.size == WHOLE

    @property
    def is_load(self) -> bool:
        """Whether it is a load on an LLM server, or a time that its users wait."""
        return self.work.workload.startswith(LOAD_PREFIX)

    @property
    def has_steps(self) -> bool:
        """Whether its blocks are steps of its work; a load on a server lasts as long as it shall."""
        return not self.is_load

    @property
    def is_time(self) -> bool:
        """Whether it is no work but a time, of which less is better."""
        return self.unit == TIME_UNIT

    @property
    def name(self) -> str:
        """The display name: `gemm mini cpu fp32 1 thread`, `command:train gpu`, `record:sweep`."""
        if self.is_program:
            where = "" if self.variant.device_class == WHOLE_BOX else f" {self.variant.device_class}"
            return f"{self.work.workload}{where}"
        threads = {"1": " 1 thread", "all": " all cores"}.get(self.variant.threads, "")
        mode = "" if self.variant.mode == "eager" else f" {self.variant.mode}"
        return (
            f"{self.work.workload} {self.work.size} {self.variant.device_class}"
            f" {self.variant.precision}{mode}{threads}"
        )

    def identity(self) -> dict[str, str | int]:
        """What distinguishes it from other cases, by the names in JSON and CSV."""
        return {
            "case": self.name,
            "workload": self.work.workload,
            "workload_version": self.work.version,
            "work_key": self.work.key,
            "size": self.work.size,
            "device": self.variant.device_class,
            "precision": self.variant.precision,
            "mode": self.variant.mode,
            "threads": self.variant.threads,
            "unit": self.unit,
        }


@dataclass(frozen=True, slots=True)
class OfCase:
    """What belongs to one case in one launch."""

    launch_id: int
    case_id: int


def program_case(
    workload: str,
    version: int,
    *,
    is_whole: bool,
    device_class: str,
    unit: str,
    units: float,
    workload_class: str = "host",
    identity: tuple[tuple[str, Parameter], ...] = (),
) -> Case:
    """The case of a program that is timed from outside.

    Only name, version, unit and `identity` (sorted by name) identify its work: paths differ between machines,
    so the command line is not part of it.
    """
    parameters: list[tuple[str, Parameter]] = [*identity, ("unit", unit), ("units", float(units))]
    return Case(
        work=Work(workload, version, WHOLE if is_whole else STEPS, "same", tuple(sorted(parameters))),
        variant=Variant(device_class, OWN, OWN, "host"),
        workload_class=workload_class,
        unit=unit,
        units_per_step=float(units),
        flops_per_step=None,
        bytes_per_step=None,
    )
