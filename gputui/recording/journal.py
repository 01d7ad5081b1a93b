"""Writes a journal: append-only, each line whole or absent, the last words also on a full disk."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

from gputui.model.journal import JOURNAL_NAME, Line, encode_line

RESERVE_NAME = "reserve"
RESERVE_BYTES = 256 * 1024
"""Kept free for the last words of a run whose disk fills up: some 300 lines."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk, and a used-up quota, answer."""


class JournalWriter:
    """Appends lines to `journal.jsonl`. Any thread; each line is one write."""

    def __init__(self, run_dir: Path) -> None:
        """Begin a journal. Raises FileExistsError if there is one, OSError if none can be written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(run_dir / JOURNAL_NAME, flags, 0o600)
        self._lock = threading.Lock()
        self._sequence = 0
        self._is_torn = False
        self._reserve = run_dir / RESERVE_NAME
        self.failure = ""
        """Why lines can no longer be written as they should; empty while all is well."""
        with suppress(OSError):  # a help for later, not a condition
            self._reserve.write_bytes(bytes(RESERVE_BYTES))

    def append(self, line: Line) -> None:
        """Hand one line to the system.

        On a full disk the reserve is given up first, and `failure` says so: it is time to end. Raises OSError
        if the line cannot be written all the same; the journal is whole up to the line before.
        """
        with self._lock:
            data = encode_line(self._sequence, line)
            if self._is_torn:  # so that what is left of the line before stays alone
                data = b"\n" + data
            while data:
                try:
                    written = os.write(self._descriptor, data)
                except OSError as error:
                    self.failure = f"the journal cannot be written: {error.strerror}"
                    if error.errno not in NO_ROOM or not self._reserve.exists():
                        raise
                    self._reserve.unlink()
                    continue
                self._is_torn = written < len(data)
                data = data[written:]
            self._sequence += 1

    def sync(self) -> None:
        """Wait until all lines are on the disk; called at the end of every launch. Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close; appending is over."""
        with suppress(OSError):
            self._reserve.unlink()
        try:
            self.sync()
        finally:
            os.close(self._descriptor)
