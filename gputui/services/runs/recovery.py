"""Stores journals in a result file: when a run ends, and those of this host whose supervisors died.

A run is stored by its supervisor or, if that was killed, by the process that watched it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gputui.errors import GputuiError, NotStored
from gputui.model.journal import STORED_NAME, LaunchEnd, Stored
from gputui.model.units import counted
from gputui.recording.run_directory import Holder, held_if_free, holds_a_journal, is_held, read_holder
from gputui.recording.worker_process import end_left_worker
from gputui.services.results.kept_files import keep_traces
from gputui.services.runs.process import LiveRun, full_disk_words, mark_stored, wait_until_begun
from gputui.services.support.paths import directories_in, run_directories
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import StoredRun, store_run

WAIT_S = 20.0


def recover_orphans() -> tuple[str, ...]:
    """Store every run of this host whose supervisor is gone, each in its target file; a line for each."""
    said: list[str] = []
    for run_dir in sorted(directories_in(run_directories())):
        try:
            said += _recovered(run_dir)
        except NotStored as error:
            said.append(error.message)
    return tuple(filter(None, said))


def recover_now(run_dir: Path) -> str:
    """Store one run whose supervisor has just died, and say so in a line; empty if it is stored already.

    Waits for another process that recovers it at this moment. Raises NotStored if that takes too long, or if
    it cannot be stored; its journal is then kept.
    """
    deadline = time.monotonic() + WAIT_S
    while not (run_dir / STORED_NAME).exists():
        for said in _recovered(run_dir):
            return said
        if time.monotonic() > deadline:
            raise NotStored(
                f"{run_dir}: another process holds this run", f"gputui import {run_dir} --db FILE"
            )
        time.sleep(0.05)
    return ""


def see_stored(run: LiveRun, last: Stored | None) -> tuple[str, ...]:
    """Make sure that a finished run is stored; returns messages if its supervisor was killed, or had no room.

    `last` is the last line of its journal, None if it is missing: then this process stores the run. Raises
    NotStored, with where its journal is kept.
    """
    if last is not None:
        if last.exit_status:
            why = last.message.removeprefix("gputui: ").split("\n")[0] or f"status {last.exit_status}"
            raise NotStored(
                f"run {run.short_id} was measured but not stored: {why}",
                f"its journal is kept: gputui import {shlex.quote(str(run.run_dir))} --db FILE",
            )
        return ()
    wait_until_begun([run])
    full = full_disk_words(run)
    how = f"ended: {full}" if full else "was killed"
    said = recover_now(run.run_dir)
    return tuple(filter(None, (f"the supervisor of run {run.short_id} {how}", said)))


def import_journal(run_dir: Path, target: Path) -> StoredRun:
    """Store the journal of a run directory, wherever it came from.

    Raises GputuiError if it cannot be read, or if the run is still in progress: it would be stored as
    interrupted, and could not be stored again at its end. NotStored if the file cannot be written.
    """
    contents = read_journal(run_dir)
    if contents.end is None and is_held(run_dir):
        raise GputuiError(
            f"{run_dir}: this run is in progress",
            f"it is stored when it ends: gputui attach {run_dir.name[-8:]}",
        )
    stored = store_run(target, contents, read_telemetry(run_dir))
    _finish(run_dir, stored.run_id, target)
    return stored


def _finish(run_dir: Path, run_id: str, target: Path) -> None:
    """Move traces next to the result file, and mark the journal as stored."""
    with suppress(OSError):  # a trace that has no room there stays where it is
        keep_traces(run_dir, run_id, target)
    mark_stored(run_dir, target)


def _recovered(run_dir: Path) -> Iterator[str]:
    """What is said of a run that was stored now; empty if it was there already. Raises NotStored."""
    if (run_dir / STORED_NAME).exists() or not holds_a_journal(run_dir):
        return
    try:
        holder = read_holder(run_dir)
        if holder is None or not holder.is_of_this_host():
            return
        with held_if_free(run_dir) as is_free:
            if is_free and not (run_dir / STORED_NAME).exists():
                end_left_worker(run_dir)
                yield _stored(run_dir, holder)
    except OSError:
        return  # another user's, or just removed


def _stored(run_dir: Path, holder: Holder) -> str:
    target = Path(holder.target)
    name = run_dir.name[-8:]
    try:
        contents = read_journal(run_dir)
        stored = store_run(target, contents, read_telemetry(run_dir))
        _finish(run_dir, stored.run_id, target)
    except (GputuiError, OSError) as error:
        hint = f"gputui import {shlex.quote(str(run_dir))} --db FILE, or remove that directory"
        raise NotStored(f"run {name} could not be stored: {error}; {hint}") from error
    launches = sum(end.outcome == "ok" for end in contents.of(LaunchEnd))
    found = f"{counted(launches, 'finished launch')} {'is' if launches == 1 else 'are'}"
    message = f"recovered run {name}: {found} now in {target}"
    if stored.left_out:
        message += f"; left out: {'; '.join(stored.left_out)}"
    return "" if stored.already_there else message
