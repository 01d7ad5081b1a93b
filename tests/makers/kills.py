"""A run in which something is killed at a random moment, and the file's contents afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil
from command_line import LONGEST_S, gputui_here, start_gputui

from gputui.errors import EXIT_DONE, EXIT_NO_RESULT, GputuiError
from gputui.model.journal import JOURNAL_NAME, Block, CaseEnd, LaunchEnd
from gputui.recording.run_directory import is_held, read_holder
from gputui.recording.worker_process import WORKER_NAME
from gputui.store.journal_reader import read_journal

VICTIMS = ("supervisor", "worker", "zygote", "viewer", "viewer and supervisor")


@dataclass(frozen=True, slots=True)
class Trial:
    """What was killed when, and its effect; `wrong` should be empty."""

    victim: str
    after_s: float
    begun: bool
    launches_reported: int
    launches_stored: int
    viewer_status: int | None
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Killed:
    """A run that has settled after something of it was killed."""

    place: Path
    victim: str
    after_s: float
    viewer_status: int | None
    message: str


def kill_at_random(
    place: Path, profile: Path, within_s: float, seed: int, victims: Sequence[str] = VICTIMS
) -> Killed:
    """Start a run, kill one of its processes after up to `within_s`, and wait until it settles.

    `place` is created and holds all files of this trial.
    """
    chance = random.Random(seed)
    victim, after_s = chance.choice(victims), chance.uniform(0, within_s)
    place.mkdir(parents=True)
    state = place / "state"
    viewer = start_gputui("run", profile, "--db", place / "a.db", env={"GPUTUI_STATE": str(state)})
    with contextlib.suppress(Exception):
        viewer.wait(after_s)
    run_dir = _run_dir(state)
    holder = read_holder(run_dir) if run_dir else None
    if victim == "worker" and run_dir:
        _kill(_worker(run_dir))
    if victim == "zygote" and run_dir:
        _kill(_zygote(run_dir))
    if "supervisor" in victim:
        _kill(holder.pid if holder and run_dir and is_held(run_dir) else None)
    if "viewer" in victim:
        viewer.kill()
    message = viewer.communicate(timeout=LONGEST_S)[0]
    run_dir = _run_dir(state)
    if run_dir is not None:
        _wait_until_settled(run_dir)
    return Killed(place, victim, after_s, viewer.returncode, message)


def checked(killed: Killed, baseline: Path) -> Trial:
    """What is left of it, found by commands in this process; `baseline` is a file to compare with."""
    victim, after_s, status = killed.victim, killed.after_s, killed.viewer_status
    db, state = killed.place / "a.db", killed.place / "state"
    run_dir = _run_dir(state)
    found = gputui_here("runs", db, env={"GPUTUI_STATE": str(state)})  # recovers runs that nothing executes
    wrong = list(_wrong_words(killed.message + found.stdout + found.stderr))
    if run_dir is None or not (run_dir / JOURNAL_NAME).exists():
        wrong += ["a file without a run"] if db.exists() else []
        return Trial(victim, after_s, False, 0, 0, status, tuple(wrong))
    reported, stored = _reported(run_dir), dict[int, int]()
    if reported is None:  # not even its first line was written
        return Trial(victim, after_s, False, 0, 0, status, tuple(wrong))
    if found.returncode:
        wrong.append(f"`runs` ended with {found.returncode}: {found.stderr}")
    else:
        stored = _stored(db)
        wrong += [
            f"launch {launch_id} has {stored.get(launch_id)} of {blocks} blocks"
            for launch_id, blocks in reported.items()
            if stored.get(launch_id) != blocks
        ]
        compared = gputui_here("compare", baseline, db)
        if compared.returncode not in (EXIT_DONE, EXIT_NO_RESULT) and any(reported.values()):
            wrong.append(f"`compare` ended with {compared.returncode}: {compared.stderr}")
    allowed = (None, 0, 1, 4, -signal.SIGKILL)
    if status not in allowed:
        wrong.append(f"the viewer ended with {status}: {killed.message}")
    return Trial(victim, after_s, True, len(reported), len(stored), status, tuple(wrong))


def _run_dir(state: Path) -> Path | None:
    return next((state / "runs").iterdir(), None) if (state / "runs").is_dir() else None


def _kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _worker(run_dir: Path) -> int | None:
    try:
        return int(json.loads((run_dir / WORKER_NAME).read_text())[0])
    except (OSError, ValueError):
        return None


def _zygote(run_dir: Path) -> int | None:
    """The first process that forks workers of this run, or whose fork is one: both have its command line."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[-1:] == ["zygote"] and any(run_dir.name in word for word in words):
                return process.pid
    return None


def _wait_until_settled(run_dir: Path) -> None:
    """Wait until no process works on the run: supervisor, worker, or a process that stores it."""
    deadline = time.monotonic() + LONGEST_S
    while working := _at_work(run_dir.name):
        assert time.monotonic() < deadline, f"these do not end: {working}"
        time.sleep(0.05)


def _at_work(name: str) -> list[list[str]]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(name in word for word in process.cmdline()):
                found.append(process.cmdline())
    return found


def _reported(run_dir: Path) -> dict[int, int] | None:
    """Blocks of each successful launch whose end is in the journal; None without a first line."""
    try:
        journal = read_journal(run_dir)
    except GputuiError:
        return None
    ended = {(end.launch_id, end.case_id) for end in journal.of(CaseEnd)}
    blocks = Counter(b.launch_id for b in journal.of(Block) if (b.launch_id, b.case_id) in ended)
    return {end.launch_id: blocks[end.launch_id] for end in journal.of(LaunchEnd) if end.outcome == "ok"}


def _stored(db: Path) -> dict[int, int]:
    """Blocks of each finished launch in the file, which must contain one run, once."""
    with duckdb.connect(str(db), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        launches = connection.execute("SELECT launch_id FROM launches WHERE outcome = 'ok'").fetchall()
        blocks = connection.execute("SELECT launch_id, count(*) FROM blocks GROUP BY ALL").fetchall()
    assert len(set(launches)) == len(launches), "a launch is there twice"
    counts = dict(blocks)
    return {launch_id: counts.get(launch_id, 0) for (launch_id,) in launches}


def _wrong_words(message: str) -> list[str]:
    return [f"a traceback: {message}"] if "Traceback" in message else []
