"""Recordings: what `gputui record` prepares before a program runs, and stores after it."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

from gputui.errors import GputuiError, NotStored
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import (
    RECORD_PROFILE,
    WHOLE_BOX,
    Case,
    Plan,
    PlannedCase,
    PlannedDevice,
    PlannedLaunch,
    program_case,
)
from gputui.recording.run_directory import Spec
from gputui.services.runs.process import new_run_id
from gputui.services.runs.recovery import import_journal
from gputui.store.writing import StoredRun
from gputui.worker.command import ProgramEnd, signal_name

VERSION = 1
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def spec_of(
    target: Path,
    machine: Machine,
    *,
    label: str,
    price: Price | None,
    has_program: bool,
    seconds: float | None,
) -> Spec:
    """A recording that is about to begin. `target` is absolute."""
    run_id = new_run_id()
    return Spec(
        run_id=run_id,
        plan=_plan(machine, recorded_case(label, run_id) if has_program else None, seconds),
        runtime=Runtime.without_torch(Missing("unknown: a recording asks no interpreter")),
        label=label,
        price=price,
        target=str(target),
    )


def recorded_case(label: str, run_id: str) -> Case:
    """The case of a recorded program: its label identifies the work; without one it matches no other."""
    return program_case(
        f"{RECORD_PROFILE}:{label}" if label else RECORD_PROFILE,
        VERSION,
        is_whole=True,
        device_class=WHOLE_BOX,
        unit="run",
        units=1.0,
        identity=() if label else (("run_id", run_id),),
    )


def outcome_of(end: ProgramEnd) -> tuple[str, str]:
    """Outcome and reason: `interrupted` if it was stopped, `failed` if it exited with an error."""
    if end.exit_status == 0:
        return "ok", ""
    if end.exit_status > 0:
        return "failed", f"exited with status {end.exit_status}"
    name = signal_name(-end.exit_status)
    if -end.exit_status in _STOPS:
        return "interrupted", f"stopped by {name}"
    return "failed", f"it died of {name}"


def store(run_dir: Path, target: Path) -> StoredRun:
    """Store a finished recording. Raises NotStored, and its journal is kept."""
    try:
        return import_journal(run_dir, target)
    except GputuiError as error:
        raise NotStored(
            f"recorded but not stored: {error.message}",
            f"its journal is kept: gputui import {shlex.quote(str(run_dir))} --db FILE",
        ) from error


def _plan(machine: Machine, case: Case | None, seconds: float | None) -> Plan:
    cores = machine.cpu.usable_cores
    launch = PlannedLaunch(
        0, 0, (0,), PlannedDevice(WHOLE_BOX, "", "", "", ""), cores, 1.0, needs_torch=False
    )
    return Plan(
        profile=RECORD_PROFILE,
        profile_version=VERSION,
        seed=0,
        replicates=1,
        budget_s=seconds or 0.0,
        cases=() if case is None else (PlannedCase(0, case, None, ""),),
        launches=() if case is None else (launch,),
        interpreter=(),
    )
