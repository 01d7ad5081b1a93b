"""The directory of a run, which only its owner can read: a supervisor's input, the lock, and the journal.

On a shared host others must be able neither to read what is measured nor to plant a plan that is executed.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any  # Any: JSON that is not yet checked

from gputui.errors import GputuiError
from gputui.machine.identity import host_id
from gputui.model.absent import to_plain
from gputui.model.journal import (
    JOURNAL_NAME,
    JOURNAL_SCHEMA,
    LOCK_NAME,
    SPEC_NAME,
    CasePlanned,
    Event,
    Line,
    MachineFound,
    Price,
    RunStart,
    RuntimeFound,
    encode_line,
)
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import Plan, from_plain
from gputui.sources.base import text_of
from gputui.sources.processes import read_stat
from gputui.version import version
from gputui.worker.foreign_json import read_json_file
from gputui.worker.variables import as_recorded, warnings_of


@dataclass(frozen=True, slots=True)
class Spec:
    """One run to execute."""

    run_id: str
    plan: Plan
    runtime: Runtime
    label: str = ""
    price: Price | None = None
    machine_name: str = ""
    """What the user calls the box that measures; empty to know it by what it is."""
    hash_key: bytes = b""
    """Key of this user's own ids of boxes; empty if there is none. Never leaves the user's machines."""
    target: str = ""
    """Path of the result file; for recovery, and for the message when storing fails."""
    on_end: tuple[str, ...] = ()
    """Command that stores the run when it has ended; empty if the journal is fetched instead."""

    def start_now(self) -> RunStart:
        """The first line of its journal; reads both clocks once."""
        return RunStart(
            schema=JOURNAL_SCHEMA,
            run_id=self.run_id,
            started_utc_us=time.time_ns() // 1000,
            started_ns=time.monotonic_ns(),
            utc_offset_min=time.localtime().tm_gmtoff // 60,
            gputui_version=version(),
            profile=self.plan.profile,
            profile_version=self.plan.profile_version,
            seed=self.plan.seed,
            replicates=self.plan.replicates,
            budget_s=self.plan.budget_s,
            label=self.label,
            price=self.price,
        )

    def to_plain(self) -> dict[str, Any]:
        """The JSON form, which `read` understands."""
        return {**to_plain(self), "plan": self.plan.to_plain(), "hash_key": self.hash_key.hex()}

    def write(self, run_dir: Path) -> None:
        """Write the file."""
        write_spec(run_dir, self.to_plain())

    @staticmethod
    def read(run_dir: Path) -> Spec:
        """Read what `write` wrote. Raises GputuiError if it is missing or damaged."""
        path = run_dir / SPEC_NAME
        try:
            plain: dict[str, Any] = read_json_file(path)
            return Spec(
                run_id=plain["run_id"],
                plan=Plan.from_plain(plain["plan"]),
                runtime=from_plain(Runtime, plain["runtime"]),
                label=plain["label"],
                price=None if plain["price"] is None else Price(**plain["price"]),
                machine_name=plain["machine_name"],
                hash_key=bytes.fromhex(plain["hash_key"]),
                target=plain["target"],
                on_end=tuple(plain["on_end"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GputuiError(f"{path}: no spec of a run ({error})", "give a run directory") from error


def write_spec(run_dir: Path, plain: dict[str, Any]) -> None:
    """Write the file with mode 0600: it holds the key and the target's path."""
    descriptor = os.open(run_dir / SPEC_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(plain, file, indent=1)


_WAIT_S = 2.0
"""Processes that only test the lock hold it for an instant."""
_NO_FLOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that executes a run, or that did until it ended."""

    pid: int
    process_start: int
    """Clock ticks from boot to the start of the process, to detect a reused PID."""
    boot_id: str
    host: str
    """Keyed hash of the host's name and machine-id."""
    target: str
    """Path of the result file."""
    run_dirs: tuple[str, ...]
    """All runs that this process executes, in order."""

    @staticmethod
    def this_process(target: str, run_dirs: Sequence[Path]) -> Holder:
        """This process as a holder."""
        return Holder(
            pid=os.getpid(),
            process_start=process_start(os.getpid()) or 0,
            boot_id=boot_id(),
            host=host_id(),
            target=target,
            run_dirs=tuple(str(run_dir) for run_dir in run_dirs),
        )

    def is_of_this_host(self) -> bool:
        """Whether it ran under this kernel, or on a host of the same name and machine-id."""
        return (self.boot_id != "" and self.boot_id == boot_id()) or self.host == host_id()

    def lives_here(self) -> bool:
        """Whether the PID still belongs to the process that wrote it, in this boot."""
        return self.boot_id == boot_id() and process_start(self.pid) == self.process_start


def take_lock(run_dir: Path, holder: Holder) -> int:
    """Take the lock of a run directory and record its holder; returns the descriptor, which must stay open.

    Raises GputuiError if another process executes this run, OSError if the file cannot be written.
    """
    descriptor = os.open(run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _WAIT_S
    while not _is_locked_now(descriptor):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise GputuiError(f"{run_dir}: another supervisor executes this run", "watch it: gputui attach")
        time.sleep(0.02)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(asdict(holder)).encode())
    return descriptor


@contextmanager
def held_if_free(run_dir: Path) -> Iterator[bool]:
    """Hold the lock of a run that no one executes, without recording a holder; False if it is taken.

    Raises OSError if the lock cannot be opened.
    """
    descriptor = os.open(run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            is_free = _flocked(descriptor, exclusive=True)
        except OSError:  # no locks on this file system
            is_free = not is_held(run_dir)
        yield is_free
    finally:
        os.close(descriptor)


def is_held(run_dir: Path) -> bool:
    """Whether a living process executes this run; False if there is no lock file.

    On a file system without locks, checks whether the holder's process exists; one of another host counts as
    living.
    """
    try:
        descriptor = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _flocked(descriptor, exclusive=False)
    except OSError:
        holder = read_holder(run_dir)
        return holder is not None and (holder.boot_id != boot_id() or holder.lives_here())
    finally:
        os.close(descriptor)


def read_holder(run_dir: Path) -> Holder | None:
    """The recorded holder; None if it is missing or unreadable."""
    try:
        holder: Holder = from_plain(Holder, read_json_file(run_dir / LOCK_NAME))
        return holder
    except (OSError, ValueError, TypeError, KeyError):
        return None


def boot_id() -> str:
    """The kernel's id of this boot; empty if it has none."""
    return text_of("/proc/sys/kernel/random/boot_id").strip()


def process_start(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None if it does not exist."""
    try:
        return read_stat(pid).start_ticks
    except (OSError, ValueError):
        return None


def _flocked(descriptor: int, *, exclusive: bool) -> bool:
    """Take the lock if it is free. Raises OSError if the file system has no locks."""
    import fcntl  # not available on Windows, where nothing is executed

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked_now(descriptor: int) -> bool:
    try:
        return _flocked(descriptor, exclusive=True)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        return True  # `is_held` checks the process instead


RESERVE_NAME = "reserve"
RESERVE_BYTES = 256 * 1024
"""Kept free for the last lines of a run whose disk fills up: about 300 lines."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, and of an exhausted quota."""


def holds_a_journal(run_dir: Path) -> bool:
    """Whether a supervisor has written to the journal of a run directory."""
    try:
        return (run_dir / JOURNAL_NAME).stat().st_size > 0
    except OSError:
        return False


class JournalWriter:
    """Appends lines to `journal.jsonl`. Thread-safe; each line is one write."""

    start: RunStart
    """The first line, if it was begun by `begin`."""

    def __init__(self, run_dir: Path) -> None:
        """Create the journal. Raises FileExistsError if it exists, OSError if it cannot be written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(run_dir / JOURNAL_NAME, flags, 0o600)
        self._lock = threading.Lock()
        self._sequence = 0
        self._is_torn = False
        self._held: int | None = None
        """The lock of the run, until the journal is closed."""
        self._reserve = run_dir / RESERVE_NAME
        self.failure = ""
        """Why lines can no longer be written properly; empty while all is well."""
        with suppress(OSError):  # helpful, but not required
            self._reserve.write_bytes(bytes(RESERVE_BYTES))

    @staticmethod
    def begin(run_dir: Path, spec: Spec, run_dirs: Sequence[Path]) -> JournalWriter:
        """Take the lock of a run, and write the first line of its journal.

        `run_dirs` are all runs of this process. Raises OSError, or GputuiError if the run was begun before.
        """
        lock = take_lock(run_dir, Holder.this_process(spec.target, run_dirs))
        try:
            journal = JournalWriter(run_dir)
        except FileExistsError as error:
            os.close(lock)
            raise GputuiError(f"{run_dir}: this run was begun before", "start a new run") from error
        journal._held, journal.start = lock, spec.start_now()
        journal.append(journal.start)
        return journal

    def write_heading(
        self, machine: Machine, runtime: Runtime, planned: Iterable[CasePlanned], *, is_cleared: bool
    ) -> None:
        """Write everything known before the first launch; `is_cleared`: whether workers get no variables that
        falsify rows. Raises OSError."""
        self.append(MachineFound(machine))
        variables = as_recorded(os.environ, is_cleared=is_cleared)
        self.append(RuntimeFound(replace(runtime, variables=variables)))
        for warning in warnings_of(os.environ, is_cleared=is_cleared):
            self.append(Event("warning", warning, time.monotonic_ns()))
        for one in planned:
            self.append(one)
        self.sync()

    def append(self, line: Line) -> None:
        """Write one line to the system.

        On a full disk the reserve is released first, and `failure` says so: the run should end. Raises
        OSError if the line cannot be written even then; the journal is intact up to the line before.
        """
        with self._lock:
            data = encode_line(self._sequence, line)
            if self._is_torn:  # so that what is left of the line before stays alone
                data = b"\n" + data
            while data:
                try:
                    written = os.write(self._descriptor, data)
                except OSError as error:
                    self.failure = f"the journal cannot be written: {error.strerror}"
                    if error.errno not in NO_ROOM or not self._reserve.exists():
                        raise
                    self._reserve.unlink()
                    continue
                self._is_torn = written < len(data)
                data = data[written:]
            self._sequence += 1

    def sync(self) -> None:
        """Wait until all lines are on disk; called at the end of every launch. Raises OSError."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self.failure = f"the journal cannot be written: {error.strerror}"
            raise

    def close(self) -> None:
        """Sync and close, and release the run. Raises OSError if the last lines may be lost."""
        with suppress(OSError):
            self._reserve.unlink()
        try:
            self.sync()
        finally:
            os.close(self._descriptor)
            if self._held is not None:
                os.close(self._held)
