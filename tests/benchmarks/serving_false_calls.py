"""How often is a server called different from itself, and a faster one recognised? By simulation.

    python tests/benchmarks/serving_false_calls.py [COMPARISONS]

For each kind of box and number of launches: rows that are called faster or slower, comparisons with at
least one such row, both of one server; and rows of a server with decoding 10 % faster that are called so.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from simulated_loads import Box, comparisons
from stored_loads import Server

BOXES = {
    "quiet": Box(),
    "quiet, with tails": Box(has_tails=True),
    "varies much": Box(launch_sd=0.12, own_sd=0.06, run_sd=0.02, has_tails=True),
    "busy": Box(launch_sd=0.25, own_sd=0.12, run_sd=0.14, has_tails=True, lag_s=0.015),
}
LOADS = {"2 loads": (1, 8), "6 loads": (1, 2, 4, 8, 16, 32)}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    server = Server()
    faster = replace(server, decode_s=server.decode_s / 1.1)
    print(f"{'box':20} {'loads':8} launches  rows false  comparisons false  found at 10 %")
    for name, box in BOXES.items():
        for words, users in LOADS.items():
            for launches in (1, 2, 3, 5):
                rows = false = false_comparisons = found = sought = 0
                for one in comparisons(server, server, box, users, launches, count):
                    differ = sum(row.rate.differs for row in one.rows)
                    rows += len(one.rows)
                    false += differ
                    false_comparisons += differ > 0
                for one in comparisons(server, faster, box, users, launches, count // 8, seed=1):
                    tpot = [row for row in one.rows if row.case.work.workload.endswith("TPOT p50")]
                    found += sum(row.rate.word == "faster" for row in tpot)
                    sought += len(tpot)
                print(
                    f"{name:20} {words:8} {launches:8}  {100 * false / rows:8.2f} %"
                    f"  {100 * false_comparisons / count:15.1f} %  {100 * found / max(sought, 1):12.0f} %",
                    flush=True,
                )


if __name__ == "__main__":
    main()
