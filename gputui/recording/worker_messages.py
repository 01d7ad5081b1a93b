"""What a worker reads, and what it sends: turned into lines of the journal, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any  # Any: a worker's JSON

from gputui.model.absent import Missing
from gputui.model.case import OUTCOMES
from gputui.model.journal import (
    FIGURE_BETTER,
    FIGURE_COMBINES,
    TRACES_NAME,
    Block,
    CaseEnd,
    CaseWarm,
    Figure,
    Kernel,
    Line,
    MemoryPoint,
    Operator,
    ProfiledPass,
    TimeSlice,
    WorkerReady,
    trace_name,
)
from gputui.model.plan import Plan, PlannedLaunch
from gputui.model.serving import LOADS, REQUEST_OUTCOMES, LoadNow, LoadStep, RequestRow, Requests, ServerFound
from gputui.model.units import FIGURE_SUFFIXES
from gputui.recording.pacing import profiled_s
from gputui.recording.worker_process import without_paths

_OfCase = Block | CaseWarm | Figure | ProfiledPass | ServerFound | LoadNow | LoadStep | Requests | CaseEnd
_AS_SENT: Mapping[str, type[Block | CaseWarm | ServerFound | LoadNow | LoadStep | CaseEnd]] = {
    "block": Block,
    "warm": CaseWarm,
    "server": ServerFound,
    "load_now": LoadNow,
    "load_step": LoadStep,
    "case_end": CaseEnd,
}
"""Lines with the fields of their message."""


def described_launch(
    plan: Plan, launch: PlannedLaunch, run_dir: Path, aim_s: float, limit_s: float
) -> dict[str, Any]:
    """The JSON of a launch: its blocks should end `aim_s` after its start, and must after `limit_s`."""
    return {
        "device": launch.device.torch_device,
        "threads": launch.threads,
        "seed": plan.seed,
        "replicate": launch.replicate,
        "allowance_s": aim_s,
        "limit_s": limit_s,
        "most_blocks": plan.most_blocks,
        "rendezvous": plan.rendezvous,
        "cases": [_described_case(plan, case_id, run_dir) for case_id in launch.case_ids],
        "profiled": launch.profiled,
        "profiled_s": profiled_s(plan, launch),
    }


def _described_case(plan: Plan, case_id: int, run_dir: Path) -> dict[str, Any]:
    command = plan.command_of(case_id)
    if command is not None:
        return {"case_id": case_id, "command": asdict(command)}
    load = plan.load_of(case_id)
    if load is not None:
        return {"case_id": case_id, "load": asdict(load)}
    case = plan.cases[case_id].case
    return {
        "step_file": plan.step_file,
        "case_id": case_id,
        "workload": case.work.workload,
        "size": case.work.size,
        "precision": case.variant.precision,
        "mode": case.variant.mode,
        "trace": str(run_dir / TRACES_NAME / trace_name(case.name)) if plan.keeps_traces else "",
    }


def line_of(kind: str, message: dict[str, Any], launch: PlannedLaunch, started_ns: int) -> Line:
    """The line that records a message of this kind, from the worker of a launch that was started then.

    Raises LookupError, TypeError or ValueError if it is malformed, or of a case of another launch.
    """
    launch_id = launch.launch_id
    if kind == "ready":
        t_ns = int(message["t_ns"])
        return WorkerReady(launch_id, t_ns - started_ns, int(message["threads_used"]), t_ns)
    line: _OfCase
    if kind == "figure":
        line = _figure(launch_id, message)
    elif kind == "profiled":
        line = profiled_pass_of(launch_id, message)
    elif kind == "requests":
        rows = tuple(RequestRow(**row) for row in message.pop("rows"))
        line = Requests(launch_id=launch_id, rows=rows, **message)
    else:
        line = _AS_SENT[kind](launch_id=launch_id, **message)
    if not _makes_sense(line) or line.case_id not in launch.case_ids:
        raise ValueError(line)
    return replace(line, reason=without_paths(line.reason)) if isinstance(line, CaseEnd) else line


def _makes_sense(line: _OfCase) -> bool:
    match line:
        case Block():
            return line.wall_ns > 0 and line.steps > 0
        case LoadNow():
            return line.over_ns > 0
        case LoadStep():
            return line.load in LOADS and line.window_end_ns >= line.window_start_ns
        case Requests():
            return all(row.outcome in REQUEST_OUTCOMES for row in line.rows)
        case CaseEnd():
            return line.outcome in OUTCOMES
    return True


def _figure(launch_id: int, message: dict[str, Any]) -> Figure:
    """A worker's figure. Raises LookupError, TypeError or ValueError if it is malformed."""
    value, reason = message.pop("value"), without_paths(str(message.pop("reason")))
    figure = Figure(launch_id=launch_id, value=Missing(reason) if value is None else float(value), **message)
    known = figure.better in FIGURE_BETTER and figure.combine in FIGURE_COMBINES
    fits = isinstance(figure.value, Missing) or 0 <= figure.value < math.inf
    if not (known and fits and figure.unit in FIGURE_SUFFIXES and figure.observations >= 0):
        raise ValueError(figure)
    return figure


def profiled_pass_of(launch_id: int, message: dict[str, Any]) -> ProfiledPass:
    """A worker's profiled pass. Raises LookupError, TypeError or ValueError if it is malformed."""
    parts: dict[str, tuple[type[Any], str]] = {  # Any: rows of four kinds
        "operators": (Operator, ""),
        "slices": (TimeSlice, ""),
        "kernels": (Kernel, ""),
        "memory": (MemoryPoint, "reserved_bytes"),
    }
    for name, (kind, may_lack) in parts.items():
        for row in message[name]:
            if may_lack and row[may_lack] is None:
                row[may_lack] = Missing("there is no caching allocator")
        message[name] = tuple(kind(**row) for row in message[name])
    message["reason"] = without_paths(str(message["reason"]))
    found = ProfiledPass(launch_id=launch_id, **message)
    fault = found.fault()
    if fault:
        raise ValueError(fault)
    return found
