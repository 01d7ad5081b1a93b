"""Kill processes of runs at random moments, and print what was lost: `--trials 100`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from command_line import gputui, write_spin_profile
from kills import Killed, checked, kill_at_random


def main() -> int:
    """Exits with 1 if anything was lost, duplicated, or unreadable."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument(
        "--workload", default="spin", help="gemm, whose workers are forks of a process with torch [spin]"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        profile = write_spin_profile(place / "spin.toml", replicates=3, blocks=8, workload=options.workload)
        within_s = 9 if options.workload == "spin" else 18
        base = write_spin_profile(place / "base.toml")
        gputui("run", base, "--db", place / "base.db", env={"GPUTUI_STATE": str(place / "state")})

        def killed(number: int) -> Killed:
            seed = options.seed + number
            return kill_at_random(place / f"trial-{seed}", profile, within_s, seed)

        with ThreadPoolExecutor(options.at_once) as pool:
            trials = [checked(one, place / "base.db") for one in pool.map(killed, range(options.trials))]
    print("killed:", dict(Counter(t.victim for t in trials)))
    print("runs begun:", sum(t.begun for t in trials), "of", len(trials))
    print("launches reported as finished:", sum(t.launches_reported for t in trials))
    print("launches in the files:", sum(t.launches_stored for t in trials))
    wrong = [(t.victim, round(t.after_s, 2), t.wrong) for t in trials if t.wrong]
    print("trials with something wrong:", len(wrong))
    for one in wrong:
        print("  ", *one)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
