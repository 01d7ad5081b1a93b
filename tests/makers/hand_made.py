"""Builds stored runs by hand: cases with chosen block times, on chosen boxes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from journals import CPU_MACHINE, RUNTIME, STARTED_US
from journals import make_case as plain_case

from gputui.cli.record import recorded_case
from gputui.model.absent import Missing
from gputui.model.journal import Block, Price
from gputui.model.journal import Figure as StoredFigure
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Measurement, Run, RunSummary
from gputui.services.results.selectors import Selection
from gputui.worker.steps import STEP_TIMES

STEPS = 10
NO_PRICE = Missing("no price was stated or known")
_WOBBLE = (0.0, 1.0, -1.0, 0.5, -0.5, 0.25)
"""In thousandths: blocks of one launch differ a little and are not autocorrelated."""
_NUMBERS = itertools.count(1)


def make_case(
    workload: str = "gemm", *, workload_class: str = "ceiling", version: int = 1, **kind: str
) -> Case:
    """One case; `kind` is threads, precision, device_class and size, as in `journals.make_case`."""
    case = plain_case(workload, **kind)
    return replace(case, work=replace(case.work, version=version), workload_class=workload_class)


def steady(step_s: float, blocks: int = 6) -> tuple[float, ...]:
    """Seconds per step of the blocks of one quiet launch."""
    return tuple(step_s * (1 + 1e-3 * wobble) for _, wobble in zip(range(blocks), itertools.cycle(_WOBBLE)))


def three(step_s: float, spread: float = 1e-3) -> tuple[tuple[float, ...], ...]:
    """Three launches that differ by a thousandth, or by so much."""
    return tuple(steady(step_s * (1 + place * spread)) for place in (0, 1, -1))


def measured(
    case: Case,
    *launches: Sequence[float],
    precision_used: str = "",
    waited_share: float | None = 0.0,
    device_name: str = "",
) -> CaseResult:
    """A case with seconds per step for each block of each launch.

    Other processes held the CPU for `waited_share` of the time its thread wanted it; None if the system does
    not report that.
    """
    on_gpu = case.variant.device_class == "gpu"
    return CaseResult(
        case_id=0,
        case=case,
        device_index=0 if on_gpu else None,
        device_name=device_name or ("NVIDIA H200" if on_gpu else "Xeon 8481C"),
        outcome="ok",
        reason="",
        measurements=tuple(
            _measurement(number, case, steps_s, precision_used, waited_share)
            for number, steps_s in enumerate(launches)
        ),
    )


def with_step_times(result: CaseResult, device_s: float | Missing, host_s: float | Missing) -> CaseResult:
    """The case with what a step takes of the device and of the host in each launch."""
    found = list(zip(STEP_TIMES, (device_s, host_s), strict=True))

    def told(launch: Measurement) -> Measurement:
        figures = tuple(
            StoredFigure(launch.launch_id, result.case_id, **asdict(figure), value=value, observations=1)
            for figure, value in found
        )
        return replace(launch, figures=(*launch.figures, *figures))

    return replace(result, measurements=tuple(map(told, result.measurements)))


def unmeasured(case: Case, outcome: str, reason: str = "") -> CaseResult:
    """A case that was planned but has no result, and the reason."""
    return CaseResult(0, case, None, "", outcome, reason, ())


def make_run(
    *cases: CaseResult,
    machine: Machine = CPU_MACHINE,
    runtime: Runtime = RUNTIME,
    price: Price | Missing = NO_PRICE,
    started_utc_us: int = STARTED_US,
    status: str = "finished",
    label: str = "",
) -> Run:
    """A run of these cases, with a new id."""
    summary = RunSummary(
        run_id=f"0194b5a0-0000-7000-8000-{next(_NUMBERS):012x}",
        started_utc_us=started_utc_us,
        ended_utc_us=started_utc_us + 60_000_000,
        utc_offset_min=60,
        status=status,
        status_reason="",
        profile="quick",
        profile_version=1,
        seed=1,
        replicates=1,
        budget_s=90.0,
        label=label,
        gputui_version="0.1.0",
        machine=machine,
        runtime=runtime,
        price=price,
    )
    return Run(summary, tuple(replace(case, case_id=number) for number, case in enumerate(cases)))


def recording(outcome: str = "", reason: str = "") -> Run:
    """A recording of a program that ended so; of the box alone without an outcome."""
    case = unmeasured(recorded_case("", "0"), outcome, reason)
    run = make_run(*((case,) if outcome else ()))
    is_cut = outcome == "interrupted"
    summary = replace(
        run.summary,
        profile="record",
        status="interrupted" if is_cut else "finished",
        status_reason=reason if is_cut else "",
    )
    return replace(run, summary=summary)


def selected(name: str, *runs: Run) -> Selection:
    """The measured cases of some runs, as they are read of a file for a ranking."""
    measured = [replace(run, cases=tuple(c for c in run.cases if c.outcome == "ok")) for run in runs]
    return Selection(name, Path(name), tuple(measured), (), {})


def _measurement(
    number: int, case: Case, steps_s: Sequence[float], precision_used: str, waited_share: float | None
) -> Measurement:
    return Measurement(
        launch_id=number,
        replicate=number,
        outcome="ok",
        reason="",
        precision_used=precision_used or case.variant.precision,
        is_fork=False,
        first_step_ns=1,
        warmup_ns=1,
        warmup_blocks=3,
        stable=True,
        blocks=tuple(_block(number, i, case, step_s, waited_share) for i, step_s in enumerate(steps_s)),
    )


def _block(launch: int, index: int, case: Case, step_s: float, waited_share: float | None) -> Block:
    wall_ns = round(step_s * STEPS * 1e9)
    threads = 1 if case.variant.threads == "1" else 2
    waited_ns = None if waited_share is None else round(threads * wall_ns * waited_share)
    on_gpu = case.variant.device_class == "gpu"
    return Block(
        launch_id=launch,
        case_id=0,
        index=index,
        steps=STEPS,
        start_ns=index * wall_ns,
        wall_ns=wall_ns,
        device_ns=wall_ns if on_gpu else None,
        cpu_ns=threads * wall_ns - (waited_ns or 0),
        waited_ns=waited_ns,
    )
