"""A trace as a run: what `gputui import` stores, and what a comparison of traces reads."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import median

from gputui.analysis.work import TYPE_BYTES
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    CasePlanned,
    Event,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    ProfiledPass,
    RunEnd,
    RunStart,
)
from gputui.model.machine import Machine
from gputui.model.plan import PROFILED, TRACE_PROFILE, Case, PlannedCase, program_case
from gputui.model.result import Run
from gputui.model.units import counted, format_bytes, format_percent, format_rate, format_seconds
from gputui.recording.recorder import ProgramCpu
from gputui.services.results.step_answer import (
    ALLOCATES,
    DDP,
    LOADS_ALONE,
    NOT_MARKED,
    OPTIMIZER,
    RECORDED,
)
from gputui.services.results.step_breakdown import product_sentence
from gputui.services.runs.process import uuid7
from gputui.services.traces.chrome_trace import KINDS, Trace, read_trace
from gputui.services.traces.lines import MARK
from gputui.services.traces.window import (
    WHOLE,
    Window,
    device_name,
    device_of,
    on_device,
    partition_of,
    window_of,
)
from gputui.store.journal_reader import JournalContents
from gputui.version import version
from gputui.worker.profiling.step_breakdown import Partition

_EARLIEST_US = 1_000_000_000_000_000
"""September 2001: a clock that shows less does not count from 1970."""
_OPTIMIZER_STEP = "Optimizer.step#"
_OF_MEMORY = re.compile(r"(cuda|hip)(Malloc|Free)|cuMem(Create|Map|Unmap|Release|SetAccess)")
_OTHER_CALLS = re.compile(r"Launch|Memcpy|Memset|Synchronize|Wait", re.IGNORECASE)
"""Calls that have a cause of idleness of their own."""
_HOW_TO_MARK = "mark them with profile(schedule=...) and prof.step(), or name their range with --step"
_UNMATCHED_SHOWN = 0.05
_LEFT_OUT_SHOWN = 0.01
_COMMUNICATION_SHOWN = 0.01


@dataclass(frozen=True, slots=True)
class TraceRun:
    """One trace, read and divided."""

    path: Path
    name: str
    """The label, else the file's name without its endings."""
    device: str
    """Empty for a trace of the CPU alone."""
    rank: int | None
    window: Window
    found: ProfiledPass
    collectives: tuple[Collective, ...]
    """Each piece of communication within the window, in order of time."""
    notes: tuple[str, ...]
    """What a reader must know before believing it, one sentence each."""
    started_utc_us: int
    digest: bytes

    @property
    def step_ns(self) -> int:
        """While profiled, on average."""
        return round(Fraction(self.found.window_ns, self.found.steps))


def read_run(
    path: Path,
    label: str = "",
    step_range: str = "",
    window_s: tuple[float, float] | None = None,
    seen: Callable[[int, int], object] | None = None,
) -> TraceRun:
    """Read a trace and divide the window of its steps.

    Raises GputuiError if it cannot be read, or has neither operators nor work of a device.
    """
    trace = read_trace(path, seen)
    device = device_of(trace)
    window = on_device(trace, window_of(trace, step_range, window_s), device)
    if device is None and trace.foreign_work:
        other = next(iter(trace.devices.values()), "a device")
        raise GputuiError(
            f"{path}: work of {other} ({trace.foreign_work}) is not of a kind that can be read",
            "CUDA, ROCm and XPU devices, and CPUs alone, are read",
        )
    found = partition_of(trace, window, device)
    if not found.rows and not found.transfers:
        raise GputuiError(
            f"{path}: no operator and no work of a device lies in {window.found_by}",
            "take another --window, or record with activities CPU and CUDA",
        )
    started_us = trace.base_ns // 1000
    if started_us <= _EARLIEST_US:
        started_us += trace.epoch_ns // 1000
    name, divided = device_name(trace, device), _pass(trace, window, found)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    collectives = collectives_of(trace, found)
    return TraceRun(
        path=path,
        name=label or stem(path),
        device=name,
        rank=trace.rank if (trace.ranks or 1) > 1 else None,
        window=window,
        found=divided,
        collectives=collectives,
        notes=(
            *trace.damage,
            *_notes(trace, window, device, found, collectives),
            *filter(None, (product_sentence(divided, name),)),
            *_of_program(trace, window),
        ),
        started_utc_us=started_us if started_us > _EARLIEST_US else 0,
        digest=digest,
    )


def with_others(run: TraceRun, program: ProgramCpu, recorded_as: str, ours_ns: int = 0) -> TraceRun:
    """A trace of a program that was recorded here, with what others took of the CPUs in its window.

    `ours_ns` is what the thread that looks at its lines waited for a core: the steps did not wait for that.
    """
    run = replace(run, notes=(*run.notes, f"{RECORDED}{recorded_as}"))
    since_boot_ns = run.started_utc_us * 1000 - (time.time_ns() - time.monotonic_ns())
    first_ns, last_ns = (since_boot_ns + ns for ns in (run.window.start_ns, run.window.end_ns))
    use = program.use(first_ns, last_ns)
    if use is None:
        return run
    waited_ns = min(max(use.waited_ns - ours_ns, 0), use.others_ns)
    thread_ns = max(use.cpu_ns + waited_ns, use.wall_ns)
    found = replace(
        run.found,
        waited_share=waited_ns / thread_ns,
        others_cores=use.others_ns / use.wall_ns,
    )
    return replace(run, found=found)


def stored_run(run: Run, found: ProfiledPass, notes: Sequence[str]) -> TraceRun:
    """A stored trace, as far as a result file holds it: not how long each of its steps took."""
    length_ns = round(found.window_ns / found.steps)
    steps_ns = tuple((index * length_ns, (index + 1) * length_ns) for index in range(found.steps))
    machine = run.summary.machine
    return TraceRun(
        path=Path(),
        name=run.summary.label,
        device=machine.gpus[0].name if machine.gpus else "",
        rank=None,
        window=Window(
            0,
            found.window_ns,
            steps_ns,
            0,
            WHOLE if any(note.startswith(NOT_MARKED) for note in notes) else "the result file",
        ),
        found=found,
        collectives=(),
        notes=tuple(notes),
        started_utc_us=run.summary.started_utc_us,
        digest=b"",
    )


def stem(path: Path) -> str:
    """`step3` of `step3.pt.trace.json.gz`."""
    name = path.name
    for ending in (".gz", ".json", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return name or path.name


def _pass(trace: Trace, window: Window, found: Partition) -> ProfiledPass:
    return ProfiledPass(
        launch_id=0,
        case_id=0,
        is_valid=True,
        reason="",
        steps=len(window.steps_ns),
        window_ns=found.window_ns,
        events=len(trace),
        event_cost_ns=0,
        unmatched_ns=found.unmatched_ns,
        operators=found.rows,
        slices=found.slices,
        kernels=found.kernels,
        memory=(),
        memory_reason="memory is not read from traces",
        trace_bytes=0,
        lines=found.lines,
    )


def _notes(
    trace: Trace, window: Window, device: int | None, found: Partition, collectives: Sequence[Collective]
) -> Iterator[str]:
    if not window.has_steps:
        is_ours = MARK in trace.names  # of a program that stays as it is
        how = f"; {_HOW_TO_MARK}" if window.found_by == WHOLE and not is_ours else ""
        yield f"{NOT_MARKED}: all figures are of {window.found_by}{how}"
    busy_ns = sum(s.time_ns for s in found.slices if s.time_class != "idle")
    if window.host_steps_ns:
        yield _lag(window)
    left_out_ns = sum(
        trace.end_ns[i]
        - trace.start_ns[i]
        - max(0, min(trace.end_ns[i], window.end_ns) - max(trace.start_ns[i], window.start_ns))
        for i in range(len(trace) if window.found_by != "--window" else 0)
        if trace.device[i] >= 0 and trace.device[i] == device
    )
    if left_out_ns > _LEFT_OUT_SHOWN * busy_ns:
        yield f"{format_seconds(left_out_ns * 1e-9)} of device work outside of the counted steps is left out"
    exposed_ns = sum(s.time_ns for s in found.slices if s.time_class == "communication")
    if device is None and any(name.startswith("nccl:") for name in trace.names):
        yield "NCCL needs a GPU, whose work was not recorded: times are those of the host's calls"
    elif found.communication_ns > _COMMUNICATION_SHOWN * found.window_ns:
        steps = len(window.steps_ns)
        took, exposed = (format_seconds(ns / steps * 1e-9) for ns in (found.communication_ns, exposed_ns))
        hidden = format_percent(1 - exposed_ns / found.communication_ns)
        each = "a step" if steps > 1 else "in all"
        yield f"communication takes {took} {each}: {hidden} of it behind compute, {exposed} exposed"
        yield from collective_lines(collectives, steps, is_on_device=device is not None)
    if found.unmatched_ns > _UNMATCHED_SHOWN * busy_ns:
        share = format_percent(found.unmatched_ns / busy_ns)
        yield f"{share} of device time was launched outside of the trace: its operators are unknown"
    if found.stand_in_ns > _UNMATCHED_SHOWN * busy_ns:
        share = format_percent(found.stand_in_ns / busy_ns)
        yield (
            f"{share} of device time was launched by graphs or outside of operators: classified by the names"
            " of kernels"
        )
    others = {trace.device[i] for i in range(len(trace)) if trace.device[i] >= 0} - {device}
    if device is None:
        inside = (i for i in range(len(trace)) if window.start_ns <= trace.start_ns[i] < window.end_ns)
        threads = {trace.thread[i] for i in inside if KINDS[trace.kind[i]] == "op"} - {window.thread}
        if threads:
            who = counted(len(threads), "other thread")
            yield f"operators of {who} are left out: the one that steps counts"
    if others:
        yield f"work of {len(others)} other {'device' if len(others) == 1 else 'devices'} in it is left out"


def _of_program(trace: Trace, window: Window) -> Iterator[str]:
    """What the names of ranges and calls tell of the program: how it loads data, its only optimizer, who
    averages its gradients, what it asks of the driver."""
    loaders = {name for name in trace.names if name.startswith("enumerate(DataLoader)")}
    if loaders and all("_SingleProcessDataLoaderIter" in name for name in loaders):
        yield f"{LOADS_ALONE}: the thread that trains also loads the data"
    optimizers = {
        name.removeprefix(_OPTIMIZER_STEP).partition(".")[0]
        for name in trace.names
        if name.startswith(_OPTIMIZER_STEP)
    }
    if len(optimizers) == 1:
        yield f"{OPTIMIZER}{optimizers.pop()}"
    if any(name.startswith("DistributedDataParallel.") for name in trace.names):
        yield DDP
    start_ns, end_ns = window.whole_ns
    calls_ns = Counter[bool]()
    for index in range(len(trace)):
        name = trace.names[trace.name[index]]
        is_inside = start_ns <= trace.start_ns[index] < end_ns and KINDS[trace.kind[index]] == "runtime"
        if is_inside and not _OTHER_CALLS.search(name):
            is_of_memory = _OF_MEMORY.match(name) is not None
            calls_ns[is_of_memory] += trace.end_ns[index] - trace.start_ns[index]
    if calls_ns[True] > calls_ns[False]:
        yield ALLOCATES


def _lag(window: Window) -> str:
    """How far the host runs ahead of the device, and which steps that leaves."""
    pairs = tuple(zip(window.steps_ns, window.host_steps_ns, strict=True))
    lag_ns = median(end_ns - host_end_ns for (_, end_ns), (_, host_end_ns) in pairs)
    host_ns = median(end_ns - start_ns for start_ns, end_ns in window.host_steps_ns)
    ahead = (
        f"the CPU runs {format_seconds(lag_ns * 1e-9)} ahead of the GPU"
        if lag_ns > 0
        else "the GPU still does earlier work when the step begins"
    )
    left_out = "" if len(pairs) == 1 else "; the first is left out"
    own = f"the CPU does its part in {format_seconds(host_ns * 1e-9)}"
    return (
        f"{ahead}: a step is counted on the GPU, from the end of earlier work to the end of what it launched"
        f" ({own}){left_out}"
    )


def run_id_of(run: TraceRun) -> str:
    """A UUIDv7 of the time and content of the trace, equal each time it is imported with the same window."""
    window = f"{run.window.start_ns}:{run.window.end_ns}:{run.window.found_by}".encode()
    content = int.from_bytes(hashlib.sha256(run.digest + window).digest()[:10], "big")
    return uuid7(run.started_utc_us // 1000, content)


def case_of(run: TraceRun) -> Case:
    """The case that stands for the program of a trace: of one name, steps are the same work."""
    return program_case(
        f"{TRACE_PROFILE}:{run.name}",
        1,
        is_whole=False,
        device_class="gpu" if run.device else "cpu",
        unit="step",
        units=1.0,
        workload_class="training",
    )


def contents_of(run: TraceRun, machine: Machine | None = None) -> JournalContents:
    """The trace as the journal of a run with one profiled case, which was never timed.

    `machine` is the box that it was made on, if more is known of it than the trace tells.
    """
    start = RunStart(
        schema=JOURNAL_SCHEMA,
        run_id=run_id_of(run),
        started_utc_us=run.started_utc_us,
        started_ns=0,
        utc_offset_min=0,
        gputui_version=version(),
        profile=TRACE_PROFILE,
        profile_version=1,
        seed=0,
        replicates=1,
        budget_s=0.0,
        label=run.name,
        price=None,
    )
    length_ns = run.window.end_ns
    known = Machine.unknown(
        Missing("the trace does not say"),
        gpu=run.device,
        no_gpus="" if run.device else "the trace is of a CPU alone",
    )
    not_timed = "a trace has no timed steps, so it has no rate"
    lines: tuple[Line, ...] = (
        start,
        MachineFound(machine or known),
        CasePlanned(
            PlannedCase(0, case_of(run), "skipped", not_timed), 0 if run.device else None, run.device
        ),
        LaunchStart(0, 0, (0,), 0, None, 0, PROFILED),
        run.found,
        *(Event("info", note, 0) for note in run.notes),
        LaunchEnd(0, "ok", "", 0, "", length_ns),
        RunEnd("finished", "", run.started_utc_us + length_ns // 1000, length_ns),
    )
    return JournalContents(start, lines, ())


_MOST_KINDS = 4
_TYPES = {"Float": "float", "Long": "int64", "Int": "int", "Byte": "unsigned char", "Double": "double"}
"""What messages call types that have another name among the inputs of operators."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One piece of communication; on a CPU a range in which torch.distributed sends and receives."""

    name: str
    """`allreduce`, or that of the kernel or range."""
    start_ns: int
    """Since the first event of the trace, as the end."""
    end_ns: int
    exposed_ns: int
    """How long no compute hides it, of the slices of the pass; 0 on a CPU."""
    size_bytes: int
    """As nccl-tests counts it; 0 if unknown."""
    bus_bytes: float
    """What crosses the slowest link of each rank at least; 0 if unknown."""


def collectives_of(trace: Trace, found: Partition) -> tuple[Collective, ...]:
    """In order of time."""
    collectives = []
    for event, exposed_ns in sorted(found.transfers, key=lambda one: one[0].start_ns):
        told = trace.messages.get(event.correlation, {})
        bare = event.name.removeprefix("void ").replace("(anonymous namespace)::", "")
        name = str(told.get("Collective name") or re.split(r"[<(]", bare)[0])
        size, bus = message_sizes(told)
        collectives.append(Collective(name, event.start_ns, event.end_ns, exposed_ns, size, bus))
    return tuple(collectives)


def message_sizes(told: Mapping[str, object]) -> tuple[int, float]:
    """Bytes of a collective and those on the bus, as nccl-tests counts them; 0 if unknown.

    The size is what all ranks hold together of a gather, else what one gives.
    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    name, ranks = str(told.get("Collective name")), told.get("Group size")
    elements = told.get("Out msg nelems" if "gather" in name else "In msg nelems")
    dtype = str(told.get("dtype"))
    if not isinstance(ranks, int) or not isinstance(elements, int) or ranks < 1:
        return 0, 0.0
    size, factor = elements * TYPE_BYTES.get(_TYPES.get(dtype, dtype), 0), 1.0
    if re.search("all_?reduce|gather|scatter|all_?to_?all", name):
        factor = (ranks - 1) / ranks * (2 if re.search("all_?reduce", name) else 1)
    return size, factor * size


def collective_lines(found: Sequence[Collective], steps: int, *, is_on_device: bool) -> Iterator[str]:
    """A line for each kind and size with the most time: `allreduce of 25.3 MiB: 2 a step, ...`."""
    alike: dict[tuple[str, int], list[Collective]] = defaultdict(list)
    for one in found:
        alike[one.name, one.size_bytes].append(one)
    kinds = sorted(alike.items(), key=lambda kind: -sum(one.end_ns - one.start_ns for one in kind[1]))
    each = "a step" if steps > 1 else "in all"
    for (name, size), ones in kinds[:_MOST_KINDS]:
        sums_ns = sum(one.end_ns - one.start_ns for one in ones), sum(one.exposed_ns for one in ones)
        took, exposed = (format_seconds(ns / steps * 1e-9) for ns in sums_ns)
        rate = max(one.bus_bytes / max(one.end_ns - one.start_ns, 1) for one in ones)
        of = f" of {format_bytes(size)}" if size else ""
        alone = f", {exposed} of it exposed" if is_on_device else ""
        bus = f", at best {format_rate(rate * 1e9, 'B')} on the bus" if rate else ""
        yield f"{name}{of}: {len(ones) / steps:.3g} {each}, {took}{alone}{bus}"
    if len(kinds) > _MOST_KINDS:
        yield f"{counted(len(kinds) - _MOST_KINDS, 'other kind')} of communication"
