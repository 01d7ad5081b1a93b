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
from dataclasses import asdict, dataclass
from typing import Any, get_args  # Any: JSON that is not yet checked

from gputui.model.absent import Missing
from gputui.model.case import OfCase
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import TIMED, PlannedCase
from gputui.model.profiled import ProfiledPass
from gputui.model.serving import LoadNow, LoadStep, Requests, ServerFound

JOURNAL_SCHEMA = 1
JOURNAL_NAME = "journal.jsonl"
TELEMETRY_NAME = "telemetry.bin"
SPEC_NAME = "spec.json"
LOCK_NAME = "lock"
STORED_NAME = "stored.json"
TRACES_NAME = "traces"
STOPPED: Mapping[int, str] = {signal.SIGINT: "stopped with Ctrl-C", signal.SIGTERM: "stopped by SIGTERM"}
"""Why a run ended, by the signal that its supervisor got."""


def trace_name(case_name: str) -> str:
    """File name of a case's Chrome trace in the directory of traces."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", case_name) + ".json.gz"


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
    """A name of `units.FIGURE_SUFFIXES`, or one of a newer gputui."""
    better: str
    combine: str
    """How the values of several launches become one: `median`, `sum`, `max` or `min`."""
    value: float | Missing
    """Not negative."""
    observations: int
    """How many observations it summarizes."""


FIGURE_BETTER = ("less", "more", "neither")
FIGURE_COMBINES = ("median", "sum", "max", "min")


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


def to_plain(value: Any) -> Any:
    """A dataclass as JSON types; a Missing becomes `{"missing": reason}`."""
    return asdict(value, dict_factory=_plain_dict)


def _plain_dict(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(items) == 1 and items[0][0] == "reason":
        return {"missing": items[0][1]}
    return dict(items)
