"""Several processes that write one result file, and several that read it, for a while."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
from journals import RUN_ID, make_journal

WRITERS, READERS = 4, 2
_HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
_WRITE = """
import json, sys, time
from dataclasses import replace
from pathlib import Path
from gputui.errors import GputuiError
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run
run_dir, db, seconds, writer = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
contents = read_journal(run_dir)
until, stored, errors, slowest = time.monotonic() + seconds, 0, [], 0.0
store_run(db, contents, read_telemetry(run_dir))  # the one that all of them store
while True:  # at least once each
    run_id = f"0194b5a0-0000-7000-8000-{writer:04x}{stored:08x}"
    own = replace(contents, start=replace(contents.start, run_id=run_id))
    began = time.monotonic()
    try:
        assert not store_run(db, own, read_telemetry(run_dir)).already_there
        stored += 1
    except (GputuiError, AssertionError) as error:
        errors.append(repr(error))
    slowest = max(slowest, time.monotonic() - began)
    if time.monotonic() >= until:
        break
print(json.dumps([stored, slowest, errors]))
"""
_READ = """
import json, sys, time
from pathlib import Path
from gputui.errors import GputuiError
from gputui.store.reading import open_result
db, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
reads, errors, slowest = 0, [], 0.0
while True:  # at least once each
    began = time.monotonic()
    try:
        with open_result(db) as file:
            summaries = file.summaries()
            cases = file.run(summaries[-1].run_id).cases
            assert sum(len(m.blocks) for case in cases for m in case.measurements) == 12
        reads += 1
    except (GputuiError, AssertionError) as error:
        errors.append(repr(error))
    slowest = max(slowest, time.monotonic() - began)
    if time.monotonic() >= until:
        break
print(json.dumps([reads, slowest, errors]))
"""


def holding(db: Path) -> subprocess.Popen[bytes]:
    """A process that has the file open for writing, until a line or the end comes on its standard input."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


@dataclass(frozen=True, slots=True)
class Crowd:
    """The outcome."""

    runs_stored: int
    """Runs that a writer reported as stored, besides the shared one."""
    runs_in_file: int
    shared_run_there: int
    reads: int
    slowest_store_s: float
    slowest_read_s: float
    errors: tuple[str, ...]


def crowd(place: Path, seconds: float) -> Crowd:
    """Four writers, each with separate runs and one that all of them store, and two readers."""
    run_dir, db = make_journal(place / "run"), place / "a.db"
    words = [sys.executable, "-c"]
    first = _ended([_start([*words, _WRITE, str(run_dir), str(db), "0", "99"])], 0)  # creates the file
    writers = [_start([*words, _WRITE, str(run_dir), str(db), str(seconds), str(n)]) for n in range(WRITERS)]
    readers = [_start([*words, _READ, str(db), str(seconds)]) for _ in range(READERS)]
    wrote, read = [*first, *_ended(writers, seconds)], _ended(readers, seconds)
    with duckdb.connect(str(db), read_only=True) as connection:
        runs = connection.execute("SELECT run_id::VARCHAR FROM runs").fetchall()
        blocks = connection.execute("SELECT DISTINCT count(*) FROM blocks GROUP BY run_id").fetchall()
    ids = [str(run_id) for (run_id,) in runs]
    wrong = () if blocks == [(12,)] and len(set(ids)) == len(ids) else (f"blocks per run: {blocks}",)
    return Crowd(
        runs_stored=sum(count for count, _, _ in wrote),
        runs_in_file=len(ids) - ids.count(RUN_ID),
        shared_run_there=ids.count(RUN_ID),
        reads=sum(count for count, _, _ in read),
        slowest_store_s=max(slowest for _, slowest, _ in wrote),
        slowest_read_s=max(slowest for _, slowest, _ in read),
        errors=(*wrong, *(error for _, _, errors in (*wrote, *read) for error in errors)),
    )


def _start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _ended(processes: list[subprocess.Popen[str]], seconds: float) -> list[tuple[int, float, list[str]]]:
    return [tuple(json.loads(p.communicate(timeout=seconds + 120)[0])) for p in processes]
