"""What the screens of `gputui demo` show besides live GPUs: stored runs, and a run in progress."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from gputui.errors import GputuiError
from gputui.model.journal import Block, Line, RunStart
from gputui.model.telemetry import Reading
from gputui.services.playback.demo_runs import BOXES, RentedBox, journal_of, plan_of, readings_of, run_id_of
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker

_SEED = 2026
_FIRST_RUN_UTC_US, _APART_US = 1_795_270_000_000_000, 5_400_000_000
_GONE_NS = 60 * 10**9
"""How long the run in progress appears to have gone on when it is first looked at."""


class Demo:
    """A directory for the demo alone, which contains all that gputui keeps while it lasts.

    So no file of the user's is shown as made up, or the other way round. `close` removes it.
    """

    def __init__(self, gpus: int) -> None:
        """Make the directory. Raises GputuiError if none can be made."""
        self.gpus = gpus
        try:
            self._was_in = os.open(".", os.O_RDONLY)
            self._directory = TemporaryDirectory(prefix="gputui-demo-", ignore_cleanup_errors=True)
        except OSError as error:
            raise GputuiError(
                f"no temporary directory can be made ({error.strerror})", "set TMPDIR to one that has room"
            ) from error
        self.db = Path(self._directory.name, "demo.db")
        self._lock = threading.Lock()
        self._is_written = False
        own = {"GPUTUI_DB": str(self.db), "GPUTUI_STATE": self._directory.name}
        self._environment = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        os.chdir(self._directory.name)

    def words(self, screen_id: str) -> tuple[str, ...]:
        """What a screen is opened with, as on the command line."""
        if screen_id == "compare":
            ids = [run_id_of(box, _started_utc_us(box)) for box in BOXES[:2]]
            return tuple(f"{self.db}@{run_id[-8:]}" for run_id in ids)
        return (str(self.db),) if screen_id == "results" else ()

    def write(self, on_step: Callable[[str], None]) -> None:
        """Write the runs into the result file, unless they are there. Raises GputuiError."""
        from gputui.store.journal_reader import JournalContents
        from gputui.store.writing import store_run

        with self._lock:
            for box in () if self._is_written else BOXES:
                on_step(f"making up a run on {box.name}")
                plan = plan_of(box)
                lines = journal_of(box, plan, _SEED, _started_utc_us(box), 0)
                start = lines[0]
                assert isinstance(start, RunStart)
                store_run(self.db, JournalContents(start, lines, ()), readings_of(box, plan, lines))
            self._is_written = True

    def close(self) -> None:
        """Remove the directory, and leave the process as it was."""
        for name, value in self._environment.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})
        with suppress(OSError):
            os.fchdir(self._was_in)
        os.close(self._was_in)
        with self._lock:
            self._is_written = True
            self._directory.cleanup()


class MadeUpProgress:
    """A run in progress by this process's clock: no worker measures. When it is over it begins anew."""

    def __init__(self) -> None:
        self.box = BOXES[1]
        self.plan = plan_of(self.box)
        self._begin(time.monotonic_ns() - _GONE_NS)

    def _begin(self, begun_ns: int) -> None:
        started_utc_us = (time.time_ns() - time.monotonic_ns() + begun_ns) // 1000
        self.run_id = run_id_of(self.box, started_utc_us)
        lines = journal_of(self.box, self.plan, _SEED + 1, started_utc_us, begun_ns)
        self._lines = deque(_with_time(lines))
        self._readings = deque(readings_of(self.box, self.plan, lines))
        self._tracker = ProgressTracker([self.plan], is_of_this_clock=True)
        self._history = HistoryReader(self._new_readings)

    def picture(self) -> ProgressSnapshot:
        """How far it is now, with what its GPU and host did."""
        now_ns = time.monotonic_ns()
        if not self._lines:
            self._begin(now_ns)
        while self._lines and self._lines[0][0] <= now_ns:
            self._tracker.hear(0, self._lines.popleft()[1])
        return replace(self._tracker.picture(), devices=self._history.poll(now_ns))

    def _new_readings(self) -> list[Reading]:
        now_ns = time.monotonic_ns()
        count = sum(1 for _ in takewhile(lambda reading: reading.t_ns <= now_ns, self._readings))
        return [self._readings.popleft() for _ in range(count)]


def _with_time(lines: Iterable[Line]) -> Iterator[tuple[int, Line]]:
    """When each line of a journal is written, on its clock."""
    t_ns = 0
    for line in lines:
        t_ns = line.start_ns + line.wall_ns if isinstance(line, Block) else getattr(line, "t_ns", t_ns)
        yield t_ns, line


def _started_utc_us(box: RentedBox) -> int:
    """The first box was measured last, so that lists begin with it."""
    return _FIRST_RUN_UTC_US - BOXES.index(box) * _APART_US
