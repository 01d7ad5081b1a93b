"""What a workload declares and what it builds. One file and one name in `WORKLOADS` add a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .precision import Precision

Parameter = int | float | str | bool


class Unsupported(Exception):
    """This interpreter, device or precision cannot do the work: an outcome, not an error."""


@dataclass(frozen=True)
class Size:
    """A named, fixed amount of work; the same numbers on every machine."""

    parameters: dict[str, Parameter]
    """All that decides what is computed; hashed into the work key."""
    units_per_step: float
    flops_per_step: int | None
    """By formula; the tests hold it against torch's FlopCounterMode on the meta device."""
    bytes_per_step: int | None
    memory_bytes: int
    """Device memory one fp32 variant needs, about; decides what may share a worker, never what is run."""
    amp_bytes_per_step: int | None = None
    """`bytes_per_step` with `amp`, where its numbers are half as large; None: the same."""

    def bytes_in(self, precision: str) -> int | None:
        """Bytes a step moves when measured in this requested precision."""
        if precision == "amp" and self.amp_bytes_per_step is not None:
            return self.amp_bytes_per_step
        return self.bytes_per_step


@dataclass(frozen=True)
class Request:
    """One variant to be built, inside the worker."""

    parameters: dict[str, Parameter]
    device: str
    """`cpu`, `cuda`, `mps` or `xpu`: the one device this worker sees."""
    precision: Precision
    threads: int
    seed: int

    def integer(self, name: str) -> int:
        """A parameter that is a whole number."""
        return int(self.parameters[name])


@dataclass(frozen=True)
class Step:
    """One iteration, ready to be repeated."""

    run: Callable[[], object]
    """Does one step; on a GPU it only enqueues, unless an answer that reaches the host is the work."""
    loss: Callable[[], float] | None = None
    """Loss of the last step, for the numerical check; waits for the device."""
    result: Callable[[], float] | None = None
    """A number made of all of the last output: if it is not finite, the case failed. Waits for the device."""
    loss_scale: Callable[[], float] | None = None
    """Scale of the gradient scaler: if it fell, a step was skipped and its block is void."""


@dataclass(frozen=True)
class Workload:
    """Code that does one kind of work. Importing it needs no torch."""

    name: str
    version: int
    """Raised whenever the same parameters mean other work; part of the work key."""
    title: str
    question: str
    """What a person learns from it, as a question."""
    workload_class: str
    """`ceiling`, `training`, `inference` or `host`."""
    unit: str
    sizes: dict[str, Size]
    precisions: tuple[str, ...]
    device_classes: tuple[str, ...]
    needs_torch: bool
    build: Callable[[Request], Step]
    """Raises Unsupported if this box cannot do it."""
