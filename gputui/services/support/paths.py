"""Where gputui keeps its files: result file, run directories, caches, the key of its hashes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from gputui.errors import GputuiError
from gputui.services.support.monitor_file import monitor_file

APPLICATION = "gputui"
KEY_BYTES = 32


def default_result_file(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_DB, else `results.db` in the user's data directory."""
    stated = environ.get("GPUTUI_DB")
    return Path(stated) if stated else Path(platformdirs.user_data_dir(APPLICATION)) / "results.db"


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_STATE, else the user's state directory."""
    stated = environ.get("GPUTUI_STATE")
    return Path(stated) if stated else Path(platformdirs.user_state_dir(APPLICATION))


def run_directories(environ: Mapping[str, str] = os.environ) -> Path:
    """Contains one directory per run."""
    return state_directory(environ) / "runs"


def error_log(environ: Mapping[str, str] = os.environ) -> Path:
    """The log of errors that screens have shown; its directory holds only this and the rotated log."""
    return state_directory(environ) / "errors" / "errors.log"


def probe_cache() -> Path:
    """Directory of cached probes."""
    return Path(platformdirs.user_cache_dir(APPLICATION)) / "probes"


def copies_directory() -> Path:
    """Directory of texts that a terminal may have failed to copy."""
    return Path(platformdirs.user_cache_dir(APPLICATION)) / "copies"


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
    unstored = [d for d in _entries(runs) if d.is_dir() and not (d / STORED_NAME).exists()]
    note = f"{len(unstored)} not stored: gputui runs stores those of this host" if unstored else ""
    return (
        _place("result file", default_result_file(environ)),
        _place("run directories", runs, note),
        _place("errors", error_log(environ).parent, "errors shown on screens; L lists them there"),
        _place("probes", probe_cache()),
        _place("copied texts", copies_directory()),
        _place("monitor settings", monitor_file(environ), "removed, the monitor opens as it did at first"),
        _place("key of hashes", _key_path(), "removed, this machine gets another id in new runs"),
    )


def _place(what: str, path: Path, note: str = "") -> Place:
    size = 0
    for entry in (path, *path.rglob("*")) if path.is_dir() else (path,):
        with suppress(OSError):
            size += entry.lstat().st_size if not entry.is_dir() else 0
    return Place(what, path, path.exists(), size, note if path.exists() else "")


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _key_path() -> Path:
    return Path(platformdirs.user_config_dir(APPLICATION)) / "hash.key"


def hash_key() -> bytes:
    """The key of this user's hashes: 32 random bytes, created once, mode 0600, never exported.

    Raises GputuiError if it can be neither read nor created.
    """
    path = _key_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            key = path.read_bytes()
            if len(key) == KEY_BYTES:
                return key
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)  # left incomplete by an earlier process
        key = os.urandom(KEY_BYTES)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        return key
    except OSError as error:
        raise GputuiError(
            f"{path}: cannot be made ({error.strerror})", "set XDG_CONFIG_HOME to a directory you may write"
        ) from error
