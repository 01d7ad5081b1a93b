"""Which directory is this account's alone: gputui writes, runs and removes nothing in any other.

Also the first code on another machine, sent as text to `python -c`, so it imports only the standard library:
it finds gputui's directory, takes the measuring half over stdin, and serves.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import importlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

MARKER = ".gputui-home"
"""A file in every home that gputui made on another machine; names the account."""
DEFAULT_NAME = ".gputui"
_MADE = frozenset({"runs", "tmp", "cache"})
_ARCHIVE = re.compile(r"gputui-[0-9a-f]{16}\.\w+")
"""An archive of the measuring half, or a draft of one."""
_OF_A_TEMPORARY_HOME = frozenset({"config", "data", "state"})
"""Beside `cache`, where a gputui of this machine has no other home."""
_NOBODY = 65534
"""Shown as the owner of what belongs to an account that a container does not know."""
_MOST_LINKS = 40


class NotOurs(Exception):
    """Another account could change it, or gputui did not make it; the message says which."""


def own_name() -> str:
    """What gputui calls a directory of this account in one that others use too."""
    return f"gputui-{_user()}"


def why_open_to_others(path: Path) -> str:
    """Why another account could change what an absolute path names; empty if none but root can.

    Every directory and link on the way must belong to this account or root, and others may write only where
    the sticky bit keeps them from each other's files. What is missing is not judged. Raises OSError.
    """
    owners, links = _trusted_owners(), 0
    place, left = Path("/"), list(reversed(path.parts[1:]))
    while True:
        try:
            found = place.lstat()
        except FileNotFoundError:
            return ""
        if found.st_uid not in owners:
            return f"{place} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            left += reversed(place.readlink().parts)
            place = place.parent
        elif _may_be_written(found) and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
            return f"others may write to {place} (mode {stat.S_IMODE(found.st_mode):04o})"
        if not left:
            return ""
        part = left.pop()
        place = place.parent if part == ".." else place / part


def why_not_private(directory: Path) -> str:
    """Why a directory is not this account's alone; empty if nobody else but root may read or change it.

    Raises OSError.
    """
    if why := why_open_to_others(directory):
        return why
    found = directory.stat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{directory} is not a directory"
    if found.st_uid != _user():
        return f"{directory} belongs to user {found.st_uid}"
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"others may read or write {directory} (mode {stat.S_IMODE(found.st_mode):04o}, not 0700)"
    return ""


def find_home(stated: Path, *, makes: bool) -> Path | None:
    """The directory that gputui made: the stated one, or below one that it did not make, `own_name`.

    Makes it if `makes` is set; else None if there is none. Raises NotOurs, and OSError.
    """
    for place in (stated, stated / own_name()):
        if why := why_open_to_others(place):
            raise NotOurs(why)
        if not os.path.lexists(place):
            if not makes:
                return None
            if _made(place):
                return place
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not _is_marked(place) and _is_older_home(place):
            write_whole(place / MARKER, _marker_text())
        if _is_marked(place):
            if why := why_not_private(place):
                raise NotOurs(why)
            return place
    raise NotOurs(f"gputui did not make {place}")


def entries(home: Path) -> list[Path]:
    """What gputui made in a home and may remove; never a link. Raises NotOurs, and OSError."""
    if home.is_symlink():
        raise NotOurs(f"{home} is a link")
    if why := why_not_private(home):
        raise NotOurs(why)
    if not _is_marked(home):
        raise NotOurs(f"gputui did not make {home}")
    return sorted(
        entry
        for entry in home.iterdir()
        if (entry.name in _MADE or _ARCHIVE.fullmatch(entry.name) or entry.name.startswith(f"{MARKER}."))
        and not entry.is_symlink()
    )


def clean(home: Path) -> list[str]:
    """Remove what gputui made in a home, and then the home if nothing else lies in it; returns what does.

    Raises NotOurs, and OSError.
    """
    for entry in entries(home):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    others = sorted(entry.name for entry in home.iterdir() if entry.name != MARKER)
    if not others:
        (home / MARKER).unlink()
        home.rmdir()
    return others


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that has all its content from the first moment, in place of one that is there.

    The old content stays if that fails. Raises OSError.
    """
    descriptor, draft = tempfile.mkstemp(prefix=f"{path.stem}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(draft).chmod(mode)
        Path(draft).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).unlink()


def open_verified(archive: Path, digest: str) -> int:
    """A descriptor of a file of this account with this hash (SHA-256). Raises NotOurs, and OSError."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        verified_name(descriptor, archive, digest)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def verified_name(descriptor: int, archive: Path, digest: str) -> str:
    """The path by which the open file itself is run, whatever now has its name, after its hash was checked.

    Without /proc it is the name, which is safe in a private directory. Raises NotOurs, and OSError.
    """
    found = os.fstat(descriptor)
    if found.st_uid != _user() or _may_be_written(found):
        raise NotOurs(f"others may write to {archive}")
    if hashlib.sha256(os.pread(descriptor, found.st_size, 0)).hexdigest() != digest:
        raise NotOurs(f"{archive} is not what was sent")
    opened = Path(f"/proc/self/fd/{descriptor}")
    return str(opened if opened.exists() else archive)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _may_be_written(found: os.stat_result) -> bool:
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _trusted_owners() -> set[int]:
    """This account and root; also nobody in a container without that account, which so shows unknown ones."""
    owners = {_user(), 0}
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
        known = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
        if not any(first <= _NOBODY < first + count for first, count in known):
            owners.add(_NOBODY)
    return owners


def _made(place: Path) -> bool:
    """Make a home, with its marker from the first moment; false if another process was first."""
    for directory in reversed([parent for parent in place.parents if not os.path.lexists(parent)]):
        directory.mkdir(mode=0o700, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        if why := why_not_private(draft):
            raise NotOurs(why)  # a file system without owners or modes
        write_whole(draft / MARKER, _marker_text())
        draft.rename(place)  # fails if there is anything but an empty directory
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    finally:
        with contextlib.suppress(OSError):  # it has its name now, or others could change it
            (draft / MARKER).unlink(missing_ok=True)
            draft.rmdir()
    return True


def _marker_text() -> bytes:
    return b"home of gputui, user %d\n" % _user()


def _is_marked(place: Path) -> bool:
    try:
        descriptor = os.open(place / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return stat.S_ISREG(found.st_mode) and found.st_uid == _user() and file.read(100) == _marker_text()


def _is_older_home(place: Path) -> bool:
    """Whether a gputui that set no marker made it: private, with nothing but gputui's own files in it, and
    named by gputui or with an archive."""
    if why_not_private(place):
        return False
    names = set()
    for entry in place.iterdir():
        if entry.is_symlink() or entry.lstat().st_uid != _user():
            return False
        names.add(entry.name)
    archives = {name for name in names if _ARCHIVE.fullmatch(name)}
    markers = {name for name in names if name.startswith(MARKER)}  # another process is just making
    is_named = place.name in (DEFAULT_NAME, own_name())
    return bool(is_named or archives) and names <= _MADE | _OF_A_TEMPORARY_HOME | archives | markers


def _say(nonce: str, **fields: object) -> None:
    os.write(1, b"gputui %s %s\n" % (nonce.encode(), json.dumps(fields).encode()))


def _take(archive: Path, length: int) -> None:
    """Read the zip from stdin and keep it. Raises OSError, and ValueError if the link is cut."""
    pieces, left = [], length
    while left:
        piece = os.read(0, min(left, 1 << 16))
        if not piece:
            raise ValueError("the link was cut while the measuring half was sent")
        pieces.append(piece)
        left -= len(piece)
    write_whole(archive, b"".join(pieces))


def first_stage(nonce: str, digest: str, length: str, directory: str, makes: str) -> None:
    """Serve requests until stdin ends.

    `digest` (SHA-256) and `length` are the zip's; `directory` is the one that the user named, in base64, or
    empty for `~/.gputui`; and `makes` is `makes` to make what is missing.
    """
    stated = Path(base64.b64decode(directory).decode() or f"~/{DEFAULT_NAME}")
    try:
        stated = stated.expanduser().absolute()
        home = find_home(stated, makes=makes == "makes")
        if home is None:
            _say(nonce, state="absent", path=str(stated))
            return
        archive = home / f"gputui-{digest[:16]}.zip"
        try:
            descriptor = open_verified(archive, digest)
        except (OSError, NotOurs):
            _say(nonce, state="needs")
            _take(archive, int(length))
            descriptor = open_verified(archive, digest)
    except NotOurs as error:
        _say(nonce, state="refused", reason=str(error))
        return
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _say(nonce, state="failed", reason=reason, code=getattr(error, "errno", None) or 0, path=str(stated))
        return
    _say(nonce, state="ready")
    sys.path.insert(0, verified_name(descriptor, archive, digest))
    agent = importlib.import_module("gputui.recording.agent")  # of the archive
    agent.serve(home, archive, descriptor, digest)


if __name__ == "__main__":
    first_stage(*sys.argv[1:6])
