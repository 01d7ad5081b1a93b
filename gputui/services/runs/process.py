"""Starts runs, finds those in progress by the locks of supervisors, follows their journals, and stores them.

A run is stored by its supervisor or, if that was killed, by the process that watched it or the next one here.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, NotStored
from gputui.model.journal import STORED_NAME, LaunchEnd, Line, Stored
from gputui.model.units import counted
from gputui.recording.run_directory import (
    Holder,
    Spec,
    boot_id,
    held_if_free,
    holds_a_journal,
    is_held,
    read_holder,
)
from gputui.recording.worker_process import end_left_worker
from gputui.services.support.paths import (
    default_result_file,
    directories_in,
    make_directory_for,
    new_run_directory,
    run_directories,
)
from gputui.store.opening import expanded

if TYPE_CHECKING:
    from gputui.store.writing import StoredRun


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that a supervisor executes, or executed until a moment ago."""

    run_id: str
    run_dir: Path
    target: Path
    supervisor: subprocess.Popen[bytes] | None
    """The supervisor, if it is a child of this process."""

    @property
    def short_id(self) -> str:
        """The run's name on the command line."""
        return self.run_id[-8:]

    def is_executed(self) -> bool:
        """Whether its supervisor is alive."""
        return is_held(self.run_dir) if self.supervisor is None else self.supervisor.poll() is None


def held_runs() -> list[tuple[Holder, tuple[Path, ...]]]:
    """Living supervisors and the directories of their runs, those of the newest run first."""
    home, found, seen = run_directories(), list[tuple[Holder, tuple[Path, ...]]](), set[Path]()
    for run_dir in sorted(directories_in(home), reverse=True):
        holder = read_holder(run_dir)
        if run_dir in seen or holder is None or not is_held(run_dir):
            continue
        if holder.boot_id == boot_id() and not holder.lives_here():
            continue  # another process is recovering it now
        together = [d for d in map(Path, holder.run_dirs) if d.parent == home] or [run_dir]
        seen.update(together)
        found.append((holder, tuple(together)))
    return found


def runs_in_progress() -> list[tuple[LiveRun, ...]]:
    """The runs that living supervisors execute, newest first, grouped by supervisor."""
    return [
        tuple(LiveRun(d.name, d, Path(holder.target), None) for d in together)
        for holder, together in held_runs()
    ]


def uuid7(milliseconds: int, bits: int) -> str:
    """A UUIDv7 (RFC 9562) of UTC milliseconds and 80 other bits, of which version and variant replace six."""
    number = milliseconds << 80 | bits
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


KEPT_STORED_RUNS = 10
"""Directories of stored runs that are kept, for their logs."""
NEVER_BEGUN_S = 3600.0
LEAST_FREE_BYTES = 64 * 1024
"""A supervisor that ends without a word with less than this for its run directory had no room."""


def target_of(db: Path | None) -> Path:
    """The result file, absolute."""
    return expanded(default_result_file() if db is None else db).absolute()


def writable_target(db: Path | None) -> Path:
    """The result file, absolute, once a run can be stored in it. Raises NotStored."""
    target = target_of(db)
    if db is None:
        make_directory_for(target)
    from gputui.store.writing import check_writable  # loads what reads files

    check_writable(target)
    return target


def lay_out(spec: Spec) -> Path:
    """Make the directory of a run, with what is to be executed. Raises NotStored."""
    home = run_directories()
    remove_old_directories(home)
    with _state_written(home):
        run_dir = new_run_directory(spec.run_id)
        spec.write(run_dir)
    return run_dir


@contextmanager
def _state_written(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotStored(
            f"{home}: cannot create a run directory ({error.strerror})",
            "set GPUTUI_STATE to a directory you can write to",
        ) from error


def start_runs(specs: Sequence[Spec], *, stores: bool = True) -> tuple[LiveRun, ...]:
    """Lay out a run directory for each of them and start one supervisor for all, which `stores` them.

    Their target is a result file, absolute. Raises NotStored if no run directory can be made.
    """
    home, run_dirs = run_directories(), list[Path]()
    for spec in specs:
        run_dir = home / spec.run_id
        on_end = (sys.executable, "-m", "gputui", "import", str(run_dir), "--db", spec.target)
        run_dirs.append(lay_out(replace(spec, on_end=on_end if stores else ())))
    with _state_written(home), (run_dirs[0] / "supervisor.log").open("wb") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "gputui.recording", *map(str, run_dirs)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=run_dirs[0],
            start_new_session=True,
        )
    return tuple(LiveRun(spec.run_id, home / spec.run_id, Path(spec.target), supervisor) for spec in specs)


def follow(runs: Sequence[LiveRun], period_s: float = 0.2) -> Iterator[tuple[int, Line | None]]:
    """Lines of all journals from the first, each with the index of its run; None when there are no new ones.

    `runs` are all runs of one supervisor. Ends when every run is stored, or when the supervisor is gone.
    """
    from gputui.store.journal_reader import JournalTail  # loads what the first frame must not wait for

    tails = [JournalTail(run.run_dir) for run in runs]
    open_runs = set(range(len(runs)))
    while open_runs:
        dead = not runs[0].is_executed()
        came = False
        for index in sorted(open_runs):
            for line in tails[index].poll():
                came = True
                yield index, line
                if isinstance(line, Stored):
                    open_runs.discard(index)
        if dead and not came:
            return
        if not came:
            yield -1, None
            time.sleep(period_s)


def find_in_progress(selector: str) -> tuple[LiveRun, ...]:
    """The runs of the supervisor that executes the named run; with "", the only one there is.

    Raises GputuiError if there is none or the name is ambiguous.
    """
    groups = runs_in_progress()
    wanted = selector.lower()
    matching = [
        group
        for group in groups
        if any(run.short_id.startswith(wanted) or _label(run) == selector for run in group)
    ]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(called(run) for group in matching or groups for run in group)
    if matching:
        raise GputuiError(f"{len(matching)} runs are in progress: {listed}", "name one of them")
    if groups:
        raise GputuiError(f"there is no run {selector!r} in progress", f"in progress: {listed}")
    raise GputuiError("no run is in progress", "start one: gputui run; see those that ended: gputui runs")


def wait_until_begun(runs: Sequence[LiveRun]) -> None:
    """Wait until other processes can find runs that were just started.

    Raises NotStored if their supervisor exits before that, with its last output.
    """
    while not all(holds_a_journal(run.run_dir) for run in runs):
        if not runs[0].is_executed() and not holds_a_journal(runs[-1].run_dir):
            did_not = f"run {runs[0].short_id} did not start"
            if full := full_disk_words(runs[0]):
                raise NotStored(
                    f"{did_not}: {full}", "make room there, or set GPUTUI_STATE to another directory"
                )
            raise NotStored(f"{did_not}{_last_words(runs[0])}", "try again")
        time.sleep(0.02)


def full_disk_words(run: LiveRun) -> str:
    """That the disk of its directory has no room for a supervisor to go on, as a sentence; else empty."""
    with suppress(OSError):
        if shutil.disk_usage(run.run_dir).free < LEAST_FREE_BYTES:
            return f"no space is left on the disk of {run.run_dir}"
    return ""


def is_of_this_boot(run: LiveRun) -> bool:
    """Whether the clock of its journal is ours, and what its sampler reads is of this machine."""
    holder = read_holder(run.run_dir)
    return run.supervisor is not None or (holder is not None and holder.boot_id == boot_id())


def called(run: LiveRun) -> str:
    """The run's short id, and its label if it has one."""
    label = _label(run)
    return f"{run.short_id} ({label})" if label else run.short_id


def stop(run: LiveRun, number: signal.Signals) -> None:
    """Ask the supervisor to end its runs and store what is finished.

    Does nothing if it has just exited. Raises GputuiError if it is a process of another host or user.
    """
    if run.supervisor is not None:
        run.supervisor.send_signal(number)
        return
    holder = read_holder(run.run_dir)
    if holder is None or not is_held(run.run_dir):
        return
    if not holder.lives_here():
        raise GputuiError(
            f"run {run.short_id} belongs to process {holder.pid} on another host or in another container",
            "stop it there: gputui stop",
        )
    try:
        os.kill(holder.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise GputuiError(
            f"run {run.short_id} belongs to process {holder.pid} of another user",
            f"sudo kill {holder.pid}",
        ) from error


def remove_old_directories(home: Path) -> None:
    """Remove the directories of stored runs beyond the newest ten; runs that were not stored stay.

    Also removes, after an hour, one in which no supervisor ever began.
    """
    stored = sorted(d for d in directories_in(home) if (d / STORED_NAME).is_file())
    for run_dir in stored[:-KEPT_STORED_RUNS]:
        shutil.rmtree(run_dir, ignore_errors=True)
    for run_dir in directories_in(home):
        if not holds_a_journal(run_dir) and not is_held(run_dir):
            with suppress(OSError):
                if time.time() - run_dir.stat().st_mtime > NEVER_BEGUN_S:
                    shutil.rmtree(run_dir, ignore_errors=True)


def mark_stored(run_dir: Path, target: Path) -> None:
    """Mark a run directory as stored in a result file, so that it may be removed.

    If it cannot be written, the next recovery finds the run stored once more.
    """
    with suppress(OSError):
        (run_dir / STORED_NAME).write_text(json.dumps({"target": str(target)}))


def new_run_id() -> str:
    """An id that no other run has, and that sorts by time."""
    return uuid7(time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10)))


def _last_words(run: LiveRun) -> str:
    try:
        last_line = (run.run_dir / "supervisor.log").read_text(errors="replace").strip().split("\n")[-1]
    except OSError:
        return ""
    return f": {last_line}" if last_line else ""


def _label(run: LiveRun) -> str:
    try:
        return Spec.read(run.run_dir).label
    except GputuiError:
        return ""


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
    from gputui.store.journal_reader import read_journal, read_telemetry  # who looks for runs stores none
    from gputui.store.writing import store_run

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
    from gputui.services.results.run_forms import keep_traces

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
    from gputui.store.journal_reader import read_journal, read_telemetry
    from gputui.store.writing import store_run

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
