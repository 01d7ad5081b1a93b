"""The lines of a journal: the events of a run in progress, and all that is stored of it afterwards.

Form of a line: `LENGTH CRC32 JSON` and a newline; LENGTH in decimal bytes of JSON, CRC32 in eight hex digits
over it. JSON is `{"n": sequence number from 0, "kind": ..., ...fields}`; `kind` is the name of the class.
Every `_ns` instant is CLOCK_MONOTONIC of the machine that measured; `RunStart` ties it once to UTC.
"""

from __future__ import annotations

import json
import re
import signal
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from gputui.model.absent import Missing, to_plain
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import TIMED, OfCase, PlannedCase
from gputui.model.serving import LoadNow, LoadStep, Requests, ServerFound
from gputui.worker.profiling.rows import Kernel as Kernel
from gputui.worker.profiling.rows import LineTime as LineTime
from gputui.worker.profiling.rows import Operator as Operator
from gputui.worker.profiling.rows import TimeSlice as TimeSlice

JOURNAL_SCHEMA = 1
JOURNAL_NAME = "journal.jsonl"
TELEMETRY_NAME = "telemetry.bin"
SPEC_NAME = "spec.json"
LOCK_NAME = "lock"
STORED_NAME = "stored.json"
TRACES_NAME = "traces"
STOPPED: Mapping[int, str] = {signal.SIGINT: "stopped with Ctrl-C", signal.SIGTERM: "stopped on request"}
"""Why a run ended, by the signal that its supervisor got; `gputui stop` and the screens send SIGTERM, too."""


def trace_name(case_name: str) -> str:
    """File name of a case's Chrome trace in the directory of traces."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", case_name) + ".json.gz"


TIME_CLASSES = ("compute", "communication", "copy_h2d", "copy_d2h", "copy_d2d", "memset", "idle")
"""What the device did. If several apply at an instant, the first of them counts."""
IDLE = "idle"
IDLE_CAUSES = (
    "data_wait",
    "launch",
    "runtime_api",
    "dispatch",
    "sync",
    "python",
    "kernel_gap",
    "queue",
    "profiler",
)
"""What the host did while the device was idle: on a CPU, what it did outside of operators. `kernel_gap` and
`queue` are the device's own: work had been launched, and waited for the device, another stream or a peer."""
PHASES = ("data", "forward", "backward", "optimizer", "between")
"""`between`: idle time in which the host was in none of the others."""
CATEGORIES = (
    "gemm",
    "conv",
    "attention",
    "rnn",
    "norm",
    "softmax_loss",
    "elementwise",
    "reduction",
    "cast_copy",
    "view_alloc",
    "embedding_index",
    "optimizer",
    "communication",
    "fused",
    "other",
)
MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "inputs", "other")
MEMORY_POINTS = ("start", "after_forward", "after_backward", "after_optimizer", "peak")


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Who held the device's memory at one point of a step, as far as torch allocated it."""

    point: str
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    inputs_bytes: int
    """Inputs, buffers and caches: whatever lives from step to step and is none of the others."""
    other_bytes: int
    reserved_bytes: int | Missing
    """What the allocator holds, used or not; Missing if there is no such allocator."""

    @property
    def allocated_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.inputs_bytes
            + self.other_bytes
        )


@dataclass(frozen=True, slots=True)
class ProfiledPass(OfCase):
    """The profiled pass of one case, in a separate worker after all timing."""

    is_valid: bool
    """Whether the trace can be trusted; if not, `reason` says why, and there are no operators."""
    reason: str
    steps: int
    window_ns: int
    """From the start of the first step to the end of the last, including the device's work."""
    events: int
    """Number of events in the trace."""
    event_cost_ns: int
    """What tracing one event costs, measured in the same process on tiny operators."""
    unmatched_ns: int
    """Device time for which no operator was found."""
    operators: tuple[Operator, ...]
    slices: tuple[TimeSlice, ...]
    """They sum to the window; those that are not idle sum to the operators."""
    kernels: tuple[Kernel, ...]
    memory: tuple[MemoryPoint, ...]
    memory_reason: str
    """Why `memory` is empty, if it is."""
    trace_bytes: int
    """Size of the Chrome trace that was kept; 0 for none."""
    before_ns: int = 0
    """The median step of the same process outside its window, without the profiler; 0 if unknown."""
    waited_share: float | None = None
    """Of the time of the program's threads in the window, what they waited for a CPU that other programs had;
    None if unknown, as of a trace alone."""
    others_cores: float | None = None
    """CPUs that other programs used meanwhile, on average."""
    lines: tuple[LineTime, ...] = ()
    """Where the program was in the largest parts; empty if that was not recorded."""

    def fault(self) -> str:
        """Which of its numbers contradict each other; empty if all sums hold."""
        if not self.is_valid:
            return "" if self.reason else "it is not believed, without a reason"
        if sum(s.time_ns for s in self.slices) != self.window_ns:
            return "its slices do not sum to the window"
        busy_ns = sum(s.time_ns for s in self.slices if s.time_class != IDLE)
        if sum(o.time_ns for o in self.operators) != busy_ns:
            return "its operators do not sum to the time the device was busy"
        return ""


def without_result(launch_id: int, case_id: int, reason: str) -> ProfiledPass:
    """The line of a pass without a result."""
    return ProfiledPass(launch_id, case_id, False, reason, 0, 0, 0, 0, 0, (), (), (), (), reason, 0)


@dataclass(frozen=True, slots=True)
class Price:
    """What the machine costs, and where the price comes from."""

    usd_per_hour: float
    gpu_count: float
    """GPUs that this price buys; 0 for a machine without one, below 1 for a shared or sliced GPU."""
    kind: str
    """`stated` by the user, or the list price's kind: `on-demand`, `spot`, `community`, ..."""
    provider: str
    instance_type: str
    region: str
    date: str
    """Of the list price, ISO; empty if stated."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """First line of a journal."""

    schema: int
    run_id: str
    """UUIDv7."""
    started_utc_us: int
    started_ns: int
    utc_offset_min: int
    gputui_version: str
    profile: str
    profile_version: int
    seed: int
    replicates: int
    budget_s: float
    label: str
    price: Price | None


@dataclass(frozen=True, slots=True)
class MachineFound:
    machine: Machine


@dataclass(frozen=True, slots=True)
class RuntimeFound:
    runtime: Runtime


@dataclass(frozen=True, slots=True)
class CasePlanned:
    """One case of the plan, including cases that will not run."""

    planned: PlannedCase
    device_index: int | None
    """Index among the machine's GPUs; None for a CPU or an unmatched device."""
    device_name: str


@dataclass(frozen=True, slots=True)
class LaunchStart:
    """A worker process was started."""

    launch_id: int
    replicate: int
    case_ids: tuple[int, ...]
    threads: int
    allowance_s: float | None
    """Seconds it was given; None if unlimited."""
    t_ns: int
    purpose: str = TIMED
    is_fork: bool = False
    """Whether it was forked from a process that had imported torch, instead of importing it itself."""


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has imported what it needs and starts to build."""

    launch_id: int
    startup_ns: int
    """From the start of the process to this line."""
    threads_used: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class CaseWarm(OfCase):
    """A case is built and warm; blocks follow."""

    precision_used: str
    """What the request became: `fp32`, `tf32`, `amp-bf16` or `amp-fp16`; `own` for a program."""
    build_ns: int
    first_step_ns: int
    warmup_ns: int
    warmup_blocks: int
    stable: bool | None
    """False if the blocks of its warm-up still had a trend; None if that was not checked."""
    steps_per_block: int
    t_ns: int
    layout: str = ""
    """In which a trial found it faster: `nhwc` or `nchw`; empty if none was made."""


@dataclass(frozen=True, slots=True)
class Block(OfCase):
    """A timed group of steps: the unit of statistics."""

    index: int
    steps: int
    start_ns: int
    wall_ns: int
    device_ns: int | None
    """Between two events on the device's stream; None on a CPU."""
    cpu_ns: int | None
    """CPU time of the worker process, all threads; of a program timed as a whole, of the program and what
    it started, as far as that is seen. None if unknown, as in the middle of a program."""
    waited_ns: int | None = None
    """Time its threads were ready to run but waited for a CPU; of a program timed as a whole, no longer than
    other programs ran. None if the system does not report it."""

    @property
    def block_ns(self) -> int:
        """The time that statistics use: the device's if there is one, else wall time."""
        return self.wall_ns if self.device_ns is None else self.device_ns

    @property
    def thread_ns(self) -> int:
        """Time of its threads: what they computed and waited for a CPU, and at least that of the block.

        Where they slept for a part of it, as for a disk, others took no more of it than they waited.
        """
        return max((self.cpu_ns or 0) + (self.waited_ns or 0), self.wall_ns)


@dataclass(frozen=True, slots=True)
class Figure(OfCase):
    """A result of a case in one launch other than its speed. Self-describing; `worker.contract.Figure`
    declares it."""

    key: str
    """Ends in its unit: `p99_latency_s`."""
    title: str
    unit: str
    """A name of `FIGURE_SUFFIXES`, or one of a newer gputui."""
    better: str
    combine: str
    """How the values of several launches become one: `median`, `sum`, `max` or `min`."""
    value: float | Missing
    """Not negative."""
    observations: int
    """How many observations it summarizes."""


@dataclass(frozen=True, slots=True)
class CaseEnd(OfCase):
    """One case ended in one launch."""

    outcome: str
    reason: str
    blocks: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """A worker process is gone; once this line is on disk the launch is safe."""

    launch_id: int
    outcome: str
    """`ok` if the worker reported its end, however it then exited; else `failed` or `interrupted`."""
    reason: str
    exit_status: int | None
    """As Python gives it: negative for a signal."""
    log_tail: str
    """Last lines of its output if it or a case failed or its exit status was not 0; paths removed. For
    people who watch: may contain anything, so it is never stored."""
    t_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something the user should know."""

    level: str
    """`info`, `warning` or `error`."""
    message: str
    t_ns: int


@dataclass(frozen=True, slots=True)
class LaunchesLeftOut:
    """Planned launches that will not be executed: the run found that it can do without them, or must."""

    launch_ids: tuple[int, ...]
    message: str
    t_ns: int


NOTHING_MEASURED = "nothing was measured"
"""Reason of a run that came to its end and has `failed`, since no launch found anything out."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The supervisor is done."""

    status: str
    """`finished`, `interrupted` or `failed`."""
    reason: str
    ended_utc_us: int
    t_ns: int


def end_of(start: RunStart, status: str, reason: str) -> RunEnd:
    """The end of a run, now; in UTC by the clocks it began with, since the system's may have been set."""
    t_ns = time.monotonic_ns()
    return RunEnd(status, reason, start.started_utc_us + (t_ns - start.started_ns) // 1000, t_ns)


@dataclass(frozen=True, slots=True)
class Stored:
    """The supervisor ran the command that stores the run."""

    exit_status: int
    message: str
    """Its error, empty on success."""
    t_ns: int


Line = (
    RunStart
    | MachineFound
    | RuntimeFound
    | CasePlanned
    | LaunchStart
    | WorkerReady
    | CaseWarm
    | Block
    | Figure
    | ProfiledPass
    | ServerFound
    | LoadNow
    | LoadStep
    | Requests
    | CaseEnd
    | LaunchEnd
    | Event
    | LaunchesLeftOut
    | RunEnd
    | Stored
)

LINE_KINDS: tuple[type[Line], ...] = get_args(Line)


def encode_line(sequence: int, line: Line) -> bytes:
    """The bytes of one line, newline included."""
    plain = {"n": sequence, "kind": type(line).__name__, **to_plain(line)}
    body = json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()
    return b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)


def check_line(raw: bytes) -> bytes | None:
    """The JSON inside one line without its newline, or None if length or checksum are wrong."""
    length, _, rest = raw.partition(b" ")
    crc, _, body = rest.partition(b" ")
    if not length.isdigit() or len(crc) != 8 or len(body) != int(length[:9]):
        return None
    try:
        return body if int(crc, 16) == zlib.crc32(body) else None
    except ValueError:
        return None
