"""Which process executes a run: a lock in its directory, held for life, and a description of its holder."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gputui.errors import GputuiError
from gputui.machine.identity import host_id
from gputui.model.journal import LOCK_NAME
from gputui.worker.foreign_json import read_json_file

_WAIT_S = 2.0
"""Processes that only test the lock hold it for an instant."""
_NO_FLOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        plain = read_json_file(run_dir / LOCK_NAME)
        plain["run_dirs"] = tuple(plain["run_dirs"])
        return Holder(**plain)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def boot_id() -> str:
    """The kernel's id of this boot; empty if it has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def process_start(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process (proc(5), field 22); None if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
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
