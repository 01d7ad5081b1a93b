"""What 300 and 1,000 result files cost: merge, ranking, list of runs and export, in seconds and MiB.

The files are copies of one run of `quick` with other ids and rates, a few of them slow. Run from the
repository root; the floor is what DuckDB alone takes to open the files and to read their blocks:

    python tests/benchmarks/many_files.py [--files 300 1000]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))
sys.path.insert(0, str(Path(__file__).parent))

from compare_large import make_small_file, timed

from gputui.store import schema
from gputui.store.writing import opened_for_writing

_FLOOR = """
import duckdb, sys
for start in range(1, len(sys.argv), 25):
    connection = duckdb.connect(":memory:", config={"threads": 1})
    some = sys.argv[start : start + 25]
    for place, file in enumerate(some):
        connection.execute(f"ATTACH '{file}' AS d{place} (TYPE duckdb, READ_ONLY)")
    each = (f"SELECT run_id, case_id, steps, wall_ns FROM d{n}.main.blocks" for n in range(len(some)))
    if connection.execute(" UNION ALL ".join(each)).fetchall() == []:
        raise SystemExit(1)
    connection.close()
"""


def copy_of(template: Path, path: Path, number: int, slower: float) -> Path:
    """A file with the same run of another box, under another id, that takes `slower` times as long."""
    run_id = f"'0194b5a0-0000-7000-8000-{number:012x}'::UUID AS run_id"
    changed = {
        "machines": f", '{number:012x}' AS machine_id",
        "identities": f", '{number:012x}' AS id",
        "blocks": f", (wall_ns * {slower})::BIGINT AS wall_ns",
    }
    with opened_for_writing(path, {"d1": template}) as connection:
        for table in schema.RUN_TABLES:
            connection.execute(
                f"INSERT INTO d0.main.{table.name} "
                f"SELECT * REPLACE ({run_id}{changed.get(table.name, '')}) FROM d1.main.{table.name}"
            )
    return path


def files_in(place: Path, count: int) -> list[Path]:
    """As many files, every hundredth of them 14 % slower than the others, which differ by 1 %."""
    template = make_small_file(place / "template.duckdb", 1)
    chance = random.Random(1)
    return [
        copy_of(template, place / f"box{n:04d}.db", n, chance.gauss(1, 0.01) * (1.16 if n % 100 == 5 else 1))
        for n in range(count)
    ]


def _floor(files: Sequence[Path]) -> tuple[float, float, int]:
    return timed([str(file) for file in files], program=("-c", _FLOOR))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="+", default=[300, 1000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        files = files_in(place, max(options.files) + 1)
        print(f"{'files':>5}  {'':<34}{'wall s':>7} {'CPU s':>6} {'MiB':>5}")
        for count in options.files:
            some, merged = [str(file) for file in files[:count]], place / f"merged{count}.duckdb"
            for what, words in (
                ("merge into a new file", ["merge", *some, "-o", str(merged)]),
                ("merge them again with one more", ["merge", *some, str(files[-1]), "-o", str(merged)]),
                ("compare: ranking of the files", ["compare", *some]),
                ("compare --format json", ["compare", *some, "--format", "json"]),
                ("compare --format html", ["compare", *some, "--format", "html"]),
                ("compare merged --by machine", ["compare", str(merged), "--by", "machine"]),
                ("share as a report", ["share", *some, "-o", str(place / f"fleet{count}.html")]),
                ("share as a result file", ["share", *some, "-o", str(place / f"shared{count}.db")]),
                ("runs of the merged file", ["runs", str(merged)]),
                ("runs as JSON", ["runs", str(merged), "--json"]),
                (
                    "export of it as Parquet",
                    ["export", str(merged), "--parquet", str(place / f"lake{count}")],
                ),
            ):
                if what == "merge into a new file":
                    merged.unlink(missing_ok=True)
                wall, cpu, peak = timed(words, times=1 if words[0] in ("merge", "share") else 3)
                print(f"{count:>5}  {what:<34}{wall:>7.2f} {cpu:>6.2f} {peak:>5}", flush=True)
            wall, cpu, peak = _floor(files[:count])
            print(f"{count:>5}  {'DuckDB alone: open, read blocks':<34}{wall:>7.2f} {cpu:>6.2f} {peak:>5}")


if __name__ == "__main__":
    main()
