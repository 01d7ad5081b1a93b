"""Seconds and memory of exporting a fleet as Parquet, reading it back, and querying it with three engines.

Run from the repository root:

    python tests/benchmarks/parquet_export.py [--runs 300 1000] [--of FILE]

Without `--of`, the files are made from one run of a CPU box as `quick` leaves it; with it, from the newest
run of a real file. Each has new ids, another start and rates that differ by a few per cent.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))
sys.path.insert(0, str(Path(__file__).parent))

from compare_large import make_small_file

from gputui.store.reading import open_result
from gputui.store.schema import RUN_TABLES
from gputui.store.writing import remove_run

ANSWER = """
    SELECT machine_id, workload, precision, max(rate) AS rate FROM rates
    WHERE workload = 'gemm' GROUP BY machine_id, workload, precision ORDER BY rate DESC LIMIT 5"""
BLOCKS = (
    "SELECT workload, count(*) AS blocks FROM blocks JOIN cases USING (run_id, case_id) GROUP BY workload"
)
_USED = """
import os, resource, sys, time
begun = time.monotonic()
{code}
used, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime
print(time.monotonic() - begun, cpu, max(used.ru_maxrss, children.ru_maxrss), file=sys.stderr)
"""
_ENGINES = {
    "DuckDB": f"""
import duckdb
c = duckdb.connect()
for name in ("rates", "blocks", "cases"):
    files = f"'{{sys.argv[1]}}/{{name}}/**/*.parquet'"
    c.execute(f"CREATE VIEW {{name}} AS FROM read_parquet({{files}}, hive_partitioning = true)")
c.sql({ANSWER!r}).fetchall(); c.sql({BLOCKS!r}).fetchall()""",
    "polars": """
import polars as pl
export = lambda name: pl.scan_parquet(f"{sys.argv[1]}/{name}/**/*.parquet", hive_partitioning=True)
best = export("rates").filter(workload="gemm").group_by("machine_id", "workload", "precision")
best.agg(pl.col("rate").max()).top_k(5, by="rate").collect()
works = export("cases").select("run_id", "case_id", "workload")
export("blocks").join(works, on=["run_id", "case_id"]).group_by("workload").agg(pl.len()).collect()""",
    "Spark": f"""
from pyspark.sql import SparkSession
b = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
b = b.config("spark.driver.host", "127.0.0.1")
spark = b.config("spark.sql.shuffle.partitions", "2").getOrCreate()
for name in ("rates", "blocks", "cases"):
    spark.read.parquet(f"{{sys.argv[1]}}/{{name}}").createOrReplaceTempView(name)
spark.sql({ANSWER!r}).collect(); spark.sql({BLOCKS!r}).collect()
gateway = spark.sparkContext._gateway
spark.stop(); gateway.shutdown(); gateway.proc.stdin.close(); gateway.proc.wait()""",
}


def make_fleet(place: Path, count: int, model: Path) -> list[Path]:
    """Copies of a file with one run: new ids, a later start, and times that differ by up to 5 %."""
    files = []
    for number in range(count):
        file = Path(shutil.copy(model, place / f"box{number:04d}.db"))
        with duckdb.connect(str(file)) as connection:
            for table in RUN_TABLES:
                new = f"0194b5a0-0000-7000-8000-{number:012x}"
                connection.execute(f"UPDATE {table.name} SET run_id = ?::UUID", [new])
            factor = 1 + 0.05 * ((number * 37) % 100) / 100
            for column in ("wall_ns", "device_ns"):
                connection.execute(f"UPDATE blocks SET {column} = ({column} * {factor})::BIGINT")
            machine = f"{number:012x}"
            connection.execute("UPDATE machines SET machine_id = ?", [machine])
            connection.execute("UPDATE identities SET id = ?", [machine])
            connection.execute("UPDATE devices SET gpu_id = md5(? || device_index)[:12]", [machine])
            connection.execute(f"UPDATE runs SET started_us = started_us + {number % 5} * 86400000000")
        files.append(file)
    return files


def one_run_of(source: Path, out: Path) -> Path:
    """A file with the newest run of another."""
    shutil.copy(source, out)
    with open_result(out) as file:
        others = [run.run_id for run in file.summaries()][1:]
    for run_id in others:
        remove_run(out, run_id)
    return out


def used(words: Sequence[str]) -> tuple[float, float, int]:
    """Seconds, CPU seconds and peak MiB of a Python process."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    wall, cpu, peak = done.stderr.split()[-3:]
    return float(wall), float(cpu), int(peak) // 1024


def line(what: str, words: Sequence[str]) -> None:
    wall, cpu, peak = used(words)
    print(f"  {what:34} {wall:6.1f} s  {cpu:6.1f} s CPU  {peak:5d} MiB", flush=True)


def ours(*words: str) -> list[str]:
    code = f"from gputui.cli import gputui\ngputui.main({list(words)!r}, standalone_mode=False)"
    return ["-c", _USED.format(code=code)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--of", type=Path)
    options = parser.parse_args()
    for count in options.runs:
        with tempfile.TemporaryDirectory() as text:
            place = Path(text)
            model = (
                one_run_of(options.of, place / "model.db")
                if options.of
                else make_small_file(place / "model.db", 0)
            )
            boxes = place / "boxes"
            boxes.mkdir()
            files = make_fleet(boxes, count, model)
            fleet = str(place / "fleet")
            size = sum(file.stat().st_size for file in files) / 1e6
            print(f"{count} files, {size:.0f} MB", flush=True)
            line("export", ours("export", str(boxes), "--parquet", fleet))
            parts = list(Path(fleet).glob("**/*.parquet"))
            print(f"  {len(parts)} Parquet files, {sum(p.stat().st_size for p in parts) / 1e6:.1f} MB")
            line("export again", ours("export", str(boxes), "--parquet", fleet))
            line("merge", ours("merge", *map(str, files), "-o", str(place / "all.db")))
            line("runs of the directory, first time", ours("runs", fleet))
            line("runs of the directory, from cache", ours("runs", fleet))
            line("compare of the directory", ours("compare", fleet, "--by", "machine"))
            line("load of the directory", ["-c", _USED.format(code=f"import gputui\ngputui.load({fleet!r})")])
            for engine, code in _ENGINES.items():
                line(f"two queries in {engine}", ["-c", _USED.format(code=code), fleet])


if __name__ == "__main__":
    main()
