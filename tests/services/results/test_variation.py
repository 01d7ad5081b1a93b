"""What the runs of a file tell of how much their boxes vary."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from hand_made import make_case, make_run, measured, steady
from journals import RUNTIME, STARTED_US, make_journal

from gputui.analysis.spread import LaunchPrior, Spread
from gputui.model.machine import Runtime
from gputui.model.result import CaseResult, Run
from gputui.services.compare.session import ask
from gputui.services.results.variation import BoxVariation, variation_by_machine
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

CASES = [make_case(size=f"mini-{place}") for place in range(5)]
APART = (0.1, 0.103, 0.098)


def variation_of(*results: CaseResult) -> BoxVariation:
    (variation,) = variation_by_machine([make_run(*results)]).values()
    return variation


def test_a_row_of_one_launch_knows_its_spread_from_the_other_rows() -> None:
    rows = [measured(case, *map(steady, APART)) for case in CASES]
    one = measured(make_case("membw"), steady(0.1))

    variation = variation_of(*rows, one)
    spread = variation.launch_spread(one)

    prior = variation.launches["cpu"]
    assert isinstance(prior, LaunchPrior)
    assert (prior.rows, prior.launches) == (5, 15)
    assert spread is not None
    assert 0.02 < math.sqrt(spread.variance) < 0.04


def test_rows_under_contention_inform_no_prior_and_use_none() -> None:
    held = [measured(case, *map(steady, APART), waited_share=0.3) for case in CASES[:2]]
    calm = [measured(case, *map(steady, APART)) for case in CASES[2:]]

    variation = variation_of(*held, *calm)
    assert not isinstance(variation.launches["cpu"], LaunchPrior)
    assert variation.launch_spread(held[0]) is None


def test_precisions_that_shared_their_launches_are_one_row() -> None:
    rows = [
        measured(make_case(size=f"mini-{place}", precision=precision), *map(steady, APART))
        for place in range(3)
        for precision in ("fp32", "amp")
    ]

    assert not isinstance(variation_of(*rows).launches["cpu"], LaunchPrior)


GEMM = make_case()


def runs_of_one_launch(*steps_s: float, runtime: Runtime = RUNTIME) -> list[Run]:
    return [make_run(measured(GEMM, steady(step_s)), runtime=runtime) for step_s in steps_s]


def spread_of_last(runs: list[Run]) -> Spread | None:
    (variation,) = variation_by_machine(runs).values()
    return variation.launch_spread(runs[-1].cases[0])


def test_earlier_runs_of_a_single_case_tell_how_much_its_launches_vary() -> None:
    found = spread_of_last(runs_of_one_launch(0.1, 0.102, 0.099, 0.101, 0.1))
    assert found is not None
    assert found.df == 4
    assert 0.005 < math.sqrt(found.variance) < 0.02
    assert spread_of_last(runs_of_one_launch(0.1, 0.102)) is None


def test_what_another_software_differs_by_is_not_taken_for_the_variation_of_a_box() -> None:
    other = replace(RUNTIME, torch_version="9.9")
    runs = [*runs_of_one_launch(0.1, 0.102, 0.099, runtime=other), *runs_of_one_launch(0.2, 0.203, 0.199)]
    found = spread_of_last(runs)
    assert found is not None
    assert found.df == 4
    assert math.sqrt(found.variance) < 0.03


def test_launches_of_one_run_are_better_evidence_than_what_runs_differ_by() -> None:
    apart = [make_run(measured(GEMM, *map(steady, (t, 1.01 * t, 0.99 * t)))) for t in (0.1, 0.12, 0.09)]
    found = spread_of_last(apart)
    assert found is not None
    assert found.df == 6
    assert math.sqrt(found.variance) < 0.02


def test_the_difference_that_is_asked_for_is_not_taken_for_the_variation_of_a_box(tmp_path: Path) -> None:
    db = tmp_path / "r.db"
    for number, scale in enumerate((1.0, 1.01, 0.99, 2.0)):
        run_dir = tmp_path / f"run-{number}"
        run_id = f"0194b5a0-0000-7000-8000-{number}00000000000"
        make_journal(run_dir, run_id=run_id, scale=scale, seed=number, started_utc_us=STARTED_US + number)
        store_run(db, read_journal(run_dir), read_telemetry(run_dir))

    asked = ask([f"{db}@latest~1", f"{db}@latest"])
    spread = asked.sides[0].cases[0].launch_spread
    assert spread is not None
    assert math.sqrt(spread.variance) < 0.1
