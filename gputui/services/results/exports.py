"""Exported directories, read like any result file through a copy in the cache, made anew when they change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gputui.errors import NotStored
from gputui.services.support.home import make_directory
from gputui.services.support.paths import exports_cache
from gputui.store.opening import expanded, is_export

_KEPT = 4
"""Copies of exports that are kept, the last used."""


def result_file_of(path: Path) -> Path:
    """The result file with what an exported directory holds; any other path as it is.

    It is named after the names, sizes and times of the directory's files. Raises GputuiError if they cannot
    be read, NotStored if there is no place for the copy.
    """
    if not is_export(path):
        return path
    path = path.resolve()
    text = "\n".join(
        f"{file.relative_to(path)} {file.stat().st_size} {file.stat().st_mtime_ns}"
        for file in sorted(path.glob("**/*.parquet"))
    )
    name = hashlib.sha256(f"{path}\n{text}".encode(errors="surrogateescape")).hexdigest()[:24]
    copy = exports_cache() / f"{name}.db"
    if copy.exists():
        with suppress(OSError):
            copy.touch()
        return copy
    try:
        make_directory(copy.parent)
    except OSError as error:
        raise NotStored(f"{copy.parent} cannot be made: {error.strerror}", "set XDG_CACHE_HOME") from error
    from gputui.store.parquet import import_export  # takes 0.05 s with all that writes

    import_export(path, copy)
    _forget(sorted(copy.parent.glob("*.db"), key=lambda file: file.stat().st_mtime)[:-_KEPT])
    return copy


def _forget(copies: Sequence[Path]) -> None:
    for copy in copies:
        for file in (copy, copy.with_name(f"{copy.name}.lock")):
            with suppress(OSError):
                file.unlink()


def named_files(paths: Sequence[Path]) -> list[Path]:
    """As `result_file_of` for each path that a user named."""
    return [result_file_of(expanded(path)) for path in paths]
