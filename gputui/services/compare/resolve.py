"""Adds launches to a run until its rows are told from those of a stored run: what is asked, and each look.

The supervisor makes the launches and calls `python -m gputui.services.compare.resolve` between them, as it
calls the process that stores the run: it cannot read result files. What the looks found lies in the run
directory, so that it is there for everyone who watches the run.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gputui.analysis.resolution import (
    DECIDED,
    FASTER,
    OPEN,
    OUT_OF_REACH,
    SLOWER,
    WITHIN,
    decisions,
    error_rate_of,
)
from gputui.analysis.verdict import RatioEstimate
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import Case, Plan, from_plain
from gputui.model.result import Run
from gputui.model.units import counted, listed
from gputui.recording.own_directory import write_whole
from gputui.recording.run_directory import Spec
from gputui.services.compare.pairing import Side, compare_sides, estimate_pair, pairing, side_of_runs
from gputui.services.compare.rerun import RepeatedRun
from gputui.services.compare.row_text import OF_RATES, change_words
from gputui.services.results.labels import format_ends
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result
from gputui.store.writing import store_run
from gputui.worker.foreign_json import read_json_file

LOOKS_NAME = "looks.json"
LEAST_PERCENT, MOST_PERCENT = 0.1, 50.0
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class RowStanding:
    """What is known of one row after the last look."""

    case_id: int
    """In the run that gets launches."""
    name: str
    word: str
    """A word of `analysis.resolution`."""
    look: int
    """The look that decided it, or gave it up, from 1; the last look for one that is open."""
    launches: int
    """Of this run, when that look was made."""
    ratio: float
    low: float
    high: float
    reach: float
    """As in `Decision`."""

    @property
    def is_closed(self) -> bool:
        return self.word != OPEN

    def phrase(self, percent: float) -> str:
        """`32 % slower (28 to 36)`, `within ±5 % (-2 to +1 %)`, `can't tell (-8 to +6 %)`."""
        if self.word in (FASTER, SLOWER):
            words, ends = change_words((self.ratio, self.low, self.high), OF_RATES)
            return f"{words} ({ends})"
        ends = format_ends(self.low, self.high, self.ratio)
        if self.word == WITHIN:
            return f"within ±{percent:g} % ({ends})"
        if self.word == OUT_OF_REACH:
            return f"can't tell ({ends}; the baseline resolves {_within(100 * self.reach)})"
        return f"can't tell ({ends})"


def lines_of_rows(rows: Collection[RowStanding], percent: float) -> Iterator[str]:
    """A line for each, those that are decided first."""
    width = max((len(row.name) for row in rows), default=0)
    for row in sorted(rows, key=lambda row: (row.word not in DECIDED, row.look)):
        yield f"{row.name:<{width}}  {row.phrase(percent)}, {counted(row.launches, 'launch')}"


@dataclass(frozen=True, slots=True)
class Looks:
    """What was asked of a run, and what its looks found."""

    against: str
    """`F@RUN` of the base."""
    percent: float
    looks: tuple[int, ...]
    """Launches per case after which there is one."""
    made: int = 0
    rows: tuple[RowStanding, ...] = ()

    def write(self, run_dir: Path) -> None:
        """Raises OSError."""
        write_whole(run_dir / LOOKS_NAME, json.dumps(asdict(self)).encode())

    @staticmethod
    def read(run_dir: Path) -> Looks | None:
        """None for a run that is not to resolve anything, or whose looks cannot be read any more."""
        try:
            looks: Looks = from_plain(Looks, read_json_file(run_dir / LOOKS_NAME))
            return looks
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def decided(self) -> int:
        return sum(row.word in DECIDED for row in self.rows)

    @property
    def message(self) -> str:
        """`check 1 of 3, after 3 launches: 2 of 4 rows decided, 1 out of reach`."""
        counts = f"{self.decided} of {counted(len(self.rows), 'row')} decided"
        beyond = sum(row.word == OUT_OF_REACH for row in self.rows)
        beyond_words = f", {beyond} out of reach" if beyond else ""
        launches = counted(self.looks[self.made - 1], "launch") if self.made else "no launch"
        return f"check {self.made} of {len(self.looks)}, after {launches}: {counts}{beyond_words}"

    @property
    def headline(self) -> str:
        """`Against base.db@8e2aad19, to ±5 %: 2 of 4 rows decided in 3 of 3 checks.`"""
        counts = f"{self.decided} of {counted(len(self.rows), 'row')} decided"
        checks = f"{self.made} of {counted(len(self.looks), 'check')}"
        return f"Against {self.against}, to ±{self.percent:g} %: {counts} in {checks}."

    def lines(self) -> Iterator[str]:
        """A line for each row, those that are decided first, and how sure they are."""
        yield from lines_of_rows(self.rows, self.percent)
        confidence = 100 * (1 - error_rate_of(self.looks))
        yield f"b is this run; {confidence:.3g} % intervals, so that all checks together are 97 % sure"


def percent_from(text: str) -> float:
    """Parse how fine rows are to be resolved. Raises GputuiError unless it is from 0.1 to 50."""
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not LEAST_PERCENT <= percent <= MOST_PERCENT:
        raise GputuiError(
            f"--resolve: {text[:_SHOWN]!r} is not a number from {LEAST_PERCENT:g} to {MOST_PERCENT:g}",
            "a difference in per cent, such as 5",
        )
    return percent


def intent(model: RepeatedRun, plan: Plan, percent: float) -> Iterator[str]:
    """What will be done to resolve the rows, and what the base allows; for people, before it begins.

    Taken from the base alone, as if launches here varied as they did there. Raises GputuiError if the base
    measured none of the cases that run here.
    """
    looks, rate = plan.looks, error_rate_of(plan.looks)
    here = {pairing(planned.case) for planned in plan.cases if planned.outcome is None}
    reached = []
    for case in side_of_runs(model.text, [model.run]).cases:
        estimate = estimate_pair(case, replace(case, run=replace(case.run, run_id="")))
        if pairing(case.result.case) in here and isinstance(estimate, RatioEstimate):
            reached.append(100 * math.expm1(estimate.half_width_with(estimate.launches_a, looks[-1], rate)))
    if not reached:
        raise GputuiError(
            f"--against {model.text}: run {model.run.summary.short_id} measured no case that can run here",
            f"gputui show {model.selector} shows what it measured, and why not the rest",
        )
    after = listed([str(n) for n in looks])
    yield (
        f"{counted(len(reached), 'row')} to ±{percent:g} %: at most {counted(len(looks), 'check')},"
        f" after {after} launches per case, with {100 * (1 - rate):.3g} % intervals"
    )
    best, worst = _within(min(reached)), _within(max(reached))
    allows = best if best == worst else f"{best.removesuffix(' %')} to {worst}"
    yield f"the baseline resolves {allows}, if launches here vary as they did there"
    if beyond := sum(one > percent for one in reached):
        rows = counted(len(reached), "row")
        yield (
            f"out of reach: {beyond} of {rows}, whose launches stop once that is certain;"
            " a baseline of more launches, or pooled runs, reaches further"
        )


def _within(percent: float) -> str:
    """`±2.1 %`, `±107 %`."""
    return f"±{percent:.0f} %" if percent >= 9.95 else f"±{percent:.2g} %"


def look(run: Run, asked: Looks, base: Run, *, number: int) -> Looks:
    """The next look at a run: rows that were closed before stay as they were."""
    sides = side_of_runs(asked.against, [base]), side_of_runs("this run", [run])
    before = {row.case_id: row for row in asked.rows if row.is_closed}
    found = (row for _, row in standings_of(*sides, asked.looks, asked.percent, number))
    return replace(asked, made=number, rows=tuple(before.get(row.case_id, row) for row in found))


def standings_of(
    a: Side, b: Side, looks: Sequence[int], percent: float, number: int
) -> Iterator[tuple[Case, RowStanding]]:
    """What look `number` says of each row that both sides measured."""
    rows = compare_sides(a, b).rows
    found = decisions([row.estimate for row in rows], looks, percent / 100)
    for row, decision in zip(rows, found, strict=True):
        result, estimate = row.b.result, row.estimate
        if result is None or isinstance(decision, Missing) or isinstance(estimate, Missing):
            continue
        yield (
            result.case,
            RowStanding(
                result.case_id,
                result.case.name,
                decision.word,
                number,
                estimate.launches_b,
                decision.ratio,
                decision.low,
                decision.high,
                decision.reach,
            ),
        )


def command_of_looks(model: RepeatedRun, percent: float) -> tuple[str, ...]:
    """The command that makes one look; the supervisor adds run directory and launches per case."""
    base = Path(model.selector.rpartition("@")[0]).absolute()
    words = (str(base), model.run.summary.run_id, model.selector, f"{percent:g}")
    return (sys.executable, "-m", __name__, *words)


def look_at(run_dir: Path, base: Path, run_id: str, against: str, percent: float, launches: int) -> Looks:
    """Make the look after so many launches per case, from the journal of a run in progress, and keep it.

    Raises GputuiError if a file cannot be read, OSError if nothing can be written.
    """
    with tempfile.TemporaryDirectory(prefix="gputui-look-") as place:
        stored = store_run(Path(place) / "look.db", read_journal(run_dir), ())
        with open_result(stored.db) as file:
            run = file.run(stored.run_id)
    with open_result(base) as file:
        other = file.run(run_id)
    looks = Spec.read(run_dir).plan.looks
    asked = Looks.read(run_dir) or Looks(against, percent, looks)
    found = look(run, asked, other, number=looks.index(launches) + 1)
    found.write(run_dir)
    return found


def main(words: Sequence[str]) -> int:
    """Make a look and print for the supervisor which cases need no more launches, and a message."""
    base, run_id, against, percent, run_dir, launches = words
    try:
        found = look_at(Path(run_dir), Path(base), run_id, against, float(percent), int(launches))
    except GputuiError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    closed = [row.case_id for row in found.rows if row.is_closed]
    print(json.dumps({"closed": closed, "message": found.message}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
