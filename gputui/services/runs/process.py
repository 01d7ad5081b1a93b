"""Starts runs, finds those in progress by the locks of supervisors, follows their journals, raises alerts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.errors import GputuiError, NotStored
from gputui.model.journal import STORED_NAME, CaseEnd, Line, RunEnd, Stored
from gputui.model.plan import Plan
from gputui.recording.run_directory import Holder, Spec, boot_id, holds_a_journal, is_held, read_holder
from gputui.services.support.paths import (
    default_result_file,
    directories_in,
    make_directory_for,
    new_run_directory,
    run_directories,
)
from gputui.store.opening import expanded


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that a supervisor executes, or executed until a moment ago."""

    run_id: str
    run_dir: Path
    target: Path
    """The result file it will be stored in."""
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


LEAST_APART_S = 10.0
"""Events that follow an alert sooner are reported with the next one."""
_WORDS = {"failed": "failed", "oom": "ran out of memory"}


def endings(ends: Collection[RunEnd], runs: int) -> Iterable[str]:
    """How so many runs of one supervisor ended, each word once."""
    found = [f"{end.status}: {end.reason}" if end.reason else end.status for end in ends]
    return dict.fromkeys([*found, *(["its supervisor was killed"] if len(ends) < runs else [])])


class Alerts:
    """Reads journals and writes alerts for a user who is looking elsewhere. For one thread.

    With `is_late`, what was written before the first `tick` is history and raises no alert.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        called: str,
        *,
        is_late: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plans = plans
        self._called = called
        self._is_history = is_late
        self._clock_s = clock_s
        self._alerted_s: float | None = None
        self._waiting: list[str] = []
        """Sentences about cases, oldest first."""
        self._seen: set[tuple[int, int, str]] = set()
        self._ends: dict[int, RunEnd] = {}

    def hear(self, index: int, line: Line) -> None:
        """Read one line of the journal of run `index`."""
        if isinstance(line, RunEnd):
            self._ends[index] = line
        elif isinstance(line, CaseEnd) and line.outcome in _WORDS:
            key = (index, line.case_id, line.outcome)
            if key not in self._seen and not self._is_history:
                self._waiting.append(self._sentence(index, line))
            self._seen.add(key)

    def tick(self) -> str:
        """The alert to raise now, empty for none; call it when there are no more lines to read."""
        self._is_history = False
        now_s = self._clock_s()
        is_soon = self._alerted_s is not None and now_s - self._alerted_s < LEAST_APART_S
        if not self._waiting or is_soon:
            return ""
        self._alerted_s = now_s
        return f"run {self._called}: {self._taken()}"

    def end(self) -> str:
        """The alert to raise when all runs are stored, or their supervisor is gone."""
        cases = f"; {self._taken()}" if self._waiting else ""
        return f"run {self._called} {', '.join(endings(self._ends.values(), len(self._plans)))}{cases}"

    def _sentence(self, index: int, line: CaseEnd) -> str:
        from gputui.services.results.labels import (
            plain_case_name,
        )  # slow, and only bad news needs it

        planned = self._plans[index].cases
        is_planned = line.case_id < len(planned)
        name = plain_case_name(planned[line.case_id].case) if is_planned else f"case {line.case_id}"
        name = name if len(self._plans) == 1 else f"[{index + 1}] {name}"
        return f"{name} {_WORDS[line.outcome]}"

    def _taken(self) -> str:
        first, *others = self._waiting
        self._waiting.clear()
        return f"{first}, and {len(others)} more" if others else first


def alerts_of(runs: Sequence[LiveRun], plans: Sequence[Plan], *, is_late: bool = False) -> Alerts:
    """The alerts of these runs; `is_late` if they began before this process."""
    return Alerts(plans, " and ".join(called(run) for run in runs), is_late=is_late)
