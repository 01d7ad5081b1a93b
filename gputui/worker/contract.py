"""What a workload declares and what it builds. One file and one name in `WORKLOADS` add a workload."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any  # Any: torch's types, which may not be installed

if TYPE_CHECKING:
    from .timing.stopwatch import BlockTime

Parameter = int | float | str | bool


class Unsupported(Exception):
    """This interpreter, device or precision cannot do the work: an outcome, not an error."""


@dataclass(frozen=True)
class Precision:
    """A requested precision and what it became on this device."""

    requested: str
    used: str
    """`fp32`, `tf32`, `amp-bf16` or `amp-fp16`."""
    device: str

    def product_dtype(self) -> Any:
        """The dtype of matrix products: float32, bfloat16 or float16."""
        import torch

        return {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(self.used, torch.float32)

    def autocast(self) -> AbstractContextManager[object]:
        """The context manager for a forward pass."""
        if not self.used.startswith("amp"):
            return contextlib.nullcontext()
        import torch

        context: AbstractContextManager[object] = torch.autocast(self.device, dtype=self.product_dtype())
        return context

    def needs_scaler(self) -> bool:
        """Whether gradients need loss scaling: those of fp16 underflow without it, those of bf16 do not."""
        return self.used == "amp-fp16"

    def apply(self) -> None:
        """Switch TF32 on or off for matrix products, convolutions and RNNs; called before every block.

        By the flags that every torch has. From torch 2.9 there is also one setting per kind of operation, but
        once that was written, reading these flags raises, here or in a user's own step; the other way round
        all can be read (tried with 2.13).
        """
        if self.device != "cuda":
            return
        import torch

        on = self.used == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = on
        torch.backends.cudnn.allow_tf32 = on


@dataclass(frozen=True)
class Size:
    """A named, fixed amount of work; the same numbers on every machine."""

    parameters: dict[str, Parameter]
    """Everything that decides what is computed; hashed into the work key."""
    units_per_step: float
    flops_per_step: int | None
    """From a formula; the tests check it against torch's FlopCounterMode on the meta device."""
    bytes_per_step: int | None
    memory_bytes: int
    """Approximate device memory of one fp32 variant; decides which variants may share a worker."""
    gpus: int = 1
    """GPUs used at once on each host."""
    hosts: int = 1
    """Hosts used at once."""
    amp_bytes_per_step: int | None = None
    """`bytes_per_step` with `amp`, where numbers are half as large; None if it is the same."""

    def bytes_in(self, precision: str) -> int | None:
        """Bytes that a step moves at this requested precision."""
        if precision == "amp" and self.amp_bytes_per_step is not None:
            return self.amp_bytes_per_step
        return self.bytes_per_step


@dataclass(frozen=True)
class Figure:
    """A result of a case other than its speed, as a workload declares it. Part of the interface of users'
    files."""

    key: str
    """Ends in its unit: `p99_latency_s`, `waiting_share`, `peak_bytes`."""
    title: str
    """At most 40 characters, to fit in a table."""
    unit: str
    """`s`, `B`, `B/s`, `1/s`, `share` (0 to 1), `ratio` or `count`; no value is negative."""
    better: str
    combine: str
    """How the values of several launches become one: `median`, `sum`, `max` or `min`."""


@dataclass(frozen=True)
class Value:
    """The value of a `Figure` in one launch."""

    value: float | None
    """None if it could not be measured; `reason` says why."""
    observations: int
    """How many observations it summarizes: requests, frames or steps; 0 if it has no value."""
    reason: str = ""


@dataclass(frozen=True)
class Request:
    """One variant to build, inside the worker."""

    parameters: dict[str, Parameter]
    device: str
    """`cpu`, `cuda`, `mps` or `xpu`: the only device this worker sees."""
    precision: Precision
    threads: int
    seed: int
    time_s: float = math.inf
    """Approximate time limit of the case, building and timing included: its share of the budget."""
    mode: str = "eager"
    """`eager` or `compile`."""
    rendezvous: str = ""
    """`ADDRESS:PORT` on this host where other hosts connect; empty if there are none."""

    def integer(self, name: str) -> int:
        """A parameter that must be a whole number."""
        return int(self.parameters[name])


@dataclass(frozen=True)
class Step:
    """One iteration, ready to be repeated."""

    run: Callable[[], object]
    """Does one step. On a GPU it only enqueues work, unless returning a result to the host is part of the
    work."""
    loss: Callable[[], float] | None = None
    """Loss of the last step, for the numerical check; waits for the device."""
    result: Callable[[], float] | None = None
    """Summarizes the whole last output; if it is not finite, the case failed. Waits for the device."""
    loss_scale: Callable[[], float] | None = None
    """Scale of the gradient scaler: if it fell, a step was skipped and its block is discarded."""
    timed: Callable[[int], BlockTime] | None = None
    """Runs this many steps in other processes and times them there; replaces `run`."""
    multiple: int = 1
    """The number of steps is always a multiple of this."""
    settled: Callable[[], None] | None = None
    """Called once after the warm-up, so that `run` can discard what it recorded for figures."""
    figures: Callable[[Sequence[float]], Mapping[str, Value]] | None = None
    """Returns the declared figures by key. Called once after the last block, with the nanoseconds per step of
    each block. May do work that is not timed."""
    fault: Callable[[], str] | None = None
    """Why the output is wrong, empty if it is not; called after `figures`. A fault fails the case."""
    close: Callable[[], object] | None = None
    """Ends the processes it started; called whatever the outcome."""


@dataclass(frozen=True)
class Workload:
    """One kind of work. Importing it does not need torch."""

    name: str
    version: int
    """Raised when the same parameters come to mean different work; part of the work key."""
    title: str
    question: str
    """The question it answers for a user."""
    workload_class: str
    """`ceiling`, `training`, `inference` or `host`."""
    unit: str
    """What is counted: one of `UNITS` in `contract_check.py`."""
    sizes: dict[str, Size]
    precisions: tuple[str, ...]
    device_classes: tuple[str, ...]
    needs_torch: bool
    build: Callable[[Request], Step]
    """Raises Unsupported if this machine cannot do it."""
    figures: tuple[Figure, ...] = ()
    """Results other than its speed."""
    figures_s: float = 0.0
    """Approximate time that `Step.figures` takes after the last block; reserved from the case's time."""
    is_alone: bool = False
    """Whether its variants never share a worker, because the memory of another would distort its figures."""
    is_sustained: bool = False
    """Whether it runs until its time is used up, however precisely its speed is known by then."""
    is_traceable: bool = True
    """Whether its steps are torch operators in this process, which the profiler can see."""
    modes: tuple[str, ...] = ("eager",)
    """Includes `compile` if `build` passes its model or its loss to `compiling.compiled`."""
    form: str = "same"
    """`same`: the batch is part of the size; `best`: the batch is found on this machine and is a result."""
