"""Files that users named: written whole, or why that fails and what to do; JSON, and CSV that no spreadsheet
runs."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from pathlib import Path

from gputui.errors import GputuiError, NotStored
from gputui.recording.own_directory import write_whole
from gputui.store.locking import is_database
from gputui.store.opening import expanded

_BYTES_OF_NAMES = "surrogateescape"
"""In a C locale, Python represents file names as bytes; they are written unchanged."""


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that the user named, as `write_whole` does. Text is UTF-8, line ends as given.

    A device or pipe, such as /dev/stdout, is written to directly. Raises NotStored, and GputuiError for a
    database: swapped arguments must not replace measurements by a report of them.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", errors=_BYTES_OF_NAMES)
    write(path, lambda: _write_bytes(path, data))


def _write_bytes(path: Path, data: bytes) -> None:
    target = expanded(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    target = target.resolve()  # a symlink's target is replaced, not the link
    if target.exists() and target.stat().st_size and is_database(target):
        raise GputuiError(f"{path} is a database and will not be overwritten", "choose another file")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    write_whole(target, data, mode)


def write(path: Path, writes: Callable[[], object]) -> None:
    """Call a function that writes a file. Raises NotStored with the reason and the next step."""
    try:
        writes()
    except (NotStored, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        number = cause.errno if isinstance(cause, OSError) else None
        another = "or give another path"
        known = {
            errno.ENOENT: (f"there is no directory {path.parent}", f"create it, {another}"),
            errno.ENOTDIR: (f"{path.parent} is not a directory", "give another path"),
            errno.EISDIR: (f"{path} is a directory", "give the path of a file in it"),
            errno.EACCES: (f"no permission to write in {path.parent}", "give another path"),
            errno.EPERM: (f"no permission to write in {path.parent}", "give another path"),
            errno.EROFS: (f"{path.parent} is read-only", "give another path"),
            errno.ENOSPC: (f"there is no room for {path}", f"free some, {another}"),
            errno.EDQUOT: (f"your quota has no room for {path}", f"free some, {another}"),
        }.get(number or 0)
        strerror = getattr(cause, "strerror", None) or str(error)
        message, hint = known or (f"{path} cannot be written ({strerror})", "give another path")
        raise NotStored(message, hint) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


Value = str | int | float | None
_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def harmless(text: str) -> str:
    """Escape text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(_STARTS_FORMULA) else text


def csv_text(rows: Iterable[Iterable[Value]]) -> str:
    """RFC 4180, with what is absent empty; text that a spreadsheet would run gets an apostrophe before it."""
    made = StringIO(newline="")
    writer = csv.writer(made, lineterminator="\r\n")
    writer.writerows([harmless(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return made.getvalue()


def json_text(values: Mapping[str, object]) -> str:
    """What a command prints as JSON, and what is saved as such: an object with the version of its schema."""
    return json.dumps({"schema": 1, **values}, indent=1) + "\n"
