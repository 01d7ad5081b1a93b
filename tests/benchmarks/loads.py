"""One box under changing load: what each pair of its runs is called, though nothing differs but the load.

Each file holds one run of the same profile on the same box. Prints headlines that claim something and rows
called faster or slower, all of them wrong; how often `--by precision` says of amp the opposite of what quiet
cases say; and by work and by the larger share of the time that a side waited for CPUs: half-widths of rows,
and how many are called rightly where the block times of the second run are taken 1.3 times.

    python tests/benchmarks/loads.py quiet-*.db busy-*.db
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from same_machine import slower, upper_bound
from whole_tables import claims_difference

from gputui.analysis.verdict import RatioEstimate
from gputui.errors import GputuiError, NoResult
from gputui.services.compare.session import Answer, Asked, ask
from gputui.services.results.throughput import contention_of

PLANTED = 1.3
DIFFERENT = ("faster", "slower")
SHARES = (0.05, 1 / 3, 2 / 3, 1.0)


class Judged(NamedTuple):
    """A row of a pair of files."""

    work: str
    workload_class: str
    waited: float
    """The larger share of the two sides."""
    word: str
    half_width: float
    planted_word: str
    """Its verdict where the second run is slower by the planted factor."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+")
    files = parser.parse_args().files
    rows, headlines, tables = list[Judged](), 0, 0
    for pair in itertools.combinations(files, 2):
        asked = ask(pair)
        try:
            answer = asked.compared()
        except NoResult:
            continue
        tables += 1
        if claims_difference(answer.headline.text):
            headlines += 1
            print(f"{' '.join(pair)}: {answer.headline.text}")
        rows += judged(asked, answer)
    print(f"headlines that claim something: {counted(headlines, tables)}")
    for name, some in by(rows, "workload_class"):
        false = sum(row.word in DIFFERENT for row in some)
        print(f"rows of {name} called different: {counted(false, len(some))}")
    print_precisions(files)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    print(f"by the larger share waited, up to {shares}: median half-width, planted {PLANTED:g}x called, rows")
    for name, some in [("all", rows), *by(rows, "work")]:
        print(f"  {name:24} {'; '.join(cells(some))}")


def judged(asked: Asked, answer: Answer) -> Iterator[Judged]:
    """The rows of a pair, with their verdict once the second run is slower."""
    a, b = asked.sides
    planted = replace(asked, sides=(a, slower(b, PLANTED))).compared()
    for row, changed in zip(answer.comparisons[0].rows, planted.comparisons[0].rows, strict=True):
        if isinstance(row.estimate, RatioEstimate):
            variant = row.case.variant
            yield Judged(
                f"{row.case.work.workload} {variant.precision} {variant.threads}",
                row.case.workload_class,
                max(contention_of(cell.result) for cell in (row.a, row.b) if cell.result is not None),
                row.verdict.word,
                math.sqrt(row.estimate.high / row.estimate.low) - 1,
                changed.verdict.word,
            )


def print_precisions(files: Sequence[str]) -> None:
    """What each file says of amp against fp32, and how often it is the opposite of what quiet cases say."""
    found: dict[str, list[tuple[float, str, RatioEstimate]]] = defaultdict(list)
    for file in files:
        with suppress(GputuiError):  # one precision alone was measured
            for row in ask([file], by="precision").compared().comparisons[0].rows:
                sides = [cell.result for cell in (row.a, row.b) if cell.result is not None]
                if len(sides) == 2 and isinstance(row.estimate, RatioEstimate):
                    name = f"{row.case.work.workload} {row.case.variant.threads}"
                    found[name].append((max(map(contention_of, sides)), row.verdict.word, row.estimate))
    for name, some in sorted(found.items()):
        quiet = [estimate.ratio for waited, _, estimate in some if not waited]
        if not quiet:
            continue
        truth = statistics.median(quiet)
        right, wrong = DIFFERENT if truth > 1 else DIFFERENT[::-1]
        words = Counter(word for _, word, _ in some)
        held = sum(estimate.low <= truth <= estimate.high for _, _, estimate in some)
        print(
            f"amp against fp32, {name}: quiet {truth:.2f}x; of {len(some)} files {words[right]} right,"
            f" {words[wrong]} wrong; {held} intervals hold it"
        )


def by(rows: Sequence[Judged], field: str) -> list[tuple[str, list[Judged]]]:
    """The rows by a field's value, in the order of the alphabet."""
    found: dict[str, list[Judged]] = defaultdict(list)
    for row in rows:
        found[getattr(row, field)].append(row)
    return sorted(found.items())


def cells(rows: Sequence[Judged]) -> Iterator[str]:
    for least, most in itertools.pairwise((-1.0, *SHARES)):
        some = [row for row in rows if least < row.waited <= most]
        if not some:
            yield f"{'-':>15}"
            continue
        called = statistics.fmean(row.planted_word == "slower" for row in some)
        yield f"{statistics.median(row.half_width for row in some):5.0%} {called:4.0%} {len(some):4}"


def counted(count: int, of: int) -> str:
    return f"{count} of {of}, at most {upper_bound(count, of):.1%}"


if __name__ == "__main__":
    main()
