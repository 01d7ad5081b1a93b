"""What is said before a run is resolved, and what each look makes of its rows."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_plan, make_spec
from hand_made import make_case, make_run, measured
from journals import make_journal
from stored_runs import store

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import Case, Plan, PlannedCase
from gputui.model.result import CaseResult, Run
from gputui.services.compare.pairing import compare_sides, side_of_runs
from gputui.services.compare.rerun import RepeatedRun
from gputui.services.compare.resolve import (
    Looks,
    RowStanding,
    _within,
    intent,
    look,
    look_at,
    percent_from,
)

LOOKS = (3, 6, 12)
CASES = tuple(make_case(name, workload_class="training") for name in ("a", "b", "c", "d"))


def launches(seed: int, count: int, step_s: float, sd: float = 0.005) -> list[tuple[float, ...]]:
    chance = random.Random(seed)
    middles = [math.log(step_s) + chance.gauss(0, sd) for _ in range(count)]
    return [tuple(math.exp(middle + chance.gauss(0, 0.002)) for _ in range(6)) for middle in middles]


def run_with(steps_s: Sequence[float], counts: Sequence[int], *, sd: float = 0.005, seed: int = 0) -> Run:
    """A run of the cases with so many launches of each."""
    cases: list[CaseResult] = [
        measured(case, *launches(seed + number, count, step_s, sd))
        for number, (case, step_s, count) in enumerate(zip(CASES, steps_s, counts, strict=True))
    ]
    return make_run(*cases)


def model_of(run: Run) -> RepeatedRun:
    return RepeatedRun("base.db", run, frozenset(), f"base.db@{run.summary.short_id}", "--against")


def plan_of(*cases: Case, looks: tuple[int, ...] = LOOKS) -> Plan:
    planned = tuple(PlannedCase(number, case, None, "") for number, case in enumerate(cases))
    return Plan("p", 1, 0, looks[-1], 60.0, planned, (), ("python3",), looks=looks)


def test_rows_are_closed_as_soon_as_they_are_decided_and_keep_what_decided_them() -> None:
    base = run_with([0.1] * 4, [3] * 4, seed=50)
    steps_s = [0.15, 0.0667, 0.1, 0.104]
    first = look(run_with(steps_s, [3] * 4), Looks("base.db@1", 10.0, LOOKS), base, number=1)
    assert [row.word for row in first.rows] == ["slower", "faster", *[row.word for row in first.rows[2:]]]
    assert first.message.startswith("check 1 of 3, after 3 launches: ")

    changed = look(run_with([0.1] * 4, [6] * 4, seed=9), first, base, number=2)
    assert changed.rows[:2] == first.rows[:2]
    assert (changed.made, changed.rows[0].look, changed.rows[0].launches) == (2, 1, 3)


def test_looks_survive_in_the_run_directory(tmp_path: Path) -> None:
    base = run_with([0.1] * 4, [3] * 4, seed=50)
    found = look(run_with([0.2] * 4, [3] * 4), Looks("base.db@1", 10.0, LOOKS), base, number=1)
    assert Looks.read(tmp_path) is None
    found.write(tmp_path)
    assert Looks.read(tmp_path) == found
    assert list(tmp_path.iterdir()) == [tmp_path / "looks.json"]


def test_the_mean_weighs_rows_alike_however_many_launches_each_has() -> None:
    base = run_with([0.1] * 4, [3] * 4, sd=0.0, seed=50)
    steps_s = [0.2, 0.1, 0.1, 0.1]
    means = []
    for counts in ([3, 3, 3, 3], [3, 12, 12, 12]):
        b = side_of_runs("b", [run_with(steps_s, counts, sd=0.0)])
        (group,) = compare_sides(side_of_runs("a", [base]), b).groups
        assert not isinstance(group.mean, Missing)
        means.append(group.mean.ratio)
    assert means == pytest.approx([0.5**0.25] * 2, rel=1e-3)


def test_the_answer_has_a_line_for_each_row_and_says_how_sure_it_is() -> None:
    base = run_with([0.1] * 4, [3] * 4, sd=0.0, seed=50)
    run = run_with([0.2] * 4, [3] * 4, sd=0.0)
    found = look(run, Looks("base.db@1", 10.0, LOOKS), base, number=1)
    assert found.headline == "Against base.db@1, to ±10 %: 4 of 4 rows decided in 1 of 3 checks."
    *rows, last = found.lines()
    assert [row.split(" slower (")[0] for row in rows] == [f"{case.name}  50 %" for case in CASES]
    assert last == "b is this run; 99 % intervals, so that all checks together are 97 % sure"


def test_before_it_begins_it_says_what_the_baseline_resolves_and_how_many_rows_that_leaves_out() -> None:
    looks, allows, beyond = intent(model_of(run_with([0.1] * 4, [1] * 4)), plan_of(*CASES, looks=(3, 6)), 30)
    assert looks == (
        "4 rows to ±30 %: at most 2 checks, after 3 and 6 launches per case, with 98.5 % intervals"
    )
    assert re.fullmatch(
        r"the baseline resolves ±\d+(?: to \d+)? %, if launches here vary as they did there", allows
    )
    assert beyond.startswith("out of reach: 4 of 4 rows, ")
    assert len(list(intent(model_of(run_with([0.1] * 4, [9] * 4)), plan_of(*CASES), 30))) == 2


def test_what_a_baseline_resolves_has_two_digits_below_ten_per_cent() -> None:
    assert [_within(percent) for percent in (2.14, 9.94, 9.96, 107.2)] == [
        "±2.1 %",
        "±9.9 %",
        "±10 %",
        "±107 %",
    ]


def test_a_row_is_said_in_the_direction_in_which_it_lies() -> None:
    row = RowStanding(0, "gemm", "faster", 1, 3, 1.36, 1.28, 1.45, 0.1)
    assert row.phrase(5.0) == "36 % faster (28 to 45)"
    assert replace(row, word="slower", ratio=0.64, low=0.6, high=0.68).phrase(5.0) == "36 % slower (32 to 40)"
    assert replace(row, ratio=4.1, low=4.02, high=4.18).phrase(5.0) == "4.10x as fast (4.02 to 4.18)"


def test_a_check_reads_the_journal_of_a_run_in_progress_and_is_kept_there(tmp_path: Path) -> None:
    base = store(tmp_path / "base.db", 1, launches=3)
    run_dir = make_journal(tmp_path / "run", launches=3)
    planned = make_plan((0,), cases=CASES[:1])
    make_spec(replace(planned, looks=LOOKS)).write(run_dir)
    found = look_at(run_dir, tmp_path / "base.db", base, "base.db@1", 10.0, 6)
    assert found.message.startswith("check 2 of 3, after 6 launches: ")
    assert Looks.read(run_dir) == found


def test_only_cases_that_run_here_count_and_without_one_it_is_an_error() -> None:
    model = model_of(run_with([0.1] * 4, [3] * 4))
    assert next(intent(model, plan_of(CASES[2]), 5)).startswith("1 row to ±5 %")
    absent = replace(plan_of(CASES[2]), cases=(PlannedCase(0, CASES[2], "skipped", "no GPU"),))
    with pytest.raises(GputuiError, match="measured no case that can run here"):
        list(intent(model, absent, 5))


@pytest.mark.parametrize("text", ["", "5%", "-1", "51", "inf", "nan", "0.05"])
def test_a_value_that_is_no_per_cent_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(GputuiError) as caught:
        percent_from(text)
    assert "such as 5" in caught.value.hint
    assert percent_from("2.5") == 2.5


def test_a_case_that_one_side_did_not_measure_is_no_row_of_a_check() -> None:
    base, run = run_with([0.1] * 4, [3] * 4, seed=50), run_with([0.2] * 4, [3] * 4)
    fewer = replace(run, cases=run.cases[1:])
    failed = replace(run, cases=(*run.cases[:3], replace(run.cases[3], outcome="failed", measurements=())))
    for of_base, here, names in (
        (base, fewer, CASES[1:]),
        (replace(base, cases=base.cases[:3]), run, CASES[:3]),
        (base, failed, CASES[:3]),
    ):
        found = look(here, Looks("base.db@1", 10.0, LOOKS), of_base, number=1)
        assert [row.name for row in found.rows] == [case.name for case in names]
