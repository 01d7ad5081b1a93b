"""Result files for tests of the screens: real DuckDB files, made from journals with chosen times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from journals import (
    CPU_MACHINE,
    GPU_MACHINE,
    STARTED_US,
    journal_lines,
    make_case,
    make_telemetry,
    write_lines,
    write_telemetry,
)

from gputui.model.journal import (
    Block,
    Kernel,
    LaunchEnd,
    LaunchStart,
    Line,
    LineTime,
    MemoryPoint,
    Operator,
    ProfiledPass,
    TimeSlice,
)
from gputui.model.machine import Machine
from gputui.model.plan import PROFILED
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

MS = 1_000_000
GIB = 2**30
GEMM = make_case("gemm")
GPU_GEMM = make_case("gemm", device_class="gpu")
GPT = replace(make_case("gpt_train"), workload_class="training", unit="tok", units_per_step=4096.0)
HOSTILE = "[b]bold[/b] \x1b[31m[@click=app.quit]x[/]"
"""A label with markup and an escape sequence."""


def run_id_of(number: int) -> str:
    """The id of the run with this number; its short id is `cccc` and four digits."""
    return f"0194b5a0-0000-7000-8000-0000cccc{number:04d}"


def store(
    db: Path,
    number: int,
    *,
    label: str = "",
    gpt_ms: float = 100.0,
    gemm_ms: float = 20.0,
    launches: int = 3,
    machine: Machine = CPU_MACHINE,
    status: str = "finished",
    profiled: bool = True,
    profiled_cases: Sequence[int] = (1,),
    log_tail: str = "",
    on_gpu: bool = False,
    seconds: float = 4.0,
) -> str:
    """Store a run of two cases with steps of these lengths, the first perhaps on a GPU; returns its id.

    The box was sampled for `sampled_s`. With `log_tail` its first launch has failed, and this is the end of
    its log.
    """
    lines: list[Line] = []
    for line in journal_lines(
        run_id=run_id_of(number),
        label=label,
        cases=(GPU_GEMM if on_gpu else GEMM, GPT),
        skipped=(make_case("conv_train", device_class="gpu", precision="amp"),),
        launches=launches,
        machine=machine,
        started_utc_us=STARTED_US + number * 3_600_000_000,
        status=status,
    ):
        if isinstance(line, Block):
            ns = round(line.steps * (gemm_ms, gpt_ms)[line.case_id] * MS * (1 + 1e-3 * (line.index % 3)))
            line = replace(line, device_ns=None if line.device_ns is None else ns)
            line = replace(line, wall_ns=ns, cpu_ns=ns - 1000, waited_ns=ns // 5 if line.index == 4 else 0)
        elif isinstance(line, LaunchEnd) and line.launch_id == 0 and log_tail:
            line = replace(line, outcome="failed", reason="it died", exit_status=-11, log_tail=log_tail)
        lines.append(line)
    for launch_id, case_id in enumerate(profiled_cases if profiled else (), 90):
        t_ns = 900_000_000_000
        lines[-2:-2] = [
            LaunchStart(launch_id, 0, (case_id,), 1, 20.0, t_ns, PROFILED),
            passed(case_id, launch_id, (gemm_ms, gpt_ms)[case_id]),
            LaunchEnd(launch_id, "ok", "", 0, "", t_ns + 1),
        ]
    run_dir = write_lines(db.parent / f"{db.stem}-{number}", lines)
    write_telemetry(run_dir, make_telemetry(seconds, gpus=len(machine.gpus)))
    contents = read_journal(run_dir)
    store_run(db, contents, read_telemetry(run_dir))
    return contents.start.run_id


def store_gpu(db: Path, number: int, *, scale: float = 1.0, launches: int = 3, seconds: float = 16.0) -> str:
    """Store a run of one case on a GPU, sampled for this long from its beginning; returns its id."""
    run_dir = db.parent / f"{db.stem}-{number}"
    case = replace(make_case("gemm", device_class="gpu", precision="tf32", size="base"), unit="flop")
    lines = journal_lines(
        run_id=run_id_of(number),
        cases=(case,),
        skipped=(),
        launches=launches,
        machine=GPU_MACHINE,
        started_utc_us=STARTED_US + number * 3_600_000_000,
        scale=scale,
    )
    write_lines(run_dir, lines)
    write_telemetry(run_dir, make_telemetry(seconds, gpus=1))
    contents = read_journal(run_dir)
    store_run(db, contents, read_telemetry(run_dir))
    return contents.start.run_id


def passed(case_id: int, launch_id: int, step_ms: float) -> ProfiledPass:
    """Ten steps, three quarters of which are matrix products, a tenth Python."""
    kinds: Sequence[tuple[str, str, str, str, float]] = (
        ("backward", "gemm", "aten::mm", "64x64,64x64", 0.5),
        ("forward", "gemm", "aten::linear", "8x64,64x64", 0.25),
        ("forward", "attention", "aten::scaled_dot_product_attention", "2x6", 0.1),
        ("optimizer", "optimizer", "aten::_fused_adamw_", "", 0.05),
    )
    rows = tuple(
        Operator(phase, category, name, shapes, "float", 20, 20, round(10 * step_ms * share * MS), 0, 1)
        for phase, category, name, shapes, share in kinds
    )
    idle = TimeSlice("forward", "idle", "python", round(10 * step_ms * 0.1 * MS))
    slices = (*(TimeSlice(row.phase, "compute", "", row.time_ns) for row in rows), idle)
    memory = tuple(
        MemoryPoint(point, GIB, gradients * GIB, 2 * GIB, activations * GIB, 0, GIB // 2, 6 * GIB)
        for point, gradients, activations in (
            ("start", 0, 0),
            ("after_forward", 0, 2),
            ("after_backward", 1, 0),
            ("after_optimizer", 1, 0),
            ("peak", 1, 2),
        )
    )
    return ProfiledPass(
        launch_id=launch_id,
        case_id=case_id,
        is_valid=True,
        reason="",
        steps=10,
        window_ns=sum(part.time_ns for part in slices),
        events=80,
        event_cost_ns=0,
        unmatched_ns=0,
        operators=rows,
        slices=slices,
        kernels=(Kernel("sgemm", "compute", "aten::mm", 200, rows[0].time_ns, 10),),
        memory=memory,
        memory_reason="",
        trace_bytes=0,
        lines=(LineTime("forward", "", "python", "", "train.py", 63, "main", False, "log", idle.time_ns),),
    )
