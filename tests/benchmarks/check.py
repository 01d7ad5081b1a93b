"""How often `gputui check` names a GPU that is 15 % slow, and a healthy one, by how much healthy ones differ.

`PYTHONPATH=.:tests:tests/makers python tests/benchmarks/check.py [BOXES]` makes up rates of the cases of the
profile `check`, and judges them as the command does: eight GPUs in one box, and one GPU beside a reference of
5 and 10 boxes. `sd` is the standard deviation of healthy GPUs in products, which follow the chip, and `90 %`
how wide their middle 90 % are; copies and links differ by a quarter. The slow GPU is slow in products.
"""

from __future__ import annotations

import functools
import random
import sys
import tempfile
import time
from collections import Counter
from math import exp
from pathlib import Path

from checked_boxes import box_of, measured_box
from command_line import gputui
from cuda_standin import RATES, made_up_gpus

from gputui.analysis.fleet import below_normal_at, level_of, rates_of_both, rates_of_one
from gputui.services.check import SLOW, checked

SDS = (0.006, 0.012, 0.018, 0.024, 0.04, 0.06, 0.08)
MIDDLE_90 = 3.29
"""How wide the middle 90 % of a normal distribution are, in its standard deviations."""
SLOWER, OF_COPIES, BY_ITSELF = 0.85, 0.25, 0.003
ERROR = 1.036
"""Upper end of the interval of one launch, times its rate."""
PRODUCTS = ("amp", "fp32")
GPUS, REFERENCES = 8, (5, 10)


def factors_of(chance: random.Random, sd: float, factor: float) -> dict[str, float]:
    """Of the cases of one GPU, of which products are so much slower than its chip would be."""
    chip = chance.gauss(0, sd)
    logs = {kind: chip if kind in PRODUCTS else chance.gauss(0, sd * OF_COPIES) for kind in RATES}
    slower = {kind: factor if kind in PRODUCTS else 1.0 for kind in RATES}
    return {kind: exp(log + chance.gauss(0, BY_ITSELF)) * slower[kind] for kind, log in logs.items()}


def words(chance: random.Random, sd: float, gpus: int, slow: int | None) -> list[str]:
    """Of each GPU of a box."""
    machine = box_of(gpus)
    factors = {index: factors_of(chance, sd, SLOWER if index == slow else 1.0) for index in range(gpus)}
    return [one.word for one in checked(machine, (), measured_box(machine, factors)).devices]


def is_below_reference(chance: random.Random, sd: float, boxes: int, factor: float) -> bool:
    """Whether a GPU is called slow in any of two products and a copy, beside so many boxes of its model."""

    def logs() -> list[float]:
        chip = chance.gauss(0, sd)
        return [one + chance.gauss(0, BY_ITSELF) for one in (chip, chip, chance.gauss(0, sd * OF_COPIES))]

    known = []
    for of_boxes in zip(*(logs() for _ in range(boxes)), strict=True):
        each = (rates_of_one(exp(log), exp(log) / ERROR, exp(log) * ERROR) for log in of_boxes)
        known.append(functools.reduce(rates_of_both, each))
    rates = [exp(log) * by for log, by in zip(logs(), (factor, factor, 1.0), strict=True)]
    level = level_of(list(zip(rates, known, strict=True)))
    return any(below_normal_at(level, rate, rate * ERROR, of) for rate, of in zip(rates, known, strict=True))


def timed(*words: str) -> str:
    """The first line of `gputui check` on eight made-up GPUs, and how long it took."""
    with tempfile.TemporaryDirectory() as place:
        scenario = f"driver gpus {GPUS}\n* name NVIDIA H200\n* sm_busy_pct 0\n"
        env = {**made_up_gpus(Path(place), scenario), "GPUTUI_STATE": place}
        begun_s = time.monotonic()
        done = gputui("check", "--brief", *words, env=env)
        return f"{time.monotonic() - begun_s:5.1f} s  gputui check {' '.join(words)}  {done.stdout.strip()}"


def main(boxes: int = 100) -> None:
    print(timed(), timed("--quick"), sep="\n")
    chance = random.Random(1)
    print("   sd 90 %   slow: SLOW  not OK   healthy: SLOW    OK")
    for sd in SDS:
        named = Counter(words(chance, sd, GPUS, GPUS - 1)[-1] for _ in range(boxes))
        healthy = Counter(word for _ in range(boxes) for word in words(chance, sd, GPUS, None))
        false, fine = (healthy[word] / sum(healthy.values()) for word in (SLOW, "OK"))
        spread = f"{sd:5.1%} {MIDDLE_90 * sd:5.0%}"
        slow, not_ok = named[SLOW] / boxes, 1 - named["OK"] / boxes
        print(f"{spread}  {slow:10.1%} {not_ok:7.1%} {false:15.2%} {fine:6.1%}  {GPUS} in a box")
        for count in REFERENCES:
            slow, false = (
                sum(is_below_reference(chance, sd, count, factor) for _ in range(10 * boxes)) / boxes / 10
                for factor in (SLOWER, 1.0)
            )
            print(f"{spread}  {slow:10.1%} {'':7} {false:15.2%} {'':6}  beside {count} boxes")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
