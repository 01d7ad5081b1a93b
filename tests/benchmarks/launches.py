"""What launches buy, by simulation: `quick` with one launch and with three, and `run --resolve`.

Tables of rows of two boxes that differ by a known factor. Blocks scatter within launches, launches within a
run, and a run moves all its rows alike. Everything is judged by the code that judges result files.

`quick`: one launch of as many blocks as 140 s allow on two cores, and three or two shorter ones. `--resolve`:
the looks of a run against a base, beside someone who looks as often without paying for it.

With `--real` on this box: `quick` with one launch a case and as it is, in turn and in the same seconds, its
runs compared with each other as they are and with all times of the later one taken 1.1 and 1.5 times; and
`--resolve` with runs of `spin mini` that do 1, 1.1 and 1.5 times the work.

    python tests/benchmarks/launches.py [--only quick|resolve] [--tables 100]
    python tests/benchmarks/launches.py --only quick --real 4 [--keep DIRECTORY]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from hand_made import make_case, make_run, measured
from same_machine import slower

from gputui.analysis.resolution import (
    FASTER,
    OUT_OF_REACH,
    SLOWER,
    WITHIN,
    looks_up_to,
    most_launches,
)
from gputui.analysis.verdict import RatioEstimate
from gputui.model.case import Case
from gputui.model.result import Run
from gputui.services.compare.pairing import compare_sides, judge_sides, side_of_runs
from gputui.services.compare.resolve import Looks, look
from gputui.services.results.selectors import select_runs
from gputui.services.results.waiting import contention_of

BLOCK_SD = 0.02
STEP_S = 0.02
LAUNCH_S = 2.4
"""Of `spin mini` with 5 blocks on a quiet box of two cores: start, warm-up and blocks."""


@dataclass(frozen=True)
class World:
    """How much launches and runs vary."""

    launch_sd: float
    run_sd: float
    outliers: float = 0.0
    """Share of launches that take a fifth longer."""

    def __str__(self) -> str:
        slow = f", {100 * self.outliers:g} % of them slow by a fifth" if self.outliers else ""
        return f"launches of sd {100 * self.launch_sd:g} %{slow}, runs of sd {100 * self.run_sd:g} %"


QUIET, CPU, ROUGH = World(0.03, 0.0), World(0.03, 0.02), World(0.03, 0.02, outliers=0.05)
Row = tuple[Case, list[tuple[float, ...]]]


def launch(
    chance: random.Random, world: World, factor: float, moved: float, blocks: int
) -> tuple[float, ...]:
    """Seconds per step of one launch of a case that takes `factor` times as long."""
    slow = 1.2 if chance.random() < world.outliers else 1.0
    middle = math.log(STEP_S * factor * slow) + moved + chance.gauss(0, world.launch_sd)
    return tuple(math.exp(middle + chance.gauss(0, BLOCK_SD)) for _ in range(blocks))


def table(
    chance: random.Random, world: World, rows: int, launches: int, blocks: int, factor: float
) -> list[Row]:
    moved = chance.gauss(0, world.run_sd)
    return [
        (
            make_case(f"work{number}", workload_class="training"),
            [launch(chance, world, factor, moved, blocks) for _ in range(launches)],
        )
        for number in range(rows)
    ]


def run_of(rows: Sequence[Row], launches: Sequence[int] | None = None) -> Run:
    """A run of the first launches of each row."""
    counts = launches or [len(done) for _, done in rows]
    return make_run(
        *(measured(case, *done[:count]) for (case, done), count in zip(rows, counts, strict=True))
    )


def print_quick(tables: int) -> None:
    """Shares of rows that `compare` decides, and how wide its intervals are."""
    print("quick: 12 rows, 140 s on two cores with starts of 1.2 s; rows that compare calls different")
    print(f"{'':46}{'launches x blocks':>18}{'1x':>7}{'1.1x':>7}{'1.5x':>7}{'half of the interval':>22}")
    for world in (QUIET, CPU, World(0.10, 0.02)):
        for launches, blocks in ((1, 40), (2, 16), (3, 7)):
            called: Counter[float] = Counter()
            widths = []
            for factor in (1.0, 1.1, 1.5):
                chance = random.Random(f"{world} {launches} {factor}")
                for _ in range(tables):
                    a, b = (run_of(table(chance, world, 12, launches, blocks, f)) for f in (1.0, factor))
                    judged = judge_sides(side_of_runs("a", [a]), side_of_runs("b", [b]))
                    called[factor] += sum(verdict.word in (FASTER, SLOWER) for verdict in judged.verdicts)
                    widths += [e.high / e.low for e in judged.estimates if isinstance(e, RatioEstimate)]
            shares = "".join(f"{100 * called[f] / tables / 12:5.0f} %" for f in (1.0, 1.1, 1.5))
            half = 100 * math.expm1(math.log(sorted(widths)[len(widths) // 2]) / 2)
            print(f"{world!s:46}{f'{launches} x {blocks}':>18}{shares}{half:19.1f} %")


@dataclass
class Counts:
    words: Counter[str]
    looks: int = 0
    launches: int = 0
    unpaid: int = 0
    """Rows that somebody calls different who makes the same looks, each at 5 %."""
    by_compare: int = 0
    """Rows that `compare` calls different at the end, at 5 %."""


def print_resolve(tables: int, rows: int = 6) -> None:
    """Looks, launches and how rows end, for several bases and differences."""
    print(f"\nresolve to 10 %: {rows} rows, launches of {LAUNCH_S} s, shares of rows")
    print(
        f"{'':58}{'true':>6}{'looks':>7}{'launches':>9}{'s a row':>8}{'different':>10}{'within':>8}"
        f"{'beyond reach':>13}{'open':>6}{'compare':>9}{'unpaid':>8}"
    )
    for world, base in ((QUIET, 3), (CPU, 3), (ROUGH, 3), (CPU, 1), (CPU, 6)):
        for factor in (1.0, 1.1, 1.5):
            chance = random.Random(f"{world} {base} {factor}")
            counts = Counts(Counter())
            for _ in range(tables):
                resolve_one(chance, world, base, factor, rows, counts)
            total = tables * rows
            shares = {word: 100 * count / total for word, count in counts.words.items()}
            different = shares.get(FASTER, 0) + shares.get(SLOWER, 0)
            name = f"{world}, base of {base}"
            print(
                f"{name:58}{factor:5g}x{counts.looks / tables:7.1f}{counts.launches / total:9.1f}"
                f"{LAUNCH_S * counts.launches / total:8.0f}{different:8.1f} %{shares.get(WITHIN, 0):6.0f} %"
                f"{shares.get(OUT_OF_REACH, 0):11.0f} %{shares.get('open', 0):4.0f} %"
                f"{100 * counts.by_compare / total:7.1f} %{100 * counts.unpaid / total:6.1f} %"
            )


def resolve_one(
    chance: random.Random, world: World, base: int, factor: float, rows: int, counts: Counts
) -> None:
    """One run against one base, as the supervisor makes it: closed rows get no more launches."""
    most = most_launches(base)
    looks = looks_up_to(most)
    a = run_of(table(chance, world, rows, base, 6, 1.0))
    measured_rows = table(chance, world, rows, most, 6, factor)
    asked, unpaid = Looks("base", 10.0, looks), Looks("base", 10.0, looks)
    once = replace(unpaid, looks=looks[-1:])
    done = [0] * rows
    different: set[int] = set()
    for number, launches in enumerate(looks, 1):
        closed = {row.case_id for row in asked.rows if row.is_closed}
        done = [count if case_id in closed else launches for case_id, count in enumerate(done)]
        if len(closed) < rows:
            asked = look(run_of(measured_rows, done), asked, a, number=number)
            counts.looks += 1
        at_once = look(run_of(measured_rows, [launches] * rows), once, a, number=1)
        different |= {row.case_id for row in at_once.rows if row.word in (FASTER, SLOWER)}
    counts.words.update(row.word for row in asked.rows)
    counts.launches += sum(done)
    counts.unpaid += len(different)
    judged = judge_sides(side_of_runs("a", [a]), side_of_runs("b", [run_of(measured_rows, done)]))
    counts.by_compare += sum(verdict.word in (FASTER, SLOWER) for verdict in judged.verdicts)


QUICK = {"one": ("--launches", "1", "--budget", "140"), "several": ()}
"""Options that make `quick` as it was with one launch a case, and as it is."""


def print_real_quick(times: int, keep: Path) -> None:
    """Of the cases that `quick` plans here, how many a pair of its runs tells apart.

    Files that are in `keep` already are taken as they are.
    """
    print("quick in earnest: cases of each pair of runs; a case that was not measured is not told apart")
    kinds = [kind for number in range(times) for kind in (*QUICK,)[:: 1 if number % 2 else -1]]
    files: dict[str, list[Path]] = {kind: [] for kind in QUICK}
    for kind in kinds:
        file = keep / f"{kind}{len(files[kind])}.db"
        files[kind].append(file)
        if not file.exists():
            run_gputui(str(keep), 1.0, "run", "quick", "--db", str(file), "--yes", *QUICK[kind])
    for kind, of_kind in files.items():
        runs = [select_runs(str(file)).runs[0] for file in of_kind]
        took_s = [((run.summary.ended_utc_us or 0) - run.summary.started_utc_us) * 1e-6 for run in runs]
        planned = [case for run in runs for case in run.cases if case.case.variant.device_class == "cpu"]
        ended = [case for case in planned if case.outcome == "ok"]
        launches = Counter(sum(m.outcome == "ok" for m in case.measurements) for case in ended)
        crowded = sum(contention_of(case) > 0 for case in ended)
        print(
            f"{kind:8} {len(runs)} runs of {min(took_s):.0f} to {max(took_s):.0f} s; of {len(planned)} cases"
            f" {len(ended)} measured, {crowded} of them under contention; cases by launches: {dict(launches)}"
        )
        for factor in (1.0, 1.1, 1.5):
            words: Counter[str] = Counter()
            for a, b in itertools.combinations(runs, 2):
                sides = side_of_runs("a", [a]), slower(side_of_runs("b", [b]), factor)
                rows = compare_sides(*sides).rows
                words.update(row.verdict.word for row in rows)
            total = sum(words.values())
            said = ", ".join(f"{word} {count}" for word, count in words.most_common())
            print(
                f"  {factor:g}x: slower {words['slower']} of {total} ({words['slower'] / total:.0%}); {said}"
            )


PROFILE = """schema = 1
version = 1
title = "Two rows"
question = "Is this box slower?"
budget_s = 30
replicates = 3
blocks = 6
[[case]]
workload = "spin"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["1", "all"]
"""


def print_real(times: int) -> None:
    """Runs on this box, whose `spin` does a known multiple of the work: how rows end, and in which time."""
    print("real runs: spin mini on 1 thread and on all, --resolve 10 against a base of 3 launches")
    with tempfile.TemporaryDirectory() as place:
        profile = Path(place) / "two.toml"
        profile.write_text(PROFILE)
        for number in range(times):
            base = Path(place) / f"base{number}.db"
            run_gputui(place, 1.0, "run", str(profile), "--db", str(base))
            for factor in (1.5, 1.1, 1.0):
                began_s = time.monotonic()
                words = ("run", "--against", str(base), "--resolve", "10", "--json", "--yes")
                mine = Path(place) / f"{number}-{factor:g}.db"
                (looks,) = json.loads(run_gputui(place, factor, *words, "--db", str(mine)))["looks"]
                ends = "; ".join(
                    f"{row['word']} ({100 * (row['low'] - 1):+.0f} to {100 * (row['high'] - 1):+.0f} %),"
                    f" {row['launches']} launches"
                    for row in looks["rows"]
                )
                taken_s = time.monotonic() - began_s
                print(f"{factor:g}x the work: {looks['made']} looks, {taken_s:.0f} s: {ends}", flush=True)


def run_gputui(place: str, work: float, *words: str) -> str:
    """What a command prints on a box that does this many times the work."""
    environment = {**os.environ, "GPUTUI_SPIN_WORK": f"{work:g}", "GPUTUI_STATE": f"{place}/state"}
    command = [sys.executable, "-m", "gputui", *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=["quick", "resolve"])
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--real", type=int, default=0, metavar="TIMES")
    parser.add_argument("--keep", type=Path, help="leave the files of `quick` here, and take those there")
    options = parser.parse_args()
    if options.real:
        if options.only != "resolve":
            with tempfile.TemporaryDirectory() as place:
                print_real_quick(options.real, options.keep or Path(place))
        if options.only != "quick":
            print_real(options.real)
        return
    if options.only != "resolve":
        print_quick(options.tables)
    if options.only != "quick":
        print_resolve(options.tables)


if __name__ == "__main__":
    main()
