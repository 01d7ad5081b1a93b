"""The log of errors that screens have shown: one line each."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from gputui.services.support.home import make_directory
from gputui.store.text import clean_text

LONGEST_FILE = 2**20
"""Size in bytes from which on the log is rotated; only one older file is kept."""
_LONGEST_LINE = 4000
_SHOWN_BYTES = 64 * 1024


def older_log(path: Path) -> Path:
    """The path of the rotated log."""
    return path.with_name(f"{path.name}.1")


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
                path.replace(older_log(path))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write("".join(f"{row}\n" for row in rows))


def kept_errors(path: Path) -> tuple[str, ...]:
    """The last lines, newest first, safe to show; at most 64 KiB of them."""
    text = b""
    for part in (path, older_log(path)):
        with suppress(OSError), part.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _SHOWN_BYTES, 0))
            text = file.read() + text
    rows = text[-_SHOWN_BYTES:].decode("utf-8", "replace").splitlines()
    if len(text) > _SHOWN_BYTES:
        del rows[:1]
    entries: list[list[str]] = []
    for row in map(clean_text, rows):
        if row.startswith(" ") and entries:
            entries[-1].append(row)
        else:
            entries.append([row])
    return tuple(row for entry in reversed(entries) for row in entry)
