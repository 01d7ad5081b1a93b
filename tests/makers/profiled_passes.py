"""A profiled pass, the message of the worker that found it, and a run and a file that hold it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import make_case, make_plan
from journals import journal_lines, write_lines
from supervised import scripted_worker

from gputui.model.absent import Missing
from gputui.model.journal import (
    Kernel,
    LaunchEnd,
    LaunchStart,
    Line,
    MemoryPoint,
    Operator,
    ProfiledPass,
    TimeSlice,
)
from gputui.model.plan import PROFILED, Plan
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run

LINEAR = Operator("forward", "gemm", "aten::linear", "8x64,64x64", "float,float", 4, 20, 500, 500, 0)


MM = Operator("backward", "gemm", "aten::mm", "64x8,8x64", "float,float", 8, 8, 250, 250, 0)


PASS = ProfiledPass(
    launch_id=7,
    case_id=0,
    is_valid=True,
    reason="",
    steps=2,
    window_ns=1000,
    events=40,
    event_cost_ns=3,
    unmatched_ns=0,
    operators=(LINEAR, MM),
    slices=(
        TimeSlice("forward", "compute", "", 500),
        TimeSlice("backward", "compute", "", 250),
        TimeSlice("backward", "idle", "python", 250),
    ),
    kernels=(Kernel("sm90_gemm", "compute", "aten::linear", 4, 480, 130),),
    memory=(
        MemoryPoint("start", 100, 0, 200, 0, 10, 0, 4096),
        MemoryPoint("peak", 100, 50, 200, 300, 10, 5, Missing("there is no caching allocator")),
    ),
    memory_reason="",
    trace_bytes=0,
)


MESSAGE = (
    "case_id=0, is_valid=True, reason='', steps=1, window_ns=10, events=1, event_cost_ns=2, unmatched_ns=0,"
    " operators=[dict(phase='forward', category='gemm', operator='aten::mm', shapes='', dtypes='', calls=1,"
    " events=1, time_ns=6, cpu_ns=6, kernels=0)], slices=[dict(phase='forward', time_class='compute',"
    " cause='', time_ns=6), dict(phase='forward', time_class='idle', cause='python', time_ns=4)],"
    " kernels=[], memory=[dict(point='peak', weights_bytes=1, gradients_bytes=2, optimizer_bytes=3,"
    " activations_bytes=4, inputs_bytes=5, other_bytes=6, reserved_bytes=None)], memory_reason='',"
    " trace_bytes=0"
)


def with_pass(*passes: ProfiledPass, of: tuple[int, ...] = (0,)) -> list[Line]:
    """A run whose first case, or cases `of` these numbers, were profiled in launch 7."""
    lines = journal_lines()
    t_ns = 90_000_000_000
    launch: list[Line] = [
        LaunchStart(7, 0, of, 1, 20.0, t_ns, PROFILED),
        *passes,
        LaunchEnd(7, "ok", "", 0, "", t_ns + 5),
    ]
    return [*lines[:-1], *launch, lines[-1]]


def stored(tmp_path: Path, lines: list[Line]) -> Path:
    db = tmp_path / "a.db"
    contents = read_journal(write_lines(tmp_path / "run", lines))
    assert contents.damage == ()
    store_run(db, contents, ())
    return db


def scripted(tmp_path: Path, behaviour: str, *launches: list[int]) -> Plan:
    """A plan of one launch with a profiled pass by a scripted worker."""
    script = f"""
assert json.load(open(sys.argv[3]))["profiled"] == [0]
for case_id in ids: measure(case_id)
{behaviour}
"""
    worker = scripted_worker(tmp_path / "worker.py", script)
    plan = make_plan([0], cases=(make_case(),), interpreter=worker)
    return replace(plan, launches=(replace(plan.launches[0], profiled=(0,)),))
