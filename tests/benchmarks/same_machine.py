"""One machine against itself: how often `compare` calls it different, and how often it finds what differs.

Runs a profile of four cases again and again, in half of the runs, drawn by lot, with a program that does 1.5
times the work under the same name. Every pair of runs is then compared. Rates come with 95 % intervals from
resampling whole runs, since the pairs of a run are not independent. Nothing else should be running: that is
what users are told, too; but the rates must hold in any case.

    python tests/benchmarks/same_machine.py --runs 10 [--keep DIRECTORY]
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputui.analysis.verdict import RatioEstimate
from gputui.model.result import Run
from gputui.services.compare.pairing import Row, Side, compare_sides, side_of_runs, sides_by
from gputui.services.results.selectors import select_runs

PLANTED = 1.5
PROFILE = """schema = 1
version = 1
title = "One machine against itself"
question = "Does it agree with itself?"
budget_s = {budget_s:g}
replicates = 3
[[case]]
workload = "gemm"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["1", "all"]
weight = 1.7
[[case]]
workload = "spin"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["1"]
weight = 0.7
[[command]]
name = "planted"
version = 1
argv = ["{python}", "{program}"]
pattern = "done"
devices = ["cpu"]
weight = 0.6
"""
PROGRAM = """import os
work = int(100_000 * float(os.environ["PLANTED_WORK"]))
while True:
    for _ in range(5):
        total = 0
        for number in range(work):
            total += number * number
    print("done", flush=True)
"""
RESAMPLED = 2000


@dataclass(frozen=True)
class Measured:
    """One run, and how much work its planted case did."""

    run: Run
    work: float


@dataclass(frozen=True)
class Judged:
    """A row of a pair of runs."""

    kind: str
    row: Row
    counted: tuple[str, ...]
    """Verdicts that enter the rate."""

    @property
    def is_hit(self) -> bool:
        """Whether its verdict enters the rate."""
        return self.row.verdict.word in self.counted


Pairs = dict[tuple[int, int], list[Judged]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--budget-s", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="leave the result files here, and take those that are there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        kept = options.keep or Path(place)
        kept.mkdir(parents=True, exist_ok=True)
        print_rates(measured(options.runs, options.budget_s, options.seed, kept), options.seed)


def measured(runs: int, budget_s: float, seed: int, place: Path) -> list[Measured]:
    """The runs in random order; one result file each."""
    works = [PLANTED if number % 2 else 1.0 for number in range(runs)]
    random.Random(seed).shuffle(works)
    program = place / "planted.py"
    program.write_text(PROGRAM)
    profile = place / "same.toml"
    profile.write_text(PROFILE.format(budget_s=budget_s, python=sys.executable, program=program))
    found = []
    for number, work in enumerate(works):
        db = place / f"{number}-{work:g}.db"
        if not db.exists():
            begun = time.monotonic()
            environment = {**os.environ, "PLANTED_WORK": str(work), "GPUTUI_STATE": str(place / "state")}
            words = [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(db)]
            subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
            print(f"run {number + 1} of {runs}, {time.monotonic() - begun:.0f} s, work {work:g}", flush=True)
        (run,) = select_runs(str(db)).runs
        found.append(Measured(run, work))
    return found


def side(one: Measured) -> Side:
    """All cases of a run."""
    return side_of_runs(one.run.summary.short_id, [one.run])


def print_rates(runs: Sequence[Measured], seed: int) -> None:
    """False and true detections over all pairs of runs."""
    by_pair: Pairs = {}
    for i, j in itertools.combinations(range(len(runs)), 2):
        by_pair[i, j] = list(_judged(runs[i], runs[j]))
    rng = random.Random(seed)
    for kind, message in (
        ("equal", "one machine against itself, called faster or slower"),
        ("planted", f"a planted {PLANTED:g} x of work, called rightly"),
        ("threads", "a product on 1 thread against all, called rightly"),
    ):
        rows = [judged.row for pair in by_pair.values() for judged in pair if judged.kind == kind]
        if not rows:
            continue
        counts = Counter(row.verdict.word for row in rows)
        rate = _rate(by_pair, range(len(runs)), kind)
        low, high = _resampled(by_pair, len(runs), kind, rng)
        print(f"{message}: {rate:.1%} of {len(rows)} rows (95 %: {low:.1%} to {high:.1%})")
        print(f"  {', '.join(f'{word} {count}' for word, count in counts.most_common())}")
        if kind == "equal":
            told_by = [row.estimate.resolvable for row in rows if isinstance(row.estimate, RatioEstimate)]
            print(f"  could have told, median of rows: {statistics.median(told_by):.2f} x")
            called = Counter(row.case.name for row in rows if row.verdict.word in ("faster", "slower"))
            print(f"  called: {dict(called) or 'none'}")


def _judged(a: Measured, b: Measured) -> Iterator[Judged]:
    """The rows of a pair of runs, and a product on one thread in A against all in B."""
    for row in compare_sides(side(a), side(b)).rows:
        if row.case.is_program and a.work != b.work:
            yield Judged("planted", row, ("slower" if b.work > a.work else "faster",))
        else:
            yield Judged("equal", row, ("faster", "slower"))
    one, every = sides_by("threads", [a.run])[0], sides_by("threads", [b.run])[1]
    for row in compare_sides(one, every, ignore="threads").rows:
        if row.case.work.workload == "gemm":
            yield Judged("threads", row, ("faster",))


def _rate(by_pair: Pairs, drawn: Sequence[int], kind: str) -> float:
    """Over all pairs of different runs among those drawn, each as often as it was drawn."""
    hits = rows = 0
    for pair in itertools.combinations(sorted(drawn), 2):
        for judged in by_pair.get(pair, ()):
            if judged.kind == kind:
                rows += 1
                hits += judged.is_hit
    return hits / rows if rows else 0.0


def _resampled(by_pair: Pairs, runs: int, kind: str, rng: random.Random) -> tuple[float, float]:
    """The 95 % interval of a rate: resamples runs together with their pairs."""
    rates = sorted(_rate(by_pair, rng.choices(range(runs), k=runs), kind) for _ in range(RESAMPLED))
    return rates[round(0.025 * RESAMPLED)], rates[round(0.975 * RESAMPLED) - 1]


if __name__ == "__main__":
    main()
