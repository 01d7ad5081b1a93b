"""Starts runs and follows them: a supervisor of its own session, seen through its journals."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import GputuiError, NotStored
from gputui.model.journal import STORED_NAME, Line, Price, Stored
from gputui.model.machine import Runtime
from gputui.model.plan import Plan
from gputui.recording.spec import Spec
from gputui.services.places import hash_key, run_directories
from gputui.store.journal_reader import JournalTail

KEPT_STORED_RUNS = 10
"""Directories of stored runs that are kept, for their logs."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run to be started."""

    plan: Plan
    runtime: Runtime
    label: str
    price: Price | None


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that a supervisor has in hand."""

    run_id: str
    run_dir: Path
    supervisor: subprocess.Popen[bytes]


def start_runs(requests: Sequence[RunRequest], target: Path) -> tuple[StartedRun, ...]:
    """Lay out a run directory for each request and start one supervisor for all of them.

    `target` is the result file, absolute. Raises NotStored if no run directory can be made.
    """
    home = run_directories()
    remove_old_directories(home)
    run_ids = [new_run_id() for _ in requests]
    run_dirs = [home / run_id for run_id in run_ids]
    try:
        for run_dir, run_id, request in zip(run_dirs, run_ids, requests, strict=True):
            run_dir.mkdir(parents=True, mode=0o700)
            on_end = (sys.executable, "-m", "gputui", "import", str(run_dir), "--db", str(target))
            Spec(
                run_id=run_id,
                plan=request.plan,
                runtime=request.runtime,
                label=request.label,
                price=request.price,
                hash_key=hash_key(),
                target=str(target),
                on_end=on_end,
            ).write(run_dir)
        with (run_dirs[0] / "supervisor.log").open("wb") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "gputui.recording", *map(str, run_dirs)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=run_dirs[0],
                start_new_session=True,
            )
    except OSError as error:
        raise NotStored(
            f"{home}: no run directory can be made ({error.strerror})",
            "set GPUTUI_STATE to a directory you may write",
        ) from error
    return tuple(StartedRun(i, d, supervisor) for i, d in zip(run_ids, run_dirs, strict=True))


def follow(runs: Sequence[StartedRun], period_s: float = 0.2) -> Iterator[tuple[int, Line | None]]:
    """Lines of all journals as they are written, each with the index of its run; None when nothing came.

    Ends when every run is stored. Raises GputuiError if the supervisor dies before that.
    """
    tails = [JournalTail(run.run_dir) for run in runs]
    open_runs = set(range(len(runs)))
    while open_runs:
        dead = runs[0].supervisor.poll() is not None
        came = False
        for index in sorted(open_runs):
            for line in tails[index].poll():
                came = True
                yield index, line
                if isinstance(line, Stored):
                    open_runs.discard(index)
        if dead and not came and open_runs:
            raise _supervisor_died(runs[0])
        if not came:
            yield -1, None
            time.sleep(period_s)


def stop(run: StartedRun, number: signal.Signals) -> None:
    """Ask the supervisor to end its runs and store what is finished."""
    run.supervisor.send_signal(number)


def remove_old_directories(home: Path) -> None:
    """Remove the directories of stored runs beyond the newest ten; runs that were not stored stay."""
    if not home.is_dir():
        return
    stored = sorted((d for d in home.iterdir() if (d / STORED_NAME).is_file()), key=lambda d: d.name)
    for run_dir in stored[:-KEPT_STORED_RUNS]:
        shutil.rmtree(run_dir, ignore_errors=True)


def mark_stored(run_dir: Path, target: Path) -> None:
    """Note in a run directory that its journal is in a result file and may go."""
    (run_dir / STORED_NAME).write_text(json.dumps({"target": str(target)}))


def new_run_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of UTC milliseconds, the rest random."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = secrets.randbits(80)
    number = milliseconds << 80 | random_bits
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _supervisor_died(run: StartedRun) -> GputuiError:
    status = run.supervisor.returncode
    said = (run.run_dir / "supervisor.log").read_text(errors="replace").strip().split("\n")[-1]
    return NotStored(
        f"the supervisor ended early (status {status}{': ' + said if said else ''})",
        f"what was finished is in {run.run_dir}; store it with `gputui import {run.run_dir}`",
    )
