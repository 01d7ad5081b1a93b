"""The gate of `compare` on boxes of known slowness: how often it passes, fails, and is inconclusive.

Measures a baseline and boxes that do 4, 1.5, 1.1 and 1.0 times the work under the same name, interleaved, and
runs `gputui compare A B --fail-if-slower 5` on each; rows and means that the comparison calls faster or
slower are counted too. With `--load N`, N processes compete for the CPUs all the while.

    python tests/benchmarks/gate.py --times 20 [--load 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

FACTORS = (4.0, 1.5, 1.1, 1.0)
ENDS = {0: "pass", 1: "fail", 5: "cannot tell"}
PROFILE = """schema = 1
version = 1
title = "A short gate"
question = "Did anything become slower?"
budget_s = 60
replicates = {launches}
blocks = {blocks}
[[case]]
workload = "spin"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["1", "all"]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--load", type=int, default=0, help="processes that want a CPU meanwhile")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=6)
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
    try:
        with tempfile.TemporaryDirectory() as place:
            asked = gate_ends(Path(place), options.times, options.launches, options.blocks)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"load {options.load}, {options.launches} launches of {options.blocks} blocks, limit 5 %")
    for factor in FACTORS:
        counts = Counter(one.end for one in asked[factor])
        message = ", ".join(f"{end} {counts[end]}" for end in ENDS.values())
        reported = "; ".join(
            f"{what}: {', '.join(f'{word} {count}' for word, count in Counter(words).most_common())}"
            for what, words in (
                ("rows", [word for one in asked[factor] for word in one.rows]),
                ("means", [word for one in asked[factor] for word in one.means]),
            )
        )
        print(f"{factor:g} x the work: {message} of {options.times}; {reported}")


@dataclass(frozen=True)
class Asked:
    """One comparison."""

    end: str
    """Of the gate, one of ENDS."""
    rows: tuple[str, ...]
    """Verdicts."""
    means: tuple[str, ...]


def gate_ends(place: Path, times: int, launches: int, blocks: int) -> dict[float, list[Asked]]:
    """The comparisons of each factor, each with a baseline of the same minute."""
    profile = place / "gate.toml"
    profile.write_text(PROFILE.format(launches=launches, blocks=blocks))
    asked: dict[float, list[Asked]] = {factor: [] for factor in FACTORS}
    for number in range(times):
        begun = time.monotonic()
        baseline = measured(profile, place / f"{number}-a.db", 1.0)
        for factor in FACTORS:
            other = measured(profile, place / f"{number}-{factor:g}.db", factor)
            words = [sys.executable, "-m", "gputui", "compare", str(baseline), str(other)]
            words += ["--format", "json", "--fail-if-slower", "5"]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode not in ENDS:
                raise SystemExit(done.stderr)
            (comparison,) = json.loads(done.stdout)["comparisons"]
            rows, means = (tuple(one["verdict"] for one in comparison[key]) for key in ("rows", "groups"))
            asked[factor].append(Asked(ENDS[done.returncode], rows, means))
        message = ", ".join(f"{factor:g} x {found[-1].end}" for factor, found in asked.items())
        print(f"{number + 1} of {times}, {time.monotonic() - begun:.0f} s: {message}", flush=True)
    return asked


def measured(profile: Path, db: Path, work: float) -> Path:
    """One run of the profile on a box that does this many times the work."""
    environment = {**os.environ, "GPUTUI_SPIN_WORK": f"{work:g}", "GPUTUI_STATE": str(db.parent / "state")}
    words = [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(db)]
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return db


if __name__ == "__main__":
    main()
