"""Where a user's files may lie: XDG's directories, or one below the temporary directory if there is no home.

Imports little: the monitor needs its settings before its first picture.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

APPLICATION = "gputui"
_XDG = {
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
    "state": ("XDG_STATE_HOME", ".local/state"),
}
_LEAST_BYTES = 16 * 2**20
"""A temporary directory with less is passed over: a small run with its result file takes this much."""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


def user_directory(kind: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The directory for `cache`, `config`, `data` or `state`, which may not exist yet.

    One that this user cannot create or write is replaced by one in `temporary_home`, if there is any.
    """
    usual = _usual(kind, environ)
    if is_writable(usual):
        return usual
    instead = temporary_home(environ)
    return usual if instead is None else instead / kind


def missing_home(environ: Mapping[str, str] = os.environ) -> str:
    """One sentence if files go to the temporary directory, with what helps; else empty."""
    stated = {"data": "GPUTUI_DB", "state": "GPUTUI_STATE"}
    kinds = [
        kind for kind in stated if not environ.get(stated[kind]) and not is_writable(_usual(kind, environ))
    ]
    instead = temporary_home(environ)
    if not kinds or instead is None:
        return ""
    return (
        f"{_usual(kinds[0], environ)} is not writable: files go to {instead}, which may not outlast this"
        f" box; set HOME, or {' and '.join(stated[kind] for kind in kinds)}"
    )


def temporary_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """This user's directory below a temporary one, which may not exist yet; None if there can be none.

    In $TMPDIR if possible; else one that is there, else where there is room. One that belongs to somebody
    else, or that others may write, is not used.
    """
    # Imported here, since few boxes come this far.
    from gputui.recording.own_directory import own_name, why_not_private, why_open_to_others

    for bases in ((environ.get("TMPDIR", ""),), _TEMPORARY):
        possible = [
            Path(base, own_name()) for base in bases if base.startswith("/") and is_writable(Path(base))
        ]
        for directory in possible:
            if directory.is_dir() and not directory.is_symlink() and not why_not_private(directory):
                return directory
        for directory in possible:
            is_free = not os.path.lexists(directory) and not why_open_to_others(directory)
            if is_free and _has_room(directory.parent):
                return directory
    return None


def _has_room(directory: Path) -> bool:
    try:
        found = os.statvfs(directory)
    except (OSError, AttributeError):
        return True
    return found.f_bavail * found.f_frsize >= _LEAST_BYTES


def make_directory(path: Path) -> None:
    """Make a directory and its parents, for this user alone as XDG wants it. Raises OSError."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)


def is_writable(path: Path) -> bool:
    """Whether this user may write in a directory, or create it."""
    for place in (path, *path.parents):
        try:
            found = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and os.access(place, os.W_OK | os.X_OK)
    return False


def _usual(kind: str, environ: Mapping[str, str]) -> Path:
    variable, below_home = _XDG[kind]
    stated = environ.get(variable, "")
    if stated.startswith("/"):
        return Path(stated) / APPLICATION
    if sys.platform not in ("darwin", "win32") or kind == "config":
        return _home(environ) / below_home / APPLICATION
    import platformdirs  # takes 5 ms, and only these systems have places of their own

    return Path(getattr(platformdirs, f"user_{kind}_dir")(APPLICATION))


def _home(environ: Mapping[str, str]) -> Path:
    stated = environ.get("HOME", "")
    if stated:
        return Path(stated)
    try:
        return Path.home()
    except RuntimeError:  # a user id without a name, as in containers
        return Path("/nonexistent")
