"""Runs of one box compared with each other, all pairs: which rows `compare` calls faster or slower, wrongly.

python tests/gpu/same_twice.py same.db
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from same_machine import print_parts

from gputui.analysis.verdict import RatioEstimate
from gputui.services.compare.pairing import compare_sides, side_of_runs
from gputui.services.results.selectors import select_all


def main() -> int:
    runs = sorted(select_all([sys.argv[1]])[0].runs, key=lambda run: run.summary.started_utc_us)
    sides = [side_of_runs(run.summary.short_id, [run]) for run in runs]
    words: Counter[str] = Counter()
    called: Counter[str] = Counter()
    could_tell = []
    for a, b in itertools.combinations(sides, 2):
        for row in compare_sides(a, b).rows:
            words[row.verdict.word] += 1
            if row.verdict.word in ("faster", "slower"):
                called[row.case.name] += 1
            if isinstance(row.estimate, RatioEstimate):
                could_tell.append(row.estimate.resolvable - 1)
    print(f"{len(runs)} runs of one box, each with each: {words.total()} rows")
    print(f"  {', '.join(f'{word} {count}' for word, count in words.most_common())}")
    print(f"  called faster or slower, which is false: {dict(called) or 'none'}")
    if could_tell:
        print(f"  could have told, median of rows: {statistics.median(could_tell):.1%}")
    print_parts(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
