"""What is measured: work, variant, case. The unit that rows of a comparison pair on."""

from __future__ import annotations

import json
from dataclasses import dataclass

Parameter = int | float | str | bool

DEVICE_CLASSES = ("cpu", "gpu")
PRECISIONS = ("fp32", "tf32", "amp")
MODES = ("eager", "compile")
THREAD_REQUESTS = ("1", "all")
WORKLOAD_CLASSES = ("ceiling", "training", "inference", "host")

OWN = "own"
"""Precision and mode of a program that is watched from outside: they are its own affair."""
WHOLE_BOX = "host"
"""Device class of a recording: which devices its program used is not known."""
WHOLE = "whole"
"""Size of a program that is timed from start to end: one block per launch."""
STEPS = "steps"
"""Size of a program that is timed from one match of its pattern to the next."""

OUTCOMES = ("ok", "oom", "unsupported", "skipped", "failed", "interrupted")
"""How one case of one run ended. `oom` and `unsupported` are data, not errors."""


LEAST_UNITS, MOST_UNITS = 1e-60, 1e60
"""Of work in a step: speeds beyond, and ratios of them, leave the range of a float."""


@dataclass(frozen=True, slots=True)
class Work:
    """A fixed amount of work, the same number on every machine."""

    workload: str
    version: int
    size: str
    form: str
    """`same`: the batch is part of the size. `best`: it is searched and only rates compare."""
    parameters: tuple[tuple[str, Parameter], ...]
    """Name and value of each fixed parameter, sorted by name."""

    @property
    def key(self) -> str:
        """16 hex digits that are equal if and only if the work is; nothing of the machine is in it."""
        text = json.dumps(
            [self.workload, self.version, self.size, self.form, [list(p) for p in self.parameters]],
            separators=(",", ":"),
        )
        import hashlib  # OpenSSL, 4 MiB: those who only read names need it not

        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of doing the work."""

    device_class: str
    """`cpu` or `gpu`; which maker's GPU is a fact of the runtime. `host` for a recording."""
    precision: str
    """As requested: `fp32` (IEEE), `tf32` or `amp`; `own` for a program."""
    mode: str
    """`eager` or `compile`; `own` for a program."""
    threads: str
    """CPU threads as requested: `1`, `all` (the cores this process may use), or `host` for a GPU."""


@dataclass(frozen=True, slots=True)
class Case:
    """Work and variant together, with what one step of it amounts to."""

    work: Work
    variant: Variant
    workload_class: str
    """`ceiling`, `training`, `inference` or `host`: the group of its geometric mean and its launch prior."""
    unit: str
    """What is counted per step: a name of `units.RATES`, or one that only a newer gputui knows."""
    units_per_step: float
    flops_per_step: int | None
    """None where the work is not counted in floating-point operations."""
    bytes_per_step: int | None

    @property
    def is_program(self) -> bool:
        """Whether it is a program that is watched from outside, and no workload of ours."""
        return self.variant.precision == OWN

    @property
    def is_whole(self) -> bool:
        """Whether a launch of it is one block, from the start of a program to its end."""
        return self.is_program and self.work.size == WHOLE

    @property
    def name(self) -> str:
        """How a person calls it: `gemm mini cpu fp32 1 thread`, `command:train gpu`, `record:sweep`."""
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
        """What tells it from other cases, by the names that JSON and CSV have for it."""
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
    """The case of a program that is watched from outside.

    Its work is told from others by name, version, unit and `identity` (sorted by name) alone: paths differ
    between machines, so the command line is not part of it.
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
