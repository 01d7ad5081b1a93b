"""Files that are written beside a result file under another name, and what killed writers left of them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gputui.store.locking import free_lock, is_gone, lock_of

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
    with suppress(OSError), free_lock(lock) as descriptor:
        if kind == "merge" and not is_gone(descriptor):  # between two batches it does not hold its lock
            return
        if os.path.lexists(draft):
            if not _is_own_file(draft) or not _is_database(draft):
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


def _is_database(draft: Path) -> bool:
    descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        begin = os.pread(descriptor, _MAGIC_AT + len(_MAGIC), 0)
    finally:
        os.close(descriptor)
    return not begin or begin[_MAGIC_AT:] == _MAGIC
