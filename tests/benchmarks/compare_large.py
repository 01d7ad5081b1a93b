"""How long `gputui compare` takes with two files of a million telemetry rows, and with 200 small files.

Run from the repository root:

    python tests/benchmarks/compare_large.py [--rows 1000000] [--files 200]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from journals import GPU_MACHINE, make_case, make_journal, make_telemetry, write_telemetry

from gputui.model.plan import Case
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run


def make_file(path: Path, number: int, rows: int) -> Path:
    """A stored run, whose telemetry is copied with later times until it has this many rows."""
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


def make_small_file(path: Path, number: int) -> Path:
    """As `quick` leaves it on a box without a GPU: twelve measured cases, and skipped ones."""
    run_dir = make_journal(
        path.parent / f"journal-{path.stem}",
        run_id=f"0194b5a0-0000-7000-8000-{number:012d}",
        blocks=20,
        cases=_cases("cpu", ("fp32", "amp"), ("1", "all")),
        skipped=_cases("gpu", ("fp32", "tf32", "amp"), ("host",)),
        seed=number,
        telemetry=False,
    )
    write_telemetry(run_dir, make_telemetry(seconds=140, hertz=1))
    store_run(path, read_journal(run_dir), read_telemetry(run_dir))
    return path


def _cases(device_class: str, precisions: Sequence[str], threads: Sequence[str]) -> tuple[Case, ...]:
    found = []
    for workload, workload_class in _WORKLOADS:
        for precision in precisions:
            for number in threads if workload_class == "ceiling" else threads[-1:]:
                if workload != "membw" or precision == "fp32":
                    case = make_case(workload, number, precision, device_class)
                    found.append(replace(case, workload_class=workload_class))
    return tuple(found)


_WORKLOADS = (
    ("gemm", "ceiling"),
    ("membw", "ceiling"),
    ("conv_train", "training"),
    ("gpt_train", "training"),
    ("decode", "inference"),
)


_MEASURED = """
import os, subprocess, sys, time
begun = time.monotonic()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_utime + used.ru_stime, time.monotonic() - begun, used.ru_maxrss)
sys.stdout.flush(); os._exit(os.waitstatus_to_exitcode(status))
"""
"""Run by a small process: a child's peak memory begins with that of its parent."""


def timed(
    words: Sequence[str], *, program: Sequence[str] = ("-m", "gputui"), times: int = 3
) -> tuple[float, float, int]:
    """Wall and CPU seconds of a command, and its peak memory in MiB; the best of some times by CPU."""
    command = [sys.executable, "-c", _MEASURED, sys.executable, *program, *words]
    found = []
    for _ in range(times):
        measured = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cpu, wall, peak = map(float, measured.split())
        found.append((cpu, wall, int(peak) // 1024))
    cpu, wall, peak = min(found)
    return wall, cpu, peak


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        large = [str(make_file(Path(place) / f"{name}.db", n, options.rows)) for n, name in enumerate("ab")]
        small = [str(make_small_file(Path(place) / f"s{n}.db", 10 + n)) for n in range(options.files)]
        tiny = [str(make_file(Path(place) / f"t{n}.db", 1000 + n, 0)) for n in range(options.files)]
        for what, files in (
            (f"2 files of {options.rows} telemetry rows", large),
            (f"{len(small)} files of `quick` (12 cases and 13 skipped)", small),
            (f"{len(tiny)} files of 2 cases", tiny),
        ):
            wall, cpu, peak = timed(["compare", *files])
            print(f"compare {what}: {wall:.2f} s, {cpu:.2f} s CPU, {peak} MiB at most")


if __name__ == "__main__":
    main()
