"""The commands below a comparison: what would let an undecided row be judged, where, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady, unmeasured
from journals import GPU_MACHINE
from stored_loads import load_cases

from gputui.analysis.verdict import (
    HEADLINE_ERROR_RATE,
    RatioEstimate,
    launches_needed,
    nearest_edge,
    runs_needed,
)
from gputui.model.journal import Price
from gputui.model.plan import program_case
from gputui.model.result import CaseResult, Run
from gputui.model.units import counted, format_minutes
from gputui.services.compare.pairing import CAPPED, CROWDED, Flag, Row, compare_sides, side_of_runs
from gputui.services.compare.suggestions import effort_words, next_steps, settling_steps
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import Selection

GPT = make_case("gpt_train", workload_class="training", device_class="gpu")


def launches(step_s: float, count: int, spread: float = 2e-3) -> list[Sequence[float]]:
    return [steady(step_s * (1 + spread * number)) for number in range(count)]


def sides(a: CaseResult, b: CaseResult, usd_per_hour: float = 0.0) -> tuple[Row, Evidence]:
    """The row of two runs on two boxes, each in its file."""
    runs = [make_run(case, machine=GPU_MACHINE) for case in (a, b)]
    if usd_per_hour:
        price = Price(usd_per_hour, 1.0, "stated", "", "", "", "")
        runs = [replace(run, summary=replace(run.summary, price=price)) for run in runs]
    names = ("a.db", "b.db")
    (row,) = compare_sides(*(side_of_runs(name, [run]) for name, run in zip(names, runs, strict=True))).rows
    found = [Selection(name, Path(name), (run,), (), {}) for name, run in zip(names, runs, strict=True)]
    return row, Evidence(found)


def evidence_of(a: Run) -> Evidence:
    return Evidence([Selection("a.db", Path("a.db"), (a,), (), {})])


def like(row: Row, side: str) -> str:
    run = {"a": row.a.run, "b": row.b.run}[side]
    assert run is not None
    return f"gputui run --like {side}.db@{run.short_id}"


def with_skipped(case: CaseResult, skipped: int) -> CaseResult:
    """The same, had more launches been planned than the budget had time for."""
    lost = replace(case.measurements[0], outcome="skipped", reason="the budget is spent", blocks=())
    return replace(case, measurements=(*case.measurements, *[lost] * skipped))


def launches_that_settle(row: Row) -> int:
    assert isinstance(row.estimate, RatioEstimate)
    found = launches_needed(row.estimate, nearest_edge(row.estimate), HEADLINE_ERROR_RATE)
    assert isinstance(found, int)
    return found


def test_an_undecided_row_of_one_launch_asks_for_as_many_as_its_reason_on_each_box() -> None:
    row, evidence = sides(measured(GPT, steady(0.1)), measured(GPT, steady(0.11)))
    wanted = launches_that_settle(row)
    assert row.verdict.reason == f"the interval is too wide: needs about {wanted} launches a side"
    assert next_steps(row, evidence) == tuple(
        f"on the box of {side}: {like(row, side)} --db {side}.db --launches {wanted}" for side in "ab"
    )
    assert [step.command.split(" --launches ")[1] for step in settling_steps(row, evidence)] == [
        str(wanted)
    ] * 2


def test_where_no_launch_tells_more_runs_are_asked_for_or_none_if_those_hardly_would() -> None:
    row, evidence = sides(measured(GPT, *launches(0.1, 3)), measured(GPT, *launches(0.104, 3)))
    (pool,) = next_steps(row, evidence)
    assert isinstance(row.estimate, RatioEstimate)
    times = runs_needed(row.estimate, nearest_edge(row.estimate), HEADLINE_ERROR_RATE)
    assert isinstance(times, int)
    assert pool == (
        f"{counted(times - 1, 'more run')} of each box, then compare with --pool:"
        " runs of one box differ by more than that"
    )
    row, evidence = sides(measured(GPT, *launches(0.1, 3)), measured(GPT, *launches(0.101, 3)))
    assert next_steps(row, evidence) == (
        "too close to call; measuring again will hardly help: it takes more than 10 times the runs",
    )
    assert settling_steps(row, evidence) == ()
    row, evidence = sides(measured(GPT, *launches(0.1, 3)), measured(GPT, *launches(0.2, 3)))
    assert row.verdict.word == "slower"
    assert next_steps(row, evidence) == (), "it is decided"


def test_a_case_whose_launches_had_no_time_gets_twice_the_budget() -> None:
    short = with_skipped(measured(GPT, steady(0.1)), skipped=2)
    row, evidence = sides(short, measured(GPT, steady(0.11)))
    of_a, of_b = next_steps(row, evidence)
    assert f"--budget 180 --db a.db --launches {launches_that_settle(row)}" in of_a
    assert "--budget" not in of_b


def test_a_step_takes_a_start_and_the_longest_launch_as_often_as_it_is_to_be_measured_and_is_paid_for() -> (
    None
):
    row, evidence = sides(measured(GPT, steady(1.0)), measured(GPT, steady(1.1)), usd_per_hour=36.0)
    steps = settling_steps(row, evidence)
    assert [step.box for step in steps] == ["a", "b"]
    seconds = launches_that_settle(row) * (8 + 6 * 10 * 1.0)
    assert steps[0].seconds == pytest.approx(seconds, rel=0.01)
    assert steps[0].usd == pytest.approx(steps[0].seconds / 100)
    assert effort_words(steps[:1]) == f"about {format_minutes(seconds)} on the box of a, ${seconds / 100:.2f}"


def test_only_contention_is_a_reason_to_wait_until_a_box_is_idle() -> None:
    row, evidence = sides(measured(GPT, steady(0.1)), measured(GPT, steady(0.11)))
    capped = replace(row, flags=(Flag("b", CAPPED, 0.5),))
    assert [step.was_busy for step in settling_steps(capped, evidence)] == [False, False]
    crowded = replace(row, flags=(Flag("b", CROWDED, 0.5),))
    assert ("b", True) in [(step.box, step.was_busy) for step in settling_steps(crowded, evidence)]
    assert next_steps(crowded, evidence)[0].endswith("measure when it is idle")
    assert not next_steps(capped, evidence)[0].endswith("measure when it is idle")


def test_what_waiting_for_cpus_hides_is_measured_again_where_it_was_busy_with_as_many_launches() -> None:
    on_cpu = make_case("gpt_train", workload_class="training")
    for share in (0.4, 0.7):
        crowded = measured(on_cpu, *launches(0.3, 3), waited_share=share)
        row, evidence = sides(crowded, measured(on_cpu, *launches(0.1, 3)))
        (step,) = settling_steps(row, evidence)
        assert (step.box, step.was_busy) == ("a", True)
        assert step.command.endswith(" --launches 3")
        when, command = next_steps(row, evidence)
        assert when.endswith("measure when it is idle")
        assert command == f"on the box of a: {like(row, 'a')} --db a.db --launches 3"


@pytest.mark.parametrize(
    ("outcome", "reason", "text"),
    [
        ("oom", "", "b needs more memory for this size; smaller sizes of the workload may fit"),
        (
            "skipped",
            "the budget of 90 s is spent",
            "the same profile with --only gpt_train gives it more time",
        ),
    ],
)
def test_a_side_that_could_not_measure_a_case_says_what_would_let_it(
    outcome: str, reason: str, text: str
) -> None:
    row, evidence = sides(measured(GPT, steady(0.1)), unmeasured(GPT, outcome, reason))
    assert next_steps(row, evidence) == (text if outcome == "oom" else f"on the box of b: {text}",)


def test_a_case_that_b_did_not_plan_is_measured_there_as_it_was_on_a_and_into_no_file_of_a() -> None:
    other = make_case("conv_train", workload_class="training", device_class="gpu")
    runs = [make_run(measured(case, steady(0.1)), machine=GPU_MACHINE) for case in (GPT, other)]
    comparison = compare_sides(side_of_runs("a.db", runs[:1]), side_of_runs("b.db", runs[1:]))
    row = next(row for row in comparison.rows if row.case == GPT)
    assert next_steps(row, evidence_of(runs[0])) == (f"on the box of b: {like(row, 'a')} --only gpt_train",)


def test_a_load_is_offered_again_into_the_file_of_its_own_side_alone() -> None:
    load, other = load_cases((2, 4))[:2]
    row, evidence = sides(measured(load, steady(0.1)), measured(load, steady(0.2)))
    again = "gputui serve-bench URL --profile chat --concurrency 2 --slo none --budget 90"
    assert [step.command for step in settling_steps(row, evidence)] == [
        f"{again} --db {side}.db --launches {launches_that_settle(row)}" for side in "ab"
    ]
    runs = [make_run(measured(case, steady(0.1)), machine=GPU_MACHINE) for case in (load, other)]
    comparison = compare_sides(side_of_runs("a.db", runs[:1]), side_of_runs("b.db", runs[1:]))
    row = next(row for row in comparison.rows if row.case == load)
    assert next_steps(row, evidence_of(runs[0])) == (f"on the box of b: {again}",)


def test_what_only_the_user_has_is_named_beside_the_run_to_repeat() -> None:
    program = program_case("command:train", 1, is_whole=True, device_class="gpu", unit="run", units=1.0)
    for case, file, b_s in (
        (program, "quick.toml ", 0.135),
        (make_case("step:hashing"), "quick.py ", 0.145),
        (GPT, "", 0.11),
    ):
        row, evidence = sides(measured(case, steady(0.1)), measured(case, steady(b_s)))
        a, _ = settling_steps(row, evidence)
        assert a.command.startswith(like(row, "a").replace("--like", f"{file}--like"))
        assert next_steps(row, evidence)[0].startswith(f"on the box of a: gputui run {file}--like")


def test_a_recording_has_no_command_that_would_repeat_it() -> None:
    case = program_case("record:sweep", 1, is_whole=True, device_class="gpu", unit="run", units=1.0)
    row, evidence = sides(measured(case, steady(0.1)), measured(case, steady(0.101)))
    assert row.verdict.word == "inconclusive"
    assert (settling_steps(row, evidence), next_steps(row, evidence)) == ((), ())
