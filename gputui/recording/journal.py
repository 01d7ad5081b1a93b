"""Writes a journal: append-only, each line complete or absent, with room for the last lines on a full
disk."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.journal import JOURNAL_NAME, Line, RunStart, encode_line
from gputui.recording.lock import Holder, take_lock
from gputui.recording.spec import Spec

RESERVE_NAME = "reserve"
RESERVE_BYTES = 256 * 1024
"""Kept free for the last lines of a run whose disk fills up: about 300 lines."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, and of an exhausted quota."""


def holds_a_journal(run_dir: Path) -> bool:
    """Whether a supervisor has written to the journal of a run directory."""
    try:
        return (run_dir / JOURNAL_NAME).stat().st_size > 0
    except OSError:
        return False


class JournalWriter:
    """Appends lines to `journal.jsonl`. Thread-safe; each line is one write."""

    def __init__(self, run_dir: Path) -> None:
        """Create the journal. Raises FileExistsError if it exists, OSError if it cannot be written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(run_dir / JOURNAL_NAME, flags, 0o600)
        self._lock = threading.Lock()
        self._sequence = 0
        self._is_torn = False
        self._reserve = run_dir / RESERVE_NAME
        self.failure = ""
        """Why lines can no longer be written properly; empty while all is well."""
        with suppress(OSError):  # helpful, but not required
            self._reserve.write_bytes(bytes(RESERVE_BYTES))

    @staticmethod
    def begin(run_dir: Path, spec: Spec, run_dirs: Sequence[Path]) -> tuple[JournalWriter, RunStart, int]:
        """Take the lock of a run for life, and write the first line of its journal.

        `run_dirs` are all runs of this process. Returns the first line and the descriptor of the lock too.
        Raises OSError, or GputuiError if the run was begun before.
        """
        lock = take_lock(run_dir, Holder.this_process(spec.target, run_dirs))
        try:
            journal = JournalWriter(run_dir)
        except FileExistsError as error:
            os.close(lock)
            raise GputuiError(f"{run_dir}: this run was begun before", "start a new run") from error
        start = spec.start_now()
        journal.append(start)
        return journal, start, lock

    def append(self, line: Line) -> None:
        """Write one line to the system.

        On a full disk the reserve is released first, and `failure` says so: the run should end. Raises
        OSError if the line cannot be written even then; the journal is intact up to the line before.
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
        """Wait until all lines are on disk; called at the end of every launch. Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close."""
        with suppress(OSError):
            self._reserve.unlink()
        try:
            self.sync()
        finally:
            os.close(self._descriptor)
