"""Where gputui keeps its files: in XDG's directories, or below the temporary directory if there is no home.

Imports little: the monitor needs its settings before its first picture.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gputui.errors import NotStored, clean_text

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


KEY_BYTES = 32


def default_result_file(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_DB, else `results.db` in the user's data directory."""
    stated = environ.get("GPUTUI_DB")
    return Path(stated) if stated else user_directory("data", environ) / "results.db"


def make_directory_for(target: Path) -> None:
    """Make the directory of the default result file. Raises NotStored."""
    try:
        make_directory(target.parent)
    except OSError as error:
        raise NotStored(
            f"{target.parent} cannot be created ({error.strerror})",
            "name a result file that you may write: --db FILE",
        ) from error


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_STATE, else the user's state directory."""
    stated = environ.get("GPUTUI_STATE")
    return Path(stated) if stated else user_directory("state", environ)


def run_directories(environ: Mapping[str, str] = os.environ) -> Path:
    return state_directory(environ) / "runs"


def new_run_directory(run_id: str) -> Path:
    """Make the directory of a run, which only this user can read. Raises OSError.

    Where others may write to the state directory, they may have runs there too.
    """
    home = run_directories()
    if not home.exists():
        make_directory(home)
        shared = home.parent.stat().st_mode
        if shared & (stat.S_IWGRP | stat.S_IWOTH):
            home.chmod(stat.S_IMODE(shared))
    run_dir = home / run_id
    run_dir.mkdir(mode=0o700)
    return run_dir


def directories_in(home: Path) -> list[Path]:
    """The subdirectories of a directory that this user may read; none if it cannot be read."""
    return [entry for entry in _subdirectories(home) if os.access(entry, os.R_OK | os.X_OK)]


def runs_of_others() -> str:
    """One sentence about runs of other users in a shared state directory; empty if there are none."""
    home = run_directories()
    count = len(_subdirectories(home)) - len(directories_in(home))
    if not count:
        return ""
    return f"{count} {'runs' if count > 1 else 'run'} of other users in {home} left out"


def _subdirectories(home: Path) -> list[Path]:
    try:
        return [entry for entry in home.iterdir() if entry.is_dir()]
    except OSError:
        return []


def error_log(environ: Mapping[str, str] = os.environ) -> Path:
    """The log of errors that screens have shown; its directory holds only this."""
    return state_directory(environ) / "errors" / "errors.log"


def monitor_file(environ: Mapping[str, str] = os.environ) -> Path:
    return user_directory("config", environ) / "monitor.toml"


def probe_cache() -> Path:
    return user_directory("cache") / "probes"


def exports_cache() -> Path:
    return user_directory("cache") / "exports"


def copies_directory() -> Path:
    return user_directory("cache") / "copies"


def price_list_file() -> Path:
    return user_directory("config") / "prices.csv"


def references_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's own references, and which boxes each counts."""
    return user_directory("data", environ) / "references"


@dataclass(frozen=True, slots=True)
class Place:
    """One thing that gputui keeps on this machine."""

    what: str
    path: Path
    exists: bool
    total_bytes: int
    note: str
    """What else to know about it; empty otherwise."""


def places(environ: Mapping[str, str] = os.environ) -> tuple[Place, ...]:
    """Everything gputui keeps for this user, whether it exists or not."""
    from gputui.model.journal import STORED_NAME  # 1 MiB that callers who need a single path can do without

    runs = run_directories(environ)
    unstored = [d for d in directories_in(runs) if not (d / STORED_NAME).exists()]
    notes = [
        f"{len(unstored)} not stored: gputui runs stores those of this host" if unstored else "",
        runs_of_others(),
    ]
    return (
        _place("result file", default_result_file(environ)),
        _place("run directories", runs, "; ".join(filter(None, notes))),
        _place("errors", error_log(environ).parent, "errors shown on screens; L lists them"),
        _place("probes", probe_cache()),
        _place("copies of exports", exports_cache(), "recreated when read"),
        _place("copied texts", copies_directory()),
        _place("monitor settings", monitor_file(environ), "without it the monitor starts with its defaults"),
        _place("price list", price_list_file(), "yours; without it, those that ship are used"),
        _place("references", references_directory(environ), "of boxes that you measured"),
        _place("key of hashes", _key_path(environ), "without it a box with no permanent id gets a new one"),
    )


def _place(what: str, path: Path, note: str = "") -> Place:
    size = 0
    is_there = os.access(path, os.F_OK)
    for entry in (path, *path.rglob("*")) if is_there and path.is_dir() else (path,):
        with suppress(OSError):
            size += entry.lstat().st_size if not entry.is_dir() else 0
    return Place(what, path, is_there, size, note if is_there else "")


def _key_path(environ: Mapping[str, str] = os.environ) -> Path:
    return user_directory("config", environ) / "hash.key"


def hash_key(*, makes: bool = True) -> bytes:
    """Random bytes of this user, made once, mode 0600, never exported; empty if there can be none.

    `makes`: make them if there are none yet.
    """
    path = _key_path()
    with suppress(OSError):
        if makes:
            _make_key(path)
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
    return b""


def _make_key(path: Path) -> None:
    make_directory(path.parent)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_size == KEY_BYTES:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)  # left incomplete by an earlier process
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(KEY_BYTES))


LONGEST_FILE = 2**20
"""Size in bytes from which on the log begins anew."""
_LONGEST_LINE = 4000
_SHOWN_BYTES = 64 * 1024


def keep_error(path: Path, screen: str, text: str) -> None:
    """Append an error. Lines after the first, as of a traceback, are indented.

    If the file cannot be written nothing is logged: the error was shown already.
    """
    first, *more = text[:_LONGEST_LINE].splitlines() or [""]
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = [f"{when} {screen}: {clean_text(first)}", *(f"    {clean_text(row)}" for row in more)]
    with suppress(OSError):
        make_directory(path.parent)
        with suppress(FileNotFoundError):
            if path.stat().st_size > LONGEST_FILE:
                path.unlink()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write("".join(f"{row}\n" for row in rows))


def kept_errors(path: Path) -> tuple[str, ...]:
    """The last lines, newest first, safe to show; at most 65,536 letters of them."""
    text = ""
    with suppress(OSError):
        text = path.read_text("utf-8", "replace")[-_SHOWN_BYTES:]
    rows = text.splitlines()
    if len(text) == _SHOWN_BYTES:
        del rows[:1]
    entries: list[list[str]] = []
    for row in map(clean_text, rows):
        if row.startswith(" ") and entries:
            entries[-1].append(row)
        else:
            entries.append([row])
    return tuple(row for entry in reversed(entries) for row in entry)
