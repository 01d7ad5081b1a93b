"""What a workload declares and what it builds. One file and one name in `WORKLOADS` add a workload."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any  # Any: torch's own types, where torch may be absent

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
        """The type in which matrices are multiplied: float32, bfloat16 or float16."""
        import torch

        return {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(self.used, torch.float32)

    def autocast(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        if not self.used.startswith("amp"):
            return contextlib.nullcontext()
        import torch

        context: AbstractContextManager[object] = torch.autocast(self.device, dtype=self.product_dtype())
        return context

    def needs_scaler(self) -> bool:
        """fp16 gradients underflow without a scale; bf16's do not."""
        return self.used == "amp-fp16"

    def apply(self) -> None:
        """Switch TF32 on or off for products, convolutions and RNNs; called before every block.

        From torch 2.9 there is one setting per kind of operation, and mixing it with the older flags is
        an error, so only one of the two is ever touched.
        """
        if self.device != "cuda":
            return
        import torch

        on = self.used == "tf32"
        if hasattr(torch.backends.cudnn, "conv"):
            word = "tf32" if on else "ieee"
            torch.backends.cuda.matmul.fp32_precision = word
            torch.backends.cudnn.conv.fp32_precision = word
            torch.backends.cudnn.rnn.fp32_precision = word
        else:
            torch.backends.cuda.matmul.allow_tf32 = on
            torch.backends.cudnn.allow_tf32 = on


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
    gpus: int = 1
    """GPUs it uses at once on each host, where it runs on any."""
    hosts: int = 1
    """Boxes it uses at once."""
    amp_bytes_per_step: int | None = None
    """`bytes_per_step` with `amp`, where its numbers are half as large; None: the same."""

    def bytes_in(self, precision: str) -> int | None:
        """Bytes a step moves when measured in this requested precision."""
        if precision == "amp" and self.amp_bytes_per_step is not None:
            return self.amp_bytes_per_step
        return self.bytes_per_step


@dataclass(frozen=True)
class Figure:
    """A result of a case that is not its speed: what a workload declares of it."""

    key: str
    """Ends in its unit: `p99_latency_s`, `waiting_share`, `peak_bytes`."""
    title: str
    """At most 40 letters: it stands in a table."""
    unit: str
    """`s`, `B`, `B/s`, `1/s`, `share` (0 to 1), `ratio` or `count`; no value is negative."""
    better: str
    """`less`, `more`, or `neither`."""
    combine: str
    """How the values of several launches become one: `median`, `sum`, `max` or `min`."""


@dataclass(frozen=True)
class Value:
    """What one launch found of a figure."""

    value: float | None
    """None if it could not be had; `reason` says why."""
    observations: int
    """How many it is made of: requests, frames, steps; 0 if there is none."""
    reason: str = ""


@dataclass(frozen=True)
class Request:
    """One variant to be built, inside the worker."""

    parameters: dict[str, Parameter]
    device: str
    """`cpu`, `cuda`, `mps` or `xpu`: the one device this worker sees."""
    precision: Precision
    threads: int
    seed: int
    time_s: float = math.inf
    """What the case may take in all, building and timing included: about its share of the budget."""
    mode: str = "eager"
    """`eager` or `compile`."""
    rendezvous: str = ""
    """`ADDRESS:PORT` of this box where other hosts join it; empty if they do not."""

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
    timed: Callable[[int], BlockTime] | None = None
    """Does so many steps where they are done, in other processes, and times them there; instead of `run`."""
    multiple: int = 1
    """Steps are asked for in multiples of this many."""
    settled: Callable[[], None] | None = None
    """Called once when the warm-up is over: what `run` noted for figures until then is forgotten."""
    figures: Callable[[Sequence[float]], Mapping[str, Value]] | None = None
    """The declared figures by key, asked for once after the last block; given the nanoseconds per step of
    each block. May do work of its own, which no block sees."""
    fault: Callable[[], str] | None = None
    """Why the work came out wrong, empty if it did not; asked for after `figures`. A fault fails the case."""
    close: Callable[[], object] | None = None
    """Ends the processes it started; called whatever became of the case."""


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
    """What is counted: one of `UNITS` in `contract_check.py`."""
    sizes: dict[str, Size]
    precisions: tuple[str, ...]
    device_classes: tuple[str, ...]
    needs_torch: bool
    build: Callable[[Request], Step]
    """Raises Unsupported if this box cannot do it."""
    figures: tuple[Figure, ...] = ()
    """Results besides its speed; what a step gives of them is stored and shown."""
    figures_s: float = 0.0
    """What getting the figures takes after the last block, about: kept free of the case's time."""
    is_alone: bool = False
    """Whether its variants never share a worker: another's memory would be in its figures."""
    is_sustained: bool = False
    """Whether it goes on until its time is spent, however well its speed is known by then."""
    is_traceable: bool = True
    """Whether its steps are torch operators of this process, which a profiler sees."""
    modes: tuple[str, ...] = ("eager",)
    """`compile` is among them if `build` hands its model or its loss to `compiling.compiled`."""
    form: str = "same"
    """`same`: the batch is part of the size; `best`: it is found on this machine, and a result."""
