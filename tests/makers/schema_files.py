"""Makes result files of the present schema for `tests/store/schema_files`: one of each kind of run.

    PYTHONPATH=. python tests/makers/schema_files.py tests/store/schema_files/1

Run it when a schema version is frozen, and never again for that version: tests show that later versions read
and extend what an earlier one wrote. The runs are real, but for the two boxes with GPUs.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from chrome_traces import write_training
from command_line import write_spin_profile
from journals import GPU_MACHINE
from model_server import Behaviour, serving_process
from stored_runs import store

from gputui.store.merging import merge_files


def _gputui(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "gputui", *map(str, words)], check=True, timeout=600)


def _two_boxes(place: Path, db: Path) -> None:
    """Two boxes with GPUs, sampled and profiled, as a bakeoff brings them home."""
    for number in range(2):
        machine = replace(GPU_MACHINE, machine_id=f"{number:012x}")
        ms = 20.0 * (1 + number / 4)
        store(place / f"{number}.db", number, label=f"box {number}", gemm_ms=ms, machine=machine, on_gpu=True)
    merge_files([place / "0.db", place / "1.db"], db)


def make(directory: Path) -> None:
    """Write the files, compressed: most of a DuckDB file is empty."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.environ |= {"GPUTUI_STATE": str(place / "state"), "GPUTUI_DB": str(place / "default.db")}
        spin = write_spin_profile(place / "spin.toml", replicates=3, threads=("1", "all"))
        _gputui("run", spin, "--db", place / "cpu.db", "--label", "a CPU", "--yes")
        _gputui("record", "--db", place / "recording.db", "--", sys.executable, "-c", "sum(range(10**8))")
        _gputui("import", write_training(place / "trace.json"), "--db", place / "trace.db")
        _two_boxes(place, place / "bakeoff.db")
        with serving_process(Behaviour(decode_s=0.002)) as url:
            loads = ("--concurrency", "1,2", "--slo", "none", "--launches", "1", "--budget", "30")
            _gputui("serve-bench", url, *loads, "--db", place / "serving.db")
        for name in ("cpu", "recording", "trace", "bakeoff", "serving"):
            with gzip.GzipFile(directory / f"{name}.db.gz", "wb", mtime=0) as packed:
                packed.write((place / f"{name}.db").read_bytes())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
