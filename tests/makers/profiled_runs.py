"""Runs of three launches whose steps take chosen times, with profiled passes of chosen operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from journals import (
    CPU_MACHINE,
    journal_lines,
    make_telemetry,
    write_lines,
    write_telemetry,
)

from gputui.model.journal import (
    Block,
    CaseWarm,
    LaunchEnd,
    LaunchStart,
    Line,
    Operator,
    ProfiledPass,
    TimeSlice,
)
from gputui.model.machine import Machine
from gputui.model.plan import PROFILED, Case
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

MS = 1_000_000
_NUMBERS = itertools.count(1)
MM = Operator("backward", "gemm", "aten::mm", "64x64,64x64", "float,float", 20, 20, 0, 0, 0)
ATTENTION = Operator("backward", "attention", "aten::_flash_backward", "2x6", "float", 10, 10, 0, 0, 0)
CAST = Operator("forward", "cast_copy", "aten::to", "64x64", "float", 40, 40, 0, 0, 0)


def passed(
    case_id: int, launch_id: int, step_ms: Sequence[tuple[Operator, float]], python_ms: float
) -> ProfiledPass:
    """Ten steps of these operators."""
    rows = tuple(replace(row, time_ns=round(10 * ms * MS)) for row, ms in step_ms)
    idle = TimeSlice("forward", "idle", "python", round(10 * python_ms * MS))
    slices = (*(TimeSlice(row.phase, "compute", "", row.time_ns) for row in rows), idle)
    window_ns = sum(part.time_ns for part in slices)
    return ProfiledPass(
        launch_id, case_id, True, "", 10, window_ns, 70, 0, 0, rows, slices, (), (), "not asked for", 0
    )


def lines_of(
    cases: Sequence[Case],
    step_ms: Sequence[float],
    passes: Sequence[ProfiledPass],
    machine: Machine = CPU_MACHINE,
) -> list[Line]:
    """A run of three launches whose cases have steps of these lengths, followed by the passes."""
    timed = journal_lines(
        run_id=f"0194b5a0-0000-7000-8000-{next(_NUMBERS):012x}",
        cases=cases,
        skipped=(),
        launches=3,
        machine=machine,
    )
    lines: list[Line] = []
    free_ns = 0
    for line in timed:
        if isinstance(line, Block):
            ns = round(line.steps * step_ms[line.case_id] * MS * (1 + 1e-3 * (line.index % 3)))
            device_ns = None if line.device_ns is None else ns
            start_ns = max(line.start_ns, free_ns)  # one after the other, as on a real device
            free_ns = start_ns + ns
            line = replace(line, start_ns=start_ns, wall_ns=ns, device_ns=device_ns, cpu_ns=ns)
        elif isinstance(line, CaseWarm) and line.precision_used == "amp":
            line = replace(line, precision_used="amp-bf16")
        lines.append(line)
    t_ns = 900_000_000_000
    for one in passes:
        lines[-1:-1] = [
            LaunchStart(one.launch_id, 0, (one.case_id,), 1, 20.0, t_ns, PROFILED),
            one,
            LaunchEnd(one.launch_id, "ok", "", 0, "", t_ns + 5),
        ]
    return lines


def store(db: Path, lines: list[Line], gpus: int = 0) -> Path:
    run_dir = write_lines(db.with_suffix(".run"), lines)
    if gpus:
        write_telemetry(run_dir, make_telemetry(seconds=60, gpus=gpus))
    contents = read_journal(run_dir)
    assert contents.damage == ()
    store_run(db, contents, read_telemetry(run_dir))
    return db


FP32 = [(MM, 80.0), (ATTENTION, 10.0)], 10.0

AMP = [(MM, 16.0), (ATTENTION, 20.0), (CAST, 4.0)], 10.0
