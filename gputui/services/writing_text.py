"""Writes a text to a file, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gputui.errors import NotStored
from gputui.store.opening import expanded


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step; what was there stays if it cannot be written. UTF-8, line ends as given.

    A device or pipe, such as /dev/stdout, is written to as it is. Raises NotStored.
    """
    target = expanded(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8", newline="")
            return
        target = target.resolve()  # through a link, the file it points to is replaced
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        descriptor, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(made).chmod(mode)
            Path(made).replace(target)
        except BaseException:
            with suppress(OSError):
                Path(made).unlink()
            raise
    except OSError as error:
        raise NotStored(
            f"{path}: cannot be written ({error.strerror})", "give another file with --output, or none"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
