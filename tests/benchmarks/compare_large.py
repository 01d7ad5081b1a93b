"""How long `gputui compare` takes with two files of a million telemetry rows, and with 200 small files.

Run from the repository root:

    python tests/benchmarks/compare_large.py [--rows 1000000] [--files 200]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1]))

from journals import GPU_MACHINE, make_journal

from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run


def make_file(path: Path, number: int, rows: int) -> Path:
    """A stored run; its telemetry is copied, later and later, until there are so many rows."""
    run_dir = make_journal(
        path.parent / f"journal-{path.stem}",
        run_id=f"0194b5a0-0000-7000-8000-{number:012d}",
        launches=3,
        machine=GPU_MACHINE,
        seed=number,
    )
    store_run(path, read_journal(run_dir), read_telemetry(run_dir))
    for table in ("telemetry", "host_telemetry") if rows else ():
        with duckdb.connect(str(path)) as connection:
            ((has, names),) = connection.execute(
                f"SELECT (SELECT count(*) FROM {table}), string_agg(column_name, ', ') "
                f"FROM information_schema.columns WHERE table_name = '{table}' AND column_name <> 't_us'"
            ).fetchall()
            connection.execute(
                f"INSERT INTO {table} ({names}, t_us) SELECT {names}, t_us + n * 1000 "
                f"FROM {table}, range(1, {rows // has // 2}) AS numbers(n)"
            )
    return path


def timed(words: Sequence[str]) -> tuple[float, float, int]:
    """Wall and CPU seconds of a command, and its peak memory in MiB; the least of three."""
    found = []
    for _ in range(3):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([sys.executable, "-m", "gputui", *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((time.monotonic() - begun, cpu, after.ru_maxrss // 1024))
    return min(found)


def main() -> None:
    """Print wall and CPU time and memory of both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        large = [str(make_file(Path(place) / f"{name}.db", n, options.rows)) for n, name in enumerate("ab")]
        small = [str(make_file(Path(place) / f"s{n}.db", 10 + n, 0)) for n in range(options.files)]
        for what, files in (
            (f"2 files of {options.rows} telemetry rows", large),
            (f"{len(small)} files", small),
        ):
            wall, cpu, peak = timed(["compare", *files])
            print(f"compare {what}: {wall:.2f} s, {cpu:.2f} s CPU, {peak} MiB at most")


if __name__ == "__main__":
    main()
