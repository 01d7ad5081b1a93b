"""What a workload declares and what it builds, with the check of it: of ours on import, of a user's
when its file is read. One file and one name in `WORKLOADS` add a workload."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any  # Any: torch's types, which may not be installed

from . import (
    DEVICE_CLASSES,
    FIGURE_BETTER,
    FIGURE_COMBINES,
    FIGURE_SUFFIXES,
    MODES,
    PRECISIONS,
    WORKLOAD_CLASSES,
    accelerator,
)
from .accelerator import Unsupported as Unsupported

if TYPE_CHECKING:
    from .timing import BlockTime

Parameter = int | float | str | bool


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
        """Switch TF32 on or off; called before every block."""
        accelerator.allow_tf32(self.device, self.used == "tf32")


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
    operators: int | None = None
    """Operators that an eager step dispatches with `amp`, where they are most; for predictions alone.
    What takes the host much longer than others counts several times."""
    amp_traffic_bytes: int = 0
    """About what a step of convolutions moves with `amp`, where `bytes_per_step` says nothing; likewise."""

    def bytes_in(self, precision: str) -> int | None:
        """Bytes that a step moves at this requested precision."""
        if precision.startswith("amp") and self.amp_bytes_per_step is not None:
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
    """torch's word for its kind, such as `cpu` or `cuda`: the only device this worker sees."""
    precision: Precision
    threads: int
    seed: int
    time_s: float = math.inf
    """Approximate time limit of the case, building and timing included: its share of the budget."""
    mode: str = "eager"
    """`eager`, `compile` or `graph`."""
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
    layout: str = ""
    """How its images lie in memory, `nhwc` or `nchw`, if a trial found that; no part of the work key."""


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
    """What is counted: one of `UNITS`."""
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
    """Includes `compile` if `build` passes its model or its loss to `steps.compiled`, `graph` if it passes
    what it repeats to `steps.recorded`."""
    form: str = "same"
    """`same`: the batch is part of the size; `best`: the batch is found on this machine and is a result."""


UNITS = ("flop", "B", "img", "tok", "seq", "frame", "req", "step", "run")
FORMS = ("same", "best")
_LARGEST = 2**63 - 1
_TITLE_LETTERS = 40
_VALUE_LETTERS = 60
_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_NAME_RULE = "1 to 40 of a-z, 0-9, _ and -"


class NotInContract(Exception):
    """What is wrong with a workload: its file, the line if known, and what was expected."""


class Mistake(Exception):
    """The first violation found: the name of the `Workload` field, and its value with what was expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def check_all(workloads: Sequence[Workload]) -> None:
    """Raise NotInContract for the first of our workloads that violates the contract, naming its file."""
    names: set[str] = set()
    for workload in workloads:
        try:
            check(workload)
            if workload.name in names:
                raise Mistake("name", f"{workload.name!r} is that of another workload")
        except Mistake as mistake:
            file = f"{getattr(workload.build, '__module__', '?').rpartition('.')[2]}.py"
            raise NotInContract(f"{file}: {mistake}") from mistake
        names.add(workload.name)


def check(workload: Workload) -> None:
    """Raise Mistake for the first violation of the contract by any workload; later checks rely on earlier."""
    _require_fields(
        workload,
        ("name", _is_name(workload.name), _NAME_RULE),
        ("version", _is_whole(workload.version, 1), "a whole number from 1"),
        ("title", _is_line(workload.title), "one line of text"),
        ("question", _is_line(workload.question), "one line of text"),
        ("workload_class", *_one_of(workload.workload_class, WORKLOAD_CLASSES)),
        ("unit", *_one_of(workload.unit, UNITS)),
        ("precisions", *_some_of(workload.precisions, PRECISIONS)),
        ("device_classes", *_some_of(workload.device_classes, DEVICE_CLASSES)),
        ("modes", *_some_of(workload.modes, MODES)),
        ("form", *_one_of(workload.form, FORMS)),
        ("figures_s", _is_number(workload.figures_s, 0, 1e9), "seconds from 0"),
        *(
            (name, isinstance(getattr(workload, name), bool), "True or False")
            for name in ("needs_torch", "is_alone", "is_sustained", "is_traceable")
        ),
        ("build", callable(workload.build), "a function of a Request that gives a Step"),
    )
    figures: object = workload.figures
    are_figures = isinstance(figures, tuple) and all(isinstance(figure, Figure) for figure in figures)
    _require(are_figures, "figures", figures, "a tuple of Figure(key, title, unit, better, combine)")
    _check_figures(workload.figures)
    sizes: object = workload.sizes
    is_filled = isinstance(sizes, dict) and len(sizes) > 0
    _require(is_filled, "sizes", sizes, "a dictionary of names with a Size each")
    for name, size in workload.sizes.items():
        _require(_is_name(name), "sizes", name, _NAME_RULE, "name ")
        _require(isinstance(size, Size), "sizes", size, "Size(parameters, units_per_step, ...)", f"{name} ")
        _check_size(name, size)


def _check_figures(figures: Iterable[Figure]) -> None:
    keys: list[str] = []
    for number, figure in enumerate(figures, 1):
        is_short = _is_line(figure.title) and len(figure.title) <= _TITLE_LETTERS
        is_key = isinstance(figure.key, str) and _KEY.fullmatch(figure.key) is not None
        suffix = FIGURE_SUFFIXES.get(str(figure.unit), "")
        _require_fields(
            figure,
            ("unit", *_one_of(figure.unit, FIGURE_SUFFIXES)),
            ("better", *_one_of(figure.better, FIGURE_BETTER)),
            ("combine", *_one_of(figure.combine, FIGURE_COMBINES)),
            ("title", is_short, f"one line of at most {_TITLE_LETTERS} letters"),
            ("key", is_key, "1 to 40 of a-z, 0-9 and _, a letter first"),
            ("key", figure.key not in keys, "another key for each"),
            ("key", str(figure.key).endswith(suffix), f"a key that ends in its unit, {suffix}"),
            of="figures",
            where=f"figure {number}: ",
        )
        keys.append(figure.key)


def _check_size(name: str, size: Size) -> None:
    whole = f"a whole number from 0 to {_LARGEST}"
    _require_fields(
        size,
        ("units_per_step", _is_number(size.units_per_step, 1e-60, 1e60), "a number from 1e-60 to 1e60"),
        *(
            (count, getattr(size, count) is None or _is_whole(getattr(size, count), 0), f"{whole}, or None")
            for count in ("flops_per_step", "bytes_per_step", "amp_bytes_per_step")
        ),
        ("memory_bytes", _is_whole(size.memory_bytes, 0), whole),
        ("gpus", _is_whole(size.gpus, 1), "a whole number from 1"),
        ("hosts", _is_whole(size.hosts, 1), "a whole number from 1"),
        ("parameters", isinstance(size.parameters, dict), "a dictionary"),
        of="sizes",
        where=f"{name}: ",
    )
    for key, value in size.parameters.items():
        is_key = isinstance(key, str) and _PARAMETER.fullmatch(key) is not None
        expected = "1 to 40 letters, digits, _, . and -, a letter first"
        _require(is_key, "sizes", key, expected, f"{name}: the name of a parameter ")
        expected = "a finite number, whole ones of 64 bits, one line of text, True or False"
        _require(_is_parameter(value), "sizes", value, expected, f"{name}: parameter {key} ")


def _require_fields(owner: object, *checks: tuple[str, bool, str], of: str = "", where: str = "") -> None:
    """Of a workload, or of a part in its field `of`: names, whether they fit, and what is expected."""
    for field, fits, expected in checks:
        _require(fits, of or field, getattr(owner, field), expected, f"{where}{field} " if of else "")


def _require(fits: bool, field: str, value: object, expected: str, where: str = "") -> None:
    if fits:
        return
    try:
        shown = repr(value)
    except Exception:  # the user's class may raise anything
        shown = type(value).__name__
    shown = shown if len(shown) <= _VALUE_LETTERS else f"{shown[:_VALUE_LETTERS]}…"
    raise Mistake(field, f"{where}{'is ' if where else ''}{shown}; expected {expected}")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_line(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def _is_number(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_parameter(value: object) -> bool:
    if isinstance(value, int):
        return -_LARGEST <= value <= _LARGEST
    return (isinstance(value, str) and value.isprintable()) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _one_of(value: object, allowed: Iterable[str]) -> tuple[bool, str]:
    return isinstance(value, str) and value in allowed, f"one of {', '.join(allowed)}"


def _some_of(values: object, allowed: Iterable[str]) -> tuple[bool, str]:
    listed = values if isinstance(values, tuple | list) else ()
    fits = len(listed) > 0 and all(isinstance(one, str) and one in allowed for one in listed)
    return fits, f"some of {', '.join(allowed)}"
