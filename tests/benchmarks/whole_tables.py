"""What `compare` says of whole tables of `quick`, by simulation: false claims, coverage, widths and power.

Two boxes of one model whose blocks, launches and runs vary as a world says, judged as `gputui compare` judges
result files. Rows are the 12 of `quick` on a CPU, or its 20 on a GPU; precisions share their launches; both
boxes have the same price. What runs differ by is assumed to be 4 % on a CPU and 1 % on a GPU, common to all
rows of a run; a cell has none of it, half, as much, or twice as much. Sections:

tables   of two equal boxes: headlines that claim a difference (of two files, and with `--by`: both by
         machine, the first alone by precision and by threads), tables with a false row or mean, main row or
         cost, gates at 5 % that fail, false rows, the 95 % intervals of ratios and of speeds that hold the
         truth, and half the median width of those of ratios. Where b takes longer, in all rows or in the main
         one only: how often that row is called slower, the headline claims anything, and the gate fails
pool     five runs of three launches a side, 20 minutes apart, with --pool
widths   half the mean width of rows by launches, in tables of 3 to 12 groups of rows that share launches

    python tests/benchmarks/whole_tables.py [SECTION...] [--tables 300] [--jobs 2] [--only REGEX]
    python tests/benchmarks/whole_tables.py tables --only 'GPU.*as assumed, 3 launches' --row-part 0.5
    python tests/benchmarks/whole_tables.py tables --only 'twice' --earlier 5
    python tests/benchmarks/whole_tables.py tables --files 10

With `--files`, so many tables of each cell go through result files too, and must be told in the same words.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from journals import STARTED_US
from simulated_tables import (
    ASSUMED_RUN_SD,
    GPU_ALIKE,
    RUN_PARTS,
    STEP_S,
    WORLDS,
    Setting,
    Times,
    World,
    boxes_of,
    more_groups,
    quick_groups,
    store,
)

from gputui.analysis.verdict import RatioEstimate, SpeedEstimate
from gputui.model.machine import Machine
from gputui.model.result import Run
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.headline import Headline, headline_of
from gputui.services.compare.pairing import (
    Comparison,
    Row,
    Side,
    compare_sides,
    main_row,
    side_of_runs,
    sides_by,
)
from gputui.services.compare.session import Answer, Asked, ask
from gputui.services.compare.suggestions import FAIL, check_gate
from gputui.services.results.conditions import Evidence
from gputui.services.results.headline import case_order
from gputui.services.results.selectors import Selection

SECTIONS = ("tables", "pool", "widths")
NAMES = ("a.db", "b.db")
LAUNCHES = (1, 2, 3, 7)
PLANTED: Mapping[int, tuple[float, ...]] = {1: (2.0,), 3: (1.5, 1.1), 7: (1.05,)}
"""By launches, how many times as long b takes."""
POOLED = ((GPU_ALIKE, 0.01, 1.05), (WORLDS[0], 0.02, 1.15))
"""World, sd between runs, and how many times as long b takes."""
POOLED_RUNS, POOLED_LAUNCHES, EARLIER_LAUNCHES, APART_US = 5, 3, 3, 1200 * 1_000_000
WIDTHS_LAUNCHES, WIDTHS_GROUPS = (1, 2, 3, 5, 7), (3, 6, 7, 8, 12)
SURE = 3.0
"""Standard errors by which tables must be wider with more launches, to be marked."""
GATE_PERCENT = 5.0

_CLAIM = re.compile(
    r"\d % (?:faster|slower|cheaper|dearer|sooner|later|more|less|fewer)|\dx (?:as \w+|the cost)"
    r"|worth it for (?!none)|\btake [ab] for that",
    re.IGNORECASE,
)
_COMPARATIVE = re.compile(r"\b(?:faster|slower|cheaper|dearer)\b", re.IGNORECASE)
_DENIAL = re.compile(r"can't tell|no difference|\bwh(?:ich|ether)\b|\bwould\b", re.IGNORECASE)


def claims_difference(text: str) -> bool:
    """Whether words say that one side is better or worse, rather than that it cannot be told."""
    known = re.sub(r"between \d\S* (?:%|as)[^.;:]*? and \d[^.;:]*", "", " ".join(text.split()))
    clauses = re.split(r"[.;:](?!\d)", known)
    return any(
        _CLAIM.search(clause) or (_COMPARATIVE.search(clause) and not _DENIAL.search(clause))
        for clause in clauses
    )


@dataclass(frozen=True)
class Told:
    """One comparison, and what is said of it."""

    comparisons: tuple[Comparison, ...]
    headline: Headline
    printed: str
    """Before the table."""

    @property
    def claims(self) -> bool:
        return claims_difference(self.headline.text) or claims_difference(self.printed)


def told(sides: Sequence[Side], ignore: str, evidence: Evidence) -> Told:
    """As `gputui compare` tells it of runs without telemetry."""
    comparisons = tuple(compare_sides(sides[0], other, ignore=ignore) for other in sides[1:])
    headline = headline_of(comparisons, ignore, evidence)
    asked = Asked(tuple(sides), ignore, evidence, ())
    text = comparison_text(asked, Answer(comparisons, headline), "text", width=120)
    return Told(comparisons, headline, text.partition("\na  ")[0])


def evidence_of(*boxes: Measured) -> Evidence:
    return Evidence([Selection(box.name, Path(box.name), box.runs, (), {}) for box in boxes])


@dataclass(frozen=True)
class Options:
    """What cells of `tables` have in common."""

    tables: int
    row_part: float
    """Of each row of a run by itself, over the assumed run part."""
    earlier: int
    """Runs that the file of each box holds beside the one that is compared."""
    files: int
    """Tables that go through files too."""
    others: int
    """One table of so many is also told by other dimensions, and judged with what is planted."""


def half_width(estimate: RatioEstimate) -> float:
    """Half of the interval, on the log scale."""
    return math.log(estimate.high / estimate.low) / 2


def percent(count: float, of: float, *, is_beyond: bool = False) -> str:
    """`1.3*`: a share in per cent, marked where it is beyond what is allowed; `-` of nothing."""
    mark = "*" if is_beyond else " "
    return f"{100 * count / of:.1f}{mark}" if of else "- "


@dataclass
class Counts:
    """What was said of the tables of a cell."""

    tables: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    """Headlines by form, rows, speeds, tables that went through files; and what was planted."""
    found: Counter[str] = field(default_factory=Counter)
    """Of those: claims, false rows, covered intervals, agreements; and what was called."""
    halves: list[float] = field(default_factory=list)

    def add(self, name: str, hits: float, of: float = 1) -> None:
        self.found[name] += int(hits)
        self.asked[name] += int(of)

    def share(self, name: str, most: float | None = None, least: float | None = None) -> str:
        """In per cent; both limits are shares."""
        if not self.asked[name]:
            return "- "
        share = self.found[name] / self.asked[name]
        is_beyond = (most is not None and share > most) or (least is not None and share < least)
        return percent(share, 1, is_beyond=is_beyond)

    def add_comparison(self, comparison: Comparison) -> None:
        """Of two equal boxes."""
        ratios = [row.estimate for row in comparison.rows if isinstance(row.estimate, RatioEstimate)]
        rows = sum(row.rate.differs for row in comparison.rows)
        means = sum(group.rate.differs for group in comparison.groups)
        self.add("tables", rows + means > 0)
        main = main_row(comparison.rows)
        self.add("main", main is not None and main.rate.differs)
        self.add("rows", rows, len(comparison.rows))
        self.add("costs", any(row.cost.differs for row in comparison.rows))
        self.add("covered", sum(e.low <= 1 <= e.high for e in ratios), len(ratios))
        self.halves += [half_width(estimate) for estimate in ratios]

    def add_speeds(self, rows: Sequence[Row], mean_log: float) -> None:
        """How often the interval of a speed holds that of the box over many runs."""
        for row in rows:
            true = row.case.units_per_step / (STEP_S * math.exp(mean_log))
            speeds = [cell.speed for cell in (row.a, row.b) if isinstance(cell.speed, SpeedEstimate)]
            self.add("speeds", sum(s.low <= true <= s.high for s in speeds), len(speeds))

    def planted(self, factor: float) -> str:
        """`1.5x: all 86/85/70, main 80/79/64`: called, said, and failed by the gate."""
        of = f"{factor:g}x:"
        for where in ("all", "main"):
            names = [f"{factor} {where} {what}" for what in ("called", "said", "failed")]
            shares = (100 * self.found[name] / self.asked[name] for name in names)
            of += f" {where} {'/'.join(f'{share:.0f}' for share in shares)}{',' * (where == 'all')}"
        return of

    @property
    def half(self) -> str:
        """The median of half the widths."""
        return f"{100 * math.expm1(statistics.median(self.halves)):.1f} "


@dataclass(frozen=True)
class Measured:
    """The runs of one box, oldest first."""

    name: str
    """Of their file."""
    setting: Setting
    times: tuple[Times, ...]
    runs: tuple[Run, ...]
    pool: bool

    @property
    def side(self) -> Side:
        return side_of_runs(self.name, self.runs, pool=self.pool)

    def slower(self, rows: Iterable[int], factor: float) -> Measured:
        """The same if some rows took so many times as long."""
        factors = dict.fromkeys(rows, factor)
        slow = (
            Run(run.summary, self.setting.run(times, run.summary.machine, factors=factors).cases)
            for run, times in zip(self.runs, self.times, strict=True)
        )
        return replace(self, runs=tuple(slow))


def measured_boxes(
    setting: Setting, chance: random.Random, launches: Sequence[int], *, pool: bool = False
) -> tuple[Measured, Measured]:
    """Two equal boxes, each with a run of so many launches every 20 minutes."""

    def box(name: str, machine: Machine) -> Measured:
        times = tuple(setting.drawn(chance, count) for count in launches)
        runs = tuple(
            setting.run(of_run, machine, started_utc_us=STARTED_US + place * APART_US)
            for place, of_run in enumerate(times)
        )
        return Measured(name, setting, times, runs, pool)

    a, b = map(box, NAMES, boxes_of(setting.world.device_class))
    return a, b


@dataclass(frozen=True)
class TableCell:
    """Tables of one world, one size of what runs differ by, and one number of launches."""

    world: World
    run_part: str
    launches: int
    options: Options

    HEADINGS = (
        *("files", "machine", "prec.", "threads"),
        *("tables", "main", "costs", "gate", "rows", "covered", "speeds", "half"),
    )

    @property
    def name(self) -> str:
        launches = f"{self.launches} launch{'es' if self.launches > 1 else ''}"
        return f"{self.world.name}, run part {self.run_part}, {launches}"

    @property
    def setting(self) -> Setting:
        device_class = self.world.device_class
        assumed = ASSUMED_RUN_SD[device_class]
        run_sd, row_sd = RUN_PARTS[self.run_part] * assumed, self.options.row_part * assumed
        return Setting(self.world, quick_groups(device_class), run_sd, row_sd)

    def line(self, seed: str) -> str:
        is_twice = self.run_part == "twice"
        most = 0.1 if is_twice else 0.01
        least = None if self.launches < 3 else 0.8 if is_twice else 0.93
        counts = self._counts(seed)
        shares = [
            *(counts.share(form, most) for form in ("files", "machine", "precision", "threads")),
            *(counts.share(name, None if is_twice else 0.05) for name in ("tables", "main", "costs", "gate")),
            counts.share("rows"),
            counts.share("covered", least=least),
            counts.share("speeds"),
            counts.half,
        ]
        planted = "  ".join(counts.planted(factor) for factor in PLANTED.get(self.launches, ()))
        agree = f"  files agree {counts.found['agree']} of {counts.asked['agree']}"
        return f"{columns(self.name, shares)}  {planted}{agree if self.options.files else ''}"

    def _counts(self, seed: str) -> Counts:
        setting, counts, chance = self.setting, Counts(), random.Random(seed + self.name)
        launches = (*[EARLIER_LAUNCHES] * self.options.earlier, self.launches)
        for number in range(self.options.tables):
            a, b = measured_boxes(setting, chance, launches)
            evidence = evidence_of(a, b)
            of_files = told((a.side, b.side), "", evidence)
            (comparison,) = of_files.comparisons
            counts.add("files", of_files.claims)
            counts.add_comparison(comparison)
            counts.add_speeds(comparison.rows, self.world.mean_log)
            counts.add("gate", check_gate([comparison], "", GATE_PERCENT, evidence).end == FAIL)
            with_files = number < self.options.files
            if number % self.options.others == 0 or with_files:
                by = told_by_dimensions(a, b, evidence)
                for dimension, of_dimension in by.items():
                    counts.add(dimension, of_dimension.claims)
                for factor in PLANTED.get(self.launches, ()):
                    plant(a.side, b, factor, evidence, counts)
            if with_files:
                counts.add("agree", agree_in_files(a, b, {"": of_files, **by}))
        return counts


def told_by_dimensions(a: Measured, b: Measured, evidence: Evidence) -> dict[str, Told]:
    """What `--by` says: of both boxes by machine, else of the first alone."""
    dimensions = ["precision", "threads"] if a.setting.world.device_class == "cpu" else ["precision"]
    by = {dimension: told(sides_by(dimension, a.runs), dimension, evidence) for dimension in dimensions}
    return {"machine": told(sides_by("machine", (*a.runs, *b.runs)), "machine", evidence), **by}


def plant(a: Side, b: Measured, factor: float, evidence: Evidence, counts: Counts) -> None:
    """Judge b as if it took so many times as long, in all rows and in the main row only."""
    cases = b.setting.cases
    main = min(range(len(cases)), key=lambda row: case_order(cases[row]))
    for where, rows in (("all", range(len(cases))), ("main", (main,))):
        comparison = compare_sides(a, b.slower(rows, factor).side)
        headline = headline_of([comparison], "", evidence)
        row = main_row(comparison.rows)
        counts.add(f"{factor} {where} called", row is not None and row.rate.word == "slower")
        counts.add(f"{factor} {where} said", claims_difference(headline.text))
        failed = check_gate([comparison], "", GATE_PERCENT, evidence).end == FAIL
        counts.add(f"{factor} {where} failed", failed)


def agree_in_files(a: Measured, b: Measured, in_memory: Mapping[str, Told]) -> bool:
    """Whether the runs are told in the same words, by each dimension, when they are read from files."""
    with tempfile.TemporaryDirectory() as place:
        files = [str(Path(place) / name) for name in NAMES]
        for box, file in zip((a, b), files, strict=True):
            for run in box.runs:
                store(run, Path(file))
        in_files = {
            dimension: ask(files if dimension in ("", "machine") else files[:1], by=dimension or None)
            for dimension in in_memory
        }
        differing = [
            (found, expected)
            for dimension, asked in in_files.items()
            for found, expected in zip(
                words_of(asked.compared()), words_of(in_memory[dimension]), strict=True
            )
            if found != expected
        ]
    for found, expected in differing:
        print(f"through files: {found}; in memory: {expected}", file=sys.stderr)
    return not differing


def words_of(answer: Answer | Told) -> list[str]:
    """The headline, and the words of all rows and means."""
    return [
        answer.headline.text,
        *(f"{r.case.name} {r.rate.word} {r.cost.word}" for one in answer.comparisons for r in one.rows),
        *(f"{group.group} {group.rate.word}" for one in answer.comparisons for group in one.groups),
    ]


@dataclass(frozen=True)
class PoolCell:
    """Several runs a side, pooled."""

    world: World
    run_sd: float
    factor: float
    tables: int

    HEADINGS = ("files", "tables", "rows", "covered", "half")

    @property
    def name(self) -> str:
        return f"{self.world.name}, runs of sd {100 * self.run_sd:g} %"

    def line(self, seed: str) -> str:
        setting, counts = Setting(self.world, quick_groups(self.world.device_class), self.run_sd), Counts()
        chance = random.Random(seed + self.name)
        for _ in range(self.tables):
            a, b = measured_boxes(setting, chance, (POOLED_LAUNCHES,) * POOLED_RUNS, pool=True)
            evidence, side = evidence_of(a, b), a.side
            comparison = compare_sides(side, b.side)
            counts.add_comparison(comparison)
            counts.add("files", claims_difference(headline_of([comparison], "", evidence).text))
            plant(side, b, self.factor, evidence, counts)
        shares = [
            counts.share("files", 0.01),
            counts.share("tables", 0.05),
            counts.share("rows"),
            counts.share("covered", least=0.93),
            counts.half,
        ]
        return f"{columns(self.name, shares)}  {counts.planted(self.factor)}"


@dataclass(frozen=True)
class WidthCell:
    """The same tables with more and more of their launches."""

    world: World
    groups: int
    tables: int

    HEADINGS = tuple(map(str, WIDTHS_LAUNCHES))

    @property
    def name(self) -> str:
        return f"{self.world.name}, {self.groups} groups of rows"

    def line(self, seed: str) -> str:
        device_class = self.world.device_class
        setting = Setting(self.world, more_groups(device_class, self.groups), ASSUMED_RUN_SD[device_class])
        chance = random.Random(seed + self.name)
        halves = [self._halves(setting, chance) for _ in range(self.tables)]
        cells = []
        for place in range(len(WIDTHS_LAUNCHES)):
            wider = [of_table[place] - of_table[max(place - 1, 0)] for of_table in halves]
            is_beyond = statistics.fmean(wider) > SURE * statistics.stdev(wider) / math.sqrt(len(wider))
            half = math.expm1(statistics.fmean(of_table[place] for of_table in halves))
            cells.append(percent(half, 1, is_beyond=is_beyond))
        return columns(self.name, cells)

    def _halves(self, setting: Setting, chance: random.Random) -> list[float]:
        """The mean over rows, by launches."""
        machines = boxes_of(self.world.device_class)
        times = [setting.drawn(chance, WIDTHS_LAUNCHES[-1]) for _ in machines]
        found = []
        for launches in WIDTHS_LAUNCHES:
            kept = [launches] * len(setting.cases)
            runs = [setting.run(t, m, launches=kept) for t, m in zip(times, machines, strict=True)]
            rows = compare_sides(*(side_of_runs(n, [run]) for n, run in zip(NAMES, runs, strict=True))).rows
            ratios = [row.estimate for row in rows if isinstance(row.estimate, RatioEstimate)]
            found.append(statistics.fmean(map(half_width, ratios)))
        return found


def columns(name: str, cells: Sequence[str]) -> str:
    return f"{name:64}{''.join(f'{cell:>9}' for cell in cells)}"


Cell = TableCell | PoolCell | WidthCell


def cells_of(section: str, options: argparse.Namespace) -> list[Cell]:
    tables = options.tables
    of_tables = Options(tables, options.row_part, options.earlier, options.files, options.others)
    if section == "tables":
        return [
            TableCell(world, run_part, launches, of_tables)
            for world in WORLDS
            for run_part in RUN_PARTS
            for launches in LAUNCHES
        ]
    if section == "pool":
        return [PoolCell(*pooled, max(tables // 3, 1)) for pooled in POOLED]
    return [WidthCell(world, groups, max(tables // 10, 2)) for world in WORLDS for groups in WIDTHS_GROUPS]


def line_of(cell: Cell, seed: str) -> str:
    return cell.line(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all of them")
    parser.add_argument("--tables", type=int, default=300, help="of a cell; fewer of widths")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", metavar="REGEX", help="cells in whose name it is found")
    parser.add_argument(
        "--row-part",
        type=float,
        default=0.0,
        metavar="TIMES",
        help="each row of a run has a part of its own, this many times the assumed run part",
    )
    parser.add_argument("--earlier", type=int, default=0, help="earlier runs of 3 launches in each file")
    parser.add_argument("--files", type=int, default=0, help="tables of a cell that go through files too")
    parser.add_argument("--others", type=int, default=4, help="one of so many tables by --by, and planted")
    parser.add_argument("--seed", default="", help="other tables of the same cells, for each text")
    options = parser.parse_args()
    for world in (*WORLDS, GPU_ALIKE):
        print(f"{world.name}: {world.words}")
    assumed = ", ".join(f"{name.upper()} {100 * sd:g} %" for name, sd in ASSUMED_RUN_SD.items())
    print(f"run part as assumed: {assumed}, common to all rows of a run")
    with ProcessPoolExecutor(options.jobs) as executor:
        for section in options.sections or SECTIONS:
            cells = [one for one in cells_of(section, options) if re.search(options.only, one.name)]
            if cells:
                print(f"\n{columns(f'{section}, %', cells[0].HEADINGS)}")
            for line in executor.map(line_of, cells, itertools.repeat(options.seed)):
                print(line, flush=True)
    taken = os.times()
    print(f"\n* beyond what is allowed; {taken.user + taken.children_user:.0f} s of CPU")


if __name__ == "__main__":
    main()
