"""How the GitHub Action ends on stored pairs of commits: equal ones, and a head that is 10 % slower.

    python tests/benchmarks/action.py [--equal 40] [--slower 20]

Runs are in the Action's order: base, head, head, base. Each run and each launch differs by chance, and the
box becomes slower all the while. The script that concludes is run as a runner runs it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from journals import STARTED_US, journal_lines, write_lines
from stored_runs import GEMM, GPT, run_id_of

from gputui.model.journal import Block, Line
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run

CONCLUDE = Path(__file__).parents[2] / ".github" / "actions" / "compare" / "conclude.sh"
LIMIT_PCT = 5
RUN_SD, LAUNCH_SD, DRIFT_PER_RUN = 0.01, 0.02, 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--equal", type=int, default=40, help="pairs of equal commits")
    parser.add_argument("--slower", type=int, default=20, help="pairs with a head that is 10 %% slower")
    parser.add_argument("--keep", type=Path, help="write the summary of the last pair here")
    options = parser.parse_args()
    print(
        f"limit {LIMIT_PCT} %; runs differ by {RUN_SD:.0%}, launches by {LAUNCH_SD:.0%}; each run of a pair "
        f"is {DRIFT_PER_RUN:.1%} slower than the one before"
    )
    chance = random.Random(11)
    for rounds in (1, 8):
        for what, slowness, pairs in (("equal", 1.0, options.equal), ("10 % slower", 1.1, options.slower)):
            ends = Counter(concluded(slowness, rounds, chance, options.keep) for _ in range(pairs))
            print(
                f"{what}, {rounds} rounds, {6 * rounds} launches: "
                + ", ".join(f"{end} {count}" for end, count in ends.most_common()),
                flush=True,
            )


def concluded(slowness: float, rounds: int, chance: random.Random, summary: Path | None) -> str:
    """The conclusion on one pair of commits, the head this many times as slow."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for number, side in enumerate(("base", "head", "head", "base") * rounds):
            slow = slowness if side == "head" else 1.0
            measure(place / f"{side}.db", number, side, slow * (1 + DRIFT_PER_RUN * number), chance)
        given = {
            "GITHUB_OUTPUT": str(place / "output"),
            "GITHUB_STEP_SUMMARY": str(summary or place / "summary.md"),
        }
        given |= {
            "RESULTS": name,
            "BASE": "a" * 40,
            "HEAD": "b" * 40,
            "LIMIT": str(LIMIT_PCT),
            "UNSURE": "pass",
        }
        given |= {"GPUTUI": str(Path(sysconfig.get_path("scripts")) / "gputui"), "RUNNER_TEMP": name}
        if summary:
            summary.unlink(missing_ok=True)
        done = subprocess.run([CONCLUDE], env={**os.environ, **given}, capture_output=True, text=True)
        if not (place / "output").exists():
            raise SystemExit(done.stdout + done.stderr)
        return (place / "output").read_text().partition("\n")[0].removeprefix("conclusion=")


def measure(db: Path, number: int, label: str, slow: float, chance: random.Random) -> None:
    """Store a run of two cases, each with three launches."""
    slow *= chance.gauss(1, RUN_SD)
    launches = [chance.gauss(1, LAUNCH_SD) for _ in range(2 * 3)]
    lines: list[Line] = []
    for line in journal_lines(
        run_id=run_id_of(number),
        label=label,
        cases=(GEMM, GPT),
        skipped=(),
        launches=3,
        blocks=20,
        started_utc_us=STARTED_US + number * 120_000_000,
        seed=chance.randrange(1_000_000),
    ):
        if isinstance(line, Block):
            wall_ns = round(line.wall_ns * slow * launches[line.launch_id])
            line = replace(line, wall_ns=wall_ns, cpu_ns=wall_ns - 1000, waited_ns=0)
        lines.append(line)
    store_run(db, read_journal(write_lines(db.parent / f"{db.stem}-{number}", lines)), ())


if __name__ == "__main__":
    main()
