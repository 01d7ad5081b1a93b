"""Every number of a printed table follows from the stored rows, by arithmetic that shares no code with it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from block_arithmetic import launches_of, ratio, speed
from command_line import gputui_here
from journals import CASES, make_journal

from gputui.services.results.labels import plain_case_name, plain_name
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

USD_PER_H = 0.42  # journals.PRICE
ROUNDING = 0.0051  # three significant digits
PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@pytest.fixture(scope="module", params=[1, 3], ids=["one launch a side", "three launches a side"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("files")
    made = []
    for number, (name, scale) in enumerate((("a", 1.0), ("b", 1.3))):
        run_dir = make_journal(
            place / name,
            run_id=f"0194b5a0-0000-7000-8000-0000000000{number:02d}",
            scale=scale,
            launches=request.param,
            blocks=9,
            seed=number + 5,
        )
        store_run(place / f"{name}.db", read_journal(run_dir), read_telemetry(run_dir))
        made.append(place / f"{name}.db")
    return made[0], made[1]


def printed(*words: str) -> str:
    return gputui_here(*words, env={"COLUMNS": "110"}).stdout


def numbers(text: str) -> float:
    digits, prefix = re.fullmatch(r"([\d.]+) ?([kMGTP]?)", text).groups()  # type: ignore[union-attr]
    return float(digits) * PREFIX[prefix]


def close(shown: float, truth: float) -> bool:
    return abs(shown / truth - 1) <= ROUNDING


def as_percent(shown: str, truth: float) -> bool:
    """Printed without decimals from 1 % on."""
    return abs(float(shown) - 100 * truth) <= (0.5 if abs(float(shown)) >= 1 else 0.05) + 1e-9


def test_rates_steps_intervals_and_costs_of_a_run_follow_from_its_blocks(files: tuple[Path, Path]) -> None:
    text = printed("show", "latest", str(files[0]), "--verbose")
    cases = [launches_of(files[0], case_id) for case_id in range(len(CASES))]
    for case_id, case in enumerate(CASES):
        truth = speed(cases, case_id)
        per_s = float(np.exp(truth.center))
        row = next(line for line in text.split("\n") if line.startswith(plain_case_name(case)))
        found = re.search(
            r"([\d.]+ [kMGTP]?)FLOP/s +(?:±|-([\d.]+) to \+)([\d.]+) %"
            r" +.*\$([\d.]+) per ([A-Z])FLOP +([\d.]+) (s|ms|µs)",
            row,
        )
        assert found, row
        rate, below, above, usd, prefix, step, unit = found.groups()
        assert close(numbers(rate.strip()), per_s)
        step_s = float(step) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
        assert close(step_s, case.units_per_step / per_s)
        assert as_percent(above, np.expm1(truth.half))
        assert as_percent(below or above, -np.expm1(-truth.half))
        assert close(float(usd), USD_PER_H / 3600 / per_s * {"T": 1e12, "P": 1e15, "E": 1e18}[prefix])


def test_ratios_their_intervals_and_their_mean_follow_from_the_blocks_of_both(
    files: tuple[Path, Path],
) -> None:
    text = printed("compare", "--verbose", *map(str, files))
    a, b = ([launches_of(file, case_id) for case_id in range(len(CASES))] for file in files)
    logs = np.array([ratio(a, b, case_id) for case_id in range(len(CASES))])
    for case_id, case in enumerate(CASES):
        middle, half, _ = logs[case_id]
        row = next(line for line in text.split("\n") if line.startswith(f"{plain_name(case.work.workload)} "))
        found = re.search(
            r"([\d.]+)(?: ([kMGTP]?)FLOP/s)? +([\d.]+) +([kMGTP]?)FLOP/s +"
            r"([-+\d.]+) % \(([-+\d.]+) to ([-+\d.]+)\)",
            row,
        )
        assert found, row
        number, prefix, on_b, prefix_of_b, *shown = found.groups()
        on_a = f"{number} {prefix_of_b if prefix is None else prefix}"
        on_b = f"{on_b} {prefix_of_b}"
        assert close(numbers(on_a.strip()), float(np.exp(speed(a, case_id).center)))
        assert close(numbers(on_b.strip()), float(np.exp(speed(b, case_id).center)))
        assert all(map(as_percent, shown, np.expm1([middle, middle - half, middle + half])))
        divided_as_printed = numbers(on_b.strip()) / numbers(on_a.strip()) - 1
        assert abs(float(shown[0]) / 100 - divided_as_printed) <= 0.005 + 2 * ROUNDING
    row = next(line for line in text.split("\n") if line.startswith("average of 2 peak tests"))
    middles, halves, shares = logs.T
    launches, runs = halves * np.sqrt(1 - shares), halves * np.sqrt(shares)
    both = (launches**2).sum() + launches.prod()  # correlation 0.5 between two rows
    both = np.sqrt(both + runs.sum() ** 2) / 2
    ends = [middles.mean(), middles.mean() - both, middles.mean() + both]
    if ends[2] < 0:  # significant
        found = re.search(r"  ([-+\d.]+) % \(([-+\d.]+) to ([-+\d.]+)\) +slower", row)
    else:  # a verdict that is not significant shows no number
        found, ends = re.search(r"  ([-+\d.]+) to ([-+\d.]+) % +can't tell", row), ends[1:]
    assert found, row
    assert all(map(as_percent, found.groups(), np.expm1(ends)))
