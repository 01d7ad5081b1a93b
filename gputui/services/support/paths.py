"""Where gputui keeps its files: result file, run directories, caches, settings."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import NotStored
from gputui.services.support.home import make_directory, user_directory

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
    """Contains one directory per run."""
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
    """The log of errors that screens have shown; its directory holds only this and the rotated log."""
    return state_directory(environ) / "errors" / "errors.log"


def monitor_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The settings of the monitor."""
    return user_directory("config", environ) / "monitor.toml"


def probe_cache() -> Path:
    """Directory of cached probes."""
    return user_directory("cache") / "probes"


def exports_cache() -> Path:
    """Directory of exports as result files."""
    return user_directory("cache") / "exports"


def copies_directory() -> Path:
    """Directory of texts that a terminal may have failed to copy."""
    return user_directory("cache") / "copies"


def price_list_file() -> Path:
    """The user's own list of prices."""
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
        _place("price list", price_list_file(), "yours; gputui prices --forget removes it"),
        _place(
            "references", references_directory(environ), "of boxes that you measured: gputui reference list"
        ),
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
