"""Locks of result files, and what is written beside one under another name.

A lock is a separate file: DuckDB's is lost when any descriptor of the file is closed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WAIT_S = 10.0
"""How long to wait for other processes."""
_MOST_LOCK_BYTES = 200
_NO_FLOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class Locked(Exception):
    """Another process, or another connection of this one, has the file open."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


@contextmanager
def write_lock(db: Path) -> Iterator[None]:
    """Hold `FILE.lock`, creating it if necessary; one writer at a time.

    Raises Locked after WAIT_S, OSError if the lock file cannot be opened.
    """
    descriptor = os.open(lock_of(db), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with _flocked(descriptor, exclusive=True):
        with suppress(OSError):  # a full disk: the holder's name is not essential
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n{_where()}\n".encode(), 0)
        yield


def let_writers_pass(db: Path) -> None:
    """Wait for writers before opening a file for reading.

    Otherwise overlapping readers would keep every writer out. Raises Locked after WAIT_S.
    """
    try:
        descriptor = os.open(lock_of(db), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # no one has ever written here, or we may not see it
    with _flocked(descriptor, exclusive=False):
        pass


@contextmanager
def _left_lock(lock: Path) -> Iterator[None]:
    """Hold a lock file that exists and whose last holder has ended.

    Raises OSError if somebody holds it, or if that cannot be found out.
    """
    import fcntl

    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pid, *where = os.pread(descriptor, _MOST_LOCK_BYTES, 0).decode(errors="replace").splitlines()
        if where != [_where()] or not where[0]:
            raise OSError(errno.ENOLCK, "its last holder may be on another host")
        if not os.path.samestat(os.fstat(descriptor), lock.lstat()):
            raise OSError(errno.ENOLCK, "it was replaced")
        if not _has_ended(int(pid)):  # between the batches of a merge it does not hold its lock
            raise OSError(errno.ENOLCK, "its last holder may go on")
        yield
    finally:
        os.close(descriptor)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _where() -> str:
    """Since when this kernel runs, and where numbers of processes mean the same; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def lock_of(db: Path) -> Path:
    """The lock file of a result file."""
    return db.with_name(db.name + ".lock")


@contextmanager
def _flocked(descriptor: int, *, exclusive: bool) -> Iterator[None]:
    """Hold the lock, then close the descriptor. Raises Locked after WAIT_S, OSError."""
    import fcntl  # not available on Windows, where nothing is stored

    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait_in_line(descriptor, kind)
        except OSError as error:
            if error.errno not in _NO_FLOCK:  # a file system without flock: DuckDB's own lock must suffice
                raise
        yield
    finally:
        os.close(descriptor)


def _wait_in_line(descriptor: int, kind: int) -> None:
    """Take the lock in the kernel's queue, which is fair; polling would starve.

    The kernel has no timeout, so a thread waits, with another descriptor of the same lock file; if it gets
    the lock too late it releases it. Raises Locked after WAIT_S.
    """
    import fcntl

    own, came, guard, is_late = os.dup(descriptor), threading.Event(), threading.Lock(), False

    def wait() -> None:
        try:
            fcntl.flock(own, kind)
        finally:
            with guard:
                if is_late:
                    fcntl.flock(own, fcntl.LOCK_UN)
                came.set()
            os.close(own)

    threading.Thread(target=wait, name="lock", daemon=True).start()
    came.wait(WAIT_S)
    with guard:
        if came.is_set():
            return
        is_late = True
    pid = os.pread(descriptor, 20, 0).decode(errors="replace").split("\n")[0].strip()
    raise Locked(f"process {pid}" if pid.isdigit() else "another gputui")


_NAME = re.compile(r"\.(?P<file>.+)\.gputui-(?P<kind>new|merge)", re.DOTALL)
_MAGIC_AT, _MAGIC = 8, b"DUCK"


def new_draft(db: Path) -> Path:
    """What becomes `db` when it is complete; its writer holds the lock of `db`."""
    return db.with_name(f".{db.name}.gputui-new")


def merge_draft(db: Path) -> Path:
    """Where a merge into `db` collects runs; its writer has the draft's own lock, which names the process."""
    return db.with_name(f".{db.name}.gputui-merge")


def log_of(draft: Path) -> Path:
    """DuckDB's log of a draft."""
    return draft.with_name(draft.name + ".wal")


@contextmanager
def cleared(*paths: Path) -> Iterator[None]:
    """Remove these files before and after: what is still there then was not finished. Raises OSError."""
    for path in paths:
        path.unlink(missing_ok=True)
    try:
        yield
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def sweep(directory: Path) -> None:
    """Remove drafts of writers that were killed.

    Only what is surely one: a DuckDB file, or an empty one, of this user, neither a link nor linked to, whose
    writer has ended. What cannot be found out stays.
    """
    with suppress(OSError):
        names = [entry.name for entry in os.scandir(directory) if entry.name.startswith(".")]
        for name in sorted(names, key=lambda name: not name.endswith(".gputui-new")):
            for kind in ("", ".lock"):
                found = _NAME.fullmatch(name.removesuffix(kind)) if name.endswith(kind) else None
                if found and (not kind or found["kind"] == "merge"):
                    _sweep(directory / name.removesuffix(kind), directory / found["file"], found["kind"])


def _sweep(draft: Path, db: Path, kind: str) -> None:
    lock = lock_of(draft if kind == "merge" else db)
    if not _is_own_file(lock):
        return
    with suppress(OSError, ValueError, OverflowError), _left_lock(lock):
        if os.path.lexists(draft):
            if not _is_own_file(draft) or not is_database(draft):
                return
            draft.unlink()
            if _is_own_file(log_of(draft)):
                log_of(draft).unlink()
        if kind == "merge":
            lock.unlink()


def _is_own_file(path: Path) -> bool:
    """Whether it is a plain file of this user with no other name."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1


def is_database(path: Path) -> bool:
    """Whether a file, which is no link, is DuckDB's; an empty one may become one. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        begin = os.pread(descriptor, _MAGIC_AT + len(_MAGIC), 0)
    finally:
        os.close(descriptor)
    return not begin or begin[_MAGIC_AT:] == _MAGIC
