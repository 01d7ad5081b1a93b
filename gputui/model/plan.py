"""What is measured: work, variant, case; and the plan, a profile resolved for one machine and interpreter:
the only input of the measuring half.

A plan is plain JSON (`to_json`, `from_json`), so that it can be sent to another place and executed there by
an interpreter that has neither gputui nor its dependencies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints  # Any: JSON that is not yet checked

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.units import TIME_UNIT
from gputui.worker.serving import PlannedLoad as PlannedLoad

Parameter = int | float | str | bool

THREAD_REQUESTS = ("1", "all")

OWN = "own"
"""Precision and mode of a program that is timed from outside, which we do not know."""
WHOLE_BOX = "host"
"""Device class of a recording: which devices its program used is not known."""
WHOLE = "whole"
"""Size of a program that is timed from start to end: one block per launch."""
STEPS = "steps"
"""Size of a program that is timed from one match of its pattern to the next."""

OUTCOMES = ("ok", "oom", "unsupported", "skipped", "failed", "interrupted")
"""How one case of one run ended. `oom` and `unsupported` are data, not errors."""
FOUND_BY_TRYING = ("ok", "oom", "unsupported")
"""Outcomes of a launch that say what its device can do; a run without any has measured nothing."""

LOAD_PREFIX = "serve:"
"""Of the workload of a load on an LLM server; the profile of its requests follows."""

LEAST_UNITS, MOST_UNITS = 1e-60, 1e60
"""Units of work per step; beyond these, speeds and ratios of them leave the range of a float."""


@dataclass(frozen=True, slots=True)
class Work:
    """A fixed amount of work, the same number on every machine."""

    workload: str
    version: int
    size: str
    form: str
    """`same`: the batch is part of the size. `best`: the batch is searched, and only rates are comparable."""
    parameters: tuple[tuple[str, Parameter], ...]
    """Name and value of each fixed parameter, sorted by name."""

    @property
    def key(self) -> str:
        """16 hex digits that are equal if and only if the work is; independent of the machine."""
        text = json.dumps(
            [self.workload, self.version, self.size, self.form, [list(p) for p in self.parameters]],
            separators=(",", ":"),
        )
        import hashlib  # OpenSSL takes 4 MiB, and code that only reads names does not need it

        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of doing the work."""

    device_class: str
    """`cpu` or `gpu`; the vendor of the GPU is a property of the runtime. `host` for a recording."""
    precision: str
    """As requested: `fp32` (IEEE), `tf32`, `amp`, `amp-bf16` or `amp-fp16`; `own` for a program."""
    mode: str
    """`eager` or `compile`; `own` for a program."""
    threads: str
    """CPU threads as requested: `1`, `all` (the cores this process may use), or `host` for a GPU."""


@dataclass(frozen=True, slots=True)
class Case:
    """Work and variant, with what one step of it amounts to."""

    work: Work
    variant: Variant
    workload_class: str
    """`ceiling`, `training`, `inference` or `host`: the group of its geometric mean and its launch prior."""
    unit: str
    """What is counted per step: a name of `units.RATES`, or one of a newer gputui."""
    units_per_step: float
    flops_per_step: int | None
    """None if the work is not counted in floating-point operations."""
    bytes_per_step: int | None

    @property
    def is_program(self) -> bool:
        """Whether it is a program timed from outside, not a workload."""
        return self.variant.precision == OWN

    @property
    def is_whole(self) -> bool:
        """Whether a launch of it is one block, from the start of a program to its end."""
        return self.is_program and self.work.size == WHOLE

    @property
    def is_load(self) -> bool:
        """Whether it is a load on an LLM server, or a time that its users wait."""
        return self.work.workload.startswith(LOAD_PREFIX)

    @property
    def has_steps(self) -> bool:
        """Whether its blocks are steps of its work; a load on a server lasts as long as it shall."""
        return not self.is_load

    @property
    def is_time(self) -> bool:
        """Whether it is no work but a time, of which less is better."""
        return self.unit == TIME_UNIT

    @property
    def name(self) -> str:
        """The display name: `gemm mini cpu fp32 1 thread`, `command:train gpu`, `record:sweep`."""
        if self.is_program:
            where = "" if self.variant.device_class == WHOLE_BOX else f" {self.variant.device_class}"
            return f"{self.work.workload}{where}"
        threads = {"1": " 1 thread", "all": " all cores"}.get(self.variant.threads, "")
        mode = "" if self.variant.mode == "eager" else f" {self.variant.mode}"
        return (
            f"{self.work.workload} {self.work.size} {self.variant.device_class}"
            f" {self.variant.precision}{mode}{threads}"
        )

    def identity(self) -> dict[str, str | int]:
        """What distinguishes it from other cases, by the names in JSON and CSV."""
        return {
            "case": self.name,
            "workload": self.work.workload,
            "workload_version": self.work.version,
            "work_key": self.work.key,
            "size": self.work.size,
            "device": self.variant.device_class,
            "precision": self.variant.precision,
            "mode": self.variant.mode,
            "threads": self.variant.threads,
            "unit": self.unit,
        }


@dataclass(frozen=True, slots=True)
class OfCase:
    """What belongs to one case in one launch."""

    launch_id: int
    case_id: int


def program_case(
    workload: str,
    version: int,
    *,
    is_whole: bool,
    device_class: str,
    unit: str,
    units: float,
    workload_class: str = "host",
    identity: tuple[tuple[str, Parameter], ...] = (),
) -> Case:
    """The case of a program that is timed from outside.

    Only name, version, unit and `identity` (sorted by name) identify its work: paths differ between machines,
    so the command line is not part of it.
    """
    parameters: list[tuple[str, Parameter]] = [*identity, ("unit", unit), ("units", float(units))]
    return Case(
        work=Work(workload, version, WHOLE if is_whole else STEPS, "same", tuple(sorted(parameters))),
        variant=Variant(device_class, OWN, OWN, "host"),
        workload_class=workload_class,
        unit=unit,
        units_per_step=float(units),
        flops_per_step=None,
        bytes_per_step=None,
    )


PLAN_SCHEMA = 1
TIMED = "timed"
PROFILED = "profiled"
RECORD_PROFILE = "record"
"""In place of a profile: the run is a recording."""
TRACE_PROFILE = "trace"
"""In place of a profile: the run is an imported trace."""
DEMO_PROFILE = "demo (made up)"
"""In place of a profile: the run is made up. No file of a profile is called so."""
MOST_BLOCKS = 60
"""More would add little about one launch, whatever is left of the budget."""


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One case of the profile, to be run or listed with the reason why it is not."""

    case_id: int
    """Its number within the run, from 0."""
    case: Case
    outcome: str | None
    """None if it is to be run; else `skipped` or `unsupported`, decided before any launch."""
    reason: str
    """Why it is not run; empty otherwise."""
    note: str = ""
    """What to know before it is run, such as that the host will hold the GPU back."""


@dataclass(frozen=True, slots=True)
class PlannedCommand:
    """The program of one case. It stays in the plan: paths name people, so no result file has it."""

    case_id: int
    argv: tuple[str, ...]
    """The program and its arguments, not parsed by a shell."""
    pattern: str
    """Regular expression that matches a line of output at the end of each step; empty for none."""
    directory: str
    """Its working directory."""


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    device_class: str
    torch_device: str
    """`cpu`, `cuda`, `mps` or `xpu`: the device inside the worker, which sees only this one."""
    name: str
    visible: str
    """Value for CUDA_VISIBLE_DEVICES inside the worker: a UUID, several with commas, or empty for none."""
    pci_address: str
    """Joins torch and telemetry; empty for a CPU."""


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """One worker process and the cases that are interleaved in it."""

    launch_id: int
    replicate: int
    """From 0; a case is measured once per replicate."""
    case_ids: tuple[int, ...]
    device: PlannedDevice
    threads: int
    """Number of CPU threads of the worker."""
    weight: float
    """Its share of the profile's budget, relative to the other launches."""
    profiled: tuple[int, ...] = ()
    """Cases of it that its worker profiles once all are timed, the most wanted first."""
    needs_torch: bool = True
    """Whether its worker imports torch, which takes seconds before anything can be measured."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run measures, in which order, and in how much time."""

    profile: str
    profile_version: int
    seed: int
    """Seeds the order of launches and the inputs of workloads."""
    replicates: int
    """Passes, each of which takes every case once; the budget may end before the last."""
    budget_s: float
    """The supervisor stops hard at 1.2 times this."""
    cases: tuple[PlannedCase, ...]
    launches: tuple[PlannedLaunch, ...]
    """In the order of execution."""
    interpreter: tuple[str, ...]
    """Command prefix of a worker: the path of a Python."""
    commands: tuple[PlannedCommand, ...] = ()
    loads: tuple[PlannedLoad, ...] = ()
    step_file: str = ""
    """Path of a user's workload, to which cases without a workload of ours belong; empty for none."""
    rendezvous: str = ""
    """`ADDRESS:PORT` on this host where other hosts connect; empty for none. No result file has it."""
    most_blocks: int = MOST_BLOCKS
    """A case with this many blocks in a launch is done; also the limit of its warm-up."""
    keeps_traces: bool = False
    """Whether profiled passes leave Chrome traces in the run directory."""

    def command_of(self, case_id: int) -> PlannedCommand | None:
        """The program of a case; None if it is a workload."""
        return next((command for command in self.commands if command.case_id == case_id), None)

    @property
    def program_ids(self) -> frozenset[int]:
        """Cases that no workload of ours measures: programs, and loads on a server."""
        return frozenset([one.case_id for one in self.commands] + [one.case_id for one in self.loads])

    def load_of(self, case_id: int) -> PlannedLoad | None:
        """The load of a case on a server; None if it is none."""
        return next((load for load in self.loads if load.case_id == case_id), None)

    def to_plain(self) -> dict[str, Any]:
        """The JSON form, which `from_plain` understands."""
        return {"schema": PLAN_SCHEMA, **asdict(self)}

    @staticmethod
    def from_plain(found: Mapping[str, Any]) -> Plan:
        """Read what `to_plain` made. Raises GputuiError for another schema or damaged values."""
        try:
            plain = dict(found)
            schema = plain.pop("schema")
            plain.pop("looks", None)  # of a run that an earlier version began
            if schema != PLAN_SCHEMA:
                raise GputuiError(
                    f"plan has schema {schema}, this gputui reads {PLAN_SCHEMA}",
                    "use the same version of gputui on both sides",
                )
            plan: Plan = from_plain(Plan, plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GputuiError(f"plan cannot be read: {error!r}", "start the run again") from error
        return plan


def from_plain(kind: Any, plain: Any) -> Any:  # Any: a type of a field, and JSON that is not yet checked
    """Rebuild dataclasses, and tuples of them, from what `to_plain` of the journal makes of them.

    Raises KeyError, TypeError, ValueError.
    """
    either = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    if Missing in either and isinstance(plain, dict) and plain.keys() == {"missing"}:
        return Missing(plain["missing"])
    if plain is None and NoneType in either:
        return None
    kind = either[0]
    if isinstance(kind, type) and is_dataclass(kind):
        kinds = get_type_hints(kind)
        values = {name: from_plain(kinds[name], value) for name, value in dict(plain).items()}
        return kind(**values)
    if get_origin(kind) is not tuple:
        return plain
    parts = get_args(kind)
    if parts[-1] is Ellipsis:
        parts = parts[:1] * len(plain)
    return tuple(from_plain(part, value) for part, value in zip(parts, plain, strict=True))
