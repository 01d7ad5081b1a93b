"""The lines of a journal: what a run says while it goes on, and all that is stored of it afterwards.

Form of a line: `LENGTH CRC32 JSON` and a newline; LENGTH in decimal bytes of JSON, CRC32 in eight hex
digits over it. JSON is `{"n": sequence number from 0, "kind": ..., ...fields}`. Every `_ns` instant
is CLOCK_MONOTONIC of the box that measured; `RunStart` ties it once to UTC.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from dataclasses import asdict, dataclass
from typing import Any  # JSON that was not looked at yet

from gputui.model.absent import Missing
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import TIMED, PlannedCase
from gputui.model.profiled import ProfiledPass

JOURNAL_SCHEMA = 1
JOURNAL_NAME = "journal.jsonl"
TELEMETRY_NAME = "telemetry.bin"
SPEC_NAME = "spec.json"
LOCK_NAME = "lock"
STORED_NAME = "stored.json"
TRACES_NAME = "traces"


def trace_name(case_name: str) -> str:
    """What the file with the Chrome trace of a case is called in the directory of traces."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", case_name) + ".json.gz"


@dataclass(frozen=True, slots=True)
class Price:
    """What the box costs, and who says so."""

    usd_per_hour: float
    gpu_count: float
    """GPUs this price buys; 0 for a box without one, below 1 for a shared or sliced GPU."""
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
    """What the box is."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class RuntimeFound:
    """What the measured interpreter has."""

    runtime: Runtime


@dataclass(frozen=True, slots=True)
class CasePlanned:
    """One case of the plan, also when it will not be run."""

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
    """Seconds it was given; None if nothing bounds it."""
    t_ns: int
    purpose: str = TIMED
    """As in the plan."""


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has imported what it needs and begins to build."""

    launch_id: int
    startup_ns: int
    """From the start of the process to this line."""
    threads_used: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class CaseWarm:
    """A case is built and warm; blocks follow."""

    launch_id: int
    case_id: int
    precision_used: str
    """What the request became: `fp32`, `tf32`, `amp-bf16` or `amp-fp16`; `own` for a program."""
    build_ns: int
    first_step_ns: int
    warmup_ns: int
    warmup_blocks: int
    stable: bool | None
    """False if a quarter of the budget was spent before three blocks agreed; None where nobody looked."""
    steps_per_block: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class Block:
    """A timed group of steps: the unit of statistics."""

    launch_id: int
    case_id: int
    index: int
    steps: int
    start_ns: int
    wall_ns: int
    device_ns: int | None
    """Between two events on the device's stream; None on a CPU."""
    cpu_ns: int | None
    """CPU time of the worker process, all threads; of a program timed as a whole, its own and that of the
    children it waited for. None where it cannot be told, as in the middle of a program."""
    waited_ns: int | None = None
    """Time its threads were ready to run while others held the CPUs; None where the system does not tell."""

    @property
    def block_ns(self) -> int:
        """The time statistics are made of: the device's where there is one, else the wall's."""
        return self.wall_ns if self.device_ns is None else self.device_ns


@dataclass(frozen=True, slots=True)
class Figure:
    """A result of a case in one launch that is not its speed; it says itself what it is."""

    launch_id: int
    case_id: int
    key: str
    """Ends in its unit: `p99_latency_s`."""
    title: str
    unit: str
    """A name of `units.FIGURE_SUFFIXES`, or one that only a newer gputui knows."""
    better: str
    """`less`, `more` or `neither`."""
    combine: str
    """How the values of several launches become one: `median`, `sum`, `max` or `min`."""
    value: float | Missing
    """Not negative."""
    observations: int
    """How many it is made of."""


FIGURE_BETTER = ("less", "more", "neither")
FIGURE_COMBINES = ("median", "sum", "max", "min")


@dataclass(frozen=True, slots=True)
class CaseEnd:
    """One case ended in one launch."""

    launch_id: int
    case_id: int
    outcome: str
    reason: str
    blocks: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """A worker process is gone; when this line is on the disk the launch is safe."""

    launch_id: int
    outcome: str
    """`ok` if the worker said its last word, however it left then; else `failed` or `interrupted`."""
    reason: str
    exit_status: int | None
    """As Python gives it: negative for a signal."""
    log_tail: str
    """Last lines of its output, when it or a case failed or it did not leave with 0; paths taken out. For who
    watches: may hold anything, so it is never stored."""
    t_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something a person should know."""

    level: str
    """`info`, `warning` or `error`."""
    message: str
    t_ns: int


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The supervisor has done what it could."""

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
    """The command that stores the run was run by the supervisor."""

    exit_status: int
    message: str
    """Its error, empty if it went well."""
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
    | CaseEnd
    | LaunchEnd
    | Event
    | RunEnd
    | Stored
)

LINE_KINDS: tuple[type[Line], ...] = (
    RunStart,
    MachineFound,
    RuntimeFound,
    CasePlanned,
    LaunchStart,
    WorkerReady,
    CaseWarm,
    Block,
    Figure,
    ProfiledPass,
    CaseEnd,
    LaunchEnd,
    Event,
    RunEnd,
    Stored,
)


def encode_line(sequence: int, line: Line) -> bytes:
    """The bytes of one line, newline included."""
    plain = {"n": sequence, "kind": type(line).__name__, **to_plain(line)}
    body = json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()
    return b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)


def check_line(raw: bytes) -> bytes | None:
    """The JSON inside one line without its newline, or None if length or checksum do not hold."""
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
