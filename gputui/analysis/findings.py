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
from gputui.worker.profiling.line_times import GC, OTHER_THREAD
from gputui.worker.profiling.op_categories import type_of_kernel

STARVED = "starved by the loader"
LAUNCH_BOUND = "launch-bound"
COMPUTE_BOUND = "compute-bound"
MEMORY_BOUND = "memory-bound"
MATRIX_UNITS_UNUSED = "matrix units unused"
POWER_CAPPED = "power-capped"
PAUSED_IN_PYTHON = "paused in Python"
WAITS_FOR_RESULTS = "waits for results"
MANY_OPTIMIZER_CALLS = "many optimizer calls"
WIDER_TYPES = "wider types"
TINY_OPERATORS = "tiny operators"
WAITS_FOR_DRIVER = "waits for the driver"
COLLECTS_GARBAGE = "collects garbage"
ANOTHER_THREAD = "another thread runs"
EXPOSED_COMMUNICATION = "exposed communication"
COPIES = "copies"
UNFUSED_ELEMENTWISE = "unfused elementwise"
COMPILES_AGAIN = "compiles again"
READS_SINGLE_VALUES = "reads single values"
MICRO_BATCHES = "micro-batches"
_BOUNDS = (COMPUTE_BOUND, MEMORY_BOUND)
_WAITS = (
    STARVED,
    LAUNCH_BOUND,
    PAUSED_IN_PYTHON,
    WAITS_FOR_DRIVER,
    COLLECTS_GARBAGE,
    ANOTHER_THREAD,
    CONTENTION,
    EXPOSED_COMMUNICATION,
)
"""A step that waits is bound by what it waits for, whatever it reaches of a peak."""
_LARGER_BATCH = "a larger batch"
_FEWER_OPERATORS = "torch.compile, or fewer operators"
_LESS_PYTHON = "to do this less often, or without a loop in Python: the line says what runs"
_RECOMPILES = (
    "to keep what changes between calls, a shape or a Python argument: TORCH_LOGS=recompiles says which"
)
_LATER = "later steps, if these are the first ones: --after N"
_BY_HAND = "to find a rank that is late; else to start it earlier (async_op=True), or to send less"
_ALLOCATES = (
    "The GPU waits for memory to be allocated and freed",
    "to keep buffers, without empty_cache() in the loop; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
"""Title and advice, where that is known."""
_TO_TRY = {
    STARVED: "less work in the DataLoader, or more workers (with persistent_workers=True)",
    LAUNCH_BOUND: f"{_LARGER_BATCH} or torch.compile",
    COMPUTE_BOUND: "a faster device",
    MEMORY_BOUND: "a device with faster memory, or fused operators: torch.compile",
    POWER_CAPPED: "a higher power limit, if you may set one",
    PAUSED_IN_PYTHON: "to find what runs there: logging, evaluation, garbage collection, another thread",
    WAITS_FOR_RESULTS: "to keep these values on the GPU, or to read them once in many steps",
    MANY_OPTIMIZER_CALLS: "fused=True or foreach=True, where the optimizer takes it",
    WIDER_TYPES: "torch.autocast around these too, or to cast their weights",
    TINY_OPERATORS: f"{_LARGER_BATCH} or torch.compile",
    WAITS_FOR_DRIVER: (
        "to find its calls in the trace: memory is allocated and freed, or the device begins its work"
    ),
    COLLECTS_GARBAGE: "gc.freeze() once all is built, or to collect seldom",
    ANOTHER_THREAD: (
        "to move what that thread does into another process: only one thread of Python runs at a time"
    ),
    CONTENTION: "it again on an idle box: everything else takes longer too",
    EXPOSED_COMMUNICATION: (
        "to find a rank that is late; else larger buckets (bucket_cap_mb), or no_sync() in some steps"
    ),
    COPIES: "to keep one type and layout: fewer to(), clone(), contiguous(), cat()",
    UNFUSED_ELEMENTWISE: "torch.compile, which fuses them",
    READS_SINGLE_VALUES: "to compute on whole tensors, and to read one value at the end",
    MICRO_BATCHES: f"{_LARGER_BATCH}: fewer and larger ones do the same work in fewer calls",
    COMPILES_AGAIN: _RECOMPILES,
}
_TITLES = {
    STARVED: "The GPU waits for data",
    LAUNCH_BOUND: "The GPU waits for the CPU to launch work",
    COMPUTE_BOUND: "Arithmetic is the limit",
    MEMORY_BOUND: "Memory is the limit",
    MATRIX_UNITS_UNUSED: "Matmul runs in fp32",
    POWER_CAPPED: "A power cap holds the clock down",
    PAUSED_IN_PYTHON: "The GPU waits for Python",
    MANY_OPTIMIZER_CALLS: "The optimizer updates one parameter at a time",
    TINY_OPERATORS: "Operators are too short",
    WAITS_FOR_DRIVER: "The GPU waits for calls of the driver",
    COLLECTS_GARBAGE: "Python collects garbage",
    ANOTHER_THREAD: "Another thread of Python runs",
    CONTENTION: "It waits for cores that other programs have",
    EXPOSED_COMMUNICATION: "Communication is not hidden behind compute",
    COPIES: "It copies and casts tensors",
    UNFUSED_ELEMENTWISE: "Elementwise operators run one by one",
    COMPILES_AGAIN: "torch.compile compiles again",
}
_TITLES_ON_CPU = {
    STARVED: "It loads data",
    LAUNCH_BOUND: "It is between operators",
    PAUSED_IN_PYTHON: "Python runs between operators",
    WAITS_FOR_DRIVER: "It waits for calls of the driver",
}
_EXPLAINS = {
    READS_SINGLE_VALUES: (LAUNCH_BOUND, PAUSED_IN_PYTHON, TINY_OPERATORS),
    MICRO_BATCHES: (LAUNCH_BOUND, TINY_OPERATORS),
    PAUSED_IN_PYTHON: (MICRO_BATCHES,),
}
"""What is said of the same time more generally."""
_ONLY_WHERE = (LAUNCH_BOUND, TINY_OPERATORS)
_MOST_LINES = 3
WORTH_A_LINE = 0.1
IDLE_TO_BE_LAUNCH_BOUND = 0.2
"""Busy for less than four fifths of the step while it waits for the host."""
SHORT_KERNEL_NS = 10_000
"""About as long as a launch takes: a device cannot be kept busy with shorter kernels, launched one by one."""
BOUND_SHARE = 0.6
"""Share of a measured peak from which a step is bound by it; whole models seldom reach more."""
MATRIX_UNIT_GAIN = 1.3
"""Ratio of half to single precision in large products from which a machine must have matrix units."""
HOST_CAUSES = tuple(
    f"idle: {cause}" for cause in ("launch", "runtime api", "dispatch", "python", "kernel gap")
)
LOADER = "idle: data wait"
PYTHON = "idle: python"
_DRIVER = "idle: runtime api"
_PAUSE_NS, _PAUSE_ON_CPU_NS = 60_000, 100_000
"""Python takes some 10 us for each operator that it calls: beyond this it does something else. A GPU that
waits waits for all that the host does."""
_RESULTS = frozenset(
    f"aten::{name}"
    for name in ("item", "_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "_unique2")
)
"""What of a GPU's tensor the host cannot know until the GPU has done all work before it."""
_ITEM, _MANY_ITEMS, _AS_OFTEN = "aten::item", 100, 0.9
_OF_ELEMENTS = ("cast_copy", "view_alloc", "elementwise", "reduction")
"""Kinds of operators that a loop over elements calls; `item` counts as a copy."""
_METHODS = {
    **{
        f"aten::{name}": f".{name}()" for name in ("item", "nonzero", "equal", "masked_select", "to", "copy_")
    },
    "aten::_to_copy": ".to()",
    "aten::_local_scalar_dense": ".item()",
}
"""What a program calls, where an operator is not called by its own name."""
_PAGEABLE = "pageable"
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch that take `fused=True` on any device."""
_FOREACH = ("Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Those that take only `foreach=True`."""
_MANY_CALLS, _UPDATES = 50, 8
_JOINED = "an optimizer of torch.optim with fused=True, or torch._foreach_ functions"
_OF_NUMBERS = (*PRODUCTS, "elementwise", "norm", "reduction", "softmax_loss")
_TYPES = {"float": "fp32", "double": "fp64"}
_TINY_NS = 10_000
"""An operator of a CPU that takes less is mostly the call itself."""
_TINY_CALLS, _TINY_SHARE = 500, 0.5
_MICRO_BATCHES, _SHORT_NS = 4, 100_000
"""So many a step are worth a word, where most of the time goes to calls that take less than this."""
_MUCH, _MOSTLY = 0.2, 0.5
"""Share of a step from which a kind of work that every step has some of is worth a word."""
_COMPILES = re.compile(r"dynamo|\w*_compile")
"""Ranges in which torch.compile compiles, as torch 2.13 names them."""
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

    kind: str
    """One of the words above: `launch-bound`."""
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
    pieces = pieces_seen(facts.side)
    found = [finding for rule in _RULES for finding in rule(facts, pieces)]
    if any(finding.kind in _WAITS for finding in found):
        found = [finding for finding in found if finding.kind not in _BOUNDS]
    for results in [finding for finding in found if finding.kind == WAITS_FOR_RESULTS]:
        most_ns = results.at_best_ns - round(IDLE_TO_BE_LAUNCH_BOUND * facts.side.step_ns)
        found = [
            f for f in found if f.kind != LAUNCH_BOUND or f.at_best_ns <= most_ns
        ]  # what is left is little
    kinds = {finding.kind for finding in found}
    within = {kind for cause, explained in _EXPLAINS.items() if cause in kinds for kind in explained}
    if COMPILES_AGAIN in kinds and facts.compiled_again is not True:
        within |= {LAUNCH_BOUND, PAUSED_IN_PYTHON}  # its own Python
    found = [finding for finding in found if finding.kind not in within]
    low, high = BELIEVED_INFLATION
    if not facts.side.is_on_device and not low <= inflation(facts.side) <= high:
        found = [replace(finding, confidence="low") for finding in found]
    step_ns = facts.side.step_ns

    def place(finding: Finding) -> tuple[bool, float]:
        """What only says where the time is comes after a cause that is about as large."""
        behind_ns = WORTH_A_LINE * step_ns if finding.kind in _ONLY_WHERE else 0.0
        return finding.kind != CONTENTION, finding.at_best_ns + behind_ns

    return tuple(sorted(found, key=place))


def _waits(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """A GPU waits for a loader where it is idle meanwhile; a CPU does all that the loader does on its thread.

    Gaps before a loader, which older files count toward it, are not its own.
    """
    step_ns, on_device = facts.side.step_ns, facts.side.is_on_device
    of_loader = [
        p
        for p in pieces
        if p.category == LOADER or (not on_device and p.phase == "data" and p.category not in HOST_CAUSES)
    ]
    who = "the GPU waits for the data loader" if on_device else "it is in the data loader"
    evidence = f"{who} for {{share}} of the step"
    yield from _if_large(facts, STARVED, evidence, of_loader, confidence="high")
    held_up = tuple(_held_up(facts, _of_host(pieces)))
    yield from held_up
    if all(finding.kind != ANOTHER_THREAD for finding in held_up):  # else the rest waits for that thread too
        yield from _for_host(facts, pieces, sum(finding.gain_ns for finding in held_up) / step_ns)


def _of_host(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces in which a device waits for its host, or a host runs no operator."""
    return [p for p in pieces if p.category in HOST_CAUSES]


def _held_up(facts: StepFacts, of_host: Sequence[Piece]) -> Iterable[Finding]:
    """What is known to hold up a host that keeps its device waiting, or runs no operator."""
    found, step_ns = facts.side.found, facts.side.step_ns
    for_host = sum(p.time_ns for p in of_host) / step_ns
    times_ns = Counter[str]()
    for row in found.lines:
        if _is_of_host(row):
            times_ns[row.doing] += row.time_ns
    collecting, elsewhere = (times_ns[doing] / found.window_ns for doing in (GC, OTHER_THREAD))
    if collecting >= WORTH_A_LINE:
        evidence = f"for {format_percent(collecting)} of the step Python's garbage collector runs"
        lines = lines_of(found, lambda row: _is_of_host(row) and row.doing == GC)
        yield _without(facts, COLLECTS_GARBAGE, evidence, collecting * step_ns, "high", lines, of=of_host)
    if elsewhere >= max(WORTH_A_LINE, for_host / 2):
        evidence = f"for {format_percent(elsewhere)} of the step another thread of Python holds the GIL"
        lines = lines_of(found, _is_of_host, of_another_thread=True)
        yield _without(facts, ANOTHER_THREAD, evidence, elsewhere * step_ns, "fair", lines, of=of_host)


def _for_host(facts: StepFacts, pieces: Sequence[Piece], known: float) -> Iterable[Finding]:
    """A host that keeps its device waiting for other reasons than those that are `known`."""
    step_ns, on_device, found = facts.side.step_ns, facts.side.is_on_device, facts.side.found
    of_host = _of_host(pieces)
    for_host = sum(p.time_ns for p in of_host) / step_ns - known
    if not isinstance(facts.busy_share, Missing):  # a profiler slows the host
        for_host = min(for_host, 1 - facts.busy_share)
    if for_host < IDLE_TO_BE_LAUNCH_BOUND:
        return
    in_python = [p for p in of_host if p.category == PYTHON]
    in_driver = [p for p in of_host if p.category == _DRIVER]
    python, driver = (sum(p.time_ns for p in mine) / step_ns for mine in (in_python, in_driver))
    python = max(0.0, python - known)
    own_python = 0.0 if on_device else min(python, _own_python_ns(found) / found.window_ns)
    calls = sum(float(p.calls) for p in pieces)
    a_pause_ns = _PAUSE_NS if on_device else _PAUSE_ON_CPU_NS / _own_share(facts)
    if not calls and not on_device:
        return  # its operators were not recorded
    is_paused = python > for_host / 2 and python * step_ns > a_pause_ns * calls
    if is_paused or own_python > for_host / 2:
        often = max(pieces, key=lambda p: p.calls)
        between = f", mostly around {float(often.calls):.0f} calls of {bare_name(often.operator)}"
        evidence = f"for {format_percent(python)} of the step the host is in Python and no operator runs"
        evidence += between if often.calls >= _MANY_CALLS and often.calls >= calls / 2 else ""
        paused = _without(facts, PAUSED_IN_PYTHON, evidence, python * step_ns, "fair", of=in_python)
        if any(one.share > _MOSTLY and one.function != "<module>" for one in paused.lines):
            paused = replace(paused, title=f"{paused.title} in {paused.lines[0].function}()")
        yield replace(paused, change=_LESS_PYTHON) if paused.lines and not on_device else paused
    elif driver > for_host / 2:
        evidence = f"for {format_percent(driver)} of the step the host is in calls of the driver"
        waits = _without(facts, WAITS_FOR_DRIVER, evidence, driver * step_ns, "fair", of=in_driver)
        yield replace(waits, title=_ALLOCATES[0], change=_ALLOCATES[1]) if facts.allocates else waits
    elif on_device:
        lengths = [k.time_ns / k.calls for k in found.kernels for _ in range(k.calls)]
        is_sure = bool(lengths) and median(lengths) < SHORT_KERNEL_NS
        evidence = f"for {format_percent(for_host)} of the step the GPU waits for the host"
        if is_sure:
            evidence += f", and half of its kernels take less than {format_seconds(median(lengths) * 1e-9)}"
        yield _without(
            facts,
            LAUNCH_BOUND,
            evidence,
            for_host * step_ns,
            "high" if is_sure else "fair",
            of=of_host,
        )
    else:
        evidence = f"{format_percent(for_host)} of the step lies between operators"
        apart = _without(facts, LAUNCH_BOUND, evidence, for_host * step_ns, "fair", of=of_host)
        tiny_ns = _TINY_NS / _own_share(facts)
        tiny = sum(float(p.calls) for p in pieces if p.calls and p.time_ns < tiny_ns * p.calls)
        are_tiny = tiny >= _TINY_SHARE * calls
        yield apart if are_tiny else replace(apart, change=_FEWER_OPERATORS, has_at_best=True)


def _own_share(facts: StepFacts) -> float:
    """Of the time of its calls, what they would take if other programs had no core."""
    return max(1 - (facts.side.found.waited_share or 0.0), WORTH_A_LINE)


def _own_python_ns(found: ProfiledPass) -> int:
    """Time at lines of the program that call hardly any operator."""
    calling_ns, between_ns = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for row in found.lines:
        if row.path and not row.doing and (row.operator or _is_of_host(row)):
            times_ns = calling_ns if row.operator else between_ns
            times_ns[row.path, row.line] += row.time_ns
    return sum(ns for line, ns in between_ns.items() if calling_ns[line] < WORTH_A_LINE * ns)


def _is_of_host(row: LineTime) -> bool:
    return _idle(row) in HOST_CAUSES


def _idle(row: LineTime) -> str:
    """The category of its piece, where no operator runs."""
    return f"{IDLE}: {row.cause.replace('_', ' ')}"


def lines_of(
    found: ProfiledPass, belongs: Callable[[LineTime], bool], *, of_another_thread: bool = False
) -> tuple[LineShare, ...]:
    """The lines with most of the time of a cause, whose rows are those that belong to it.

    They are of the thread that steps, unless asked for those that another thread was at meanwhile.
    """
    rows = [row for row in found.lines if (row.doing == OTHER_THREAD) == of_another_thread and belongs(row)]
    whole_ns = sum(row.time_ns for row in rows)
    of_line: dict[tuple[str, int, str], list[LineTime]] = {}
    for row in rows:
        if row.path:
            of_line.setdefault((row.path, row.line, row.function), []).append(row)
    shares = [
        LineShare(*line, mine[0].is_definition, mine[0].called, sum(row.time_ns for row in mine) / whole_ns)
        for line, mine in of_line.items()
    ]
    largest = sorted(shares, key=lambda one: -one.share)[:_MOST_LINES]
    return tuple(one for one in largest if one.share >= WORTH_A_LINE)


def _without(
    facts: StepFacts,
    kind: str,
    evidence: str,
    gone_ns: float,
    confidence: str,
    lines: tuple[LineShare, ...] | None = None,
    title: str = "",
    *,
    of: Iterable[Piece] = (),
) -> Finding:
    """What the step would take at best if so much of it were gone, `of` these pieces of it.

    Unless given, `lines` are those of these pieces.
    """
    step_ns, change = facts.side.step_ns, _change(facts, kind)
    on_cpu = {} if facts.side.is_on_device else _TITLES_ON_CPU
    pieces = list(of)
    parts = {(piece.phase, piece.operator or piece.category) for piece in pieces}
    if lines is None:
        lines = lines_of(
            facts.side.found,
            lambda row: not row.doing and (row.phase, row.operator or _idle(row)) in parts,
        )
    share = gone_ns / max(sum(piece.time_ns for piece in pieces), 1)
    return Finding(
        kind,
        evidence,
        step_ns,
        min(step_ns, max(0, round(step_ns - gone_ns))),
        confidence,
        title or on_cpu.get(kind) or _TITLES.get(kind, kind),
        change,
        _code(facts, kind),
        lines,
        facts.side.is_on_device or not (change.startswith(_LARGER_BATCH) or kind == CONTENTION),
        {piece: min(share, 1.0) * piece.time_ns for piece in pieces},
    )


def _if_large(
    facts: StepFacts,
    kind: str,
    evidence: str,
    mine: Sequence[Piece],
    least: float = WORTH_A_LINE,
    confidence: str = "fair",
    title: str = "",
) -> Iterable[Finding]:
    """A finding about all the time of these pieces, if that is a large enough share of the step.

    The `{share}` in its evidence is that.
    """
    time_ns, step_ns = sum(p.time_ns for p in mine), facts.side.step_ns
    if time_ns >= least * step_ns:
        told = evidence.replace("{share}", format_percent(time_ns / step_ns))
        yield _without(facts, kind, told, time_ns, confidence, title=title, of=mine)


def _change(facts: StepFacts, kind: str) -> str:
    is_amp = facts.precision_used.startswith("amp")
    if kind == MANY_OPTIMIZER_CALLS and facts.optimizer and facts.optimizer not in _FUSED:
        joined = "foreach=True" if facts.optimizer in _FOREACH else "torch.compile"
        return f"{joined} of {facts.optimizer}, which has no fused=True"
    if kind == COMPUTE_BOUND and facts.precision_used == "fp32":
        return f"{_TO_TRY[kind]}, or amp"
    if kind == MATRIX_UNITS_UNUSED:
        return "sizes that are multiples of 8" if is_amp else "amp: torch.autocast around the forward pass"
    return _TO_TRY.get(kind, "")


def _code(facts: StepFacts, kind: str) -> str:
    """Only where the program is known to lack it."""
    if kind == STARVED and facts.loads_alone and facts.side.is_on_device:  # a CPU has no cores to spare
        return "DataLoader(..., num_workers=8, pin_memory=True)"
    if kind == MANY_OPTIMIZER_CALLS and facts.optimizer in _FUSED:
        return f"torch.optim.{facts.optimizer}(..., fused=True)"
    return ""


def _results(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Calls in which the host waits for all work of the GPU: until it launches again, the GPU has none.

    Without them the host could at best run ahead by the time that it waits in them.
    """
    found, step_ns = facts.side.found, facts.side.step_ns
    if not facts.side.is_on_device:
        return
    copies = {
        k.operator: k.calls
        for k in found.kernels
        if k.operator and k.time_class == "copy_d2h" and _PAGEABLE in k.name.lower()
    }
    calls: Counter[str] = Counter()
    waiting_ns = 0.0
    for row in found.operators:
        if row.operator in _RESULTS:
            calls[row.operator] += row.calls
            waiting_ns += row.cpu_ns / found.steps
    for name, count in copies.items():
        rows = [o for o in found.operators if o.operator == name and o.kernels and name not in _RESULTS]
        if rows:
            calls[name] += count
            share = min(1.0, count / sum(o.kernels for o in rows))
            waiting_ns += share * sum(o.cpu_ns for o in rows) / found.steps
    idle_ns = sum(p.time_ns for p in pieces if p.category in HOST_CAUSES)
    if min(waiting_ns, idle_ns) < WORTH_A_LINE * step_ns:
        return
    named = [f"{bare_name(name)} {count / found.steps:.3g} times" for name, count in calls.most_common(3)]
    evidence = (
        f"for {format_percent(min(waiting_ns / step_ns, 1.0))} of the step the host waits for values"
        f" that the GPU has yet to compute ({', '.join(named)})"
    )
    name, count = calls.most_common(1)[0]
    called = _METHODS.get(name, bare_name(name))
    title = f"{called} makes the CPU wait, {count / found.steps:.3g} times a step"
    lines = lines_of(found, lambda row: row.operator in calls)
    gone_ns = min(waiting_ns, idle_ns)
    yield _without(facts, WAITS_FOR_RESULTS, evidence, gone_ns, "fair", lines, title, of=_of_host(pieces))


def _single_values(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """A loop over elements of tensors on a CPU: `.item()`, what is called as often, and its Python.

    torch's own optimizers read the number of their step so, for each parameter. Where a product is called as
    often, the loop is over calls of a model.
    """
    mine = [p for p in pieces if p.phase != "optimizer"]
    calls: dict[str, float] = defaultdict(float)
    for piece in mine:
        if piece.category in _OF_ELEMENTS:
            calls[piece.operator] += float(piece.calls)
    count = calls[_ITEM]
    of_model = any(p.category in PRODUCTS and p.calls >= _AS_OFTEN * count for p in mine)
    if facts.side.is_on_device or count < _MANY_ITEMS or of_model:
        return
    loop = {name for name, often in calls.items() if often >= _AS_OFTEN * count}
    of_loop = [p for p in mine if p.operator in loop]
    if sum(calls[name] for name in loop) >= sum(float(p.calls) for p in mine) / 2:
        of_loop += _of_host(mine)
    evidence = f"{count:.0f} values are read one by one, for {{share}} of the step"
    title = f".item() is called {count:.0f} times a step"
    yield from _if_large(facts, READS_SINGLE_VALUES, evidence, of_loop, title=title)


def _optimizer(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """An optimizer that calls each operator for each parameter.

    Without one of torch, updates are what a CPU computes in place and without a gradient.
    """
    by_phase: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        if piece.category == "elementwise" or piece.phase == "optimizer":
            by_phase[piece.phase].append(piece)
    mine, title = by_phase["optimizer"], ""
    if not (facts.has_optimizer or facts.side.is_on_device):
        mine, title = by_phase["forward"], "Parameters are updated by hand, one operator at a time"
        in_place = sum(float(p.calls) for p in mine if p.operator.endswith("_"))
        twice_ns = 2 * sum(p.time_ns for p in by_phase["backward"])
        if in_place < _UPDATES or not 0 < twice_ns < sum(p.time_ns for p in mine):
            return
    calls = sum(
        float(p.calls) for p in mine if p.category == "elementwise" and p.operator.startswith("aten::")
    )
    is_joined = any("_foreach_" in p.operator or "_fused_" in p.operator for p in mine)
    if calls < _MANY_CALLS or is_joined:
        return
    evidence = f"updates take {{share}} of the step in {calls:.0f} calls for one parameter each"
    for updates in _if_large(facts, MANY_OPTIMIZER_CALLS, evidence, mine, title=title):
        yield replace(updates, change=_JOINED) if title else updates


def _wider_types(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Products in a wider type than others of their backward pass, and in fp64 on a CPU.

    Going forward autocast hides types: there the names of a GPU's kernels tell them.
    """
    found, step_ns = facts.side.found, facts.side.step_ns
    products = [p for p in pieces if p.category in PRODUCTS]
    times_ns = product_types(found)
    in_fp64 = [] if facts.side.is_on_device else list(_in_fp64(facts, pieces))
    yield from in_fp64
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
    names = " and ".join(sorted(wide_ns))
    evidence = (
        f"{which} in {names} take {format_percent(gone_ns / step_ns)} of the"
        f" step, while others of it are in {narrow}"
    )
    title = f"{which.capitalize()} run in {' and '.join(_TYPES.get(name, name) for name in wide_ns)}"
    yield _without(facts, WIDER_TYPES, evidence, gone_ns, "fair", (), title, of=products)


def _in_fp64(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """What a CPU computes in fp64: in fp32 it takes twice as many numbers at once."""
    are_wide = (row for row in facts.side.found.operators if set(row.dtypes.split(",")) == {"double"})
    rows = [row for row in are_wide if row.category in _OF_NUMBERS]
    wide = {(row.phase, row.operator, row.shapes) for row in rows}
    share = sum(row.time_ns for row in rows) / facts.side.found.window_ns
    if share < _MUCH:
        return
    evidence = f"operators in double take {format_percent(share)} of the step; in float half of that at best"
    mine = [p for p in pieces if (p.phase, p.operator, p.shapes) in wide]
    title, gone_ns = "It computes in fp64", share * facts.side.step_ns / 2
    found = _without(facts, WIDER_TYPES, evidence, gone_ns, "fair", title=title, of=mine)
    yield replace(found, change="float32 for data and weights: NumPy's arrays are float64 unless told")


def _tiny(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """On a CPU, operators that take hardly longer than their call; on a GPU that is being launch-bound."""
    tiny_ns = _TINY_NS / _own_share(facts)
    tiny = [p for p in pieces if p.calls and p.time_ns / float(p.calls) < tiny_ns]
    calls = sum(float(p.calls) for p in tiny)
    if calls >= _TINY_CALLS and not facts.side.is_on_device:
        each = format_seconds(sum(p.time_ns for p in tiny) / calls * 1e-9)
        evidence = f"{calls:.0f} calls of {each} each take {{share}} of the step"
        yield from _if_large(facts, TINY_OPERATORS, evidence, tiny, _TINY_SHARE)


def _micro_batches(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Gradients of several small batches added up: backward() is called for each, after equal products."""
    count, steps = facts.backward_calls, facts.side.found.steps
    products = [p for p in pieces if p.category in PRODUCTS and p.phase == "forward" and p.calls]
    repeated_ns = sum(p.time_ns for p in products if p.calls * steps % count == 0) if count else 0
    if count < _MICRO_BATCHES or repeated_ns < _AS_OFTEN * sum(p.time_ns for p in products):
        return
    short_ns = _SHORT_NS / _own_share(facts)
    short = [p for p in pieces if p.phase != "optimizer" and 0 < p.time_ns < short_ns * p.calls]
    calls = sum(float(p.calls) for p in short)
    evidence = (
        f"backward() is called {count} times before the optimizer steps; {calls:.0f} short calls, and what"
        " lies between them, take {share} of the step"
    )
    title, mine = f"It computes {count} micro-batches one by one", [*short, *_of_host(pieces)]
    if products:
        yield from _if_large(facts, MICRO_BATCHES, evidence, mine, _TINY_SHARE, title=title)


def _bound(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """By compute or memory, whichever takes longer at the rate that this machine reached."""
    del pieces
    step_ns, (compute_ns, memory_ns) = facts.side.step_ns, facts.least_ns
    if max(compute_ns, memory_ns) < BOUND_SHARE * step_ns:
        return
    share = format_percent(max(compute_ns, memory_ns) / step_ns)
    if compute_ns >= memory_ns and not isinstance(facts.side.peak_flops, Missing):
        peak = format_rate(facts.side.peak_flops, "flop")
        evidence = f"it computes at {share} of the {peak} that large products reach here"
        yield _without(facts, COMPUTE_BOUND, evidence, step_ns - compute_ns, "high")
    elif not isinstance(facts.copy_bytes_per_s, Missing):
        copy = format_rate(facts.copy_bytes_per_s, "B")
        evidence = f"it moves at least {share} of the {copy} that large copies reach here"
        yield _without(facts, MEMORY_BOUND, evidence, step_ns - memory_ns, "fair")


def _matrix_units(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Products in fp32 where half precision is faster here, or in half precision where they gained
    nothing; not such as are too short for a launch, or are held up by memory."""
    single, half, step_ns = facts.single_peak, facts.half_peak, facts.side.step_ns
    if isinstance(single, Missing) or isinstance(half, Missing) or half < MATRIX_UNIT_GAIN * single:
        return
    products = [p for p in pieces if p.category == "gemm"]
    products_ns = sum(p.time_ns for p in products)
    is_short = facts.side.is_on_device and products_ns < SHORT_KERNEL_NS * sum(p.calls for p in products)
    if is_short or facts.least_ns[1] >= BOUND_SHARE * products_ns:
        return
    gain = f"{half / single:.1f} x as fast under AMP here"
    if facts.precision_used == "fp32":
        saved_ns = round(products_ns * (1 - single / half))
        share = format_percent(products_ns / step_ns)
        evidence = f"its products, {share} of the step, are in fp32, and large ones are {gain}"
        confidence = "fair"
    elif facts.precision_used.startswith("amp"):
        known = [(p, flops_of_call(p.operator, p.shapes)) for p in products]
        sums = [(p.time_ns, float(p.calls) * f) for p, f in known if not isinstance(f, Missing)]
        time_ns, flops = sum(ns for ns, _ in sums), sum(f for _, f in sums)
        if (
            not time_ns
            or max(flops / (time_ns * 1e-9), (facts.flops_per_step or 0) / (step_ns * 1e-9)) > single
        ):
            return
        saved_ns = round(time_ns - flops / half * 1e9)
        reached = format_rate(flops / (time_ns * 1e-9), "flop")
        evidence = (
            f"its products reach {reached} in half precision, no more than in fp32; large ones are {gain}"
        )
        confidence = "high"
    else:
        return
    if saved_ns >= WORTH_A_LINE * step_ns:
        title = "" if facts.precision_used == "fp32" else "Matmul is no faster in half precision"
        yield _without(facts, MATRIX_UNITS_UNUSED, evidence, saved_ns, confidence, title=title, of=products)


def _power_capped(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Assumes that the time of its work is inversely proportional to the clock; memory-bound work gains
    less."""
    share, clock, most = facts.capped_share, facts.clock_mhz, facts.clock_most_mhz
    if isinstance(share, Missing) or isinstance(clock, Missing) or isinstance(most, Missing):
        return
    if share < WORTH_A_LINE or most <= 0:
        return
    busy = [p for p in pieces if p.operator]
    busy_ns = sum(p.time_ns for p in busy)
    saved_ns = max(0, round(busy_ns * (1 - clock / most)))
    evidence = (
        f"a power cap held the clock down for {format_percent(share)} of the time,"
        f" to {clock / 1000:.2f} of {most / 1000:.2f} GHz"
    )
    yield _without(facts, POWER_CAPPED, evidence, saved_ns, "fair", (), of=busy)


def _communication(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Time in which nothing but communication runs, waiting for other ranks included."""
    found = facts.side.found
    share = sum(s.time_ns for s in found.slices if s.time_class == "communication") / found.window_ns
    if share < WORTH_A_LINE:
        return
    evidence = f"for {format_percent(share)} of the step it sends, or waits for other ranks, and nothing else"
    mine = [p for p in pieces if p.category == "communication"]
    gone_ns = share * facts.side.step_ns
    exposed = _without(facts, EXPOSED_COMMUNICATION, evidence, gone_ns, "fair", of=mine)
    yield exposed if facts.has_ddp else replace(exposed, change=_BY_HAND)


def _copies(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Copies of tensors into another type, layout, place or device."""
    mine, found = [p for p in pieces if p.category == "cast_copy"], facts.side.found
    most = sorted(mine, key=lambda p: -p.time_ns)[:2]
    named = " and ".join(dict.fromkeys(bare_name(p.operator) for p in most))
    evidence = f"copies and casts take {{share}} of the step, most of it in {named}"
    copied = [k for k in found.kernels if k.time_class == "copy_h2d"]
    from_pageable_ns = sum(k.time_ns for k in copied if _PAGEABLE in k.name.lower()) / found.steps
    is_pageable = from_pageable_ns > sum(p.time_ns for p in mine) / 2
    for copies in _if_large(facts, COPIES, evidence, mine, _MUCH, "high" if is_pageable else "fair"):
        pinned = "pin_memory=True of the DataLoader, to(device, non_blocking=True)"
        pageable = replace(copies, title="Data comes from pageable memory", change=pinned)
        yield pageable if is_pageable else copies


def _elementwise(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """On a GPU each of these reads and writes all its tensors; compiled, several do so once."""
    mine = [p for p in pieces if p.category == "elementwise" and p.phase != "optimizer"]
    calls = sum(float(p.calls) for p in mine)
    evidence = f"{calls:.0f} elementwise calls, each through memory, take {{share}} of the step"
    if facts.side.is_on_device and all(p.category != "fused" for p in pieces):
        yield from _if_large(facts, UNFUSED_ELEMENTWISE, evidence, mine, _MUCH)


def _compiling(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """torch.compile at work in steps that were to be measured."""
    mine = [p for p in pieces if _COMPILES.fullmatch(p.operator)]
    evidence = "torch.compile compiles for {share} of the profiled steps"
    for compiles in _if_large(facts, COMPILES_AGAIN, evidence, mine, confidence="high"):
        if facts.compiled_again is None:
            change = f"{_LATER}; else {_RECOMPILES}"
            yield replace(compiles, title="torch.compile compiles", change=change)
        elif facts.compiled_again:
            yield compiles
        else:
            yield replace(compiles, title="torch.compile compiles for the first time", change=_LATER)


def _contention(facts: StepFacts, pieces: Sequence[Piece]) -> Iterable[Finding]:
    """Other programs had the CPUs, as the kernel counted while the window was profiled."""
    waited, others = facts.side.found.waited_share, facts.side.found.others_cores
    if waited is None or others is None or waited < WORTH_A_LINE:
        return
    evidence = (
        f"other programs took {others:.1f} cores while it ran: the step waited"
        f" {format_percent(waited)} of the time for one"
    )
    yield _without(facts, CONTENTION, evidence, waited * facts.side.step_ns, "fair", (), of=pieces)


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
