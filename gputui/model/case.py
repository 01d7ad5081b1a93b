"""What is measured: work, variant, case. The unit that rows of a comparison pair on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

Parameter = int | float | str | bool

DEVICE_CLASSES = ("cpu", "gpu")
PRECISIONS = ("fp32", "tf32", "amp")
THREAD_REQUESTS = ("1", "all")

OUTCOMES = ("ok", "oom", "unsupported", "skipped", "failed", "interrupted")
"""How one case of one run ended. `oom` and `unsupported` are data, not errors."""


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
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of doing the work."""

    device_class: str
    """`cpu` or `gpu`; which maker's GPU is a fact of the runtime."""
    precision: str
    """As requested: `fp32` (IEEE), `tf32` or `amp`."""
    mode: str
    """`eager`."""
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
    """What is counted per step: `flop`, `B`, `img`, `tok`."""
    units_per_step: float
    flops_per_step: int | None
    """None where the work is not counted in floating-point operations."""
    bytes_per_step: int | None

    @property
    def name(self) -> str:
        """How a person calls it: `gemm mini cpu fp32 1 thread`."""
        threads = {"1": " 1 thread", "all": " all cores"}.get(self.variant.threads, "")
        return (
            f"{self.work.workload} {self.work.size} {self.variant.device_class}"
            f" {self.variant.precision}{threads}"
        )
