"""How often a reference calls a healthy box below normal, and how often it finds a slow one.

`python tests/benchmarks/box_rates.py [RUNS]` prints, for references of 4 to 20 boxes, the share of runs with
any case BELOW NORMAL: of healthy boxes, and of boxes 10 and 30 % slower in every case or in one of them. Each
run has another reference. A run has 12 cases, which share half of the variance between boxes. Boxes spread as
the sd says: GPUs of one node by 1.8 %, small models by 3.8 % (`analysis/spread.py`), CPUs by 10 %; with
`tail`, 1 in 10 boxes of the reference is itself 15 % slow.
"""

from __future__ import annotations

import functools
import math
import random
import sys

from gputui.analysis.fleet import BoxRates, below_normal_at, level_of, rates_of_both, rates_of_one

CASES = 12
MEASURED = 1.01
"""Upper end of a measurement's interval, times its rate."""
SITUATIONS = (("healthy", 0.0, CASES), ("10 %", 0.10, CASES), ("30 %", 0.30, CASES))
IN_ONE = (("10 % in one", 0.10, 1), ("30 % in one", 0.30, 1))


def logs_of_box(chance: random.Random, sd: float) -> list[float]:
    common = chance.gauss(0, sd * math.sqrt(0.5))
    return [common + chance.gauss(0, sd * math.sqrt(0.5)) for _ in range(CASES)]


def reference(chance: random.Random, boxes: int, sd: float, slow_share: float) -> list[BoxRates]:
    found = []
    for _ in range(boxes):
        slow = math.log(0.85) if chance.random() < slow_share else 0.0
        found.append([slow + one for one in logs_of_box(chance, sd)])
    rates = [[rates_of_one(rate, rate, rate) for rate in map(math.exp, box)] for box in found]
    return [functools.reduce(rates_of_both, (box[case] for box in rates)) for case in range(CASES)]


def share_below(runs: int, boxes: int, sd: float, slow: float, cases: int, tail: float) -> float:
    chance = random.Random(f"{boxes} {sd} {slow} {cases} {tail}")
    hits = 0
    for _ in range(runs):
        known = reference(chance, boxes, sd, tail)
        mine = logs_of_box(chance, sd)
        rates = [math.exp(one) * (1 - slow if place < cases else 1) for place, one in enumerate(mine)]
        beside = list(zip(rates, known, strict=True))
        level = level_of(beside)
        hits += any(below_normal_at(level, rate, rate * MEASURED, of) for rate, of in beside)
    return hits / runs


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    names = [name for name, _, _ in (*SITUATIONS, *IN_ONE)]
    print(f"share of {runs} runs BELOW NORMAL, in %: {CASES} cases, Holm at 5 %")
    print(f"{'boxes spread':16}{'boxes':>6}" + "".join(f"{name:>13}" for name in names))
    for sd, tail in ((0.018, 0.0), (0.038, 0.0), (0.10, 0.0), (0.018, 0.1)):
        for boxes in (4, 5, 10, 20):
            found = [share_below(runs, boxes, sd, slow, k, tail) for _, slow, k in (*SITUATIONS, *IN_ONE)]
            what = f"sd {100 * sd:.1f} %{', tail' if tail else ''}"
            print(f"{what:16}{boxes:>6}" + "".join(f"{100 * one:13.1f}" for one in found), flush=True)


if __name__ == "__main__":
    main()
