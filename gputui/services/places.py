"""Where gputui keeps what: result file, run directories, caches, the key of its hashes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from gputui.errors import GputuiError

APPLICATION = "gputui"
KEY_BYTES = 32


def default_result_file(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_DB, else `results.db` in the user's data directory."""
    stated = environ.get("GPUTUI_DB")
    return Path(stated) if stated else Path(platformdirs.user_data_dir(APPLICATION)) / "results.db"


def run_directories(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_STATE, else the user's state directory; one directory per run inside."""
    stated = environ.get("GPUTUI_STATE")
    return (Path(stated) if stated else Path(platformdirs.user_state_dir(APPLICATION))) / "runs"


def probe_cache() -> Path:
    """Directory of remembered probes."""
    return Path(platformdirs.user_cache_dir(APPLICATION)) / "probes"


def hash_key() -> bytes:
    """The key of this user's hashes: 32 random bytes, made once, mode 0600, never exported.

    Raises GputuiError if it can be neither read nor made.
    """
    path = Path(platformdirs.user_config_dir(APPLICATION)) / "hash.key"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            key = path.read_bytes()
            if len(key) == KEY_BYTES:
                return key
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)  # a torn file of an earlier start
        key = secrets.token_bytes(KEY_BYTES)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        return key
    except OSError as error:
        raise GputuiError(
            f"{path}: cannot be made ({error.strerror})", "set XDG_CONFIG_HOME to a directory you may write"
        ) from error
