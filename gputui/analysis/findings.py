"""What slows a step down, and how long the step would take at best without it.

A finding is an upper bound of the possible gain, derived from the division of one timed step and from the
peaks that the same machine reached in the same run. It is reported from a tenth of the step.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from gputui.analysis.attribution import BELIEVED_INFLATION, Piece, ProfiledSide, inflation, pieces_seen
from gputui.analysis.spread import CONTENTION
from gputui.analysis.work import (
    BYTES_OF,
    PRODUCTS,
    bare_name,
    flops_of_call,
    product_types,
    products_backward,
)
from gputui.model.absent import Missing
from gputui.model.journal import IDLE, LineTime, ProfiledPass
from gputui.model.units import format_percent, format_rate, format_seconds
from gputui.worker.profiling.op_categories import type_of_kernel
from gputui.worker.profiling.rows import GC, OTHER_THREAD

Kind = Literal[
    "starved by the loader",
    "launch-bound",
    "compute-bound",
    "memory-bound",
    "matrix units unused",
    "power-capped",
    "paused in Python",
    "waits for results",
    "many optimizer calls",
    "wider types",
    "tiny operators",
    "waits for the driver",
    "collects garbage",
    "another thread runs",
    "CPU contention from other processes",
    "exposed communication",
    "copies",
    "unfused elementwise",
    "compiles again",
    "reads single values",
    "micro-batches",
]
_BOUNDS: tuple[Kind, ...] = ("compute-bound", "memory-bound")
_WAITS: tuple[Kind, ...] = (
    "starved by the loader",
    "launch-bound",
    "paused in Python",
    "waits for the driver",
    "collects garbage",
    "another thread runs",
    "CPU contention from other processes",
    "exposed communication",
)
"""A step that waits is bound by what it waits for, whatever it reaches of a peak."""
_LARGER_BATCH = "a larger batch"
_RECOMPILES = (
    "to keep what changes between calls, a shape or a Python argument: TORCH_LOGS=recompiles says which"
)
_LATER = "later steps, if these are the first ones: --after N"
_SAID: Mapping[Kind, tuple[str, str]] = {
    "starved by the loader": (
        "The GPU waits for data",
        "less work in the DataLoader, or more workers (with persistent_workers=True)",
    ),
    "launch-bound": ("The GPU waits for the CPU to launch work", f"{_LARGER_BATCH} or torch.compile"),
    "compute-bound": ("Arithmetic is the limit", "a faster device"),
    "memory-bound": (
        "Memory is the limit",
        "a device with faster memory, or fused operators: torch.compile",
    ),
    "matrix units unused": ("Matmul runs in fp32", "amp: torch.autocast around the forward pass"),
    "power-capped": ("A power cap holds the clock down", "a higher power limit, if you may set one"),
    "paused in Python": (
        "The GPU waits for Python",
        "to find what runs there: logging, evaluation, garbage collection, another thread",
    ),
    "waits for results": ("", "to keep these values on the GPU, or to read them once in many steps"),
    "many optimizer calls": (
        "The optimizer updates one parameter at a time",
        "fused=True or foreach=True, where the optimizer takes it",
    ),
    "wider types": ("", "torch.autocast around these too, or to cast their weights"),
    "tiny operators": ("Operators are too short", f"{_LARGER_BATCH} or torch.compile"),
    "waits for the driver": (
        "The GPU waits for calls of the driver",
        "to find its calls in the trace: memory is allocated and freed, or the device begins its work",
    ),
    "collects garbage": (
        "Python collects garbage",
        "gc.freeze() once all is built, or to collect seldom",
    ),
    "another thread runs": (
        "Another thread of Python runs",
        "to move what that thread does into another process: only one thread of Python runs at a time",
    ),
    "CPU contention from other processes": (
        "It waits for cores that other programs have",
        "it again on an idle box: everything else takes longer too",
    ),
    "exposed communication": (
        "Communication is not hidden behind compute",
        "to find a rank that is late; else larger buckets (bucket_cap_mb), or no_sync() in some steps",
    ),
    "copies": (
        "It copies and casts tensors",
        "to keep one type and layout: fewer to(), clone(), contiguous(), cat()",
    ),
    "unfused elementwise": ("Elementwise operators run one by one", "torch.compile, which fuses them"),
    "compiles again": ("torch.compile compiles again", _RECOMPILES),
    "reads single values": ("", "to compute on whole tensors, and to read one value at the end"),
    "micro-batches": ("", f"{_LARGER_BATCH}: fewer and larger ones do the same work in fewer calls"),
}
"""Title, unless a rule gives one, and what to try."""
_TITLES_ON_CPU: Mapping[Kind, str] = {
    "starved by the loader": "It loads data",
    "launch-bound": "It is between operators",
    "paused in Python": "Python runs between operators",
    "waits for the driver": "It waits for calls of the driver",
}
_EXPLAINS: Mapping[Kind, tuple[Kind, ...]] = {
    "reads single values": ("launch-bound", "paused in Python", "tiny operators"),
    "micro-batches": ("launch-bound", "tiny operators"),
    "paused in Python": ("micro-batches",),
}
"""What is said of the same time more generally."""
WORTH_A_LINE = 0.1
IDLE_TO_BE_LAUNCH_BOUND = 0.2
"""Busy for less than four fifths of the step while it waits for the host."""
_SHORT_KERNEL_NS = 10_000
"""About as long as a launch takes: a device cannot be kept busy with shorter kernels, launched one by one."""
BOUND_SHARE = 0.6
"""Share of a measured peak from which a step is bound by it; whole models seldom reach more."""
HOST_CAUSES = tuple(
    f"idle: {cause}" for cause in ("launch", "runtime api", "dispatch", "python", "kernel gap")
)
_RESULTS = {
    "aten::item": ".item()",
    "aten::_local_scalar_dense": ".item()",
    "aten::is_nonzero": "is_nonzero",
    "aten::nonzero": ".nonzero()",
    "aten::equal": ".equal()",
    "aten::masked_select": ".masked_select()",
    "aten::_unique2": "_unique2",
}
"""What of a GPU's tensor the host cannot know until the GPU has done all work before it; and what a program
calls for it."""
_COPIES = {"aten::to": ".to()", "aten::copy_": ".copy_()", "aten::_to_copy": ".to()"}
"""Likewise, of what waits only where it copies to the host."""
_PAGEABLE = "pageable"
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch that take `fused=True` on any device."""
_FOREACH = ("Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Those that take only `foreach=True`."""
_TYPES = {"float": "fp32", "double": "fp64"}
_TINY_NS = 10_000
"""An operator of a CPU that takes less is mostly the call itself."""
_AS_OFTEN, _MUCH, _MOSTLY = 0.9, 0.2, 0.5
"""Share of calls from which two are equally many; of a step, from which a kind of work that every step has
some of is worth a word; and more than all the rest."""
_UNKNOWN = Missing("not measured in this run")


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A timed and profiled step, and the peaks of its machine in the same run."""

    side: ProfiledSide
    """Its peak is that of large products at this step's precision, as measured."""
    precision_used: str
    flops_per_step: int | None
    bytes_per_step: int | None
    """A lower bound of the bytes moved to and from memory."""
    single_peak: float | Missing = _UNKNOWN
    """FLOP/s of large products in fp32."""
    half_peak: float | Missing = _UNKNOWN
    """FLOP/s of large products under AMP."""
    copy_bytes_per_s: float | Missing = _UNKNOWN
    """Read and written, in a large copy within device memory."""
    capped_share: float | Missing = _UNKNOWN
    """Share of the time of its blocks under a power cap."""
    clock_mhz: float | Missing = _UNKNOWN
    """Median over its blocks."""
    clock_most_mhz: float | Missing = _UNKNOWN
    """The highest of its device in this run."""
    busy_share: float | Missing = _UNKNOWN
    """Of a timed step, what its GPU needs for it."""
    loads_alone: bool = False
    """Whether its DataLoader is known to have no workers."""
    optimizer: str = ""
    """The name of its class in torch.optim; empty if unknown."""
    has_optimizer: bool = True
    """Whether one of torch updates its parameters, if anything does."""
    has_ddp: bool = True
    """Whether DistributedDataParallel averages its gradients, if anything does."""
    allocates: bool = False
    """Whether its calls of the driver are known to be those that allocate and free memory."""
    backward_calls: int = 0
    """In a step, by the program; 0 if unknown."""
    compiled_again: bool | None = None
    """Whether torch.compile compiled again in these steps what it had compiled; None if unknown."""

    @property
    def least_ns(self) -> tuple[int, int]:
        """What its arithmetic takes at the rate of large products here, its bytes at that of large copies.

        0 if unknown.
        """
        return (
            _at_rate_ns(self.flops_per_step, self.side.peak_flops),
            _at_rate_ns(self.bytes_per_step, self.copy_bytes_per_s),
        )


def _at_rate_ns(amount: int | None, per_s: float | Missing) -> int:
    return 0 if amount is None or isinstance(per_s, Missing) else round(amount / per_s * 1e9)


@dataclass(frozen=True, slots=True)
class LineShare:
    """A line of the program, and how much of a cause's time it was at it."""

    path: str
    line: int
    """0 if only the function is known."""
    function: str
    is_definition: bool
    """Whether the line is where the function begins, instead of the one that was executed."""
    called: str
    """The function of a library that it called; empty if it called none."""
    share: float

    @property
    def name(self) -> str:
        """`train.py:63`; `train.py` if the line is not known."""
        return f"{self.path}:{self.line}" if self.line else self.path

    @property
    def words(self) -> str:
        """`train.py:63`, `step, train.py:60` of a function's first line, `main of train.py` without one."""
        if not self.line:
            return self.path if self.function == "<module>" else f"{self.function} of {self.path}"
        return f"{self.function}, {self.name}" if self.is_definition else self.name


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that slows a step down."""

    kind: Kind
    evidence: str
    step_ns: int
    at_best_ns: int
    """A lower bound of the step's time without it, everything else unchanged."""
    confidence: str
    """`high` if measured, `fair` if it rests on an assumption, `low` if the pass itself is rough."""
    title: str = ""
    """What it is, for somebody who does not know these words."""
    change: str = ""
    """What to try, in words that follow `try`; empty if nothing helps in general."""
    code: str = ""
    """What to write in the program, where that is sure; else empty."""
    lines: tuple[LineShare, ...] = ()
    """The three with most of its time, if that is known; those with less than a tenth of it are left out."""
    has_at_best: bool = True
    """False where what to try is a larger batch: that is another step."""
    gone_ns: Mapping[Piece, float] = field(default_factory=dict, compare=False, repr=False)
    """How much of each piece of the step is gone at best."""

    @property
    def line(self) -> str:
        """`train.py:63`, the line with most of its time; empty if unknown."""
        return self.lines[0].name if self.lines else ""

    @property
    def is_bound(self) -> bool:
        """Whether it says what limits the step and not what holds it up."""
        return self.kind in _BOUNDS

    @property
    def gain_ns(self) -> int:
        """How much of a step is gone at best; of a bound, all but what is bound."""
        return self.step_ns - self.at_best_ns

    @property
    def text(self) -> str:
        least, seen = (format_seconds(ns * 1e-9) for ns in (self.at_best_ns, self.step_ns))
        if_gone = "at that rate" if self.is_bound else "without that"
        to_try = f". Try {self.change}" if self.change else ""
        where = [f" ({one.words}, {format_percent(one.share)} of it)" for one in self.lines[:1]]
        evidence = f"{self.evidence}{''.join(where)}"
        at_best = f"; {if_gone} the step would take at best {least} of {seen}" if self.has_at_best else ""
        return f"{self.title or self.kind}: {evidence}{at_best}{to_try}"


def at_best_without(found: Sequence[Finding]) -> int:
    """What a step takes at best without any of these.

    Two may be about the same time: of each piece of the step no more is gone than there is of it.
    """
    gone_ns: Counter[Piece] = Counter()
    for one in found:
        for piece, ns in one.gone_ns.items():
            gone_ns[piece] = min(piece.time_ns, gone_ns[piece] + round(ns))
    return max(0, found[0].step_ns - max(gone_ns.total(), *(one.gain_ns for one in found)))


def findings_of(facts: StepFacts) -> tuple[Finding, ...]:
    """What slows this step down: other programs, which inflate all else, then the largest gain first.

    The pass must be valid, with at least one step.
    """
    pieces, step_ns = pieces_seen(facts.side), facts.side.step_ns
    found = [finding for rule in _RULES for finding in rule(facts, pieces)]
    kinds = {finding.kind for finding in found}
    within = {kind for cause, explained in _EXPLAINS.items() if cause in kinds for kind in explained}
    within.update(_BOUNDS if kinds.intersection(_WAITS) else ())
    if "compiles again" in kinds and facts.compiled_again is not True:
        within |= {"launch-bound", "paused in Python"}  # its own Python
    for results in [finding for finding in found if finding.kind == "waits for results"]:
        most_ns = results.at_best_ns - round(IDLE_TO_BE_LAUNCH_BOUND * step_ns)
        if any(one.kind == "launch-bound" and one.at_best_ns > most_ns for one in found):
            within.add("launch-bound")  # what is left is little
    found = [finding for finding in found if finding.kind not in within]
    low, high = BELIEVED_INFLATION
    if not facts.side.is_on_device and not low <= inflation(facts.side) <= high:
        found = [replace(finding, confidence="low") for finding in found]

    def place(finding: Finding) -> tuple[bool, float]:
        """What only says where the time is comes after a cause that is about as large."""
        behind_ns = WORTH_A_LINE * step_ns if finding.kind in ("launch-bound", "tiny operators") else 0.0
        return finding.kind != CONTENTION, finding.at_best_ns + behind_ns

    return tuple(sorted(found, key=place))


def _without(
    facts: StepFacts,
    kind: Kind,
    evidence: str,
    gone_ns: float,
    pieces: Sequence[Piece],
    confidence: str = "fair",
    *,
    lines: tuple[LineShare, ...] | None = None,
    title: str = "",
    change: str = "",
) -> Finding:
    """What the step would take at best if so much of it were gone, which is of these pieces.

    Unless given, `lines` are those of these pieces; title and change are what is said of the kind.
    """
    step_ns, on_device = facts.side.step_ns, facts.side.is_on_device
    usual, to_try = _SAID[kind]
    change = change or to_try
    if lines is None:
        parts = {(piece.phase, piece.operator or piece.category) for piece in pieces}
        lines = lines_of(
            facts.side.found,
            lambda row: not row.doing and (row.phase, row.operator or _idle(row)) in parts,
        )
    code = ""  # only where the program is known to lack it
    if kind == "starved by the loader" and facts.loads_alone and on_device:  # a CPU has no cores to spare
        code = "DataLoader(..., num_workers=8, pin_memory=True)"
    if kind == "many optimizer calls" and facts.optimizer in _FUSED:
        code = f"torch.optim.{facts.optimizer}(..., fused=True)"
    share = min(gone_ns / max(_time_ns(pieces), 1), 1.0)
    return Finding(
        kind,
        evidence,
        step_ns,
        min(step_ns, max(0, round(step_ns - gone_ns))),
        confidence,
        title or ("" if on_device else _TITLES_ON_CPU.get(kind, "")) or usual,
        change,
        code,
        lines,
        on_device or not (change.startswith(_LARGER_BATCH) or kind == CONTENTION),
        {piece: share * piece.time_ns for piece in pieces},
    )


def _if_large(
    facts: StepFacts,
    kind: Kind,
    evidence: str,
    mine: Sequence[Piece],
    least: float = WORTH_A_LINE,
    confidence: str = "fair",
    *,
    title: str = "",
    change: str = "",
) -> Iterable[Finding]:
    """A finding about all the time of these pieces, if that is a large enough share of the step.

    The `{share}` in its evidence is that.
    """
    time_ns, step_ns = _time_ns(mine), facts.side.step_ns
    if time_ns >= least * step_ns:
        seen = evidence.replace("{share}", format_percent(time_ns / step_ns))
        yield _without(facts, kind, seen, time_ns, mine, confidence, title=title, change=change)


def _time_ns(pieces: Iterable[Piece]) -> int:
    return sum(piece.time_ns for piece in pieces)


def _calls(pieces: Iterable[Piece]) -> float:
    return sum(float(piece.calls) for piece in pieces)


def lines_of(
    found: ProfiledPass, belongs: Callable[[LineTime], bool], *, of_another_thread: bool = False
) -> tuple[LineShare, ...]:
    """The three lines with most of the time of a cause, whose rows are those that belong to it.

    They are of the thread that steps, unless asked for those that another thread was at meanwhile.
    """
    rows = [row for row in found.lines if (row.doing == OTHER_THREAD) == of_another_thread and belongs(row)]
    whole_ns = sum(row.time_ns for row in rows)
    of_line: dict[tuple[str, int, str], list[LineTime]] = defaultdict(list)
    for row in rows:
        if row.path:
            of_line[row.path, row.line, row.function].append(row)
    shares = [
        LineShare(*line, mine[0].is_definition, mine[0].called, sum(row.time_ns for row in mine) / whole_ns)
        for line, mine in of_line.items()
    ]
    largest = sorted(shares, key=lambda one: -one.share)[:3]
    return tuple(one for one in largest if one.share >= WORTH_A_LINE)


def _idle(row: LineTime) -> str:
    """The category of its piece, where no operator runs."""
    return f"{IDLE}: {row.cause.replace('_', ' ')}"


def _is_of_host(row: LineTime) -> bool:
    return _idle(row) in HOST_CAUSES


def _of_host(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces in which a device waits for its host, or a host runs no operator."""
    return [p for p in pieces if p.category in HOST_CAUSES]


def _own_share(facts: StepFacts) -> float:
    """Of the time of its calls, what they would take if other programs had no core."""
    return max(1 - (facts.side.found.waited_share or 0.0), WORTH_A_LINE)


# The rules


def _waits(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """A GPU waits for a loader where it is idle meanwhile; a CPU does all that the loader does on its thread.

    Gaps before a loader, which older files count toward it, are not its own.
    """
    on_device = facts.side.is_on_device
    of_loader = [
        p
        for p in pieces
        if p.category == "idle: data wait"
        or (not on_device and p.phase == "data" and p.category not in HOST_CAUSES)
    ]
    who = "the GPU waits for the data loader" if on_device else "it is in the data loader"
    evidence = f"{who} for {{share}} of the step"
    yield from _if_large(facts, "starved by the loader", evidence, of_loader, confidence="high")
    held_up = tuple(_held_up(facts, _of_host(pieces)))
    yield from held_up
    if all(finding.kind != "another thread runs" for finding in held_up):  # else the rest waits for it too
        yield from _for_host(facts, pieces, sum(finding.gain_ns for finding in held_up))


def _held_up(facts: StepFacts, of_host: Sequence[Piece]) -> Iterable[Finding]:
    """What is known to hold up a host that keeps its device waiting, or runs no operator."""
    found, step_ns = facts.side.found, facts.side.step_ns
    times_ns = Counter[str]()
    for row in found.lines:
        if _is_of_host(row):
            times_ns[row.doing] += row.time_ns
    collecting, elsewhere = (times_ns[doing] / found.window_ns for doing in (GC, OTHER_THREAD))
    if collecting >= WORTH_A_LINE:
        evidence = f"for {format_percent(collecting)} of the step Python's garbage collector runs"
        lines = lines_of(found, lambda row: _is_of_host(row) and row.doing == GC)
        gone_ns = collecting * step_ns
        yield _without(facts, "collects garbage", evidence, gone_ns, of_host, "high", lines=lines)
    if elsewhere >= max(WORTH_A_LINE, _time_ns(of_host) / step_ns / 2):
        evidence = f"for {format_percent(elsewhere)} of the step another thread of Python holds the GIL"
        lines = lines_of(found, _is_of_host, of_another_thread=True)
        yield _without(facts, "another thread runs", evidence, elsewhere * step_ns, of_host, lines=lines)


def _for_host(facts: StepFacts, pieces: Sequence[Piece], known_ns: float) -> Iterable[Finding]:
    """A host that keeps its device waiting for other reasons than those that are known."""
    step_ns, on_device, found = facts.side.step_ns, facts.side.is_on_device, facts.side.found
    of_host = _of_host(pieces)
    in_python = [p for p in of_host if p.category == "idle: python"]
    in_driver = [p for p in of_host if p.category == "idle: runtime api"]
    known = known_ns / step_ns
    for_host = _time_ns(of_host) / step_ns - known
    if not isinstance(facts.busy_share, Missing):  # a profiler slows the host
        for_host = min(for_host, 1 - facts.busy_share)
    python, driver = max(0.0, _time_ns(in_python) / step_ns - known), _time_ns(in_driver) / step_ns
    own_python = 0.0 if on_device else min(python, _own_python_ns(found) / found.window_ns)
    calls = _calls(pieces)
    if for_host < IDLE_TO_BE_LAUNCH_BOUND or (not calls and not on_device):  # operators were not recorded
        return
    # Python takes some 10 us for each operator that it calls: beyond this it does something else. A GPU that
    # waits waits for all that the host does.
    a_pause_ns = 60_000 if on_device else 100_000 / _own_share(facts)
    is_paused = python > for_host / 2 and python * step_ns > a_pause_ns * calls
    if is_paused or own_python > for_host / 2:
        often = max(pieces, key=lambda p: p.calls)
        evidence = f"for {format_percent(python)} of the step the host is in Python and no operator runs"
        if often.calls >= 100 and often.calls >= calls / 2:
            evidence += f", mostly around {float(often.calls):.0f} calls of {bare_name(often.operator)}"
        paused = _without(facts, "paused in Python", evidence, python * step_ns, in_python)
        if any(one.share > _MOSTLY and one.function != "<module>" for one in paused.lines):
            paused = replace(paused, title=f"{paused.title} in {paused.lines[0].function}()")
        if paused.lines and not on_device:
            less = "to do this less often, or without a loop in Python: the line says what runs"
            paused = replace(paused, change=less)
        yield paused
    elif driver > for_host / 2:
        evidence = f"for {format_percent(driver)} of the step the host is in calls of the driver"
        title = change = ""
        if facts.allocates:
            title = "The GPU waits for memory to be allocated and freed"
            change = (
                "to keep buffers, without empty_cache() in the loop;"
                " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            )
        gone_ns = driver * step_ns
        yield _without(
            facts, "waits for the driver", evidence, gone_ns, in_driver, title=title, change=change
        )
    elif on_device:
        lengths = [k.time_ns / k.calls for k in found.kernels for _ in range(k.calls)]
        is_sure = bool(lengths) and median(lengths) < _SHORT_KERNEL_NS
        evidence = f"for {format_percent(for_host)} of the step the GPU waits for the host"
        if is_sure:
            evidence += f", and half of its kernels take less than {format_seconds(median(lengths) * 1e-9)}"
        confidence = "high" if is_sure else "fair"
        yield _without(facts, "launch-bound", evidence, for_host * step_ns, of_host, confidence)
    else:
        evidence = f"{format_percent(for_host)} of the step lies between operators"
        are_tiny = _calls(_tiny_ones(facts, pieces)) >= _MOSTLY * calls
        change = "" if are_tiny else "torch.compile, or fewer operators"
        yield _without(facts, "launch-bound", evidence, for_host * step_ns, of_host, change=change)


def _tiny_ones(facts: StepFacts, pieces: Sequence[Piece]) -> list[Piece]:
    """Operators of a CPU that take hardly longer than their call."""
    tiny_ns = _TINY_NS / _own_share(facts)
    return [p for p in pieces if p.calls and p.time_ns < tiny_ns * p.calls]


def _own_python_ns(found: ProfiledPass) -> int:
    """Time at lines of the program that call hardly any operator."""
    calling_ns, between_ns = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for row in found.lines:
        if row.path and not row.doing and (row.operator or _is_of_host(row)):
            times_ns = calling_ns if row.operator else between_ns
            times_ns[row.path, row.line] += row.time_ns
    return sum(ns for line, ns in between_ns.items() if calling_ns[line] < WORTH_A_LINE * ns)


def _results(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Calls in which the host waits for all work of the GPU: until it launches again, the GPU has none.

    Without them the host could at best run ahead by the time that it waits in them.
    """
    found, step_ns, of_host = facts.side.found, facts.side.step_ns, _of_host(pieces)
    if not facts.side.is_on_device:
        return
    calls: Counter[str] = Counter()
    waiting_ns = 0.0
    for row in found.operators:
        if row.operator in _RESULTS:
            calls[row.operator] += row.calls
            waiting_ns += row.cpu_ns / found.steps
    copies = {
        k.operator: k.calls
        for k in found.kernels
        if k.operator and k.time_class == "copy_d2h" and _PAGEABLE in k.name.lower()
    }
    for name, count in copies.items():
        rows = [o for o in found.operators if o.operator == name and o.kernels and name not in _RESULTS]
        if rows:
            calls[name] += count
            share = min(1.0, count / sum(o.kernels for o in rows))
            waiting_ns += share * sum(o.cpu_ns for o in rows) / found.steps
    gone_ns = min(waiting_ns, _time_ns(of_host))
    if gone_ns < WORTH_A_LINE * step_ns:
        return
    named = [f"{bare_name(name)} {count / found.steps:.3g} times" for name, count in calls.most_common(3)]
    evidence = (
        f"for {format_percent(min(waiting_ns / step_ns, 1.0))} of the step the host waits for values"
        f" that the GPU has yet to compute ({', '.join(named)})"
    )
    name, count = calls.most_common(1)[0]
    called = {**_RESULTS, **_COPIES}.get(name, bare_name(name))
    title = f"{called} makes the CPU wait, {count / found.steps:.3g} times a step"
    lines = lines_of(found, lambda row: row.operator in calls)
    yield _without(facts, "waits for results", evidence, gone_ns, of_host, lines=lines, title=title)


def _single_values(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """A loop over elements of tensors on a CPU: `.item()`, what is called as often, and its Python.

    torch's own optimizers read the number of their step so, for each parameter. Where a product is called as
    often, the loop is over calls of a model.
    """
    mine = [p for p in pieces if p.phase != "optimizer"]
    calls: dict[str, float] = defaultdict(float)
    for piece in mine:
        if piece.category in ("cast_copy", "view_alloc", "elementwise", "reduction"):  # item counts as a copy
            calls[piece.operator] += float(piece.calls)
    count = calls["aten::item"]
    of_model = any(p.category in PRODUCTS and p.calls >= _AS_OFTEN * count for p in mine)
    if facts.side.is_on_device or count < 100 or of_model:
        return
    loop = {name for name, often in calls.items() if often >= _AS_OFTEN * count}
    of_loop = [p for p in mine if p.operator in loop]
    if sum(calls[name] for name in loop) >= _calls(mine) / 2:
        of_loop += _of_host(mine)
    evidence = f"{count:.0f} values are read one by one, for {{share}} of the step"
    title = f".item() is called {count:.0f} times a step"
    yield from _if_large(facts, "reads single values", evidence, of_loop, title=title)


def _optimizer(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """An optimizer that calls each operator for each parameter.

    Without one of torch, updates are what a CPU computes in place and without a gradient.
    """
    by_phase: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        if piece.category == "elementwise" or piece.phase == "optimizer":
            by_phase[piece.phase].append(piece)
    mine, title, change = by_phase["optimizer"], "", ""
    if facts.optimizer and facts.optimizer not in _FUSED:
        joined = "foreach=True" if facts.optimizer in _FOREACH else "torch.compile"
        change = f"{joined} of {facts.optimizer}, which has no fused=True"
    if not (facts.has_optimizer or facts.side.is_on_device):
        mine, title = by_phase["forward"], "Parameters are updated by hand, one operator at a time"
        change = "an optimizer of torch.optim with fused=True, or torch._foreach_ functions"
        in_place = _calls(p for p in mine if p.operator.endswith("_"))
        if in_place < 8 or not 0 < 2 * _time_ns(by_phase["backward"]) < _time_ns(mine):
            return
    calls = _calls(p for p in mine if p.category == "elementwise" and p.operator.startswith("aten::"))
    is_joined = any("_foreach_" in p.operator or "_fused_" in p.operator for p in mine)
    if calls < 50 or is_joined:
        return
    evidence = f"updates take {{share}} of the step in {calls:.0f} calls for one parameter each"
    yield from _if_large(facts, "many optimizer calls", evidence, mine, title=title, change=change)


def _wider_types(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Products in a wider type than others of their backward pass, and in fp64 on a CPU.

    Going forward autocast hides types: there the names of a GPU's kernels tell them.
    """
    found, step_ns = facts.side.found, facts.side.step_ns
    in_fp64 = [] if facts.side.is_on_device else list(_in_fp64(facts, pieces))
    yield from in_fp64
    times_ns = product_types(found)
    if len(times_ns) < 2 or in_fp64:
        return
    narrow = min(times_ns, key=BYTES_OF.__getitem__)
    wide_ns = {name: ns for name, ns in times_ns.items() if BYTES_OF[name] > BYTES_OF[narrow]}
    which = "products of the backward pass"
    kernels_ns = sum(k.time_ns for k in found.kernels if type_of_kernel(k.name) == "fp32")
    if set(wide_ns) == {"float"} and kernels_ns > wide_ns["float"]:
        wide_ns, which = {"float": kernels_ns}, "products"
    gone_ns = sum(wide_ns.values()) / found.steps
    calls = Counter[str]()
    for name, row in products_backward(found):
        calls[name] += row.calls
    if calls[narrow] < WORTH_A_LINE * calls.total() or gone_ns < WORTH_A_LINE * step_ns:
        return
    evidence = (
        f"{which} in {' and '.join(sorted(wide_ns))} take {format_percent(gone_ns / step_ns)} of the"
        f" step, while others of it are in {narrow}"
    )
    title = f"{which.capitalize()} run in {' and '.join(_TYPES.get(name, name) for name in wide_ns)}"
    products = [p for p in pieces if p.category in PRODUCTS]
    yield _without(facts, "wider types", evidence, gone_ns, products, lines=(), title=title)


def _in_fp64(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """What a CPU computes in fp64: in fp32 it takes twice as many numbers at once."""
    of_numbers = (*PRODUCTS, "elementwise", "norm", "reduction", "softmax_loss")
    are_wide = (row for row in facts.side.found.operators if set(row.dtypes.split(",")) == {"double"})
    rows = [row for row in are_wide if row.category in of_numbers]
    wide = {(row.phase, row.operator, row.shapes) for row in rows}
    share = sum(row.time_ns for row in rows) / facts.side.found.window_ns
    if share >= _MUCH:
        evidence = (
            f"operators in double take {format_percent(share)} of the step; in float half of that at best"
        )
        mine = [p for p in pieces if (p.phase, p.operator, p.shapes) in wide]
        title = "It computes in fp64"
        change = "float32 for data and weights: NumPy's arrays are float64 unless told"
        gone_ns = share * facts.side.step_ns / 2
        yield _without(facts, "wider types", evidence, gone_ns, mine, title=title, change=change)


def _tiny(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """On a CPU, operators that take hardly longer than their call; on a GPU that is being launch-bound."""
    tiny = _tiny_ones(facts, pieces)
    calls = _calls(tiny)
    if calls >= 500 and not facts.side.is_on_device:
        each = format_seconds(_time_ns(tiny) / calls * 1e-9)
        evidence = f"{calls:.0f} calls of {each} each take {{share}} of the step"
        yield from _if_large(facts, "tiny operators", evidence, tiny, _MOSTLY)


def _micro_batches(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Gradients of several small batches added up: backward() is called for each, after equal products.

    Worth a word from four of them, where most of the time goes to calls that take less than 100 us.
    """
    count, steps = facts.backward_calls, facts.side.found.steps
    products = [p for p in pieces if p.category in PRODUCTS and p.phase == "forward" and p.calls]
    if count < 4 or not products:
        return
    repeated_ns = _time_ns(p for p in products if p.calls * steps % count == 0)
    if repeated_ns < _AS_OFTEN * _time_ns(products):
        return
    short_ns = 100_000 / _own_share(facts)
    short = [p for p in pieces if p.phase != "optimizer" and 0 < p.time_ns < short_ns * p.calls]
    evidence = (
        f"backward() is called {count} times before the optimizer steps; {_calls(short):.0f} short calls, and"
        " what lies between them, take {share} of the step"
    )
    title, mine = f"It computes {count} micro-batches one by one", [*short, *_of_host(pieces)]
    yield from _if_large(facts, "micro-batches", evidence, mine, _MOSTLY, title=title)


def _bound(facts: StepFacts, _: Sequence[Piece]) -> Iterable[Finding]:
    """By compute or memory, whichever takes longer at the rate that this machine reached."""
    step_ns, (compute_ns, memory_ns) = facts.side.step_ns, facts.least_ns
    if max(compute_ns, memory_ns) < BOUND_SHARE * step_ns:
        return
    share = format_percent(max(compute_ns, memory_ns) / step_ns)
    if compute_ns >= memory_ns and not isinstance(facts.side.peak_flops, Missing):
        peak = format_rate(facts.side.peak_flops, "flop")
        evidence = f"it computes at {share} of the {peak} that large products reach here"
        change = "a faster device, or amp" if facts.precision_used == "fp32" else ""
        yield _without(facts, "compute-bound", evidence, step_ns - compute_ns, (), "high", change=change)
    elif not isinstance(facts.copy_bytes_per_s, Missing):
        copy = format_rate(facts.copy_bytes_per_s, "B")
        evidence = f"it moves at least {share} of the {copy} that large copies reach here"
        yield _without(facts, "memory-bound", evidence, step_ns - memory_ns, ())


def _matrix_units(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Products in fp32 where half precision is faster here, or in half precision where they gained
    nothing; not such as are too short for a launch, or are held up by memory."""
    single, half, step_ns = facts.single_peak, facts.half_peak, facts.side.step_ns
    if isinstance(single, Missing) or isinstance(half, Missing) or half < 1.3 * single:
        return  # a machine that gains so little has no matrix units
    products = [p for p in pieces if p.category == "gemm"]
    products_ns = _time_ns(products)
    is_short = facts.side.is_on_device and products_ns < _SHORT_KERNEL_NS * sum(p.calls for p in products)
    if is_short or facts.least_ns[1] >= BOUND_SHARE * products_ns:
        return
    gain = f"{half / single:.1f} x as fast under AMP here"
    title = change = ""
    if facts.precision_used == "fp32":
        saved_ns = round(products_ns * (1 - single / half))
        share = format_percent(products_ns / step_ns)
        evidence = f"its products, {share} of the step, are in fp32, and large ones are {gain}"
        confidence = "fair"
    elif facts.precision_used.startswith("amp"):
        known = [(p, flops_of_call(p.operator, p.shapes)) for p in products]
        sums = [(p.time_ns, float(p.calls) * f) for p, f in known if not isinstance(f, Missing)]
        time_ns, flops = sum(ns for ns, _ in sums), sum(f for _, f in sums)
        of_step = (facts.flops_per_step or 0) / (step_ns * 1e-9)
        if not time_ns or max(flops / (time_ns * 1e-9), of_step) > single:
            return
        saved_ns = round(time_ns - flops / half * 1e9)
        reached = format_rate(flops / (time_ns * 1e-9), "flop")
        evidence = (
            f"its products reach {reached} in half precision, no more than in fp32; large ones are {gain}"
        )
        title, change = "Matmul is no faster in half precision", "sizes that are multiples of 8"
        confidence = "high"
    else:
        return
    if saved_ns >= WORTH_A_LINE * step_ns:
        kind: Kind = "matrix units unused"
        yield _without(facts, kind, evidence, saved_ns, products, confidence, title=title, change=change)


def _power_capped(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Assumes that the time of its work is inversely proportional to the clock; memory-bound work gains
    less."""
    share, clock, most = facts.capped_share, facts.clock_mhz, facts.clock_most_mhz
    if isinstance(share, Missing) or isinstance(clock, Missing) or isinstance(most, Missing):
        return
    if share >= WORTH_A_LINE and most > 0:
        busy = [p for p in pieces if p.operator]
        saved_ns = max(0, round(_time_ns(busy) * (1 - clock / most)))
        evidence = (
            f"a power cap held the clock down for {format_percent(share)} of the time,"
            f" to {clock / 1000:.2f} of {most / 1000:.2f} GHz"
        )
        yield _without(facts, "power-capped", evidence, saved_ns, busy, lines=())


def _communication(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Time in which nothing but communication runs, waiting for other ranks included."""
    found = facts.side.found
    share = sum(s.time_ns for s in found.slices if s.time_class == "communication") / found.window_ns
    if share >= WORTH_A_LINE:
        told = format_percent(share)
        evidence = f"for {told} of the step it sends, or waits for other ranks, and nothing else"
        mine = [p for p in pieces if p.category == "communication"]
        by_hand = "to find a rank that is late; else to start it earlier (async_op=True), or to send less"
        change, gone_ns = "" if facts.has_ddp else by_hand, share * facts.side.step_ns
        yield _without(facts, "exposed communication", evidence, gone_ns, mine, change=change)


def _copies(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Copies of tensors into another type, layout, place or device."""
    mine, found = [p for p in pieces if p.category == "cast_copy"], facts.side.found
    most = sorted(mine, key=lambda p: -p.time_ns)[:2]
    named = " and ".join(dict.fromkeys(bare_name(p.operator) for p in most))
    evidence = f"copies and casts take {{share}} of the step, most of it in {named}"
    copied = [k for k in found.kernels if k.time_class == "copy_h2d"]
    from_pageable_ns = sum(k.time_ns for k in copied if _PAGEABLE in k.name.lower()) / found.steps
    confidence, title, change = "fair", "", ""
    if from_pageable_ns > _time_ns(mine) / 2:
        confidence, title = "high", "Data comes from pageable memory"
        change = "pin_memory=True of the DataLoader, to(device, non_blocking=True)"
    yield from _if_large(facts, "copies", evidence, mine, _MUCH, confidence, title=title, change=change)


def _elementwise(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """On a GPU each of these reads and writes all its tensors; compiled, several do so once."""
    mine = [p for p in pieces if p.category == "elementwise" and p.phase != "optimizer"]
    evidence = f"{_calls(mine):.0f} elementwise calls, each through memory, take {{share}} of the step"
    if facts.side.is_on_device and all(p.category != "fused" for p in pieces):
        yield from _if_large(facts, "unfused elementwise", evidence, mine, _MUCH)


def _compiling(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """torch.compile at work in steps that were to be measured, in ranges that torch 2.13 names so."""
    mine = [p for p in pieces if re.fullmatch(r"dynamo|\w*_compile", p.operator)]
    evidence = "torch.compile compiles for {share} of the profiled steps"
    title, change = {
        None: ("torch.compile compiles", f"{_LATER}; else {_RECOMPILES}"),
        False: ("torch.compile compiles for the first time", _LATER),
        True: ("", ""),
    }[facts.compiled_again]
    kind: Kind = "compiles again"
    yield from _if_large(facts, kind, evidence, mine, confidence="high", title=title, change=change)


def _contention(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Other programs had the CPUs, as the kernel counted while the window was profiled."""
    waited, others = facts.side.found.waited_share, facts.side.found.others_cores
    if waited is not None and others is not None and waited >= WORTH_A_LINE:
        evidence = (
            f"other programs took {others:.1f} cores while it ran: the step waited"
            f" {format_percent(waited)} of the time for one"
        )
        yield _without(facts, CONTENTION, evidence, waited * facts.side.step_ns, pieces, lines=())


_RULES: tuple[Callable[[StepFacts, Sequence[Piece]], Iterable[Finding]], ...] = (
    _waits,
    _results,
    _single_values,
    _optimizer,
    _wider_types,
    _tiny,
    _micro_batches,
    _bound,
    _matrix_units,
    _power_capped,
    _contention,
    _communication,
    _copies,
    _elementwise,
    _compiling,
)
