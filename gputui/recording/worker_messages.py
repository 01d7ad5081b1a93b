"""Turns what a worker sends into lines of the journal, and refuses what makes no sense."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any  # Any: a worker's JSON

from gputui.model.absent import Missing
from gputui.model.case import OUTCOMES
from gputui.model.journal import (
    FIGURE_BETTER,
    FIGURE_COMBINES,
    Block,
    CaseEnd,
    CaseWarm,
    Figure,
    Line,
    WorkerReady,
)
from gputui.model.plan import PlannedLaunch
from gputui.model.profiled import Kernel, MemoryPoint, Operator, ProfiledPass, TimeSlice
from gputui.model.serving import LOADS, REQUEST_OUTCOMES, LoadNow, LoadStep, RequestRow, Requests, ServerFound
from gputui.model.units import FIGURE_SUFFIXES
from gputui.recording.worker_process import without_paths


def line_of(kind: str, message: dict[str, Any], launch: PlannedLaunch, started_ns: int) -> Line:
    """The line that records a message of this kind, from the worker of a launch that was started then.

    Raises LookupError, TypeError or ValueError if it is malformed, or of a case of another launch.
    """
    launch_id = launch.launch_id
    if kind == "ready":
        t_ns = int(message["t_ns"])
        return WorkerReady(launch_id, t_ns - started_ns, int(message["threads_used"]), t_ns)
    line: Block | CaseWarm | Figure | ProfiledPass | ServerFound | LoadNow | LoadStep | Requests | CaseEnd
    if kind == "block":
        line = Block(launch_id=launch_id, **message)
        is_valid = line.wall_ns > 0 and line.steps > 0
    elif kind == "warm":
        line, is_valid = CaseWarm(launch_id=launch_id, **message), True
    elif kind == "figure":
        line, is_valid = _figure(launch_id, message), True
    elif kind == "profiled":
        line, is_valid = profiled_pass_of(launch_id, message), True
    elif kind == "server":
        line, is_valid = ServerFound(launch_id=launch_id, **message), True
    elif kind == "load_now":
        line = LoadNow(launch_id=launch_id, **message)
        is_valid = line.over_ns > 0
    elif kind == "load_step":
        line = LoadStep(launch_id=launch_id, **message)
        is_valid = line.load in LOADS and line.window_end_ns >= line.window_start_ns
    elif kind == "requests":
        rows = tuple(RequestRow(**row) for row in message.pop("rows"))
        line = Requests(launch_id=launch_id, rows=rows, **message)
        is_valid = all(row.outcome in REQUEST_OUTCOMES for row in rows)
    elif kind == "case_end":
        line = CaseEnd(launch_id=launch_id, **message)
        is_valid = line.outcome in OUTCOMES
        line = replace(line, reason=without_paths(line.reason))
    else:
        raise ValueError(kind)
    if not is_valid or line.case_id not in launch.case_ids:
        raise ValueError(line)
    return line


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
