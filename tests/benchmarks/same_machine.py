"""One machine against itself: how often `compare` calls it different, and how often it finds what differs.

Runs a profile of four cases again and again, in half of the runs, drawn by lot, with a program that does 1.5
times the work under the same name. Every pair of runs is then compared. Rates come with 95 % intervals from
resampling whole runs, since the pairs of a run are not independent. Nothing else should be running: that is
what users are told, too; but the rates must hold in any case.

With `--of FILE ...` nothing is run. The runs that these files hold of this machine are paired, each once,
with one at least 20 minutes later, and each pair is compared as the file was then: claims of rows, means,
costs, the gate and what `advise` would pick, each with the upper end of its exact one-sided 95 % interval;
and how many rows are called rightly where all block times of the later run are taken 1.5 and 1.1 times.
`--parts` prints where the variance of calm runs comes from.

    python tests/benchmarks/same_machine.py --runs 10 [--keep DIRECTORY]
    python tests/benchmarks/same_machine.py --of quiet.db loaded.db [--parts]
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.analysis.statistics import incomplete_beta
from gputui.analysis.verdict import RatioEstimate, judge
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Block, Price
from gputui.model.result import Run
from gputui.services.compare.pairing import (
    Comparison,
    Row,
    Side,
    compare_sides,
    side_of_runs,
    sides_by,
)
from gputui.services.compare.suggestions import CANNOT_TELL, FAIL, check_gate
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import Selection, select_all
from gputui.services.results.throughput import contention_of, launches_of

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
    parser.add_argument("--budget-s", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", type=Path, nargs="+", help="compare the runs of these files instead")
    parser.add_argument("--parts", action="store_true", help="with --of: the parts of the variance too")
    parser.add_argument(
        "--keep", type=Path, help="leave the result files here, and take those that are there"
    )
    options = parser.parse_args()
    if options.of:
        for file in options.of:
            runs = sorted(select_all([str(file)])[0].runs, key=lambda run: run.summary.started_utc_us)
            print_claims(file, runs)
            if options.parts:
                print_parts(runs)
        return
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
        (run,) = select_all([str(db)])[0].runs
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
    try:
        one, every = sides_by("threads", [a.run])[0], sides_by("threads", [b.run])[1]
    except GputuiError:
        return  # a busy box left no product on one thread, or none on all
    for row in compare_sides(one, every, ignore="threads").rows:
        if row.case.work.workload == "gemm":
            yield Judged("threads", row, ("faster",))


APART_US = 1200 * 1_000_000
PLANTED_TIMES = (1.5, 1.1)
PRICE = Price(1.0, 0.0, "stated", "", "", "", "")


def print_claims(file: Path, runs: Sequence[Run]) -> None:
    """What disjoint pairs of runs of one machine are called, and how many of these calls are false: all."""
    counts: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    widths = []
    pairs = disjoint_pairs(runs)
    for i, j in pairs:
        comparison = compare_sides(side_then(runs[: i + 1]), side_then(runs[: j + 1]))
        rows = [row for row in comparison.rows if isinstance(row.estimate, RatioEstimate)]
        widths += [row.estimate.resolvable - 1 for row in rows if isinstance(row.estimate, RatioEstimate)]
        priced = [row for row in rows if not isinstance(row.cost.estimate, Missing)]
        found = {
            "rows": [row.rate.differs for row in rows],
            "means": [group.rate.differs for group in comparison.groups if group.common],
            "costs": [row.cost.differs for row in priced],
            "picks": [judge([row.estimate])[0].word in ("faster", "slower") for row in rows],
            "tables": [any(row.rate.differs for row in rows)] if rows else [],
            "gate at 5 % fails": [gate_of(comparison) == FAIL] if rows else [],
            "gate at 5 % cannot tell": [gate_of(comparison) == CANNOT_TELL] if rows else [],
        }
        for times in PLANTED_TIMES:
            slow = compare_sides(side_then(runs[: i + 1]), slower(side_then(runs[: j + 1]), times))
            known = [row for row in slow.rows if isinstance(row.estimate, RatioEstimate)]
            found[f"planted {times:g}x called"] = [row.verdict.word == "slower" for row in known]
        for name, claims in found.items():
            counts[name] += sum(claims)
            asked[name] += len(claims)
    print(f"{file.name}: {len(runs)} runs, {len(pairs)} disjoint pairs at least 20 minutes apart")
    for name, number in asked.items():
        bound = "" if "planted" in name else f", at most {upper_bound(counts[name], number):.1%}"
        print(f"  {name}: {counts[name]} of {number}{bound}")
    if widths:
        print(f"  could have told, median of rows: {statistics.median(widths):.1%}")


def disjoint_pairs(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """As many as there are: each of the first half with the first that is late enough and free."""
    starts = [run.summary.started_utc_us for run in runs]
    pairs, later = [], len(runs) // 2
    for i in range(len(runs) // 2):
        while later < len(runs) and starts[later] - starts[i] < APART_US:
            later += 1
        if later < len(runs):
            pairs.append((i, later))
            later += 1
    return pairs


def side_then(runs: Sequence[Run]) -> Side:
    """The last of these runs, in a file that holds them all."""
    last = runs[-1].summary
    whole = side_of_runs(last.short_id, [replace(r, summary=replace(r.summary, price=PRICE)) for r in runs])
    return replace(whole, cases=tuple(case for case in whole.cases if case.run.run_id == last.run_id))


def slower(whole: Side, times: float) -> Side:
    """The side as if its work had taken so many times as long; what is known of its box stays."""
    cases = []
    for case in whole.cases:
        measurements = tuple(
            replace(m, blocks=tuple(_longer(block, times) for block in m.blocks))
            for m in case.result.measurements
        )
        cases.append(replace(case, result=replace(case.result, measurements=measurements)))
    return replace(whole, cases=tuple(cases))


def _longer(block: Block, times: float) -> Block:
    cpu_ns, waited_ns = (None if ns is None else round(times * ns) for ns in (block.cpu_ns, block.waited_ns))
    return replace(block, wall_ns=round(times * block.wall_ns), cpu_ns=cpu_ns, waited_ns=waited_ns)


def gate_of(comparison: Comparison) -> str:
    runs = tuple(Run(side.run, ()) for side in (comparison.a, comparison.b))
    evidence = Evidence([Selection("a.db", Path("a.db"), runs, (), {})])
    return check_gate([comparison], "", 5, evidence).end


def upper_bound(count: int, of: int) -> float:
    """The share that this many or fewer would be seen of in 5 % of cases. Clopper & Pearson 1934."""
    low, high = count / of if of else 1.0, 1.0
    for _ in range(50 if count < of else 0):
        middle = (low + high) / 2
        chance = 1 - incomplete_beta(count + 1, of - count, middle)
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high


NEAR_US = 120 * 1_000_000


def print_parts(runs: Sequence[Run]) -> None:
    """Standard deviations by case: of blocks, launches of a run, runs that follow each other, runs apart.

    Of calm launches only. Between runs half the mean square of the differences of their means, of all
    pairs: it holds what launches add.
    """
    print(
        "  sd in %, with the number of values: blocks; launches of a run; runs < 2 min; runs > 20 min apart"
    )
    by_case: dict[str, list[tuple[int, list[list[float]]]]] = {}
    for run in runs:
        for case in run.cases:
            launches = [[math.log(t) for t in launch] for launch in launches_of(case)]
            if launches and contention_of(case) == 0:
                name = f"{case.case.name} {case.case.variant.precision}"
                by_case.setdefault(name, []).append((run.summary.started_utc_us, launches))
    for name, found in by_case.items():
        blocks = [statistics.variance(launch) for _, ls in found for launch in ls if len(launch) > 1]
        within = [statistics.variance(map(statistics.median, ls)) for _, ls in found if len(ls) > 1]
        means = [(at, statistics.fmean(map(statistics.median, ls))) for at, ls in found]
        squares: dict[str, list[float]] = {"near": [], "far": []}
        for (at, x), (then, y) in itertools.combinations(means, 2):
            gap = then - at
            kind = "near" if gap < NEAR_US else "far" if gap >= APART_US else ""
            if kind:
                squares[kind].append((x - y) ** 2 / 2)
        cells = [
            f"{100 * math.sqrt(statistics.fmean(some)):5.2f} ({len(some)})" if some else "    - "
            for some in (blocks, within, squares["near"], squares["far"])
        ]
        middle = statistics.median(squares["far"]) / 0.455 if squares["far"] else 0.0
        print(f"  {name:36} {'; '.join(cells)}; by the median {100 * math.sqrt(middle):.2f}")


def _rate(by_pair: Pairs, drawn: Sequence[int], kind: str) -> float:
    """Over all pairs of different runs among those drawn, each as often as it was drawn; else NaN."""
    hits = rows = 0
    for pair in itertools.combinations(sorted(drawn), 2):
        for judged in by_pair.get(pair, ()):
            if judged.kind == kind:
                rows += 1
                hits += judged.is_hit
    return hits / rows if rows else math.nan


def _resampled(by_pair: Pairs, runs: int, kind: str, rng: random.Random) -> tuple[float, float]:
    """The 95 % interval of a rate: resamples runs together with their pairs."""
    rates = [_rate(by_pair, rng.choices(range(runs), k=runs), kind) for _ in range(RESAMPLED)]
    known = sorted(rate for rate in rates if not math.isnan(rate))
    return known[round(0.025 * len(known))], known[round(0.975 * len(known)) - 1]


if __name__ == "__main__":
    main()
