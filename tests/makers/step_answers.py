"""Answers to why a step takes as long as it does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from gputui.analysis.attribution import Piece
from gputui.analysis.findings import (
    Finding,
    Kind,
    LineShare,
)
from gputui.model.journal import Operator, ProfiledPass, TimeSlice
from gputui.services.results.step_answer import (
    PROFILED,
    StepAnswer,
    answer_of_trace,
)

MS = 1_000_000


def profiled(
    work: dict[str, int], idle: dict[str, int], *, before_ms: int = 0, steps: int = 1
) -> ProfiledPass:
    """Milliseconds by category of work, and by cause of idle time."""
    operators = tuple(
        Operator("backward", name, f"aten::{name}", "64x64", "float", 2, 2, ms * MS, ms * MS, 2)
        for name, ms in work.items()
    )
    slices = [TimeSlice("backward", "compute", "", sum(work.values()) * MS)]
    slices += [TimeSlice("between", "idle", cause, ms * MS) for cause, ms in idle.items()]
    return ProfiledPass(
        launch_id=0,
        case_id=0,
        is_valid=True,
        reason="",
        steps=steps,
        window_ns=(sum(work.values()) + sum(idle.values())) * MS,
        events=1,
        event_cost_ns=0,
        unmatched_ns=0,
        operators=operators,
        slices=tuple(slices),
        kernels=(),
        memory=(),
        memory_reason="not asked for",
        trace_bytes=0,
        before_ns=before_ms * MS,
    )


def answer(found: ProfiledPass, *notes: str) -> StepAnswer:
    return answer_of_trace(found, "NVIDIA H200", "H200; train: 1 step", notes)


def finding(
    kind: Kind, ms: float, step_ms: int = 100, line: int = 0, of: str = "", change: str = "", code: str = ""
) -> Finding:
    """A cause of so much of a step, in a piece of that category, else in one of its own."""
    at_best_ns = round((step_ms - ms) * MS)
    lines = (LineShare("train.py", line, "main", False, "", 1.0),) if line else ()
    piece = Piece("forward", of or kind, "", "", round((40 if of else ms) * MS), Fraction(0))
    whole = Finding(kind, "seen", step_ms * MS, at_best_ns, "high", kind, change, code, lines)
    return replace(whole, gone_ns={piece: ms * MS})


def three_causes() -> StepAnswer:
    found = profiled({"gemm": 250, "attention": 37, "elementwise": 25}, {"data_wait": 100}, before_ms=412)
    causes = (
        finding("matrix units unused", 156, 412, change="amp"),
        finding(
            "starved by the loader", 98, 412, line=41, code="DataLoader(..., num_workers=8, pin_memory=True)"
        ),
        finding("waits for results", 47, 412, line=88, change="to read them once in many steps"),
    )
    made = answer(found, f"{PROFILED}H200, torch 2.13.0; steps 20 to 25 of 240 of train.py", "a note")
    return replace(made, findings=causes)
