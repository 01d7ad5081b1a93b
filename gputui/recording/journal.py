"""Writes a journal: append-only, each line whole or absent."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from gputui.model.journal import JOURNAL_NAME, Line, encode_line


class JournalWriter:
    """Appends lines to `journal.jsonl`. Any thread; each line is one write."""

    def __init__(self, run_dir: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(run_dir / JOURNAL_NAME, flags, 0o600)
        self._lock = threading.Lock()
        self._sequence = 0

    def append(self, line: Line) -> None:
        """Hand one line to the system. Raises OSError if the disk is full."""
        with self._lock:
            data = encode_line(self._sequence, line)
            self._sequence += 1
            while data:
                data = data[os.write(self._descriptor, data) :]

    def sync(self) -> None:
        """Wait until all lines are on the disk; called at the end of every launch."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close; appending is over."""
        self.sync()
        os.close(self._descriptor)
